"""From the end of a worker to a cause in words."""

from __future__ import annotations

import pytest
from modelsup.supervisor.domain import Exit, Failure, Overuse
from modelsup.supervisor.policy.causes import explain_exit

LOG = ("one", "two")


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (6, "aborted itself"),
        (7, "truncated"),
        (9, "out of memory?"),
        (11, "crashed (SIGSEGV) while loading"),
        (15, "somebody else"),
        (31, "ended by signal 31 while loading"),
    ],
)
def test_a_signal_is_explained(number: int, words: str) -> None:
    failure = explain_exit(Exit(signal=number), "loading", None, LOG)
    assert (failure.cause, failure.log) == (f"signal:{number}", LOG)
    assert words in failure.message


@pytest.mark.parametrize("code", [0, 1, 255])
def test_an_exit_that_nobody_asked_for(code: int) -> None:
    failure = explain_exit(Exit(code=code), "serving", None, LOG)
    message = f"the worker exited with code {code}, unasked, while serving"
    assert failure == Failure("unknown", message, LOG)


def test_an_end_of_which_nothing_is_known() -> None:
    failure = explain_exit(Exit(), "serving", None, ())
    assert (failure.cause, failure.message) == (
        "unknown",
        "the worker ended while serving; its exit code is not known",
    )


def test_what_was_told_before_the_end_stands() -> None:
    """A worker that says "out of memory" and then is killed died of memory."""
    told = Failure("cuda_oom", "no memory on the GPU", at=5.0)
    failure = explain_exit(Exit(signal=9), "loading", told, LOG)
    assert failure == Failure("cuda_oom", "no memory on the GPU", LOG, 5.0)


def test_a_worker_over_its_limit_of_host_memory() -> None:
    end = Exit(signal=9, overuse=Overuse(limit=500_000_000, used=512_000_000))
    failure = explain_exit(end, "serving", None, LOG)
    assert (failure.cause, failure.log) == ("host_oom", LOG)
    assert "over its limit of 500.0 MB of host memory (used 512.0 MB) while serving" in (
        failure.message
    )


@pytest.mark.parametrize(
    ("used", "words"), [(900_000_000, "worker (used 900.0 MB)"), (0, "worker")]
)
def test_a_worker_that_the_kernel_killed_for_the_limit_of_all(used: int, words: str) -> None:
    end = Exit(signal=9, overuse=Overuse(limit=1_000_000_000, used=used, shared=True))
    failure = explain_exit(end, "loading", None, LOG)
    assert (failure.cause, failure.log) == ("host_oom", LOG)
    assert f"the kernel killed the {words} while loading, for the 1.0 GB" in failure.message
