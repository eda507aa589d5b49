"""Pictures that read well in print: panels of curves, on white, told apart without colour too.

A panel is a curve or more over one axis, with the spread of several runs as a band and levels, such
as the exact softmax's, as horizontal lines. Every curve has a marker of its own besides its colour.
"""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from blackout.pages.palette import GRID, INK, PRINT
from blackout.pages.plots import figure_style

MARKERS = ("o", "s", "^", "D", "v", "P", "X")


@dataclass(frozen=True)
class Curve:
    """Points joined by a line, in a band from ``low`` to ``high`` where these are given.

    ``expected``: a broken line without marks, in the colour of the curve with that place.
    """

    label: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    expected: int | None = None

    @classmethod
    def of_runs(cls, label: str, x: Sequence[float], runs: Sequence[Sequence[float]]) -> Curve:
        """The means of several runs at each point, in a band from the least to the largest.

        >>> Curve.of_runs("a", [1, 2], [[3.0, 5.0], [4.0, 4.0]]).y
        [4.0, 4.0]
        """
        means = [math.fsum(values) / len(values) for values in runs]
        return cls(label, x, means, [min(values) for values in runs], [max(v) for v in runs])


@dataclass(frozen=True)
class Level:
    """A value that does not depend on the horizontal axis."""

    label: str
    y: float


@dataclass(frozen=True)
class Bars:
    """Values beside names, drawn as dots with their spread: a picture of a table."""

    names: Sequence[str]
    values: Sequence[float]
    spread: Sequence[float]


@dataclass(frozen=True)
class Panel:
    """One part of a picture."""

    x_label: str
    y_label: str
    curves: Sequence[Curve] = ()
    levels: Sequence[Level] = ()
    bars: Bars | None = None
    title: str = ""
    x_log: bool = False
    y_log: bool = False
    x_ticks: Sequence[float] = field(default=())


def perplexity_panel(names: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> Panel:
    """A picture of the column "test" of a table, with its "±" where there is one."""
    spread = [row.get("±", 0.0) for row in rows]
    return Panel("test perplexity", "", bars=Bars(names, [row["test"] for row in rows], spread))


def draw_panels(panels: Sequence[Panel], name: str) -> str:
    """The panels side by side, as the text of an SVG file.

    >>> draw_panels([Panel("n", "n²", [Curve("squares", [1, 2, 3], [1, 4, 9])])], "squares")[:5]
    '<?xml'
    """
    import matplotlib
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    style = figure_style(name, INK, GRID)
    style["svg.fonttype"] = "path"  # the same letters on every machine
    with matplotlib.rc_context(style):
        height = max([3.2, *(0.9 + 0.27 * len(p.bars.names) for p in panels if p.bars)])
        height = max([height, *(0.6 + 0.22 * len(p.curves) for p in panels if _is_crowded(p))])
        width = 5.6 if len(panels) == 1 else 4.4 * len(panels)
        figure = Figure(figsize=(width + 2.6 * any(map(_is_crowded, panels)), height))
        figure.set_layout_engine("constrained")
        for i, panel in enumerate(panels):
            _draw(figure.add_subplot(1, len(panels), i + 1), panel)
        stream = io.StringIO()
        FigureCanvasSVG(figure).print_svg(stream, metadata={"Date": None})
    # matplotlib leaves blanks at the ends of its lines
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines()) + "\n"


def _draw(axes: Any, panel: Panel) -> None:
    if panel.bars is not None:
        _draw_bars(axes, panel.bars)
    for i, curve in enumerate(panel.curves):
        place = i if curve.expected is None else curve.expected
        marker = MARKERS[(place + place // len(PRINT)) % len(MARKERS)]  # no pair comes twice
        _draw_curve(axes, curve, PRINT[place % len(PRINT)], marker)
    for i, level in enumerate(panel.levels):
        colour, dash = ("#000000", "#777777")[i % 2], ((0, (5, 2)), (0, (1, 1.5)))[i % 2]
        axes.axhline(level.y, color=colour, linestyle=dash, linewidth=1.3, label=level.label)
    _scale(axes, panel)
    axes.grid(axis="x" if panel.bars else "y", color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(length=0)
    axes.set_xlabel(panel.x_label)
    axes.set_ylabel(panel.y_label)
    if panel.title:
        axes.set_title(panel.title, fontsize=10, loc="left")
    if len(panel.curves) + len(panel.levels) > 1:
        beside: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (1.0, 1.02)}
        axes.legend(frameon=False, fontsize=8.5, **(beside if _is_crowded(panel) else {}))


def _draw_curve(axes: Any, curve: Curve, colour: str, marker: str) -> None:
    if curve.expected is not None:
        axes.plot(curve.x, curve.y, "--", color=colour, linewidth=1.1, label=curve.label)
        return
    size = 4.5 if len(curve.x) <= 20 else 0
    line = {"color": colour, "linewidth": 1.6, "marker": marker, "markersize": size}
    axes.plot(curve.x, curve.y, label=curve.label, **line)
    if curve.low:
        axes.fill_between(curve.x, curve.low, curve.high, color=colour, alpha=0.18, linewidth=0)


def _is_crowded(panel: Panel) -> bool:
    """Whether its curves leave no room for a legend among them."""
    return len(panel.curves) > len(PRINT)


def _draw_bars(axes: Any, bars: Bars) -> None:
    places = list(range(len(bars.names)))[::-1]
    axes.errorbar(
        bars.values, places, xerr=bars.spread, fmt="o", color=PRINT[0], markersize=5, capsize=3
    )
    axes.set_yticks(places, bars.names)
    axes.set_ylim(-0.6, len(places) - 0.4)


def _scale(axes: Any, panel: Panel) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

    plain = FuncFormatter(lambda value, _: f"{value:,.0f}" if value >= 1000 else f"{value:g}")
    if panel.x_log:
        axes.set_xscale("log")
    if panel.x_ticks:
        axes.set_xticks(list(panel.x_ticks))
        axes.xaxis.set_minor_locator(NullLocator())
    if panel.x_log or panel.x_ticks:
        axes.xaxis.set_major_formatter(plain)
    if panel.y_log:
        axes.set_yscale("log")
        low, high = axes.get_ylim()
        if high < 3 * low:  # too short for powers of ten
            axes.yaxis.set_major_locator(MaxNLocator(6))
        else:
            marks = (1, 1.5, 2, 3, 5, 7) if high < 30 * low else (1,)
            axes.yaxis.set_major_locator(LogLocator(10, subs=marks, numticks=10))
        axes.yaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_major_formatter(plain)
    elif panel.bars is None:
        axes.yaxis.set_major_locator(MaxNLocator(6))
