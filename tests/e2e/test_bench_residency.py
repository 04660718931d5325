"""`modelsup bench residency` against a real supervisor: what it measures, and leaves nothing."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from tests.browser import drawn

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SIZE = 2_000_000  # bytes; of a prepared form
HELD = 20_000_000  # bytes; of a worker that has loaded it
PREPARABLE = {"on_prepare": [], "on_load_prepared": [f"leak:{HELD}"], "padding": "x" * SIZE}
PLACES = ["disk", "ram", "gpu"]


@pytest.fixture
def supervisor(start_supervisor: Callable[..., Any]) -> Any:
    return start_supervisor("--prepare", "auto")


def assert_nothing_is_left(supervisor: Any) -> None:
    assert supervisor.client.workers() == []
    assert [m.name for m in supervisor.client.models() if m.name.startswith("bench-")] == []


def test_each_place_has_a_row_with_time_and_memory(
    supervisor: Any, echo_model: Callable[..., str]
) -> None:
    source = echo_model(**PREPARABLE)
    done = supervisor.run("bench", "residency", source, "--rounds", "2", "--json")
    found = json.loads(done.stdout)
    disk, ram, gpu = found["rows"]
    assert [row["place"] for row in found["rows"]] == PLACES
    assert {row["model"] for row in found["rows"]} == {source}
    assert (disk["idle_bytes"], found["notes"]) == (0, [])
    assert SIZE <= ram["idle_bytes"] < HELD <= gpu["idle_bytes"]
    for row in found["rows"]:
        assert row["peak_bytes"] >= HELD
        assert row["seconds"] > 0
        assert (row["gpu_idle_bytes"], row["gpu_peak_bytes"]) == (None, None)
    assert_nothing_is_left(supervisor)


def test_a_model_of_the_catalogue_stays_as_it_is(
    supervisor: Any, echo_model: Callable[..., str]
) -> None:
    supervisor.client.load("mine", echo_model(**PREPARABLE), keep="gpu")
    (worker,) = supervisor.client.workers()
    done = supervisor.run("bench", "residency", "mine", "--rounds", "1")
    assert [line.split()[:3] for line in done.stdout.splitlines()[1:4]] == [
        ["mine", "on", "the"],
        ["mine", "in", "RAM"],
        ["mine", "loaded", done.stdout.splitlines()[3].split()[2]],
    ]
    assert [w.id for w in supervisor.client.workers()] == [worker.id]
    assert supervisor.client.model("mine").options["keep"] == "gpu"


def test_a_model_without_a_prepared_form_says_so(
    supervisor: Any, echo_model: Callable[..., str]
) -> None:
    source = echo_model()
    done = supervisor.run("bench", "residency", source, "--rounds", "1", "--json")
    first, second = json.loads(done.stdout)["notes"]
    assert "is loaded from its own files" in first
    assert "does not stay in RAM" in second
    assert_nothing_is_left(supervisor)


def test_a_request_that_the_model_refuses_ends_it_cleanly(
    supervisor: Any, echo_model: Callable[..., str], tmp_path: Path
) -> None:
    body = tmp_path / "body.json"
    body.write_text('{"instances": "no array"}')
    done = supervisor.run("bench", "residency", echo_model(), "--body", str(body), check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "instances" in done.stderr
    assert_nothing_is_left(supervisor)


def test_the_page_has_the_plot(
    supervisor: Any, echo_model: Callable[..., str], tmp_path: Path
) -> None:
    pytest.importorskip("plotly")
    file = tmp_path / "page.html"
    source = echo_model(**PREPARABLE)
    supervisor.run("bench", "residency", source, "--rounds", "1", "--html", str(file))
    text = re.sub(r"<script.*?</script>", "", file.read_text(), flags=re.DOTALL)
    assert "on the disk" in text
    seen = drawn(file, tmp_path / "browser")
    plot = seen[seen.index('id="plot-residency"') :]
    for name in ("on the disk", "in RAM", "loaded"):
        assert name in plot[: plot.index("<table")]
