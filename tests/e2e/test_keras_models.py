"""A real Keras model through the real command: the contract, bad files, bad input, swaps."""

from __future__ import annotations

import json
import shutil
import zipfile
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import requests

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.conftest import Supervisor

pytestmark = pytest.mark.tensorflow
FLAGS = ("--preload", "tensorflow", "--threads", "1")
MB = 10**6


@pytest.fixture
def tiny(module_supervisor: Supervisor, tiny_keras: Path) -> Iterator[str]:
    """The tiny model, loaded."""
    module_supervisor.client.load("tiny", tiny_keras)
    yield "tiny"
    module_supervisor.client.unload("tiny", force=True)


def weights_of(file: Path) -> list[list[np.ndarray[Any, Any]]]:
    """Return kernel and bias of each dense layer in a .keras file."""
    h5py = pytest.importorskip("h5py")
    with (
        zipfile.ZipFile(file) as archive,
        archive.open("model.weights.h5") as inner,
        h5py.File(inner) as weights,
    ):
        return [
            [weights[f"layers/{layer}/vars/{number}"][()] for number in (0, 1)]
            for layer in ("dense", "dense_1")
        ]


def refused(supervisor: Supervisor, code: int, *arguments: str) -> str:
    """Run a command that must fail with this exit code; return what it said."""
    done = supervisor.run(*arguments, check=False)
    assert (done.returncode, done.stdout) == (code, ""), done.stderr
    said: str = done.stderr
    return said


def test_from_load_to_unload(
    module_supervisor: Supervisor, tiny_keras: Path, tmp_path: Path
) -> None:
    x = np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)
    np.save(tmp_path / "x.npy", x)
    (tmp_path / "x.json").write_text(json.dumps({"instances": x.tolist()}))

    loaded = json.loads(module_supervisor.run("load", "k", str(tiny_keras), "--json").stdout)
    from_json = json.loads(module_supervisor.run("predict", "k", "@x.json", cwd=tmp_path).stdout)
    from_array = json.loads(module_supervisor.run("predict", "k", "@x.npy", cwd=tmp_path).stdout)
    (worker,) = json.loads(module_supervisor.run("ps", "--json").stdout)
    receipt = json.loads(module_supervisor.run("unload", "k", "--json").stdout)

    assert (loaded["state"], loaded["worker"]) == ("ready", worker["id"])
    assert np.shape(from_array) == (2, 3)
    np.testing.assert_allclose(from_json["predictions"], from_array, rtol=1e-5)
    assert (receipt["outcome"], receipt["verified"]) == ("drained", True)
    assert receipt["freed"]["host_bytes"] > 10_000_000
    assert module_supervisor.client.workers() == []


