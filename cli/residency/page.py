"""The measurement as a page."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Final

from .. import pages
from ..pages import layout, section
from . import report

if TYPE_CHECKING:
    from .results import Bench

# Told apart by their lightness too, and readable on white and on black.
COLOURS: Final = {"disk": "#d0691f", "ram": "#7fb8f0", "gpu": "#1f77d0"}


def render(bench: Bench) -> str:
    """Return the page as HTML. Needs plotly."""
    body = section(report.table(bench), "residency", _plot(bench))
    return pages.render("Where models stay", body, dataclasses.asdict(bench))


def _plot(bench: Bench) -> Any:
    """Return seconds to the answer against idle memory: near the corner is better."""
    from plotly import graph_objects

    figure = graph_objects.Figure(layout=layout("host memory while it rests, MB", "answer, ms"))
    for place, name in report.PLACE_NAMES.items():
        rows = [row for row in bench.rows if row.place == place]
        figure.add_scatter(
            x=[row.idle_bytes / 10**6 for row in rows],
            y=[row.seconds * 1000 for row in rows],
            text=[row.model for row in rows],
            name=name,
            mode="markers+text",
            textposition="top center",
            marker={"color": COLOURS[place], "size": 12},
        )
    return figure
