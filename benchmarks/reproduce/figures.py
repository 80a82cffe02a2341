"""The style of all figures: dark ink on an opaque background, readable on light and on dark pages."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from irwm.report.plots.theme import LIGHT

ACCENT, NULL, INK, QUIET, LINE, SHEET = LIGHT.accent, LIGHT.null, LIGHT.ink, LIGHT.quiet, LIGHT.line, "#fbfcfc"
# A third and a fourth series, with different markers too.
WARM, SOFT = "#b4540a", "#6f8f3a"
MARKERS = ("o", "s", "^", "D")
_ENTRY = 2.3  # width of a legend entry in inches

_STYLE: dict[mpl.typing.RcKeyType, object] = {
    "svg.hashsalt": "irwm",  # the same bytes for the same numbers
    "svg.fonttype": "path",  # needs no installed font
    "font.size": 10,
    "axes.edgecolor": NULL,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "axes.titlesize": 10.5,
    "axes.facecolor": SHEET,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "figure.facecolor": SHEET,
    "grid.color": LINE,
    "text.color": INK,
    "xtick.color": QUIET,
    "ytick.color": QUIET,
    "lines.linewidth": 1.8,
    "lines.markersize": 5,
    "legend.frameon": False,
    "legend.fontsize": 9,
}


def grid(
    rows: int, columns: int, title: str, height: float = 2.6, width: float = 3.3
) -> tuple[Figure, list[list[Axes]]]:
    """A figure of small panels under one title; axes by row and column."""
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(max(width * columns, 5.0), height * rows + 0.9), layout="constrained")
        FigureCanvasSVG(figure)
        axes = figure.subplots(rows, columns, squeeze=False)
        figure.suptitle(title, fontsize=12, fontweight="bold", color=INK)
        for each in axes.flat:
            each.grid(True, linewidth=0.7)
            each.set_axisbelow(True)
    return figure, [list(row) for row in axes]


def legend(figure: Figure, axes: Axes) -> None:
    """Draw one legend for all panels, below them, with as many entries per line as fit."""
    with mpl.rc_context(_STYLE):
        handles, labels = axes.get_legend_handles_labels()
        figure.legend(
            handles,
            labels,
            loc="outside lower center",
            ncols=min(len(labels), int(figure.get_figwidth() / _ENTRY)) or 1,
        )


def shares(axes: Axes, chance: float) -> None:
    """Set up a vertical axis of shares in per cent, with a line for chance."""
    axes.set_ylim(0, 1.04)
    axes.set_yticks([0, 0.25, 0.5, 0.75, 1], ["0 %", "25 %", "50 %", "75 %", "100 %"])
    axes.axhline(chance, color=NULL, linewidth=1.2, linestyle=(0, (4, 3)), label=f"chance, {100 * chance:.0f} %")


def times(axes: Axes, label: str) -> None:
    """Set up a vertical logarithmic axis of ratios, wide enough that noise does not look like a jump."""
    axes.set_yscale("log")
    low, high = axes.get_ylim()
    axes.set_ylim(min(0.8, low), max(2.0, high))
    low, high = axes.get_ylim()
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if high < 100 * low else (1.0,), numticks=8))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _place: f"{value:,.10g}".replace(",", " ")))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_ylabel(label)


def ticks(axes: Axes, places: Sequence[float], labels: Sequence[str]) -> None:
    axes.set_xticks(list(places), list(labels))
    axes.minorticks_off()


def save(figure: Figure, path: Path) -> None:
    with mpl.rc_context(_STYLE):
        figure.savefig(path, format="svg", metadata={"Date": None})
