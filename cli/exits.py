"""The exit codes of the command, and which error leads to which."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from modelsup.client import ModelsupError


class Exit(IntEnum):
    """What scripts may rely on."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    UNREACHABLE = 3
    NOT_FOUND = 4
    DOES_NOT_FIT = 5
    LOAD_FAILED = 6
    TIMED_OUT = 7
    INTERRUPTED = 130


def exit_of(error: ModelsupError) -> Exit:
    """Return the exit code for an error of the client library."""
    from modelsup import client

    table: dict[type[ModelsupError], Exit] = {
        client.InvalidRequest: Exit.USAGE,
        client.Unreachable: Exit.UNREACHABLE,
        client.NotFound: Exit.NOT_FOUND,
        client.DoesNotFit: Exit.DOES_NOT_FIT,
        client.LoadFailed: Exit.LOAD_FAILED,
        client.TimedOut: Exit.TIMED_OUT,
    }
    return next((code for kind, code in table.items() if isinstance(error, kind)), Exit.FAILED)