def test_the_answers_are_those_of_keras(
    module_supervisor: Supervisor, tiny: str, tiny_keras: Path
) -> None:
    """Asked row by row and together; the reference is computed from the weights in the file."""
    x = np.random.default_rng(1).normal(size=(5, 4)).astype(np.float32)
    (kernel, bias), (last_kernel, last_bias) = weights_of(tiny_keras)
    expected = np.maximum(x @ kernel + bias, 0) @ last_kernel + last_bias

    together = module_supervisor.client.predict(tiny, x)
    one_by_one = [module_supervisor.client.predict(tiny, row[None])[0] for row in x]

    np.testing.assert_allclose(np.asarray(together), expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(np.asarray(one_by_one), expected, rtol=1e-4, atol=1e-5)


def test_files_that_are_no_keras_models(
    module_supervisor: Supervisor, tiny_keras: Path, tmp_path: Path
) -> None:
    text = tmp_path / "text.keras"
    text.write_text("This is not a model.\n")
    cut = tmp_path / "cut.keras"
    cut.write_bytes(tiny_keras.read_bytes()[:3000])
    empty = tmp_path / "empty.keras"
    empty.touch()
    for file in (text, cut, empty):
        said = refused(module_supervisor, 6, "load", file.stem, str(file))
        assert str(file) in said
        assert "Traceback" not in said.splitlines()[0]
        model = module_supervisor.client.model(file.stem)
        assert model.state == "failed"
        assert model.failure is not None
        assert model.failure.cause == "bad_model"
    assert "does not exist" in refused(
        module_supervisor, 2, "load", "absent", str(tmp_path / "absent.keras")
    )
    shutil.copy(tiny_keras, text)  # repaired: the next load sees it
    assert module_supervisor.client.load("text").state == "ready"
    module_supervisor.client.unload("text")


@pytest.mark.parametrize(
    ("instances", "expected"),
    [
        ([[1.0, 2.0, 3.0]], "of shape [?, 4]): got shape [1, 3]"),
        ([1.0, 2.0, 3.0, 4.0], "of shape [?, 4]): got shape [4]"),
        ([["a", "b", "c", "d"]], "of another type"),
        ([[1, 2, 3, None]], "of another type"),
        ([{"wrong": [1, 2, 3, 4]}], "missing input input_layer"),
    ],
    ids=["width", "rank", "text", "null", "name"],
)
def test_bad_input_is_explained(
    module_supervisor: Supervisor, tiny: str, instances: list[Any], expected: str
) -> None:
    url = f"{module_supervisor.url}/v1/models/{tiny}:predict"
    answer = requests.post(url, json={"instances": instances}, timeout=30)
    assert answer.status_code == 400
    assert expected in answer.json()["error"]
    assert np.shape(module_supervisor.client.predict(tiny, np.zeros((1, 4)))) == (1, 3)


def test_nan_and_an_empty_batch(module_supervisor: Supervisor, tiny: str) -> None:
    url = f"{module_supervisor.url}/v1/models/{tiny}:predict"
    answer = requests.post(url, data=b'{"instances": [[NaN, 1, 2, Infinity]]}', timeout=30)
    assert answer.status_code == 200
    # What an activation makes of NaN depends on the processor: a ReLU may give 0. But whatever
    # the model answers has to be the same in both protocols.
    x = np.array([[np.nan, 1, 2, np.inf]], np.float32)
    in_binary = module_supervisor.client.predict(tiny, x)
    np.testing.assert_array_equal(np.float32(answer.json()["predictions"]), in_binary)
    empty = requests.post(url, json={"instances": []}, timeout=30)
    assert (empty.status_code, empty.json()) == (200, {"predictions": []})


def test_ten_swaps_between_two_models(
    module_supervisor: Supervisor, tiny_keras: Path, tmp_path: Path
) -> None:
    """Each swap leaves one worker, and answers as the first one did."""
    other = tmp_path / "other.keras"
    shutil.copy(tiny_keras, other)
    x = np.ones((2, 4), dtype=np.float32)
    answers = []
    with module_supervisor.client.session("anna") as anna:
        anna.swap("one", tiny_keras)
        files = module_supervisor.open_files()
        for number in range(10):
            receipt = anna.swap(*(("two", other) if number % 2 == 0 else ("one", tiny_keras)))
            assert receipt is not None
            assert receipt.verified
            answers.append(np.asarray(anna.predict(x)))
            assert len(module_supervisor.client.workers()) == 1
        assert module_supervisor.open_files() <= files + 1
    assert module_supervisor.client.workers() == []
    for answer in answers:
        np.testing.assert_allclose(answer, answers[0], rtol=1e-5)


def test_copies_loaded_and_unloaded_leave_nothing(
    module_supervisor: Supervisor, tiny_keras: Path, tmp_path: Path
) -> None:
    """In TensorFlow Serving 8 GiB of 10 stayed after 22 models were unloaded."""
    client = module_supervisor.client
    copies = [tmp_path / f"copy{number}.keras" for number in range(4)]
    for copy in copies:
        shutil.copy(tiny_keras, copy)

    def cycle() -> tuple[int, int]:
        """Return the private bytes that the receipts told of, and what the tree has after."""
        for copy in copies:
            client.load(copy.stem, copy)
        freed = sum(client.unload(copy.stem).freed.host_bytes for copy in copies)
        return freed, sum(process.memory_full_info().pss for process in module_supervisor.tree())

    (freed, first), *_, (_, last) = [cycle() for _ in range(5)]
    assert freed > len(copies) * 10 * MB
    assert last - first < 10 * MB
