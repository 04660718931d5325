"""Whether a dead worker's GPU memory is back, told from two readings of its GPU.

Exit alone proves nothing: memory stays where a thread of the process is stuck in the driver, or
a child still has the device open.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from ..domain import GPU_NOISE
from .nvml import GpuState

if TYPE_CHECKING:
    from .nvml import Nvml

MEBIBYTE: Final = 2**20
FIRST_PAUSE: Final = 0.01  # seconds between two readings, doubled up to the longest
LONGEST_PAUSE: Final = 0.2
LOOKS: Final = 4

Verdict = Literal["back", "held", "unknown"]


@dataclass(frozen=True, slots=True)
class Reclaim:
    """What became of a dead worker's GPU memory.

    "back": it is free again. "held": it is not. "unknown": nothing tells, and `reason` says why.
    """

    verdict: Verdict
    freed: int = 0  # bytes; 0 unless "back"
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Hold:
    """What a worker holds of a GPU, kept to compare with after its end."""

    uuid: str
    pid: int
    before: GpuState
    foreign_pids: bool  # NVML names processes that are not in our pid namespace
    at_launch: GpuState | None = None  # before the worker could touch the GPU

    @property
    def bytes(self) -> int | None:
        """The bytes that it holds; None where NVML does not tell them by process.

        A worker that is not listed holds nothing, unless more of the GPU is in use than those that
        are listed account for: in a container NVML may list nobody, or the pids of the host.
        """
        if self.before.processes is None:
            return None
        for process in self.before.processes:
            if process.pid == self.pid:
                return process.memory
        more = self._unexplained(self.before) if self.at_launch is None else self.grown
        return None if self.foreign_pids or (more or 0) > GPU_NOISE else 0

    @property
    def grown(self) -> int | None:
        """The bytes by which the GPU's use has grown since the launch, as far as none of the
        processes that are listed in our pid namespace accounts for it; None if not known."""
        if self.at_launch is None:
            return None
        then, now = self._unexplained(self.at_launch), self._unexplained(self.before)
        return None if then is None or now is None else now - then

    def _unexplained(self, state: GpuState) -> int | None:
        return state.used if self.foreign_pids or state.processes is None else _rest(state)


def hold_of(uuid: str, pid: int, before: GpuState, at_launch: GpuState | None = None) -> Hold:
    """Return what process `pid` holds, from a reading that was made while it lived."""
    foreign = any(not Path(f"/proc/{p.pid}").exists() for p in before.processes or ())
    return Hold(uuid, pid, before, foreign, at_launch)


async def read(nvml: Nvml, uuid: str) -> GpuState:
    """Return the state of one GPU, with nothing but a reason where there is none."""
    states = await nvml.sample()
    return states.get(uuid) or GpuState(0, reason=f"there is no GPU {uuid}")


async def settled(nvml: Nvml, uuid: str) -> GpuState:
    """Return a state of one GPU that two readings agree on, or the last of LOOKS readings.

    The use and the processes are read one after the other; in between a process may come.
    """
    state = await read(nvml, uuid)
    for _ in range(LOOKS - 1):
        before, state = state, await read(nvml, uuid)
        if (before.used, before.processes) == (state.used, state.processes):
            break
    return state


async def reclaim(nvml: Nvml, hold: Hold, expected: int | None, within: float) -> Reclaim:
    """Read until the memory of an ended process is back, for `within` seconds.

    Ends later by one deadline of NVML's at most. `expected` is judge's.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + within
    pause = FIRST_PAUSE
    while True:
        now = await read(nvml, hold.uuid)
        found = judge(hold, now, expected)
        if found.verdict == "back" or now.lost or loop.time() >= deadline:
            return found
        await asyncio.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE)


def judge(hold: Hold, now: GpuState, expected: int | None = None) -> Reclaim:
    """Compare the GPU with what it was before the process ended:

    the process is still listed                    → held
    it held nothing                                → back
    the bytes of every process are known, then and
    now, and the rest of the GPU's use has grown   → held, else back
    the GPU's use fell by what the process held    → back
    it did not, and no process has left the list   → held
    anything else                                  → unknown

    `expected` is how many bytes the process is thought to hold, for where NVML does not tell;
    without it any fall counts.
    """
    before, own = hold.before, hold.bytes
    size = expected if own is None else own
    if now.used is None:
        return Reclaim("unknown", reason=now.reason or "its use is not known")
    if any(process.pid == hold.pid for process in now.processes or ()):
        return Reclaim("held", reason=f"process {hold.pid} has ended but is still listed")
    if size == 0:
        return Reclaim("back")
    if before.used is None:
        return Reclaim("unknown", reason=before.reason or "its use was not known before")
    rest_before, rest_now = _rest(before), _rest(now)
    if own is not None and rest_before is not None and rest_now is not None:
        growth = rest_now - rest_before
        if growth <= _slack(own):
            return Reclaim("back", own)
        return Reclaim("held", reason=f"{growth} bytes are in use that no process accounts for")
    fall = before.used - now.used
    if fall > 0 and (size is None or fall >= size - _slack(size)):
        return Reclaim("back", fall if size is None else min(fall, size))
    if size and _nobody_left(before, now):
        return Reclaim("held", reason="no process has left the GPU, and its use did not fall")
    return Reclaim("unknown", reason="its use did not fall; others may have grown meanwhile")


def _slack(size: int) -> int:
    """Return by how many bytes the use may be off: drivers round, and keep some for a while."""
    return min(max(size // 10, 32 * MEBIBYTE), size // 2)


def _rest(state: GpuState) -> int | None:
    """Return the used bytes that no listed process accounts for; None if not all are known."""
    if state.used is None or state.processes is None:
        return None
    known = [p.memory for p in state.processes if p.memory is not None]
    if len(known) != len(state.processes):
        return None
    return max(0, state.used - sum(known))  # below 0: a process came between the two readings


def _nobody_left(before: GpuState, now: GpuState) -> bool:
    if not before.processes or now.processes is None:
        return False
    return {p.pid for p in before.processes} <= {p.pid for p in now.processes}
