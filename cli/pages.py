"""A page that needs nothing else: text, tables and plots, without a network."""

from __future__ import annotations

import importlib.util
import json
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from . import output

if TYPE_CHECKING:
    from collections.abc import Callable

    from .tables import Table

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


def html_option(function: Callable[..., None]) -> Callable[..., None]:
    """Add --html FILE; the command calls `check` before its work and `write` after it."""

    return click.option(
        "--html",
        type=click.Path(dir_okay=False, writable=True, path_type=Path),
        metavar="FILE",
        help="Write a page with plots too. Needs the extra modelsup[plots].",
    )(function)


def check(html: Path | None) -> None:
    """Refuse before the measuring what would fail after it. Raises UsageError."""
    if html is None:
        return
    if importlib.util.find_spec("plotly") is None:
        raise click.UsageError(
            "--html needs plotly. Install it: pip install 'modelsup[plots]', or leave out --html."
        )
    if not html.absolute().parent.is_dir():
        raise click.UsageError(f"--html: there is no folder {html.absolute().parent}.")


def write(path: Path, page: str) -> None:
    """Write a page and say so. Raises ClickException."""
    try:
        path.write_text(page, encoding="utf-8")
    except OSError as error:
        raise click.ClickException(f"{path} cannot be written: {error.strerror}") from error
    output.say(f"wrote {path}")


def render(title: str, body: str, figures: Any) -> str:
    """Return the page as HTML, some megabytes of it plotly's own script. Needs plotly.

    `body` is HTML; `figures` are what it shows, for JSON.
    """
    from plotly.offline import get_plotlyjs

    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
<title>{escape(title)}</title>
<style>{_STYLE}</style>
<script>{get_plotlyjs()}</script>
</head>
<body>
<h1>{escape(title)}</h1>
{body}
<h2>The figures</h2>
<details><summary>All figures as JSON: bytes and seconds</summary>
<pre>{escape(json.dumps(figures, indent=2))}</pre>
</details>
<script>{_SCRIPT}</script>
</body>
</html>
"""


def section(table: Table, name: str, figure: Any) -> str:
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


def layout(x: str, y: str) -> dict[str, Any]:
    """Return the look of a plot with the titles of its axes."""
    return {
        "template": "none",
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "height": 420,
        "margin": {"l": 70, "r": 20, "t": 20, "b": 50},
        "xaxis": {"title": {"text": x}},
        "yaxis": {"title": {"text": y}, "rangemode": "tozero"},
        "legend": {"orientation": "h", "y": 1.1},
    }
