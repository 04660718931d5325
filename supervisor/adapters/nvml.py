"""What NVML says of the GPUs: typed, None for what is not available, and never an exception.

The only module that imports pynvml. NVML is called in one thread of its own, because a call into
a sick driver may never come back; the event loop waits for it no longer than a deadline.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
import time
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pynvml

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

logger = logging.getLogger(__name__)

DEADLINE: Final = 2.0  # seconds for one reading of all GPUs
START_DEADLINE: Final = 10.0  # seconds; without persistence mode the driver wakes each GPU first
PID_LIMIT: Final = 4_194_304  # no kernel gives a larger pid, whatever its own setting
NOT_ANSWERING: Final = "NVML is not answering"
NO_LIBRARY: Final = "there is no NVIDIA driver here (libnvidia-ml.so.1 was not found)"

_TOO_OLD: Final = (  # what a driver says that does not know a function, or its version
    pynvml.NVMLError_FunctionNotFound,
    pynvml.NVMLError_ArgumentVersionMismatch,
    pynvml.NVMLError_NotSupported,
    pynvml.NVMLError_InvalidArgument,
)
_LOST: Final = (pynvml.NVMLError_GpuIsLost, pynvml.NVMLError_ResetRequired)


@dataclass(frozen=True, slots=True)
class GpuInfo:
    """What does not change of a GPU, or of a MIG device, which counts as a GPU of its own."""

    index: int  # N of "gpu:N"
    uuid: str
    name: str
    total: int  # bytes


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """A process that uses a GPU, its pid as NVML sees it: in a container perhaps the host's."""

    pid: int
    memory: int | None  # bytes


@dataclass(frozen=True, slots=True)
class GpuState:
    """A GPU at one moment. Sizes in bytes; `reason` says why something is None."""

    total: int
    reserved: int | None = None  # by the driver; part of `used` where it is None
    used: int | None = None
    free: int | None = None
    processes: tuple[GpuProcess, ...] | None = None
    reason: str | None = None
    lost: bool = False  # the GPU fell off the bus, or needs a reset


States = dict[str, GpuState]  # by UUID


