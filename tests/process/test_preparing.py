"""Prepared models: made in a process of their own, used at the next load, and never wrong."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from modelsup.client import (
    DoesNotFit,
    NotFound,
    NotPreparable,
    PrepareFailed,
    TimedOut,
    UnknownModel,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import Supervisor

BODY = {"instances": [[1.0]]}
ANSWER = {"predictions": [[1.0]]}
PREPARABLE: dict[str, Any] = {"on_prepare": []}


@pytest.fixture
def start(start_supervisor: Callable[..., Any]) -> Callable[..., Any]:
    """Start a supervisor that prepares models."""

    def with_cache(*flags: str, prepare: str = "auto", **options: Any) -> Any:
        return start_supervisor("--prepare", prepare, *flags, **options)

    return with_cache


def cache_of(supervisor: Supervisor) -> Path:
    """Return the folder of the prepared models."""
    return supervisor.home / ".cache" / "modelsup"


def left(supervisor: Supervisor) -> list[str]:
    """Return what lies in the cache: the folders of forms, and of what is being made."""
    return sorted(path.parent.name for path in cache_of(supervisor).glob("*/*"))


def state(supervisor: Supervisor, model: str = "m") -> str:
    """Return what is known of a model's form."""
    found: str = supervisor.client.model(model).prepared.state
    return found


def until(supervisor: Supervisor, expected: str, model: str = "m") -> None:
    """Wait until that is known of a model's form."""
    supervisor.until(lambda: state(supervisor, model) == expected)


def loads_prepared(supervisor: Supervisor, model: str = "m") -> bool:
    """Load a model, see that it answers, unload it; return whether its form was loaded."""
    supervisor.client.load(model)
    (worker,) = [w for w in supervisor.client.workers() if w.model == model]
    assert supervisor.client.predict_json(model, BODY) == ANSWER
    supervisor.client.unload(model)
    prepared: bool = worker.from_prepared
    return prepared


def preparing_process(supervisor: Supervisor) -> psutil.Process:
    """Return the process that stands at its gate now, making a form."""
    served = {worker.pid for worker in supervisor.client.workers()}
    usual = psutil.Process(supervisor.pid).nice()
    busy = [p for p in supervisor.tree() if p.nice() > usual and p.pid not in served]
    (process,) = busy
    return process


def prepare_events(supervisor: Supervisor) -> list[str]:
    """Return what was told of preparations."""
    return [event.message for event in supervisor.client.events() if event.kind == "prepare"]


def test_the_second_load_is_of_the_prepared_form(
    start: Callable[..., Any], echo_model: Callable[..., str]
) -> None:
    supervisor = start()
    supervisor.client.load("m", echo_model(**PREPARABLE))
    until(supervisor, "ready")
    assert [w.from_prepared for w in supervisor.client.workers()] == [False]
    supervisor.client.unload("m")
    assert loads_prepared(supervisor)
    (form,) = supervisor.client.cache()
    assert (form.model, form.framework, form.device) == ("m", "echo 1", "cpu")
    assert supervisor.client.model("m").prepared.form == form.name
    assert prepare_events(supervisor) == ["preparing a model", "a model is prepared"]


def test_a_restarted_supervisor_and_a_copy_of_the_model_use_it_too(
    start: Callable[..., Any], echo_model: Callable[..., str]
) -> None:
    first = start()
    first.client.prepare("m", echo_model(**PREPARABLE))
    assert first.stop() == 0
    second = start()
    second.client.add_model("copy", echo_model("copy", **PREPARABLE))
    assert loads_prepared(second, "m")
    assert loads_prepared(second, "copy")
    assert len(second.client.cache()) == 1


def test_a_changed_model_is_prepared_anew(
    start: Callable[..., Any], echo_model: Callable[..., str]
) -> None:
    supervisor = start()
    supervisor.client.prepare("m", echo_model(**PREPARABLE))
    echo_model(**PREPARABLE, on_call=["print:new"])
    assert not loads_prepared(supervisor)
    until(supervisor, "ready")
    assert loads_prepared(supervisor)
    assert len(supervisor.client.cache()) == 2


def test_prepare_by_hand_loads_nothing(
    start: Callable[..., Any], echo_model: Callable[..., str]
) -> None:
    supervisor = start()
    prepared = supervisor.client.prepare("m", echo_model(**PREPARABLE))
    assert (prepared.state, prepared.form) == ("ready", supervisor.client.cache()[0].name)
    assert supervisor.client.workers() == []
    assert supervisor.client.prepare("m") == prepared
    with pytest.raises(UnknownModel):
        supervisor.client.prepare("other")


