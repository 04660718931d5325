"""The figures of a run as a page: memory and latency of both applications side by side."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from .crowd import Step

COLOURS = {"pool": "#c2571a", "modelsup": "#1f6fb2"}
MB = 1e6  # bytes


class NoPlotly(Exception):
    """Plotly is not installed. The message says what to do."""


def require_plotly() -> None:
    """Raise NoPlotly where it is missing: better before a run than after it."""
    if importlib.util.find_spec("plotly") is None:
        raise NoPlotly(
            "--html draws with plotly, which is not installed; "
            "install it with `pip install 'modelsup[plots]'`, or leave --html out"
        )


def write_page(steps: Sequence[Step], file: Path) -> None:
    """Write one HTML file that needs no network. Raises OSError."""
    import plotly.graph_objects as go
    from plotly.subplots import make_subplots

    figure = make_subplots(
        rows=1,
        cols=2,
        subplot_titles=("Memory of all processes, MB", "Latency, ms (p50, and p99 as a whisker)"),
    )
    for name, colour in COLOURS.items():
        own = [step for step in steps if step.application == name]
        bar = {"name": name, "marker_color": colour, "legendgroup": name}
        figure.add_trace(go.Bar(x=_labels(own), y=_memory(own), **bar), row=1, col=1)
        asked = [step for step in own if step.load is not None]
        latency = go.Bar(
            x=_labels(asked),
            y=[step.load.p50_ms for step in asked if step.load],
            error_y={
                "type": "data",
                "symmetric": False,
                "array": [step.load.p99_ms - step.load.p50_ms for step in asked if step.load],
            },
            showlegend=False,
            **bar,
        )
        figure.add_trace(latency, row=1, col=2)
    figure.update_yaxes(rangemode="tozero")
    figure.update_layout(title="One image classifier, more and more users", barmode="group")
    figure.write_html(file, include_plotlyjs=True)


def _labels(steps: Sequence[Step]) -> list[str]:
    names = {0: "at rest", 1: "1 user"}
    return [names.get(step.users, f"{step.users} users") for step in steps]


def _memory(steps: Sequence[Step]) -> list[float]:
    return [step.memory.pss / MB for step in steps]
