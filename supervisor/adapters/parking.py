"""Parks processes on a GPU: their GPU memory goes to host memory, and comes back in place."""

from __future__ import annotations

import asyncio
import logging
import sys
from pathlib import Path
from typing import Final

from ..errors import ParkingFailed

logger = logging.getLogger(__name__)

CHECK_SECONDS: Final = 10.0
MOVE_SECONDS: Final = 60.0  # for all that fits on a GPU
_PROGRAM: Final = (sys.executable, "-I", "-S", str(Path(__file__).with_name("cuda_checkpoint.py")))


class CudaParking:
    """CUDA's checkpoints, where the driver has them. `reason` says why it has not."""

    def __init__(self) -> None:
        self.reason: str | None = "it is not known yet whether the driver can"

    async def check(self) -> None:
        """Find out whether it can be done here."""
        try:
            await _run(CHECK_SECONDS, "check")
        except ParkingFailed as error:
            self.reason = str(error)
        else:
            self.reason = None
        logger.info("parking workers: %s", self.reason or "the driver can")

    async def park(self, pid: int) -> None:
        """Move a process's GPU memory to the host. Raises ParkingFailed."""
        await _run(MOVE_SECONDS, "park", str(pid))

    async def resume(self, pid: int) -> None:
        """Move it back; the process goes on. Raises ParkingFailed: it is of no use then."""
        await _run(MOVE_SECONDS, "resume", str(pid))


async def _run(seconds: float, *arguments: str) -> None:
    process = await asyncio.create_subprocess_exec(
        *_PROGRAM,
        *arguments,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        _, told = await asyncio.wait_for(process.communicate(), seconds)
    except TimeoutError:
        raise ParkingFailed(f"the driver did not {arguments[0]} within {seconds:g} s") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        lines = told.decode(errors="replace").strip().splitlines()
        raise ParkingFailed(lines[-1] if lines else f"it ended with code {process.returncode}")
