"""The GPU memory of one worker: what it holds, and whether that is back after its end."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .ports import Devices, Hold, Reclaimed

LEAK_PAUSE: Final = 0.1  # seconds between two looks for memory that did not come back


class GpuMemory:
    """What one worker holds of its GPU; nothing at all on the CPU."""

    def __init__(
        self, devices: Devices, device: str | None, charges: Callable[[], Mapping[str, int]]
    ) -> None:
        self.pid = 0  # of the worker, once it is launched
        self.bytes: int | None = None  # held, as the driver told when the worker was ready
        self.most: int | None = None  # that it was seen to hold
        self.may_be_touched = False  # the runtime has begun to load
        self.ready = False
        self._devices = devices
        self._device = device  # UUID
        self._charges = charges  # bytes by resource that the worker is charged
        self._reading: asyncio.Task[None] | None = None
        self._at_launch: Hold | None = None
        self._hold: Hold | None = None
        self._grown: int | None = None  # bytes of the GPU's use, from the launch until ready

    def begin(self) -> None:
        """Read the GPU beside the launch that begins; no launch waits for a driver."""
        if self._device is not None:
            self._reading = asyncio.get_running_loop().create_task(self._begin(self._device))

    async def _begin(self, device: str) -> None:
        found = await self._devices.hold(device, 0)
        if not self.may_be_touched:
            self._at_launch = found

    async def now(self) -> int | None:
        """Return the bytes that the living worker holds now; None where the driver is silent."""
        if self._device is None:
            return None
        return (await self._devices.hold(self._device, self.pid, self._at_launch)).bytes

    async def measure(self) -> None:
        """Take note of what the worker holds, for the day when it ends without a warning."""
        await self.look()
        if self._hold is not None:
            self.bytes, self._grown = self._hold.bytes, self._hold.grown

    async def look(self) -> None:
        """Read what the living worker holds now, to compare with after its end."""
        if self._device is not None:
            self._hold = await self._devices.hold(self._device, self.pid, self._at_launch)
            self.most = max(filter(None, (self.most, self._hold.bytes)), default=None)

    async def reclaimed(self) -> Reclaimed | None:
        """Wait until the memory of the ended process is back; return what became of it.

        None on the CPU, whose memory is back at the exit.
        """
        expected = self._expected()
        if self._hold is None:  # of a process that has ended, only what is still listed can be told
            await self.look()
            expected = 0
        if self._hold is None:
            return None
        return await self._devices.reclaimed(self._hold, expected)

    async def until_back(self) -> None:
        """Watch, for as long as it takes, until the driver gives the memory back."""
        verdict = "held"
        while verdict == "held":
            await asyncio.sleep(LEAK_PAUSE)
            verdict = (await self._devices.reclaimed(self._hold, self._expected())).verdict

    def _expected(self) -> int | None:
        """Return the bytes that it is thought to hold, for where the driver tells none.

        Before its load none. In its load that is not known: it may not have come to the GPU yet,
        and must not count as leaked because the GPU's use did not fall. Once it is ready, what the
        GPU's use has grown by meanwhile, and no more than it is charged.
        """
        if not self.may_be_touched:
            return 0
        if not self.ready:
            return None
        if self.bytes is not None:
            return self.bytes
        charged = self._charges().get(self._device or "")
        if charged is None or self._grown is None or self._grown <= 0:
            return charged
        return min(charged, self._grown)
