"""The files of a model change under it: a loaded model serves on, the next load sees the change."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from modelsup.client import LoadFailed, Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable

GIB = 2**30
X = np.ones((1, 2), np.float32)
OTHER = json.dumps({"inputs": {name: {"dtype": "float32", "shape": [None, 2]} for name in "yz"}})


def test_a_file_that_is_replaced_truncated_and_deleted_while_its_model_is_loaded(
    supervisor: Any, echo_model: Callable[..., str]
) -> None:
    client, path = supervisor.client, Path(echo_model())
    first = client.load("m", str(path)).worker
    for change in (lambda: path.write_text("{"), lambda: path.write_text(""), path.unlink):
        change()
        assert np.array_equal(client.predict("m", X), X)
    assert [worker.id for worker in client.workers()] == [first]
    client.unload("m")
    with pytest.raises(LoadFailed, match="does not exist"):
        client.load("m")
    path.write_text("{}")
    assert client.load("m").worker != first


def test_a_file_that_is_deleted_while_its_model_loads(
    supervisor: Any,
    echo_model: Callable[..., str],
    fifo: Callable[..., Path],
    background: Callable[..., Any],
) -> None:
    client, gate = supervisor.client, fifo()
    path = Path(echo_model(on_load=[f"gate:{gate}"]))
    load = background(client.load, "m", str(path))
    with gate.open("wb"):
        path.unlink()
    assert load.result().worker == client.workers()[0].id
    assert np.array_equal(client.predict("m", X), X)


def test_a_file_that_is_replaced_and_truncated_while_its_model_loads(
    supervisor: Any,
    echo_model: Callable[..., str],
    fifo: Callable[..., Path],
    background: Callable[..., Any],
) -> None:
    """It serves what it has read, and the next load reads what is there then."""
    client, gate = supervisor.client, fifo()
    path = Path(echo_model(on_load=[f"gate:{gate}"]))
    load = background(client.load, "m", str(path))
    with gate.open("wb"):
        path.write_text("")
        path.with_suffix(".new").write_text(OTHER)
        path.with_suffix(".new").replace(path)
    load.result()
    assert np.array_equal(client.predict("m", X), X)
    client.unload("m")
    client.load("m")
    assert client.predict("m", {"y": X, "z": X}).keys() == {"y", "z"}


def test_a_file_that_is_truncated_while_its_load_waits_for_room(
    start_supervisor: Callable[..., Any],
    echo_model: Callable[..., str],
    fifo: Callable[..., Path],
    background: Callable[..., Any],
) -> None:
    """What was measured is not what is there any more: the load fails in words, and it alone."""
    supervisor = start_supervisor("--minimum-residence", "0")
    client, gate, path = supervisor.client, fifo(), Path(echo_model("late"))
    ram = int(client.memory().host.budget_bytes * 0.6)
    client.load("busy", echo_model("busy"), ram=ram)
    client.add_model("late", str(path), ram=ram)
    running = background(supervisor.command, "busy", f"gate:{gate}")
    with gate.open("wb"):
        late = background(client.predict, "late", X)
        supervisor.until(lambda: client.model("late").state == "queued")
        path.write_text("")
    assert running.result()["pid"]
    with pytest.raises(LoadFailed, match="is not an echo model") as caught:
        late.result()
    assert caught.value.status == 422
    path.write_text("{}")
    assert np.array_equal(client.predict("late", X), X)


def test_a_file_that_is_repaired_while_the_damaged_one_loads(
    supervisor: Any,
    echo_model: Callable[..., str],
    fifo: Callable[..., Path],
    background: Callable[..., Any],
) -> None:
    """A copy that ended after the load had begun once stayed failed until it was copied again."""
    client, gate = supervisor.client, fifo()
    path = Path(echo_model(on_load=[f"gate:{gate}", "fail:half a file"]))
    load = background(client.load, "m", str(path))
    with gate.open("wb"):
        path.write_text("{}")
    with pytest.raises(LoadFailed, match="half a file"):
        load.result()
    assert client.model("m").state == "failed"
    assert np.array_equal(client.predict("m", X), X)


@pytest.mark.parametrize("damage", ["truncated", "deleted"])
def test_a_damaged_file_when_its_worker_is_restarted(
    supervisor: Any, echo_model: Callable[..., str], damage: str
) -> None:
    """The crash brings it to light: requests are told what is wrong, until the file is back."""
    client, path = supervisor.client, Path(echo_model())
    client.load("m", str(path), retry=False)
    path.write_text("") if damage == "truncated" else path.unlink()
    with pytest.raises(Unavailable):
        supervisor.command("m", "crash")
    supervisor.until(lambda: client.model("m").state == "failed")
    assert client.model("m").failure.cause == "bad_model"
    for _ in range(2):
        with pytest.raises(LoadFailed, match=r"model\.echo") as caught:
            client.predict("m", X)
        assert caught.value.status == 422
    path.write_text("{}")
    assert np.array_equal(client.predict("m", X), X)


def test_a_file_that_is_replaced_by_a_larger_model_before_its_worker_crashes(
    start_supervisor: Callable[..., Any], echo_model: Callable[..., str], fake_gpus: Any
) -> None:
    """What was measured of the old one does not bound the new one, nor the other way round."""
    supervisor = start_supervisor(environment=fake_gpus.environment)
    client = supervisor.client

    def model(name: str, size: int) -> Path:
        return Path(echo_model(name, fake_gpu=str(fake_gpus.path), on_load=[f"gpu:{size}"]))

    path, larger = model("m", GIB // 4), model("larger", 3 * GIB // 2)
    client.load("m", str(path))
    supervisor.until(lambda: not client.workers()[0].estimated)
    client.unload("m")
    client.load("m")
    assert client.workers()[0].gpu_memory_limit_bytes < GIB
    larger.replace(path)
    with pytest.raises(Unavailable):
        supervisor.command("m", "crash")
    supervisor.until(lambda: [w.state for w in client.workers() if w.restarts] == ["ready"])
    assert np.array_equal(client.predict("m", X), X)
    client.unload("m")
    client.load("small", str(model("small", GIB // 4)))
    assert client.workers()[0].gpu_memory_limit_bytes < GIB
