"""Tell the supervisor of a worker's failure in one word for the cause, and a sentence."""

from __future__ import annotations

import contextlib
import traceback
from typing import TYPE_CHECKING, TypeAlias

from .contract import Cause, LaunchSpec, StatusMessage
from .runtimes.base import LoadFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Tell: TypeAlias = Callable[[StatusMessage], None]


@contextlib.contextmanager
def reporting_failures(spec: LaunchSpec, tell: Tell) -> Iterator[list[Cause]]:
    """Turn an exception of the block into a "failed" message; yields a list for its cause."""
    failed: list[Cause] = []

    def fail(cause: Cause, message: str) -> None:
        failed.append(cause)
        tell(StatusMessage(spec.uid, "failed", cause=cause, message=message))

    try:
        yield failed
    except LoadFailed as error:
        fail(error.cause, str(error))
    except MemoryError:
        fail("host_oom", "out of host memory while loading")
    except Exception as error:
        traceback.print_exc()
        fail("load_error", f"{type(error).__name__}: {error}")
