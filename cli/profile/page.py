"""The profile as a page."""

from __future__ import annotations

import dataclasses
from html import escape
from typing import TYPE_CHECKING, Any, Final

from .. import pages
from ..pages import layout, section
from . import report

if TYPE_CHECKING:
    from .results import Profile

BYTES_PER_UNIT: Final = 10**6  # the plots count in MB
# Told apart by their lightness too, and readable on white and on black.
OURS: Final = "#1f77d0"
OURS_BEFORE: Final = "#7fb8f0"
POOL: Final = "#d0691f"
POOL_BEFORE: Final = "#f0b07f"
SHARED: Final = "#2f9e57"
MEMORY: Final = "private memory, MB"  # what the plots show


def render(profile: Profile) -> str:
    """Return the page as HTML. Needs plotly."""
    advice = "".join(f"<li>{escape(line)}</li>" for line in report.recommendation(profile))
    body = f"""<p>{escape(report.headline(profile))}</p>
<h2>Recommended</h2>
<ul>{advice}</ul>
{section(report.stages(profile), "stages", _stage_plot(profile))}
{section(report.instances(profile), "instances", _instance_plot(profile))}"""
    return pages.render(f"Memory of {profile.model}", body, dataclasses.asdict(profile))


def _stage_plot(profile: Profile) -> Any:
    from plotly import graph_objects

    sizes = profile.measured.stages
    names = [name for name in report.STAGE_NAMES if name in sizes]
    bars = graph_objects.Bar(
        x=[report.STAGE_NAMES[name] for name in names],
        y=[sizes[name] / BYTES_PER_UNIT for name in names],
        marker_color=OURS,
        name="one worker",
    )
    return graph_objects.Figure(bars, layout("", MEMORY))


def _instance_plot(profile: Profile) -> Any:
    from plotly import graph_objects

    figure = graph_objects.Figure(layout=layout("instances", MEMORY))
    figure.update_xaxes(tickvals=[row.instances for row in profile.measured.rows])

    def line(name: str, points: list[tuple[int, int]], colour: str, dash: str) -> None:
        figure.add_scatter(
            x=[count for count, _ in points],
            y=[size / BYTES_PER_UNIT for _, size in points],
            name=name,
            mode="lines+markers",
            line={"color": colour, "dash": dash},
        )

    rows, pool = profile.measured.rows, profile.pool.rows
    shared = profile.measured.shared
    line("workers, before", [(r.instances, r.before_bytes) for r in rows], OURS_BEFORE, "dot")
    line("workers, after", [(r.instances, r.after_bytes) for r in rows], OURS, "solid")
    if pool:
        line("pool, before", [(r.instances, r.before_bytes) for r in pool], POOL_BEFORE, "dot")
        line("pool, after", [(r.instances, r.after_bytes) for r in pool], POOL, "solid")
    points = [(1, shared.private_bytes), (shared.clients, shared.private_bytes)]
    line("clients on one worker", points, SHARED, "dash")
    return figure
