"""Room is made by letting go of what is idle, never of what is used, held or pinned."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from modelsup.client import Conflict, DoesNotFit

from tests.process.conftest import post_and_keep

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

GB = 10**9
BODY = {"instances": [[1.0]]}
ANSWER = {"predictions": [[1.0]]}


@pytest.fixture
def start(start_supervisor: Callable[..., Any], fake_gpus: Any) -> Callable[..., Any]:
    """Start a supervisor on GPUs of the given sizes, whose processes take nothing but their cap."""

    def start_on(*sizes: int, reserved: int = 0, residence: float = 0.0) -> Any:
        names = "abcdefgh"
        fake_gpus.set(
            *(f"device GPU-{n} {size} {reserved}" for n, size in zip(names, sizes, strict=False))
        )
        flags = ["--gpu-context-memory", "0", "--memory-reserve", "0"]
        flags += ["--minimum-residence", str(residence)]
        return start_supervisor(*flags, environment=fake_gpus.environment)

    return start_on


@pytest.fixture
def model(echo_model: Callable[..., str], fake_gpus: Any) -> Callable[..., str]:
    """Write an echo model that takes so many bytes of its GPU as it loads."""

    def write(name: str, size: int, *, on_load: tuple[str, ...] = (), **options: Any) -> str:
        commands = [f"gpu:{size}", *on_load]
        return echo_model(name, fake_gpu=str(fake_gpus.path), on_load=commands, **options)

    return write


def loaded(supervisor: Any) -> set[str]:
    return {worker.model for worker in supervisor.client.workers()}


def test_a_victim_is_never_busy_or_loading(
    start: Callable[..., Any],
    model: Callable[..., str],
    fifo: Callable[[str], Path],
    background: Callable[..., Any],
) -> None:
    """As in llama.cpp, which picked a model that had just got a request, or was still loading."""
    supervisor, load_gate, call_gate = start(8 * GB), fifo("load"), fifo("call")
    client = supervisor.client
    client.load("idle", model("idle", 2 * GB), gpu_memory=2 * GB)
    client.load("busy", model("busy", 3 * GB), gpu_memory=3 * GB)
    loading = model("loading", 3 * GB, on_load=(f"gate:{load_gate}",))
    client.load("loading", loading, gpu_memory=3 * GB, wait=0)
    client.add_model("new", model("new", 2 * GB), gpu_memory=2 * GB)
    client.add_model("newer", model("newer", 3 * GB), gpu_memory=3 * GB)

    with load_gate.open("w"):
        busy = background(supervisor.command, "busy", f"gate:{call_gate}")
        with call_gate.open("w"):
            assert client.predict_json("new", BODY) == ANSWER
            assert loaded(supervisor) == {"busy", "loading", "new"}
            newer = background(client.predict_json, "newer", BODY)
            supervisor.until(lambda: client.model("newer").state == "queued")
            plan = client.plan("newer")
            assert plan.fits == "after waiting"
            reasons = {b.model: b.reason for b in plan.blockers}
            assert reasons == {"busy": "is answering requests", "loading": "is being loaded"}
        assert newer.result() == ANSWER
        assert loaded(supervisor) == {"loading", "new", "newer"}
    assert busy.result()


def test_a_victim_has_answered_those_who_asked_for_it(
    start: Callable[..., Any],
    model: Callable[..., str],
    fifo: Callable[[str], Path],
    background: Callable[..., Any],
) -> None:
    """As in llama.cpp, which threw a model out before the requests that had loaded it ran."""
    supervisor, gate = start(8 * GB), fifo("gate")
    client = supervisor.client
    first = model("first", 5 * GB, on_load=(f"gate:{gate}",))
    client.add_model("first", first, gpu_memory=5 * GB)
    client.add_model("second", model("second", 5 * GB), gpu_memory=5 * GB)
    asked = [background(client.predict_json, "first", BODY) for _ in range(8)]
    with gate.open("w"):
        later = background(client.predict_json, "second", BODY)
        supervisor.until(lambda: client.model("second").state == "queued")
        assert not any(answer.done() for answer in asked)
    assert [answer.result() for answer in [*asked, later]] == [ANSWER] * 9
    ready = [e.facts["model"] for e in client.events() if e.message == "worker ready"]
    assert ready == ["first", "second"]


def test_who_waits_for_room_and_goes_away_gets_none(
    start: Callable[..., Any],
    model: Callable[..., str],
    fifo: Callable[[str], Path],
    background: Callable[..., Any],
) -> None:
    """The load that only it wanted does not begin, and nobody has to make room for it."""
    supervisor, gate = start(8 * GB), fifo("gate")
    client = supervisor.client
    client.load("busy", model("busy", 5 * GB), gpu_memory=5 * GB)
    client.add_model("new", model("new", 5 * GB), gpu_memory=5 * GB)
    running = background(supervisor.command, "busy", f"gate:{gate}")
    with gate.open("w"):
        requester = post_and_keep(supervisor.port, "/v1/models/new:predict", BODY)
        supervisor.until(lambda: client.memory().queue == ("new",))
        requester.close()
        supervisor.until(lambda: client.memory().queue == ())
        assert client.model("new").state == "unloaded"
    assert running.result()["pid"]
    assert loaded(supervisor) == {"busy"}


def test_all_is_pinned(start: Callable[..., Any], model: Callable[..., str]) -> None:
    """A clear refusal at once that names the pins, as llama.cpp learned to give."""
    client = start(9 * GB, reserved=GB).client
    for name in ("a", "b"):
        client.load(name, model(name, 4 * GB), gpu_memory=4 * GB, pin=True)
    client.add_model("c", model("c", GB), gpu_memory=GB)
    began = time.monotonic()
    with pytest.raises(DoesNotFit, match="a is pinned; b is pinned") as refused:
        client.load("c")
    assert refused.value.plan is not None
    assert {b["model"] for b in refused.value.plan["blockers"]} == {"a", "b"}
    assert (refused.value.status, refused.value.plan["fits"]) == (507, "no")
    with pytest.raises(DoesNotFit, match="a is pinned; b is pinned"):
        client.swap("anna", "c")
    with pytest.raises(DoesNotFit, match="a is pinned; b is pinned"):
        client.predict_json("c", BODY)
    assert time.monotonic() - began < 5
    with pytest.raises(DoesNotFit, match=r"it needs 9000 MB of GPU-a, the budget is 8000 MB"):
        client.load("d", model("d", GB), gpu_memory=9 * GB)


def test_what_is_in_the_way_is_pinned_while_others_wait_for_it(
    start: Callable[..., Any],
    model: Callable[..., str],
    fifo: Callable[[str], Path],
    background: Callable[..., Any],
) -> None:
    """Who waits is refused then, not when the time to wait is over."""
    supervisor, gate = start(8 * GB), fifo("gate")
    client = supervisor.client
    source = model("a", 5 * GB)
    client.load("a", source, gpu_memory=5 * GB)
    client.add_model("b", model("b", 5 * GB), gpu_memory=5 * GB)
    running = background(supervisor.command, "a", f"gate:{gate}")
    with gate.open("w"):
        waiting = background(client.predict_json, "b", BODY)
        supervisor.until(lambda: client.model("b").state == "queued")
        client.add_model("a", source, pin=True)
        with pytest.raises(DoesNotFit, match="a is pinned"):
            waiting.result()
        assert not running.done()
    assert running.result()["pid"]


def test_a_swap_between_models_that_do_not_fit_together(
    start: Callable[..., Any], model: Callable[..., str]
) -> None:
    """The client's own old model goes first, and the swap says what that freed."""
    client = start(8 * GB, residence=60).client
    for name, size in (("a", 5 * GB), ("b", 6 * GB), ("other", 2 * GB)):
        client.add_model(name, model(name, size), gpu_memory=size)
    assert client.predict_json("other", BODY) == ANSWER
    anna = client.session("anna")
    anna.swap("a")
    receipt = anna.swap("b")
    assert receipt is not None
    assert receipt.verified
    assert receipt.freed.gpu_bytes == {"GPU-a": 5 * GB}
    assert anna.predict_json(BODY) == ANSWER
    assert {w.model for w in client.workers()} == {"b", "other"}
    with pytest.raises(DoesNotFit, match="b is held by anna"):
        client.session("otto").swap("a")