def test_prepare_now_does_so_as_soon_as_a_model_is_known(
    start: Callable[..., Any], echo_model: Callable[..., str]
) -> None:
    supervisor = start(prepare="now")
    supervisor.client.add_model("m", echo_model(**PREPARABLE))
    until(supervisor, "ready")
    assert loads_prepared(supervisor)


@pytest.mark.parametrize("where", ["setting", "model"])
def test_prepare_off_neither_makes_nor_uses_a_form(
    start: Callable[..., Any], echo_model: Callable[..., str], where: str
) -> None:
    supervisor = start(prepare="off" if where == "setting" else "now")
    off = {} if where == "setting" else {"prepare": "off"}
    supervisor.client.add_model("m", echo_model(**PREPARABLE), **off)
    assert not loads_prepared(supervisor)
    assert state(supervisor) == "off"
    with pytest.raises(NotPreparable, match="preparing is off for model m"):
        supervisor.client.prepare("m")
    supervisor.client.add_model("m", echo_model(**PREPARABLE), prepare="auto")
    supervisor.client.prepare("m")
    supervisor.client.add_model("m", echo_model(**PREPARABLE), prepare="off")
    assert not loads_prepared(supervisor)


def test_a_refusal_is_told_with_its_reason_and_not_tried_again(
    start: Callable[..., Any], echo_model: Callable[..., str]
) -> None:
    supervisor = start()
    model = echo_model(on_prepare=["refuse:it draws numbers at random"])
    supervisor.client.load("m", model)
    until(supervisor, "refused")
    assert supervisor.client.model("m").prepared.reason == "it draws numbers at random"
    supervisor.client.unload("m")
    assert not loads_prepared(supervisor)
    with pytest.raises(NotPreparable, match="m cannot be prepared: it draws numbers at random"):
        supervisor.client.prepare("m")
    supervisor.stop()
    again = start()
    assert not loads_prepared(again)
    assert state(again) == "refused"
    assert prepare_events(again) == []


def test_a_model_without_a_form_is_not_tried(
    start: Callable[..., Any], echo_model: Callable[..., str]
) -> None:
    supervisor = start()
    supervisor.client.add_model("m", echo_model())
    assert not loads_prepared(supervisor)
    assert (state(supervisor), prepare_events(supervisor)) == ("none", [])


# --- what goes wrong while a form is made ---


def test_killed_preparing_process_leaves_nothing_and_the_next_try_works(
    start: Callable[..., Any],
    echo_model: Callable[..., str],
    fifo: Callable[[str], Path],
    background: Callable[..., Any],
) -> None:
    supervisor, gate = start(), fifo("gate")
    prepare = supervisor.client.prepare
    outcome = background(prepare, "m", echo_model(on_prepare=[f"gate:{gate}"]))
    with gate.open("wb"):
        preparing_process(supervisor).kill()
        with pytest.raises(PrepareFailed, match="killed from outside"):
            outcome.result()
    assert left(supervisor) == []
    assert state(supervisor) == "failed"
    outcome = background(prepare, "m")
    gate.open("wb").close()
    assert outcome.result().state == "ready"
    assert loads_prepared(supervisor)


def test_killed_supervisor_leaves_no_process_and_the_next_one_sweeps(
    start: Callable[..., Any],
    echo_model: Callable[..., str],
    fifo: Callable[[str], Path],
    background: Callable[..., Any],
) -> None:
    supervisor, gate = start(), fifo("gate")
    model = echo_model(on_prepare=[f"gate:{gate}"])
    outcome = background(supervisor.client.prepare, "m", model)
    with gate.open("wb"):
        supervisor.kill()
        supervisor.assert_nothing_left()
    assert outcome.exception() is not None
    assert left(supervisor) == ["making"]
    again = start()
    outcome = background(again.client.prepare, "m", model)
    gate.open("wb").close()
    assert outcome.result().state == "ready"
    assert left(again) == ["forms"]


def test_stopped_supervisor_ends_what_it_makes(
    start: Callable[..., Any],
    echo_model: Callable[..., str],
    fifo: Callable[[str], Path],
    background: Callable[..., Any],
) -> None:
    supervisor, gate = start(), fifo("gate")
    outcome = background(supervisor.client.prepare, "m", echo_model(on_prepare=[f"gate:{gate}"]))
    with gate.open("wb"):
        assert supervisor.stop() == 0
    assert outcome.exception() is not None
    assert left(supervisor) == []


FAILURES = {
    "no-space": "No space left on device",
    "leak:900000000": r"limit of 640\.0 MB of host memory",
    "crash": r"crashed \(SIGSEGV\)",
    "fail:told to": "told to",
    "exit:0": "exited with code 0, unasked",
}


