"""Bodies beside JSON: numpy's arrays and images, and answers in the form that is asked for."""

from __future__ import annotations

import gzip
import io
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import requests
from PIL import Image

from tests.conftest import supervisors

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.conftest import Supervisor

Array = np.ndarray[Any, Any]

NPY = "application/x-npy"
PIXELS = np.arange(4 * 4 * 3, dtype=np.uint8).reshape(4, 4, 3) * 5
MODELS = {
    "vectors": {"x": {"dtype": "float32", "shape": [None, 4]}},
    "two": {
        "x": {"dtype": "float32", "shape": [None, 4]},
        "n": {"dtype": "int32", "shape": [None]},
    },
    "texts": {"s": {"dtype": "string", "shape": [None]}},
    "pictures": {"image": {"dtype": "float32", "shape": [None, 2, 2, 3]}},
    "scores": {"image": {"dtype": "float32", "shape": [None, 1, 1, 3]}},
}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Supervisor]:
    """A supervisor over the models, which knows how two of them take images."""
    folder = tmp_path_factory.mktemp("models")
    for name, inputs in MODELS.items():
        (folder / f"{name}.echo").write_text(json.dumps({"inputs": inputs}))
    names = folder / ".names.txt"
    names.write_text("red\ngrün\n", encoding="utf-8")
    with supervisors(tmp_path_factory.mktemp("bodies") / "home") as start:
        supervisor = start("--models-dir", str(folder))
        image = {"size": [2, 2], "scale": 2.0, "mean": 1.0, "channels": "bgr"}
        set_options(supervisor.url, "pictures", image=image)
        set_options(supervisor.url, "scores", image={"top_k": 2}, classes=str(names))
        yield supervisor


def set_options(url: str, model: str, **options: Any) -> requests.Response:
    """Set options of a model."""
    answer = requests.put(f"{url}/api/models/{model}", json={"options": options}, timeout=60)
    assert answer.status_code == 200, answer.text
    return answer


def post(url: str, body: bytes, kind: str, **headers: str) -> requests.Response:
    """Send a body of some kind."""
    return requests.post(url, data=body, headers={"Content-Type": kind} | headers, timeout=60)


def saved(array: Array) -> bytes:
    """Return an array as a file of numpy's."""
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def read(answer: requests.Response) -> Array:
    """Return the array in an answer."""
    assert answer.status_code == 200, answer.text
    assert answer.headers["Content-Type"] == NPY
    array: Array = np.load(io.BytesIO(answer.content))
    return array


def picture(pixels: Array = PIXELS, kind: str = "PNG") -> bytes:
    """Return pixels as an image's file."""
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, kind)
    return file.getvalue()


@pytest.mark.parametrize("path", ["v1/models/vectors:predict", "v2/models/vectors/infer"])
def test_an_array_comes_back_as_one(served: Supervisor, path: str) -> None:
    array = np.linspace(0, 1, 40_000, dtype=np.float32).reshape(-1, 4)
    answer = post(f"{served.url}/{path}", saved(array), NPY, Accept=NPY)
    np.testing.assert_array_equal(read(answer), array)


def test_an_array_is_answered_in_the_form_of_the_path(served: Supervisor) -> None:
    body = saved(np.ones((1, 4)))
    answer = post(f"{served.url}/v1/models/vectors:predict", body, NPY)
    assert answer.json() == {"predictions": [[1.0, 1.0, 1.0, 1.0]]}
    answer = post(f"{served.url}/v2/models/vectors/infer", body, NPY)
    (output,) = answer.json()["outputs"]
    assert (output["shape"], output["data"]) == ([1, 4], [1.0] * 4)
    octets = "application/octet-stream"
    answer = post(f"{served.url}/v2/models/vectors/infer", body, NPY, Accept=octets)
    assert answer.headers["Content-Type"] == octets
    assert answer.content.endswith(np.ones(4, np.float32).tobytes())


def test_json_may_be_answered_with_an_array(served: Supervisor) -> None:
    body = json.dumps({"instances": [[1, 2, 3, 4]]}).encode()
    answer = post(f"{served.url}/v1/models/vectors:predict", body, "application/json", Accept=NPY)
    np.testing.assert_array_equal(read(answer), [[1, 2, 3, 4]])


def test_a_clients_current_model_takes_arrays(served: Supervisor) -> None:
    swap = {"model": "vectors"}
    answer = requests.put(f"{served.url}/api/clients/john/model", json=swap, timeout=60)
    assert answer.status_code == 200, answer.text
    body = saved(np.ones((2, 4), np.float32))
    answer = post(f"{served.url}/clients/john/predict", body, NPY, Accept=NPY)
    assert read(answer).shape == (2, 4)
    requests.delete(f"{served.url}/api/clients/john", timeout=60)


def test_a_compressed_array_both_ways(served: Supervisor) -> None:
    array = np.zeros((5000, 4), np.float32)
    url = f"{served.url}/v1/models/vectors:predict"
    packed = {"Content-Encoding": "gzip", "Accept-Encoding": "gzip"}
    answer = post(url, gzip.compress(saved(array)), NPY, Accept=NPY, **packed)
    assert answer.headers["Content-Encoding"] == "gzip"
    assert int(answer.headers["Content-Length"]) < array.nbytes / 10
    np.testing.assert_array_equal(read(answer), array)
    small = post(url, saved(array[:10]), NPY, Accept=NPY, **{"Accept-Encoding": "gzip"})
    assert "Content-Encoding" not in small.headers