def test_a_swap_takes_the_room_of_the_one_that_it_overtakes(
    start: Callable[..., Any],
    model: Callable[..., str],
    fifo: Callable[[str], Path],
    background: Callable[..., Any],
) -> None:
    """It once waited in vain for the load that its own client did not want any more."""
    client, gate = start(8 * GB).client, fifo("gate")
    slow = model("slow", 5 * GB, on_load=(f"gate:{gate}",))
    earlier = background(client.swap, "john", "slow", slow, gpu_memory=5 * GB)
    with gate.open("w"):
        client.swap("john", "other", model("other", 5 * GB), gpu_memory=5 * GB)
        assert isinstance(earlier.exception(), Conflict)
    assert client.client("john").model == "other"
    assert [(w.model, w.state) for w in client.workers()] == [("other", "ready")]


def test_two_gpus(start: Callable[..., Any], model: Callable[..., str]) -> None:
    """A model goes where the least is left over, and never onto two at once."""
    client = start(8 * GB, 4 * GB).client
    for name, size in (("small", 3 * GB), ("large", 5 * GB), ("medium", 2 * GB)):
        client.load(name, model(name, size), gpu_memory=size, pin=True)
    where = {w.model: w.device for w in client.workers()}
    assert where == {"small": "GPU-b", "large": "GPU-a", "medium": "GPU-a"}
    with pytest.raises(DoesNotFit):  # 1 GB is free on each
        client.load("wide", model("wide", GB), gpu_memory=2 * GB)