@pytest.mark.parametrize("command", FAILURES)
def test_failure_to_prepare_is_told_and_the_model_serves_on(
    start: Callable[..., Any], echo_model: Callable[..., str], command: str
) -> None:
    supervisor = start()
    supervisor.client.load("m", echo_model(on_prepare=[command]))
    until(supervisor, "failed")
    assert supervisor.client.predict_json("m", BODY) == ANSWER
    with pytest.raises(PrepareFailed, match=FAILURES[command]):
        supervisor.client.prepare("m")
    assert left(supervisor) == []


def test_preparing_that_takes_too_long_is_ended(
    start: Callable[..., Any], echo_model: Callable[..., str]
) -> None:
    supervisor = start("--prepare-timeout", "200ms")
    with pytest.raises(PrepareFailed, match=r"not prepared within 0\.2 s"):
        supervisor.client.prepare("m", echo_model(on_prepare=["hang"]))
    assert left(supervisor) == []


def test_caller_that_does_not_wait(
    start: Callable[..., Any],
    echo_model: Callable[..., str],
    fifo: Callable[[str], Path],
) -> None:
    supervisor, gate = start(), fifo("gate")
    model = echo_model(on_prepare=[f"gate:{gate}"])
    with pytest.raises(TimedOut, match="the work goes on"):
        supervisor.client.prepare("m", model, wait=0.05)
    gate.open("wb").close()
    until(supervisor, "ready")


