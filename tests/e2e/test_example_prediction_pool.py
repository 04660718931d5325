"""The example with a pool of predictors runs to its end and judges what it saw."""

from __future__ import annotations

import importlib
import importlib.util
import io
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

if TYPE_CHECKING:
    from flask.testing import FlaskClient

ROOT = Path(__file__).parents[2]
ANSWER = {"label": 1, "probability": 0.5}
PLOTLY = importlib.util.find_spec("plotly") is not None


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The example's modules, which are no installed package."""
    monkeypatch.syspath_prepend(str(ROOT))
    names = ("crowd", "plots", "run", "web")
    modules = {name: importlib.import_module(f"examples.prediction_pool.{name}") for name in names}
    return SimpleNamespace(**modules)


def run_example(*options: str) -> subprocess.CompletedProcess[str]:
    """Run the example as a user does."""
    command = [sys.executable, "-m", "examples.prediction_pool.run", *options]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280)


@pytest.mark.tensorflow
@pytest.mark.timeout(300)
def test_both_applications_serve_100_users_without_an_error() -> None:
    pytest.importorskip("sklearn")
    pytest.importorskip("tensorflow")
    done = run_example("--model", "small", "--predictors", "2", "--seconds", "1", "--json")
    assert done.returncode == 0, done.stderr
    steps = json.loads(done.stdout)["steps"]
    seen = [(step["application"], step["users"]) for step in steps]
    assert seen == [(name, n) for name in ("pool", "modelsup") for n in (0, 1, 10, 100)]
    assert [step["load"]["errors"] for step in steps if step["users"]] == [0] * 6
    assert all(step["memory"]["pss"] >= step["memory"]["anonymous"] > 0 for step in steps)


def steps_of(example: SimpleNamespace, name: str, *held: int, errors: int = 0) -> list[Any]:
    """Steps of 1 and 100 users that hold so many MB of their own, and 100 MB of page cache."""
    crowd = example.crowd
    return [
        crowd.Step(
            name,
            users,
            crowd.ProcessMemory((megabytes + 100) * 10**6, megabytes * 10**6, 0),
            SimpleNamespace(errors=errors, p50_ms=1.0, p99_ms=2.0),
        )
        for users, megabytes in zip((1, 100), held, strict=True)
    ]


def test_memory_that_grows_with_the_users_is_a_problem_on_modelsup_alone(
    example: SimpleNamespace,
) -> None:
    pool = steps_of(example, "pool", 300, 900)
    little = [*pool, *steps_of(example, "modelsup", 300, 350)]
    much = [*pool, *steps_of(example, "modelsup", 300, 370)]
    assert example.run.problems(little, [ANSWER, ANSWER]) == []
    (sentence,) = example.run.problems(much, [ANSWER, ANSWER])
    assert "1.18 times" in sentence
    assert "1.15 is NOT held" in sentence


def test_errors_and_different_answers_are_problems(example: SimpleNamespace) -> None:
    steps = [
        *steps_of(example, "pool", 300, 300, errors=2),
        *steps_of(example, "modelsup", 300, 300),
    ]
    found = example.run.problems(steps, [ANSWER, {**ANSWER, "probability": 0.6}])
    assert found[:2] == ["pool gave 2 errors to 1 users", "pool gave 2 errors to 100 users"]
    assert "two answers" in found[2]


@pytest.fixture
def web(example: SimpleNamespace) -> FlaskClient:
    """The web application, with a classifier that knows how bright the first pixel is."""

    def predict(batch: np.ndarray) -> np.ndarray:
        bright = batch[:, 0, 0, 0]
        return np.stack([1 - bright, bright], axis=1)

    return example.web.classifier_app(predict).test_client()


def npy(array: np.ndarray) -> bytes:
    """Return an array as a `.npy` file."""
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def test_an_image_gets_its_class(web: FlaskClient) -> None:
    answer = web.post("/classify", data=npy(np.full((2, 2, 1), 255, dtype=np.uint8)))
    assert answer.get_json() == {"label": 1, "probability": 1.0}


@pytest.mark.parametrize(
    "body",
    [b"", b"no image", npy(np.zeros((2, 2), dtype=np.uint8)), npy(np.zeros((2, 2, 1)))],
    ids=["nothing", "text", "two dimensions", "not uint8"],
)
def test_what_is_no_image_is_refused(web: FlaskClient, body: bytes) -> None:
    assert web.post("/classify", data=body).status_code == 400


@pytest.mark.skipif(PLOTLY, reason="plotly is here")
def test_a_page_without_plotly_says_what_to_install() -> None:
    done = run_example("--html", "page.html")
    assert done.returncode == 1
    assert "modelsup[plots]" in done.stderr


@pytest.mark.skipif(not PLOTLY, reason="plotly is not here")
def test_the_page_shows_both_applications(example: SimpleNamespace, tmp_path: Path) -> None:
    steps = [
        *steps_of(example, "pool", 300, 900),
        *steps_of(example, "modelsup", 300, 310),
    ]
    example.plots.write_page(steps, tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert all(f'"name":"{name}"' in page for name in ("pool", "modelsup"))