class Nvml:
    """The GPUs of this machine; none, with a `reason`, where NVML cannot be used."""

    def __init__(self, deadline: float = DEADLINE, start_deadline: float = START_DEADLINE) -> None:
        """Look for GPUs, at most `start_deadline` seconds; what answers later is found later."""
        self._deadline = deadline  # seconds
        self._library = _Library()
        self._states: States = {}
        self._reasons: dict[str, str | None] = {}  # as logged, by UUID; "" is NVML itself
        self._calls: queue.SimpleQueue[tuple[Callable[[], States], Future[States]]]
        self._calls = queue.SimpleQueue()
        threading.Thread(target=self._work, name="nvml", daemon=True).start()
        self._reading = self._begin(self._library.open)
        wait_for([self._reading], start_deadline)
        if self._reading.done() and self._reading.exception() is None:
            self._states = self._reading.result()
        self._note("", self.reason)

    def devices(self) -> tuple[GpuInfo, ...]:
        """Return the GPUs there are, without asking NVML."""
        return tuple(info for _, info in self._library.found)

    def why_sick(self, name: str) -> str | None:
        """Return why "gpu:N" could not be used when the GPUs were looked for; None if it could."""
        return self._library.sick.get(name)

    @property
    def reason(self) -> str | None:
        """Why NVML tells nothing; None while it answers."""
        if not self._reading.done() and time.monotonic() >= self._since + self._deadline:
            return NOT_ANSWERING
        return self._library.reason

    def is_lost(self, uuid: str) -> bool:
        """Return whether the last sample found this GPU lost."""
        state = self._states.get(uuid)
        return state is not None and state.lost

    def reserved(self, uuid: str) -> int:
        """Return the bytes that the driver kept for itself at the last sample, 0 if not told."""
        state = self._states.get(uuid)
        return state.reserved or 0 if state is not None else 0

    async def sample(self) -> States:
        """Read all GPUs; return their states by UUID, within the deadline.

        Those who ask at the same time share one reading. While NVML does not answer, the states
        hold the totals alone.
        """
        if self._reading.done():
            self._reading = self._begin(self._library.read)
        reading = self._reading
        left = self._since + self._deadline - time.monotonic()
        await asyncio.wait({asyncio.wrap_future(reading)}, timeout=max(left, 0))
        if not reading.done():
            return self._unknown(NOT_ANSWERING)
        if (error := reading.exception()) is not None:
            return self._unknown(f"reading NVML failed: {type(error).__name__}: {error}")
        self._note("", self._library.reason)
        self._states = reading.result()
        for uuid, state in self._states.items():
            self._note(uuid, state.reason)
        return self._states

    def _begin(self, read: Callable[[], States]) -> Future[States]:
        self._since = time.monotonic()
        reading: Future[States] = Future()
        reading.set_running_or_notify_cancel()  # who stops waiting must not cancel it for others
        self._calls.put((read, reading))
        return reading

    def _work(self) -> None:
        while True:
            read, reading = self._calls.get()
            try:
                reading.set_result(read())
            except Exception as error:  # a bug here must not end the thread without a word
                logger.exception("reading NVML failed")
                reading.set_exception(error)

    def _unknown(self, reason: str) -> States:
        self._note("", reason)
        return {info.uuid: GpuState(info.total, reason=reason) for info in self.devices()}

    def _note(self, uuid: str, reason: str | None) -> None:
        """Log a reason when it comes, and that it has gone."""
        if self._reasons.get(uuid) == reason:
            return
        self._reasons[uuid] = reason
        level = logging.INFO if reason in {None, NO_LIBRARY} else logging.WARNING
        what = f"GPU {uuid}" if uuid else "GPUs"
        logger.log(level, "%s: %s", what, reason or "all can be read again")


class _Unavailable(Exception):
    """A value that NVML does not give; the message says why."""

    def __init__(self, message: str, *, is_too_old: bool = False, is_lost: bool = False) -> None:
        super().__init__(message)
        self.is_too_old = is_too_old  # another version of the function may give it
        self.is_lost = is_lost


class _Library:
    """The calls, all made in one thread. What is no method may be read from any."""

    def __init__(self) -> None:
        self.found: tuple[tuple[Any, GpuInfo], ...] = ()  # with NVML's handle
        self.sick: dict[str, str] = {}  # "gpu:N" → why it cannot be used
        self.reason: str | None = None

    def open(self) -> States:
        """Find the GPUs, and read them."""
        try:
            pynvml.nvmlInit()
            handles = [
                handle for index in range(pynvml.nvmlDeviceGetCount()) for handle in _handles(index)
            ]
        except pynvml.NVMLError_LibraryNotFound:
            self.reason = NO_LIBRARY
            return {}
        except pynvml.NVMLError as error:
            self.reason = f"NVML cannot be used: {error}"
            return {}
        found = []
        for index, handle in enumerate(handles):
            try:
                found.append((handle, _info(index, handle)))
            except _Unavailable as error:
                logger.warning("gpu:%d cannot be used: %s", index, error)
                self.sick[f"gpu:{index}"] = str(error)
        self.found = tuple(found)
        return self.read()

    def read(self) -> States:
        """Read all GPUs."""
        return {info.uuid: _state(handle, info) for handle, info in self.found}


def _ask(name: str, *arguments: Any) -> Any:
    """Call a function of pynvml. Raises _Unavailable."""
    try:
        return getattr(pynvml, name)(*arguments)
    except pynvml.NVMLError as error:
        raise _Unavailable(
            str(error),
            is_too_old=isinstance(error, _TOO_OLD),
            is_lost=isinstance(error, _LOST),
        ) from error


