"""Line plots as SVG for the inside of an HTML page.

The colours are CSS variables of the page (``--ink``, ``--grid``, ``--series-0`` …), so that a plot
follows the reader's light or dark mode; the words are text in the page's own font.
"""

from __future__ import annotations

import io
import math
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from blackout.pages.palette import LIGHT
from blackout.shown import visible

__all__ = ["Plot", "Series", "draw", "figure_style"]

SERIES_COLOURS = len(LIGHT)  # more series begin again with dashes
_INK, _GRID = "#010203", "#040506"  # stand for the variables while matplotlib draws
_SERIES = [f"#0708{i:02x}" for i in range(SERIES_COLOURS)]


@dataclass(frozen=True)
class Series:
    """One line of a plot."""

    label: str
    x: Sequence[float]
    y: Sequence[float]

    def finite(self) -> tuple[list[float], list[float]]:
        """The points that can be drawn."""
        points = [(x, y) for x, y in zip(self.x, self.y, strict=True) if math.isfinite(y)]
        return [x for x, _ in points], [y for _, y in points]


@dataclass(frozen=True)
class Plot:
    """A picture of one or more series over one axis.

    ``log``: a logarithmic vertical axis; ``from_zero``: one that begins at 0. ``whole``: whole
    numbers on the horizontal axis. ``mark``: a point to mark with its value.
    """

    title: str
    x_label: str
    y_label: str
    series: Sequence[Series]
    log: bool = False
    whole: bool = True
    from_zero: bool = False
    mark: tuple[float, float] | None = None


def draw(plot: Plot, name: str, width: float = 4.6, height: float = 2.9) -> str:
    """The plot as an ``<svg>`` element; ``name`` must be another for each plot of a page.

    >>> svg = draw(Plot("Squares", "n", "n²", [Series("n²", [1, 2, 3], [1, 4, 9])]), "squares")
    >>> svg.startswith("<svg"), "http" in svg
    (True, False)
    """
    import matplotlib
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    style = figure_style(name, _INK, _GRID) | {
        "svg.fonttype": "none",
        "text.parse_math": False,  # a word of the user's may hold a dollar sign
    }
    with matplotlib.rc_context(style), warnings.catch_warnings():
        # letters that matplotlib's font lacks are no fault: the reader's browser draws the words
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure = Figure(figsize=(width, height), layout="constrained")
        _draw_axes(figure.add_subplot(), plot)
        stream = io.StringIO()
        FigureCanvasSVG(figure).print_svg(stream, metadata={"Date": None})
    return _for_page(stream.getvalue(), name, plot)


def figure_style(name: str, ink: str, grid: str) -> dict[Any, Any]:
    """What all our pictures look like, for matplotlib; ``name`` makes an SVG's ids its own."""
    inked = ("text.color", "axes.labelcolor", "xtick.color", "ytick.color")
    return dict.fromkeys(inked, ink) | {
        "svg.hashsalt": name,
        "font.size": 9.5,
        "axes.edgecolor": grid,
        "axes.spines.top": False,
        "axes.spines.right": False,
    }


def _draw_axes(axes: Any, plot: Plot) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter

    for i, series in enumerate(plot.series):
        x, y = series.finite()
        axes.plot(
            x,
            y,
            color=_SERIES[i % SERIES_COLOURS],
            linestyle="-" if i < SERIES_COLOURS else "--",
            linewidth=1.8,
            marker="o",
            markersize=4 if len(x) <= 25 else 0,
            label=visible(series.label),
        )
    if plot.log:
        from matplotlib.ticker import LogLocator

        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(10, subs=(1, 2, 3, 5), numticks=8))
        axes.yaxis.set_minor_formatter(NullFormatter())
        axes.minorticks_off()
    else:
        axes.yaxis.set_major_locator(MaxNLocator(6))
        if plot.from_zero:
            axes.set_ylim(0, axes.get_ylim()[1] * 1.06)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _tick(value)))
    if plot.whole:
        axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
        longest = max((len(series.x) for series in plot.series), default=0)
        if longest <= 1:
            axes.set_xlim(0.5, 1.5)
    axes.grid(axis="y", color=_GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(length=0)
    axes.spines["left"].set_visible(False)
    axes.set_xlabel(visible(plot.x_label))
    axes.set_ylabel(visible(plot.y_label))
    if plot.mark is not None and math.isfinite(plot.mark[1]):
        axes.annotate(
            _tick(plot.mark[1]),
            plot.mark,
            xytext=(0, 7),
            textcoords="offset points",
            ha="center",
            fontweight="bold",
        )
        axes.margins(y=0.12)
    if len(plot.series) > 1:
        axes.legend(frameon=False)


def _tick(value: float) -> str:
    """A number as short as it can be said.

    >>> _tick(12000), _tick(110.9667), _tick(0.00993), _tick(5)
    ('12,000', '111', '0.00993', '5')
    """
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def _for_page(svg: str, name: str, plot: Plot) -> str:
    """What matplotlib wrote, as part of a page: its names made unique, its colours variables."""
    svg = svg[svg.index("<svg") :].strip()
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'\sxmlns(:\w+)?="[^"]*"', "", svg)
    svg = svg.replace("xlink:href=", "href=")
    svg = re.sub(r'\bid="', f'id="{name}-', svg)
    svg = re.sub(r'(href="|url\()#', rf"\1#{name}-", svg)
    # the frame's own white: the page has its own background
    svg = re.sub(r"fill: ?#ffffff", "fill: none", svg)
    svg = svg.replace(_INK, "var(--ink)").replace(_GRID, "var(--grid)")
    for i, colour in enumerate(_SERIES):
        svg = svg.replace(colour, f"var(--series-{i})")
    svg = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", svg, count=1)
    label = re.sub(r'[<>&"]', "", visible(f"{plot.title}: {plot.y_label} by {plot.x_label}"))
    return svg.replace("<svg", f'<svg role="img" aria-label="{label}"', 1)