def test_a_cache_that_cannot_be_written_costs_nothing_but_the_form(
    start: Callable[..., Any], echo_model: Callable[..., str], tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("no folder")
    supervisor = start("--cache-dir", str(tmp_path / "file"))
    supervisor.client.load("m", echo_model(**PREPARABLE))
    until(supervisor, "failed")
    assert "Not a directory" in supervisor.client.model("m").prepared.reason
    supervisor.client.unload("m")
    assert not loads_prepared(supervisor)


# --- room ---


def test_preparing_gives_way_to_a_model_and_is_done_later(
    start: Callable[..., Any], echo_model: Callable[..., str], fifo: Callable[[str], Path]
) -> None:
    supervisor, gate = start(), fifo("gate")
    budget = supervisor.client.memory().host.budget_bytes
    supervisor.client.add_model("m", echo_model(on_prepare=[f"gate:{gate}"]), prepare="now")
    with gate.open("wb"):
        supervisor.client.load("large", runtime="echo", ram=budget - 500_000_000)
        assert state(supervisor) == "waiting"
    supervisor.client.unload("large")
    gate.open("wb").close()
    until(supervisor, "ready")
    assert prepare_events(supervisor) == [
        "preparing a model",
        "preparing gives way",
        "preparing a model",
        "a model is prepared",
    ]


def test_preparing_what_can_never_fit_is_refused(
    start: Callable[..., Any], echo_model: Callable[..., str]
) -> None:
    supervisor = start()
    budget = supervisor.client.memory().host.budget_bytes
    with pytest.raises(DoesNotFit, match="cannot be prepared here") as caught:
        supervisor.client.prepare("m", echo_model(**PREPARABLE), ram=2 * budget)
    assert caught.value.plan is not None
    assert caught.value.plan["charges"] == {"host": 2 * budget}


def test_removed_model_is_not_prepared_any_more(
    start: Callable[..., Any],
    echo_model: Callable[..., str],
    fifo: Callable[[str], Path],
    background: Callable[..., Any],
) -> None:
    supervisor, gate = start(), fifo("gate")
    outcome = background(supervisor.client.prepare, "m", echo_model(on_prepare=[f"gate:{gate}"]))
    with gate.open("wb"):
        supervisor.client.remove_model("m")
        assert "model m was removed" in str(outcome.exception())
    assert left(supervisor) == []


# --- what goes wrong with a form that was made ---


def form_file(supervisor: Supervisor) -> Path:
    (path,) = cache_of(supervisor).glob("forms/*/model.json")
    return path


DAMAGES: dict[str, Callable[[Path], object]] = {
    "other content": lambda path: path.write_text(json.dumps({"on_call": ["exit:1"]})),
    "cut": lambda path: os.truncate(path, 3),
    "gone": lambda path: path.unlink(),
    "no manifest": lambda path: (path.parent / "manifest.json").unlink(),
    "no folder": lambda path: path.parent.rename(path.parents[2] / "away"),
}


@pytest.mark.parametrize("when", ["while it runs", "while it is down"])
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_damaged_form_is_never_loaded_and_made_again(
    start: Callable[..., Any],
    echo_model: Callable[..., str],
    damage: Callable[[Path], object],
    when: str,
) -> None:
    supervisor = start()
    supervisor.client.prepare("m", echo_model(**PREPARABLE))
    if when == "while it is down":
        supervisor.stop()
    damage(form_file(supervisor))
    if when == "while it is down":
        supervisor = start()
    assert not loads_prepared(supervisor)
    until(supervisor, "ready")
    assert loads_prepared(supervisor)


@pytest.mark.parametrize("command", ["fail:of another version", "crash", "exit:3"])
def test_form_that_cannot_be_loaded_is_dropped(
    start: Callable[..., Any], echo_model: Callable[..., str], command: str
) -> None:
    """Where it takes the worker with it, that load fails, and the next one does without."""
    supervisor = start()
    supervisor.client.prepare("m", echo_model(**PREPARABLE, on_load_prepared=[command]))
    if command.startswith("fail"):
        assert not loads_prepared(supervisor)
    else:
        failed = supervisor.run("load", "m", check=False)
        assert failed.returncode == 6
    supervisor.until(lambda: "a prepared model was not loaded" in prepare_events(supervisor))
    for _ in range(4):  # it is made again, and again it cannot be loaded: not for ever
        supervisor.run("load", "m", check=False)
        supervisor.until(lambda: state(supervisor) not in {"waiting", "preparing"})
        supervisor.run("unload", "m", check=False)
    assert state(supervisor) == "failed"
    assert not loads_prepared(supervisor)


def test_removing_forms(start: Callable[..., Any], echo_model: Callable[..., str]) -> None:
    """A worker that has one keeps it."""
    supervisor = start()
    client = supervisor.client
    client.prepare("m", echo_model(**PREPARABLE))
    client.load("m")
    (form,) = client.cache()
    assert client.remove_form(form.name) == form
    assert client.predict_json("m", BODY) == ANSWER
    assert (client.cache(), state(supervisor)) == ([], "none")
    with pytest.raises(NotFound, match="no prepared form"):
        client.remove_form(form.name)
    client.prepare("m")
    assert [f.name for f in client.clear_cache()] == [form.name]
    assert client.clear_cache() == []


def test_two_supervisors_share_a_cache(
    start: Callable[..., Any],
    echo_model: Callable[..., str],
    fifo: Callable[[str], Path],
    background: Callable[..., Any],
    tmp_path: Path,
) -> None:
    """Both make the same form at the same time; one is kept, and both load it."""
    gate = fifo("gate")
    model = echo_model(on_prepare=[f"gate:{gate}"])
    supervisors = start(), start("--state-dir", str(tmp_path / "other"))
    writer = os.open(gate, os.O_RDWR)
    outcomes = [background(s.client.prepare, "m", model) for s in supervisors]
    supervisors[0].until(lambda: readers_of(gate, supervisors[0]) == 2)
    os.close(writer)
    assert len({outcome.result().form for outcome in outcomes}) == 1
    assert left(supervisors[0]) == ["forms"]
    assert [loads_prepared(s) for s in supervisors] == [True, True]


def readers_of(gate: Path, supervisor: Supervisor) -> int:
    """Return how many processes with the home folder of a supervisor stand at a gate."""
    count = 0
    for process in supervisor.tree():
        for link in Path(f"/proc/{process.pid}/fd").iterdir():
            with suppress(FileNotFoundError):  # closed just now
                count += link.readlink() == gate
    return count


def test_the_cache_stays_within_its_size(
    start: Callable[..., Any], echo_model: Callable[..., str]
) -> None:
    supervisor = start("--cache-size", "3kB")
    for name in ("a", "b", "c"):
        model = echo_model(name, **PREPARABLE, padding=name * 1000)
        supervisor.client.prepare(name, model)
    assert [form.model for form in supervisor.client.cache()] == ["c", "b"]
    with pytest.raises(Exception, match="cache_size"):
        supervisor.client.prepare("d", echo_model("d", **PREPARABLE, padding="d" * 4000))


def test_worker_that_is_prepared_is_charged_what_it_took(
    start: Callable[..., Any], echo_model: Callable[..., str]
) -> None:
    """Each form of a model has a footprint of its own; until then that of the other counts."""
    supervisor = start()
    leaks = {"on_load": ["leak:50000000"], "on_load_prepared": ["leak:10000000"]}
    supervisor.client.prepare("m", echo_model(**PREPARABLE, **leaks))
    supervisor.client.load("m")
    supervisor.until(lambda: not supervisor.client.workers()[0].estimated)
    supervisor.client.unload("m")
    charge = supervisor.client.plan("m").charges["host"]
    assert 10_000_000 < charge < 50_000_000
    supervisor.client.clear_cache()
    plan = supervisor.client.plan("m")
    assert plan.estimated