@pytest.mark.parametrize(
    ("model", "body", "kind", "accept", "status", "expected"),
    [
        ("vectors", b"nonsense", NPY, "*/*", 400, "not an array in .npy format"),
        ("vectors", saved(np.ones((1, 3))), NPY, "*/*", 400, r"'x' (expected float32"),
        ("vectors", saved(np.array([["a"] * 4])), NPY, "*/*", 400, "'x'"),
        ("two", saved(np.ones((1, 4))), NPY, "*/*", 400, "has the inputs n, x"),
        ("texts", saved(np.array(["a"])), NPY, NPY, 406, "'s' holds strings"),
        ("vectors", picture(), "image/png", "*/*", 415, "takes no images"),
        ("pictures", b"nonsense", "image/png", "*/*", 415, "neither a JPEG nor a PNG"),
        ("pictures", picture(kind="GIF"), "image/gif", "*/*", 415, "neither a JPEG nor a PNG"),
    ],
)
def test_what_cannot_be_read_or_written_is_said(
    served: Supervisor, model: str, body: bytes, kind: str, accept: str, status: int, expected: str
) -> None:
    for path in (f"v1/models/{model}:predict", f"v2/models/{model}/infer"):
        answer = post(f"{served.url}/{path}", body, kind, Accept=accept)
        assert answer.status_code == status, answer.text
        assert expected in answer.json()["error"]


def test_several_outputs_are_no_single_array(served: Supervisor) -> None:
    body = json.dumps({"inputs": {"x": [[1, 2, 3, 4]], "n": [1]}}).encode()
    url = f"{served.url}/v1/models/two:predict"
    answer = post(url, body, "application/json", Accept=NPY)
    assert answer.status_code == 406
    assert "has the outputs n, x" in answer.json()["error"]


def test_an_image_becomes_the_declared_input(served: Supervisor) -> None:
    small = Image.fromarray(PIXELS).resize((2, 2), Image.Resampling.BILINEAR)
    expected = np.asarray(small).astype(np.float32)[None, ..., ::-1] * 2 - 1
    url = f"{served.url}/v1/models/pictures:predict"
    answer = post(url, picture(), "image/png", Accept=NPY)
    np.testing.assert_allclose(read(answer), expected, rtol=1e-6)
    predictions = post(url, picture(), "image/png").json()
    np.testing.assert_allclose(predictions.pop("predictions"), expected, rtol=1e-6)
    assert predictions == {}
    jpeg = post(url, picture(kind="JPEG"), "image/jpeg")
    assert np.shape(jpeg.json()["predictions"]) == (1, 2, 2, 3)


def test_the_command_sends_an_image(served: Supervisor, tmp_path: Path) -> None:
    file = tmp_path / "photo.png"
    file.write_bytes(picture())
    answer = json.loads(served.run("predict", "pictures", f"@{file}").stdout)
    assert np.shape(answer["predictions"]) == (1, 2, 2, 3)
    refused = served.run("predict", "pictures", f"@{file}", "--signature", "s", check=False)
    assert (refused.returncode, "--signature" in refused.stderr) == (2, True)


def test_metadata_shows_how_images_are_read(served: Supervisor) -> None:
    declared = {"size": [2, 2], "channels": "bgr", "scale": 2.0, "mean": [1.0]}
    v2 = requests.get(f"{served.url}/v2/models/pictures", timeout=60).json()
    assert v2["image"] == declared
    v1 = requests.get(f"{served.url}/v1/models/pictures/metadata", timeout=60).json()
    assert v1["metadata"]["image"] == declared
    assert "image" not in requests.get(f"{served.url}/v2/models/vectors", timeout=60).json()


def test_class_names_give_the_highest_classes(served: Supervisor) -> None:
    body = picture(np.full((3, 3, 3), (10, 30, 20), np.uint8))
    answer = post(f"{served.url}/v1/models/scores:predict", body, "image/png")
    assert answer.json()["top_k"] == [
        [
            {"class": "grün", "index": 1, "score": 30.0},
            {"class": None, "index": 2, "score": 20.0},
        ]
    ]
    answer = post(f"{served.url}/v2/models/scores/infer", body, "image/png")
    image, top = answer.json()["outputs"]
    assert image["data"] == [10.0, 30.0, 20.0]
    assert top == {
        "name": "top_k",
        "datatype": "BYTES",
        "shape": [1, 2],
        "data": ["30.0:1:grün", "20.0:2"],
    }


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"image": {"size": [3, 3]}}, "the option `image` does not fit: size is [3, 3]"),
        ({"image": {"channels": "gray"}}, "channels is gray"),
        ({"classes": "/nowhere/names.txt"}, "the class names in /nowhere/names.txt cannot be read"),
    ],
)
def test_options_that_do_not_fit_fail_the_load(
    served: Supervisor, tmp_path: Path, options: dict[str, Any], expected: str
) -> None:
    source = tmp_path / "odd.echo"
    source.write_text(json.dumps({"inputs": MODELS["pictures"]}))
    body = {"source": str(source), "options": options}
    assert requests.put(f"{served.url}/api/models/odd", json=body, timeout=60).status_code == 201
    answer = post(f"{served.url}/v1/models/odd:predict", picture(), "image/png")
    assert answer.status_code == 422
    assert expected in answer.json()["error"]
    assert requests.delete(f"{served.url}/api/models/odd", timeout=60).status_code == 200
