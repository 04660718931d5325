"""A process that ends when the supervisor does, even by SIGKILL, even in the middle of C code."""

from __future__ import annotations

import fcntl
import os
import select
import signal
from typing import Final

_F_SETSIG: Final = getattr(fcntl, "F_SETSIG", 10)  # named since Python 3.13


def arm(lifeline: int) -> None:
    """Let the kernel SIGKILL this process group once the pipe `lifeline` is closed at its far end.

    A thread that waits for the end of the pipe would need the interpreter lock, which a long call
    of a framework may hold; a signal driven by the descriptor itself needs nothing of us. The
    caller must lead its process group. Ends the process at once if the far end is closed already.
    """
    fcntl.fcntl(lifeline, fcntl.F_SETOWN, -os.getpgrp())
    fcntl.fcntl(lifeline, _F_SETSIG, signal.SIGKILL)
    flags = fcntl.fcntl(lifeline, fcntl.F_GETFL)
    fcntl.fcntl(lifeline, fcntl.F_SETFL, flags | os.O_ASYNC)
    poll = select.poll()
    poll.register(lifeline, select.POLLIN)
    if poll.poll(0):
        os.killpg(0, signal.SIGKILL)
