"""The page of a profile: its text, and its plots in a real browser without a network."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from modelsup.cli.main import main
from modelsup.cli.profile import report
from modelsup.cli.profile.page import render
from modelsup.cli.profile.recommend import recommend
from modelsup.cli.profile.results import Gpu, Measured, Pool, PoolRow, Profile, Row, SharedRow

from tests.browser import drawn

if TYPE_CHECKING:
    from pathlib import Path

MB = 10**6


@pytest.fixture(scope="module")
def profile() -> Profile:
    measured = Measured(
        source="m.keras",
        version="1",
        runtime="tensorflow",
        framework="tensorflow 2.21.0",
        stages={
            "fork": 5 * MB, "load": 20 * MB, "first_call": 44 * MB, "steady": 41 * MB,
            "peak": 50 * MB,
        },
        most_bytes=50 * MB,
        rows=tuple(Row(n, n * 20 * MB, n * 41 * MB, n * 45 * MB, n, n * 61 * MB) for n in (1, 4)),
        shared=SharedRow(4, 42 * MB, 62 * MB),
        gpu=None,
        budget_bytes=640 * MB,
        forkservers_bytes=184 * MB,
        batch=8,
        notes=("stopped at 4 instances: one more does not fit",),
    )  # fmt: skip
    pool = Pool(511 * MB, (PoolRow(1, 19 * MB, 40 * MB, 49 * MB),), "4: MemoryError")
    return Profile("<m> & co", measured, pool, recommend(50 * MB, 640 * MB, None))


def test_the_page_says_in_text_what_the_plots_show(profile: Profile) -> None:
    page = re.sub(r"<script.*?</script>", "", render(profile), flags=re.DOTALL)
    for text in ("20.0 MB", "164 MB", "40.0 MB", "--ram 63MB", "4 clients on one worker",
                 "511 MB", "4: MemoryError", "stopped at 4 instances", "10 such workers",
                 "batches of up to 8 rows", "25% headroom",
                 "version 1, tensorflow 2.21.0, device cpu"):  # fmt: skip
        assert text in page


def test_the_page_escapes_names(profile: Profile) -> None:
    page = render(profile)
    assert "<m>" not in page
    assert "&lt;m&gt; &amp; co" in page


def test_the_page_asks_for_nothing_else(profile: Profile) -> None:
    text = re.sub(r"<script>.*?</script>", "", render(profile), flags=re.DOTALL)
    assert re.findall(r"<(?:script|link|img)[^>]*(?:src|href)=\"(?!data:)", text) == []


def test_advice_for_a_gpu(profile: Profile) -> None:
    gpu = Gpu("GPU-a", 8000 * MB, 7600 * MB, 1000 * MB)
    on_gpu = replace(
        profile,
        measured=replace(profile.measured, gpu=gpu),
        advice=recommend(50 * MB, 10**12, gpu),
    )
    lines = report.recommendation(on_gpu)
    assert lines[1] == "--gpu-memory-fraction 0.16: 1.0 GB of 8.0 GB and 25% headroom"
    assert "4 such workers fit into the budget of the GPU" in lines[2]
    assert "the pool was measured on the CPU" in report.instances(on_gpu).notes


def test_the_plots_are_there_in_a_browser(profile: Profile, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text(render(profile), encoding="utf-8")
    seen = drawn(page, tmp_path / "browser")
    assert seen.count('class="plot-container') == 2
    assert seen.count('class="main-svg"') >= 2
    assert "clients on one worker</text>" in seen  # the legend
    assert seen.count("after the first call</text>") == 1  # a bar


def test_without_plotly_the_extra_is_named_before_anything_is_loaded(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "plotly", None)
    arguments = ["--url", "http://127.0.0.1:1", "profile", "m", "--html", str(tmp_path / "o.html")]
    assert main(arguments) == 2
    assert "pip install 'modelsup[plots]'" in capsys.readouterr().err


def test_a_page_in_a_folder_that_is_not_there_is_refused_first(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    target = tmp_path / "none" / "o.html"
    assert main(["--url", "http://127.0.0.1:1", "profile", "m", "--html", str(target)]) == 2
    assert f"there is no folder {target.parent}" in capsys.readouterr().err
