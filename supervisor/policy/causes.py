"""Why a worker ended: from exit, last message and log to a cause in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ..domain import Failure
from ..units import format_bytes

if TYPE_CHECKING:
    from ..domain import Exit, Overuse

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
        return Failure("host_oom", _out_of_memory(end.overuse, doing), log)
    if end.signal is not None:
        what = _SIGNALS.get(end.signal, f"was ended by signal {end.signal}")
        return Failure(f"signal:{end.signal}", f"the worker {what} while {doing}", log)
    if end.code is not None:
        message = f"the worker exited with code {end.code}, unasked, while {doing}"
        return Failure("unknown", message, log)
    return Failure("unknown", f"the worker ended while {doing}; its exit code is not known", log)


def _out_of_memory(overuse: Overuse, doing: str) -> str:
    limit = format_bytes(overuse.limit)
    used = f" (used {format_bytes(overuse.used)})" if overuse.used else ""
    if overuse.shared:
        return (
            f"the kernel killed the worker{used} while {doing}, for the {limit} of host memory "
            "that all processes here may use were used up; load the model with --ram, so that "
            "it is held to it and room is made for it, or unload others"
        )
    return (
        f"the worker went over its limit of {limit} of host memory{used} while {doing}; "
        "ask for less at once, or load the model with more --ram"
    )
