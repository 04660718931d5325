"""Why a worker ended: from exit, last message and log to a cause in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ..domain import Failure
from ..units import format_bytes

if TYPE_CHECKING:
    from ..domain import Exit

_SIGNALS: Final = {
    6: "aborted itself (SIGABRT)",
    7: "touched memory that is not there (SIGBUS; was the model's file truncated?)",
    9: "was killed from outside (SIGKILL; out of memory?)",
    11: "crashed (SIGSEGV)",
    15: "was told to end by somebody else (SIGTERM)",
}


def explain_exit(end: Exit, doing: str, told: Failure | None, log: tuple[str, ...]) -> Failure:
    """Return why a worker that was not told to stop ended.

    `doing` is what it was at, such as "loading"; `told` is the reason that the worker itself or
    the supervisor gave before the end, which then stands.
    """
    if told is not None:
        return Failure(told.cause, told.message, log, told.at)
    if end.overuse is not None:
        limit, used = format_bytes(end.overuse.limit), format_bytes(end.overuse.used)
        message = (
            f"the worker went over its limit of {limit} of host memory (used {used}) "
            f"while {doing}; ask for less at once, or load the model with more --ram"
        )
        return Failure("host_oom", message, log)
    if end.signal is not None:
        what = _SIGNALS.get(end.signal, f"was ended by signal {end.signal}")
        return Failure(f"signal:{end.signal}", f"the worker {what} while {doing}", log)
    if end.code is not None:
        message = f"the worker exited with code {end.code}, unasked, while {doing}"
        return Failure("unknown", message, log)
    return Failure("unknown", f"the worker ended while {doing}; its exit code is not known", log)
