"""The GPUs of this machine, read through NVML; a machine without one is a first-class citizen."""

from __future__ import annotations

import logging
from typing import Final

import pynvml

from ..domain import Device
from ..errors import BadDevice

logger = logging.getLogger(__name__)

CPU: Final = "cpu"


class Gpus:
    """GPUs in NVML's order; empty where there is no driver."""

    def __init__(self) -> None:
        self._devices = read_devices()

    def choose(self, wanted: str | None) -> Device | None:
        """Return the GPU for "gpu:N", the first one for no wish, None for the CPU.

        Raises BadDevice for a GPU that is not there.
        """
        if wanted == CPU or (wanted is None and not self._devices):
            return None
        names = [f"gpu:{index}" for index in range(len(self._devices))]
        if wanted is None:
            return self._devices[0]
        if wanted not in names:
            there = ", ".join([CPU, *names])
            raise BadDevice(f"there is no device {wanted!r} on this machine; there are: {there}")
        return self._devices[names.index(wanted)]

    async def memory_back(self, uuid: str | None) -> dict[str, int] | None:
        """Return what came back on the worker's GPU: nothing to wait for on the CPU."""
        return {} if uuid is None else {uuid: 0}


def read_devices() -> list[Device]:
    """Return the GPUs that NVML sees; on any trouble none, and a line in the log that says why."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        logger.info("no GPU: %s", error)
        return []
    try:
        return [_read(index) for index in range(pynvml.nvmlDeviceGetCount())]
    except pynvml.NVMLError as error:
        logger.warning("the GPUs cannot be read, so none is used: %s", error)
        return []
    finally:
        pynvml.nvmlShutdown()


def _read(index: int) -> Device:
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    uuid: str | bytes = pynvml.nvmlDeviceGetUUID(handle)
    memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
    return Device(uuid if isinstance(uuid, str) else uuid.decode(), int(memory.total))