def _handles(index: int) -> Iterator[Any]:
    """Yield a GPU's handle, or those of its MIG devices; the error in the place of a sick one."""
    try:
        handle = _ask("nvmlDeviceGetHandleByIndex", index)
        if not _is_divided(handle):
            yield handle
            return
        places = _ask("nvmlDeviceGetMaxMigDeviceCount", handle)
    except _Unavailable as error:
        yield error
        return
    for place in range(places):
        try:
            yield _ask("nvmlDeviceGetMigDeviceHandleByIndex", handle, place)
        except _Unavailable as error:
            logger.debug("GPU number %d has no MIG device %d: %s", index, place, error)


def _is_divided(handle: Any) -> bool:
    try:
        current, _ = _ask("nvmlDeviceGetMigMode", handle)
    except _Unavailable as error:
        if error.is_lost:
            raise
        return False  # most GPUs know no MIG
    return bool(current == pynvml.NVML_DEVICE_MIG_ENABLE)


def _info(index: int, handle: Any) -> GpuInfo:
    """Return the facts of a GPU. Raises _Unavailable, as does an error in the handle's place."""
    if isinstance(handle, _Unavailable):
        raise handle
    uuid, name = _ask("nvmlDeviceGetUUID", handle), _ask("nvmlDeviceGetName", handle)
    total, *_ = _memory(handle)
    return GpuInfo(index, uuid, name, total)


def _state(handle: Any, info: GpuInfo) -> GpuState:
    try:
        total, reserved, used, free = _memory(handle)
    except _Unavailable as error:
        return GpuState(info.total, reason=str(error), lost=error.is_lost)
    try:
        processes = _processes(handle, total)
    except _Unavailable as error:
        reason = f"its processes are not known: {error}"
        return GpuState(total, reserved, used, free, None, reason, error.is_lost)
    if any(process.memory is None for process in processes):
        reason = "the memory of its processes is not known"
        return GpuState(total, reserved, used, free, processes, reason)
    return GpuState(total, reserved, used, free, processes)


def _memory(handle: Any) -> tuple[int, int | None, int, int]:
    """Return (total, reserved, used, free) in bytes. Raises _Unavailable."""
    try:
        memory = _ask("nvmlDeviceGetMemoryInfo", handle, pynvml.nvmlMemory_v2)
    except _Unavailable as error:
        if not error.is_too_old:
            raise
        memory = _ask("nvmlDeviceGetMemoryInfo", handle)
        return memory.total, None, memory.used, memory.free
    return memory.total, memory.reserved, memory.used, memory.free


def _processes(handle: Any, total: int) -> tuple[GpuProcess, ...]:
    """Return the processes that compute on a GPU. Raises _Unavailable."""
    try:
        return _rows("nvmlDeviceGetComputeRunningProcesses_v3", handle, total)
    except _Unavailable as error:
        if not error.is_too_old:
            raise
    return _rows("nvmlDeviceGetComputeRunningProcesses_v2", handle, total)


def _rows(function: str, handle: Any, total: int) -> tuple[GpuProcess, ...]:
    """Read a list of processes by a function of one version. Raises _Unavailable.

    The plain name stands for the newest version that pynvml knows, and pynvml has read rows
    of a layout that the driver did not write: the sign is a pid that cannot be.
    """
    rows = _ask(function, handle)
    for row in rows:
        if not 0 < row.pid <= PID_LIMIT:
            raise _Unavailable(f"a pid of {row.pid} makes no sense", is_too_old=True)
    return tuple(GpuProcess(row.pid, _plausible(row.usedGpuMemory, total)) for row in rows)


def _plausible(memory: int | None, total: int) -> int | None:
    """Return a process's memory, None unless it can be true.

    Zero cannot: a process is listed because it has a context there. Drivers that translate pids
    for a container have said it.
    """
    return memory if memory is not None and 0 < memory <= total else None
