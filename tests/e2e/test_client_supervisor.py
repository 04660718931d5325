"""The client library against a real supervisor with echo models."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from modelsup.client import (
    Client,
    Held,
    InvalidRequest,
    NotFound,
    NotLoaded,
    UnknownClient,
    UnknownModel,
)

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def client(supervisor: Any) -> Client:
    """A client of the test's own supervisor."""
    found: Client = supervisor.client
    return found


@pytest.fixture
def model(client: Client) -> str:
    """The name of a loaded echo model."""
    return client.load("m", runtime="echo").model


def _echo_model(folder: Path, inputs: dict[str, Any]) -> Path:
    path = folder / "model.echo"
    path.write_text(json.dumps({"inputs": inputs}))
    return path


def test_arrays_of_many_types_come_back(client: Client, tmp_path: Path) -> None:
    dtypes = ["float16", "float32", "float64", "int8", "int64", "uint16", "bool", "string"]
    inputs = {name: {"dtype": name, "shape": [None, 2]} for name in dtypes}
    client.load("types", _echo_model(tmp_path, inputs))
    sent = {name: np.array([[1, 0]]).astype(name) for name in dtypes if name != "string"}
    sent["string"] = np.array([[b"\xff\0", b""]], dtype=object)

    outputs = client.predict("types", sent)

    assert isinstance(outputs, dict)
    for name, array in sent.items():
        np.testing.assert_array_equal(outputs[name], array)
        assert outputs[name].dtype == array.dtype


def test_a_bare_list_becomes_the_models_dtype(client: Client, model: str) -> None:
    y = client.predict(model, [[1, 2]])

    assert isinstance(y, np.ndarray)
    assert (y.dtype, y.tolist()) == (np.float32, [[1.0, 2.0]])


def test_a_replaced_model_is_noticed(client: Client, tmp_path: Path) -> None:
    """The remembered input name must not outlive the model."""
    client.load("changing", runtime="echo")
    client.predict("changing", [[1.0]])
    client.unload("changing")
    client.remove_model("changing")
    inputs = {"other": {"dtype": "int32", "shape": [None]}}
    client.load("changing", _echo_model(tmp_path, inputs))

    y = client.predict("changing", [7])

    assert isinstance(y, np.ndarray)
    assert (y.dtype, y.tolist()) == (np.int32, [7])


def test_a_named_signature(client: Client, model: str) -> None:
    facts = client.predict(model, ["print:from a test"], "command")

    assert isinstance(facts, np.ndarray)
    assert any("from a test" in line for line in client.logs(model))
    with pytest.raises(InvalidRequest, match="no signature 'nope'"):
        client.predict(model, [[1.0]], "nope")


def test_wrong_inputs_say_what_was_expected(client: Client, model: str) -> None:
    with pytest.raises(InvalidRequest, match="expected float32 of shape"):
        client.predict(model, [1.0])
    with pytest.raises(InvalidRequest, match="missing input x"):
        client.predict(model, {"y": [[1.0]]})


def test_a_session_holds_and_releases(client: Client, model: str) -> None:
    with client.session("john") as john:
        assert john.swap(model) is None
        with pytest.raises(Held) as caught:
            client.unload(model)
        assert caught.value.clients == ("john",)
        receipt = john.swap("second", runtime="echo")
        assert receipt is not None
        assert (receipt.model, receipt.verified) == (model, True)
        y = john.predict([[4.0]])
        assert isinstance(y, np.ndarray)
        assert y.tolist() == [[4.0]]
        assert john.predict_json({"instances": [[5.0]]}) == {"predictions": [[5.0]]}
        assert client.client("john").model == "second"

    with pytest.raises(UnknownClient):
        client.client("john")


def test_two_clients_swap_without_disturbing_each_other(client: Client) -> None:
    def swap_and_predict(name: str) -> bool:
        with client.session(name) as session:
            for round_ in range(3):
                session.swap(f"{name}-{round_ % 2}", runtime="echo")
                answer = session.predict([[float(round_)]])
                if np.asarray(answer).tolist() != [[float(round_)]]:
                    return False
        return True

    with ThreadPoolExecutor(2) as pool:
        assert all(pool.map(swap_and_predict, ["anna", "otto"]))
    assert client.clients() == []


def test_what_is_not_there(client: Client, model: str) -> None:
    with pytest.raises(UnknownModel):
        client.model("nope")
    with pytest.raises(UnknownModel):
        client.unload("nope")
    with pytest.raises(NotFound):
        client.predict("nope", [[1.0]])
    client.unload(model)
    with pytest.raises(NotLoaded):
        client.unload(model)


def test_views(client: Client, model: str) -> None:
    worker = next(worker for worker in client.workers() if worker.model == model)
    assert worker.memory is not None
    assert worker.memory.pss_bytes > 0
    assert client.model(model).workers == (worker.id,)
    assert client.status().workers == len(client.workers())
    assert worker.id in {share.id for share in client.memory().workers}
