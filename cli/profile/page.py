"""The profile as one page that needs nothing else: text, tables and plots, without a network."""

from __future__ import annotations

import dataclasses
import json
from html import escape
from typing import TYPE_CHECKING, Any, Final

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

_STYLE: Final = """
:root { color-scheme: light dark; --ink: #1c1c1c; --paper: #ffffff; --line: #d0d0d0; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e8e8e8; --paper: #161616; --line: #4a4a4a; }
}
body { color: var(--ink); background: var(--paper); font: 16px/1.5 system-ui, sans-serif;
  max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; margin: 1rem 0; display: block; overflow-x: auto; }
th, td { border-bottom: 1px solid var(--line); padding: .25rem .75rem; text-align: right; }
th:first-child, td:first-child { text-align: left; }
figure { margin: 1rem 0; }
"""

# The plots take their colours from the page, now and when the reader changes the theme.
_SCRIPT: Final = """
const paint = () => {
  const style = getComputedStyle(document.documentElement);
  const ink = style.getPropertyValue("--ink").trim();
  const line = style.getPropertyValue("--line").trim();
  const look = { "font.color": ink };
  for (const axis of ["xaxis", "yaxis"]) {
    look[axis + ".gridcolor"] = line;
    look[axis + ".zerolinecolor"] = line;
  }
  for (const plot of document.querySelectorAll(".plotly-graph-div")) Plotly.relayout(plot, look);
};
paint();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", paint);
"""


def render(profile: Profile) -> str:
    """Return the page as HTML, some megabytes of it plotly's own script. Needs plotly."""
    from plotly.offline import get_plotlyjs

    stages, instances = report.stages(profile), report.instances(profile)
    advice = "".join(f"<li>{escape(line)}</li>" for line in report.recommendation(profile))
    title = escape(f"Memory of {profile.model}")
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
<title>{title}</title>
<style>{_STYLE}</style>
<script>{get_plotlyjs()}</script>
</head>
<body>
<h1>{title}</h1>
<p>{escape(report.headline(profile))}</p>
<h2>Recommended</h2>
<ul>{advice}</ul>
{_section(stages, "stages", _stage_plot(profile))}
{_section(instances, "instances", _instance_plot(profile))}
<h2>The figures</h2>
<details><summary>All figures, in bytes, as JSON</summary><pre>{escape(_figures(profile))}</pre>
</details>
<script>{_SCRIPT}</script>
</body>
</html>
"""


def _section(table: report.Table, name: str, figure: Any) -> str:
    """Return a heading, a plot, and the same in a table with what to know about it."""
    plot = figure.to_html(
        full_html=False,
        include_plotlyjs=False,
        div_id=f"plot-{name}",
        config={"displayModeBar": False, "responsive": True},
    )
    head = "".join(f'<th scope="col">{escape(text)}</th>' for text in table.headers)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in table.rows
    )
    notes = "".join(f"<li>{escape(note)}</li>" for note in table.notes)
    return f"""<h2>{escape(table.title)}</h2>
<figure role="group" aria-label="{escape(table.title)}: plot; the table below has its figures">
{plot}</figure>
<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>
{f"<ul>{notes}</ul>" if notes else ""}"""


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
    return graph_objects.Figure(bars, _layout(""))


def _instance_plot(profile: Profile) -> Any:
    from plotly import graph_objects

    figure = graph_objects.Figure(layout=_layout("instances"))
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


def _layout(what: str) -> dict[str, Any]:
    return {
        "template": "none",
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "height": 420,
        "margin": {"l": 70, "r": 20, "t": 20, "b": 50},
        "xaxis": {"title": {"text": what}},
        "yaxis": {"title": {"text": "private memory, MB"}, "rangemode": "tozero"},
        "legend": {"orientation": "h", "y": 1.1},
    }


def _figures(profile: Profile) -> str:
    return json.dumps(dataclasses.asdict(profile), indent=2)
