"""kill -9 of the supervisor, at every moment: nothing may be left, and what was loaded comes back.

No worker is alive 2 s later, the port is free, and the next start loads again what was loaded and
says what it found. `assert_nothing_left` holds the first two.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

BODY = {"instances": [[1.0]]}
ANSWER = {"predictions": [[1.0]]}


def kill_and_start_again(start: Callable[..., Any], killed: Any) -> Any:
    """Kill a supervisor, hold it to what is promised, and return its successor on its port."""
    killed.kill()
    killed.assert_nothing_left()
    return start(port=killed.port)


def assert_restored(supervisor: Any, *models: str) -> None:
    """Wait until exactly these models are loaded again and answer."""
    client = supervisor.client
    supervisor.until(lambda: all(client.model(m).state == "ready" for m in models))
    assert sorted(worker.model for worker in client.workers()) == sorted(models)
    assert all(client.predict_json(m, BODY) == ANSWER for m in models)


def test_killed_while_workers_serve(
    start_supervisor: Callable[..., Any],
    echo_model: Callable[..., str],
    fifo: Callable[[str], Path],
    background: Callable[..., Any],
) -> None:
    """One worker is in the middle of a call, one hangs in one for ever, one is at rest."""
    supervisor, gate = start_supervisor(), fifo("gate")
    client = supervisor.client
    for name in ("gated", "hangs", "rests"):
        client.load(name, echo_model(name))
    calls = [
        background(supervisor.command, "gated", f"gate:{gate}"),
        background(supervisor.command, "hangs", "hang"),
    ]
    with gate.open("wb"):
        supervisor.until(lambda: sum(w.in_flight for w in client.workers()) == 2)
        again = kill_and_start_again(start_supervisor, supervisor)
    assert all(call.exception() is not None for call in calls)
    assert_restored(again, "gated", "hangs", "rests")
    assert again.log().count("an earlier supervisor left without unloading") == 3


def test_killed_while_a_worker_loads(
    start_supervisor: Callable[..., Any],
    echo_model: Callable[..., str],
    fifo: Callable[[str], Path],
    background: Callable[..., Any],
) -> None:
    """What was ready comes back; the load that nobody waits for any more does not."""
    supervisor, gate = start_supervisor(), fifo("gate")
    supervisor.client.load("ready", runtime="echo")
    load = background(supervisor.client.load, "slow", echo_model(on_load=[f"gate:{gate}"]))
    with gate.open("wb"):
        again = kill_and_start_again(start_supervisor, supervisor)
    assert load.exception() is not None
    assert_restored(again, "ready")
    assert again.client.model("slow").state == "unloaded"


def test_killed_while_a_worker_drains(
    start_supervisor: Callable[..., Any],
    fifo: Callable[[str], Path],
    background: Callable[..., Any],
) -> None:
    """It counts as loaded until its worker has ended, and the kill came before that."""
    supervisor, gate = start_supervisor(), fifo("gate")
    client = supervisor.client
    client.load("m", runtime="echo")
    running = background(supervisor.command, "m", f"gate:{gate}")
    with gate.open("wb"):
        unload = background(client.unload, "m")
        supervisor.until(lambda: client.model("m").state == "draining")
        again = kill_and_start_again(start_supervisor, supervisor)
    assert None not in {running.exception(), unload.exception()}
    assert_restored(again, "m")


def test_killed_while_it_kills(
    start_supervisor: Callable[..., Any], echo_model: Callable[..., str], background: Any
) -> None:
    """In the middle of the ladder, with a worker that takes no notice of SIGTERM."""
    supervisor = start_supervisor()
    supervisor.client.load("m", echo_model(on_load=["ignore-sigterm", "grandchild:group"]))
    unload = background(supervisor.client.unload, "m")
    supervisor.until(lambda: supervisor.client.model("m").state == "stopping")
    supervisor.kill()
    supervisor.assert_nothing_left()
    assert unload.exception() is not None


def test_killed_while_it_stops(
    start_supervisor: Callable[..., Any],
    fifo: Callable[[str], Path],
    background: Callable[..., Any],
) -> None:
    """A stop in order unloads everything, and yet all that was loaded is to come back."""
    supervisor, gate = start_supervisor(), fifo("gate")
    client = supervisor.client
    client.load("a", runtime="echo")
    client.load("b", runtime="echo")
    running = background(supervisor.command, "a", f"gate:{gate}")
    with gate.open("wb"):
        client.stop()
        supervisor.until(lambda: client.model("b").state == "unloaded")
        again = kill_and_start_again(start_supervisor, supervisor)
    assert running.exception() is not None
    assert_restored(again, "a", "b")


def test_killed_while_a_forkserver_starts(
    start_supervisor: Callable[..., Any], background: Callable[..., Any]
) -> None:
    """The forkserver has no lifeline yet when its interpreter starts."""
    supervisor = start_supervisor()
    load = background(supervisor.client.load, "m", runtime="echo")
    supervisor.until(lambda: supervisor.client.status().forkservers)
    supervisor.kill()
    supervisor.assert_nothing_left()
    assert load.exception() is not None


def test_killed_while_many_load(
    start_supervisor: Callable[..., Any], echo_model: Callable[..., str], background: Any
) -> None:
    """Some are ready, some load, some are being forked."""
    supervisor = start_supervisor()
    client = supervisor.client
    for number in range(10):
        client.add_model(f"m{number}", echo_model(f"m{number}"))
    calls = [background(client.predict_json, f"m{number}", BODY) for number in range(10)]
    supervisor.until(lambda: any(worker.state == "ready" for worker in client.workers()))
    again = kill_and_start_again(start_supervisor, supervisor)
    answered = [f"m{n}" for n, call in enumerate(calls) if call.exception() is None]
    supervisor.until(lambda: all(again.client.model(name).state == "ready" for name in answered))


def test_killed_twice(start_supervisor: Callable[..., Any]) -> None:
    """Pinned models and private ones survive, and not only the first kill."""
    supervisor = start_supervisor()
    supervisor.client.load("pinned", runtime="echo", pin=True)
    supervisor.client.swap("anna", "private", runtime="echo", private=True)
    again = kill_and_start_again(start_supervisor, supervisor)
    again.until(lambda: [w.state for w in again.client.workers()] == ["ready", "ready"])
    last = kill_and_start_again(start_supervisor, again)
    last.until(lambda: [w.state for w in last.client.workers()] == ["ready", "ready"])
    assert {w.model: (w.pinned, w.private_to) for w in last.client.workers()} == {
        "pinned": (True, None),
        "private": (False, "anna"),
    }
    assert last.client.session("anna").predict_json(BODY) == ANSWER


def test_stop_in_order_restores_too(
    start_supervisor: Callable[..., Any], echo_model: Callable[..., str]
) -> None:
    """What was unloaded before the stop stays unloaded; what failed to load again is said."""
    supervisor = start_supervisor()
    client = supervisor.client
    lost = echo_model("lost")
    client.load("kept", runtime="echo")
    client.load("lost", lost)
    client.load("gone", runtime="echo")
    client.unload("gone")
    assert supervisor.stop() == 0
    Path(lost).unlink()
    again = start_supervisor()
    assert_restored(again, "kept")
    assert "a model could not be loaded again: model lost could not be loaded" in again.log()
    assert "an earlier supervisor left without unloading" not in again.log()


def test_killed_at_any_moment_of_a_swap(
    start_supervisor: Callable[..., Any], background: Callable[..., Any]
) -> None:
    """The client has its old model or its new one afterwards, and a prediction works."""
    supervisor = start_supervisor()
    supervisor.client.swap("anna", "first", runtime="echo")
    previous = "first"
    for state in ("loading", "warming", "ready"):
        swap = background(supervisor.client.swap, "anna", f"until-{state}", runtime="echo")
        wait_for_state(supervisor, f"until-{state}", state)
        supervisor = kill_and_start_again(start_supervisor, supervisor)
        model = supervisor.client.client("anna").model
        assert model in {previous, f"until-{state}"}
        assert swap.exception() is not None or model == f"until-{state}"
        assert supervisor.client.session("anna").predict_json(BODY) == ANSWER
        previous = model


def wait_for_state(supervisor: Any, model: str, state: str) -> None:
    """Wait until a model is in this state, or past it."""
    order = ["unloaded", "starting", "loading", "warming", "ready"]
    client = supervisor.client

    def is_there() -> bool:
        states = {m.name: m.state for m in client.models()}
        return order.index(states.get(model, "unloaded")) >= order.index(state)

    supervisor.until(is_there)