def test_an_unknown_model_is_charged_an_estimate_and_then_what_it_took(
    start: Callable[..., Any], model: Callable[..., str]
) -> None:
    supervisor = start(8 * GB)
    client = supervisor.client
    client.add_model("m", model("m", 2 * GB))
    assert client.plan("m").estimated
    client.load("m")
    first = client.workers()[0]
    supervisor.until(lambda: not client.workers()[0].estimated)  # it was measured
    assert first.charges["GPU-a"] == first.gpu_memory_limit_bytes > 2 * GB
    client.unload("m")
    client.load("m")
    again = client.workers()[0]
    assert not again.estimated
    assert again.charges["GPU-a"] == again.gpu_memory_limit_bytes == 2.5 * GB
    assert 0 < again.charges["host"] < first.charges["host"]


def test_copies_loaded_and_unloaded_leave_nothing(
    start: Callable[..., Any], echo_model: Callable[..., str]
) -> None:
    """In TensorFlow Serving 8 GiB of 10 stayed after 22 models were unloaded."""
    supervisor, size = start(), 50 * 10**6
    client = supervisor.client
    names = [f"copy{number}" for number in range(4)]
    for name in names:
        client.add_model(name, echo_model(name, on_load=[f"leak:{size}"]))

    def cycle() -> int:
        for name in names:
            client.load(name)
        held = sum(w.memory.uss_bytes for w in client.workers() if w.memory)
        assert held > len(names) * size
        for name in names:
            assert client.unload(name).freed.host_bytes > size
        return sum(process.memory_full_info().pss for process in supervisor.tree())

    first, *later = [cycle() for _ in range(5)]
    assert later[-1] - first < 5 * 10**6


def test_a_model_that_is_asked_for_all_the_time_starves_nobody(
    start: Callable[..., Any], model: Callable[..., str], background: Callable[..., Any]
) -> None:
    """In llama-swap the loaded model was always served first; here each gets its turn."""
    client = start(8 * GB).client
    for name in ("a", "b"):
        client.add_model(name, model(name, 5 * GB), gpu_memory=5 * GB)
    over = threading.Event()

    def ask_for_ever() -> int:
        answers = 0
        while not over.is_set():
            assert client.predict_json("a", BODY) == ANSWER
            answers += 1
        return answers

    assert client.predict_json("a", BODY) == ANSWER
    asking = [background(ask_for_ever) for _ in range(4)]
    try:
        for _ in range(3):
            assert client.predict_json("b", BODY) == ANSWER
    finally:
        over.set()
    assert all(life.result() for life in asking)
