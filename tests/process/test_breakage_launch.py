"""Launches in numbers that fill the socket between the supervisor and a forkserver."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any

import psutil

if TYPE_CHECKING:
    from collections.abc import Callable

MODELS = 200
SMALL = 30_000_000  # bytes of RAM, so that all fit at once


def crowd(supervisor: Any) -> list[str]:
    """Ask for many models while their forkserver is stopped; return their names."""
    client = supervisor.client
    client.load("first", runtime="echo", ram=SMALL)
    (forkserver,) = client.status().forkservers
    psutil.Process(forkserver.pid).send_signal(signal.SIGSTOP)
    names = [f"m{number}" for number in range(MODELS)]
    for name in names:
        client.load(name, runtime="echo", ram=SMALL, wait=0)
    return names


def test_more_launches_than_the_forkservers_socket_holds(
    start_supervisor: Callable[..., Any],
) -> None:
    """The rest wait for their turn instead of failing."""
    supervisor = start_supervisor()
    names = crowd(supervisor)
    (forkserver,) = supervisor.client.status().forkservers
    psutil.Process(forkserver.pid).send_signal(signal.SIGCONT)
    for name in names:
        supervisor.client.load(name)
    assert {m.state for m in supervisor.client.models()} == {"ready"}


def test_forkserver_that_dies_with_launches_queued_up(
    start_supervisor: Callable[..., Any],
) -> None:
    """Those that were sent and those that were not go to the next forkserver."""
    supervisor = start_supervisor()
    names = crowd(supervisor)
    (forkserver,) = supervisor.client.status().forkservers
    psutil.Process(forkserver.pid).kill()
    for name in names:
        supervisor.client.load(name)
    assert {m.state for m in supervisor.client.models()} == {"ready"}


def test_stop_with_launches_queued_up(start_supervisor: Callable[..., Any]) -> None:
    """They are given up; the fixture sees that nothing stays."""
    supervisor = start_supervisor("--term-timeout", "1s")
    crowd(supervisor)
    assert supervisor.stop() == 0
