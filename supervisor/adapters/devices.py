"""The GPUs as the fleet needs them: which one a worker gets, and whether its memory came back."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from ..domain import Device
from ..errors import BadDevice
from .nvml import Nvml
from .reclaim import Hold, Reclaim, hold_of, reclaim, settled

if TYPE_CHECKING:
    from .nvml import GpuInfo

logger = logging.getLogger(__name__)

CPU: Final = "cpu"
MEMORY_BACK_TIMEOUT: Final = 5.0  # seconds


class Gpus:
    """GPUs in NVML's order; empty where there is no driver."""

    def __init__(
        self, nvml: Nvml | None = None, memory_back_timeout: float = MEMORY_BACK_TIMEOUT
    ) -> None:
        self.nvml = nvml or Nvml()
        self._timeout = memory_back_timeout  # seconds

    def choose(self, wanted: str | None) -> Device | None:
        """Return the GPU for "gpu:N", the first one that works for no wish, None for the CPU.

        Raises BadDevice for a GPU that is not there, or is lost.
        """
        if wanted == CPU:
            return None
        found = self.nvml.devices()
        usable = {_name(gpu): gpu for gpu in found if not self.nvml.is_lost(gpu.uuid)}
        if wanted is None:
            if found and not usable:
                logger.warning("every GPU is lost: a model goes to the CPU instead")
            return next(map(self._device, usable.values()), None)
        if wanted not in usable:
            raise BadDevice(self._refusal(wanted, list(usable)))
        return self._device(usable[wanted])

    def _refusal(self, wanted: str, usable: list[str]) -> str:
        there = ", ".join([CPU, *usable])
        if wanted in map(_name, self.nvml.devices()):
            return f"{wanted} is lost: reset it, or restart the machine; there are: {there}"
        if sick := self.nvml.why_sick(wanted):
            return f"{wanted} could not be used at the start: {sick}; there are: {there}"
        why = f": {self.nvml.reason}" if self.nvml.reason else ""
        return f"there is no device {wanted!r} on this machine{why}; there are: {there}"

    def all(self) -> list[Device]:
        """Return the GPUs that work."""
        working = [gpu for gpu in self.nvml.devices() if not self.nvml.is_lost(gpu.uuid)]
        return [self._device(gpu) for gpu in working]

    def _device(self, gpu: GpuInfo) -> Device:
        return Device(gpu.uuid, gpu.total, self.nvml.reserved(gpu.uuid))

    async def hold(self, uuid: str, pid: int, at_launch: Hold | None = None) -> Hold:
        """Return what a live worker holds of a GPU now, to compare with after its end.

        `at_launch` is what was returned when the worker was about to be launched.
        """
        state = await settled(self.nvml, uuid)
        return hold_of(uuid, pid, state, at_launch.before if at_launch else None)

    async def reclaimed(self, hold: Hold, expected: int | None = None) -> Reclaim:
        """Wait until an ended worker's memory is back, at most the timeout of memory.

        `expected` is how many bytes it is thought to hold, for where NVML does not tell. May be
        asked again later about memory that was not back.
        """
        return await reclaim(self.nvml, hold, expected, self._timeout)


def _name(gpu: GpuInfo) -> str:
    return f"gpu:{gpu.index}"
