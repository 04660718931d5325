"""Charts to read, drawn by matplotlib: bars, lines and pies, with what a reader is to find."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    Truth = dict[str, float]

KINDS = ("bar", "line", "pie")
PIXELS = 96  # height and width
_COLOURS = ("#1f6fb2", "#c2571a", "#3a923a", "#8f4fa8", "#b8860b", "#555555")


@dataclass(frozen=True)
class Chart:
    """A picture and its truth, a number for each reader of its kind.

    `highest`: where the highest bar stands, 0 to 1 from left to right. `largest`: the largest
    slice's share of a pie. `trend`: the end of a line less its beginning, -1 to 1. `roughness`:
    the mean step between its points.
    """

    kind: str
    png: bytes
    truth: Truth


def draw(kind: str, random: np.random.Generator) -> Chart:
    """Draw a chart of a kind, with random values, colours and size of the text."""
    figure = Figure(figsize=(1, 1), dpi=PIXELS)
    axes = figure.add_subplot()
    axes.tick_params(labelsize=random.uniform(3, 6))
    truth = _DRAWN_BY[kind](axes, random)
    file = io.BytesIO()
    FigureCanvasAgg(figure).print_png(file)
    return Chart(kind, file.getvalue(), truth)


def pixels(chart: Chart) -> np.ndarray[Any, Any]:
    """Return the picture as (PIXELS, PIXELS, 3) of 0 to 1, as a worker makes it of the PNG."""
    from PIL import Image

    with Image.open(io.BytesIO(chart.png)) as image:
        return np.asarray(image.convert("RGB"), np.float32) / 255


def _bars(axes: Axes, random: np.random.Generator) -> Truth:
    heights = random.uniform(0.1, 0.8, random.integers(3, 8))
    highest = int(random.integers(len(heights)))
    heights[highest] = random.uniform(0.9, 1.0)
    axes.bar(np.arange(len(heights)), heights, color=random.choice(_COLOURS))
    return {"highest": highest / (len(heights) - 1)}


def _line(axes: Axes, random: np.random.Generator) -> Truth:
    trend, noise = random.uniform(-1, 1), random.uniform(0, 0.15)
    x = np.linspace(0, 1, 25)
    y = 0.5 + trend * (x - 0.5) + noise * random.standard_normal(len(x))
    axes.plot(x, y, color=random.choice(_COLOURS), linewidth=random.uniform(0.5, 1.5))
    axes.set_ylim(-0.4, 1.4)
    return {"trend": float(trend), "roughness": float(np.abs(np.diff(y)).mean())}


def _pie(axes: Axes, random: np.random.Generator) -> Truth:
    shares = random.dirichlet(np.full(random.integers(2, 7), 2.0))
    axes.pie(shares, colors=_COLOURS[: len(shares)], startangle=random.uniform(0, 360))
    return {"largest": float(shares.max())}


_DRAWN_BY = {"bar": _bars, "line": _line, "pie": _pie}
