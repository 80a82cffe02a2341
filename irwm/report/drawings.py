"""The figures of a report for paper: the same figures as in its HTML, drawn by matplotlib as SVG.

A figure arrives as plotly's JSON (`irwm.report.html` puts it into the page), so numbers, words, colours and ticks are
those of the HTML, and a new figure needs no code here if it consists of points, lines and bars. The same figure gives
the same bytes: outlines of bundled fonts instead of text, no date, fixed ids.
"""

from __future__ import annotations

import base64
import html
import io
import json
import logging
import math
import re
import textwrap
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

import matplotlib
import numpy as np
from matplotlib import font_manager
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import FuncFormatter, NullLocator
from matplotlib.transforms import ScaledTranslation, blended_transform_factory

from irwm.report.document import ReportError
from irwm.report.numbers import RAISED
from irwm.report.plots.theme import HEIGHT, LIGHT, PlotlyJson
from irwm.report.typefaces import CHINESE, FALLBACK, SANS, files, settable

if TYPE_CHECKING:
    from matplotlib.typing import RcKeyType

# Inches: the text's width on A4 with margins of 16 mm. The page shows the same figure about 900 pixels wide.
_WIDTH = 7.0
_INCHES, _POINTS = _WIDTH / 900, 72 * _WIDTH / 900
# Two of the page's figures fit on one sheet if they are this much lower.
_LOWER = 0.87
_TEXT = 7.6  # points; 13 pixels at this scale
# Letters per inch of an axis title.
_LETTERS_PER_INCH = 19
_DASHES: Mapping[str, Any] = {"dash": (0, (5, 3)), "dot": (0, (1.2, 2)), "solid": "solid"}
_MARKERS = {"circle": "o", "circle-open": "o", "triangle-down": "v", "diamond": "D", "square": "s", "x": "x"}
_SETTINGS: dict[RcKeyType, Any] = {
    "svg.hashsalt": "irwm",
    "svg.fonttype": "path",
    "font.family": [SANS, CHINESE, FALLBACK],
    "font.size": _TEXT,
    "text.parse_math": False,
    "axes.edgecolor": LIGHT.null,
    "axes.labelcolor": LIGHT.quiet,
    "axes.linewidth": 0.6,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": LIGHT.line,
    "grid.linewidth": 0.6,
    "xtick.color": LIGHT.null,
    "ytick.color": LIGHT.null,
    "xtick.labelcolor": LIGHT.quiet,
    "ytick.labelcolor": LIGHT.quiet,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "text.color": LIGHT.ink,
}
_registered: list[str] = []


def drawn(spec: PlotlyJson) -> str:
    """A figure as SVG; the last few are cached, because a report is often verified right after it was written.

    Args:
        spec: {"data": traces, "layout": layout} as `plotly.graph_objects.Figure.to_json` writes it.

    Raises:
        ReportError: the figure has a kind of trace that cannot be drawn here.
    """
    return _drawn(json.dumps(spec, sort_keys=True))


# Cached: matplotlib takes a large part of a second for a figure.
@lru_cache(maxsize=16)
def _drawn(text: str) -> str:
    spec = json.loads(text)
    _register_fonts()
    layout = spec["layout"]
    with matplotlib.rc_context(_SETTINGS):
        figure = Figure(figsize=(_WIDTH, layout.get("height", HEIGHT) * _INCHES * _LOWER), layout="constrained")
        FigureCanvasSVG(figure)
        axes = _axes(figure, layout)
        _titles(figure, layout)
        legend: list[tuple[Any, str]] = []
        for trace in spec["data"]:
            _trace(axes[_number(trace.get("xaxis", "x"))], trace, legend)
        for i, ax in axes.items():
            letters = int((figure.get_figheight() - 1.25) * _share(axes, i) * _LETTERS_PER_INCH)
            _scales(ax, layout.get(_axis("x", i), {}), layout.get(_axis("y", i), {}), max(letters, 12))
        for shape in layout.get("shapes", []):
            _shape(axes, shape)
        for annotation in layout.get("annotations", []):
            _annotation(axes, layout, annotation)
        if legend:
            figure.legend(
                [handle for handle, _ in legend], [name for _, name in legend], loc="outside lower left", ncols=3,
                frameon=False, fontsize=7, labelcolor=LIGHT.quiet, handlelength=1.8, columnspacing=1.6, borderpad=0.2,
            )  # fmt: skip
        # Layout is a separate step, because `savefig` would draw everything again for it.
        engine = figure.get_layout_engine()
        if engine is not None:
            engine.execute(figure)
            figure.set_layout_engine("none")
        out = io.StringIO()
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    return out.getvalue()


def _register_fonts() -> None:
    # matplotlib would warn on every run that the fallback font has no semibold.
    logging.getLogger("matplotlib.font_manager").setLevel(logging.ERROR)
    for path in files():
        if str(path) not in _registered:
            font_manager.fontManager.addfont(str(path))
            _registered.append(str(path))


def _number(reference: str) -> int:
    """1 for "x" and "x domain", 2 for "x2"."""
    return int(re.sub(r"\D", "", reference) or 1)


def _axis(letter: str, number: int) -> str:
    return f"{letter}axis{'' if number == 1 else number}"


def _axes(figure: Figure, layout: PlotlyJson) -> dict[int, Axes]:
    """The axes by plotly's number, from the top down, with the heights of their domains."""
    numbers = sorted(_number(name) for name in layout if re.fullmatch(r"yaxis\d*", name)) or [1]
    domains = [layout.get(_axis("y", n), {}).get("domain", [0, 1]) for n in numbers]
    order = sorted(range(len(numbers)), key=lambda i: -domains[i][1])
    ratios = [max(domains[i][1] - domains[i][0], 0.05) for i in order]
    made = figure.subplots(len(numbers), 1, squeeze=False, gridspec_kw={"height_ratios": ratios})[:, 0]
    return {numbers[i]: ax for i, ax in zip(order, made, strict=True)}


def _share(axes: Mapping[int, Axes], number: int) -> float:
    """The share of the height of one of several axes."""
    place = axes[number].get_subplotspec()
    assert place is not None
    ratios: Any = place.get_gridspec().get_height_ratios()
    return float(ratios[place.rowspan.start] / sum(ratios))


def _titles(figure: Figure, layout: PlotlyJson) -> None:
    """Title and subtitle at the left edge, in a separate band at the top."""
    title = layout.get("title", {})
    height = figure.get_figheight()
    lines = (
        (title.get("text", ""), 0.15, {"fontsize": 9.6, "fontweight": "semibold"}),
        (title.get("subtitle", {}).get("text", ""), 0.32, {"color": LIGHT.quiet}),
    )
    for text, inches, style in lines:
        figure.text(0.004, 1 - inches / height, words(text), ha="left", va="baseline", **style)
    engine = figure.get_layout_engine()
    assert isinstance(engine, ConstrainedLayoutEngine)
    engine.set(rect=(0, 0, 1, 1 - 0.42 / height))


def words(text: str) -> str:
    """Plotly's HTML subset as plain characters: line breaks, raised digits, entities."""
    text = re.sub(r"<br\s*/?>", "\n", text or "")
    text = re.sub(r"<sup>(.*?)</sup>", lambda raised: raised[1].translate(RAISED), text)
    text = re.sub(r"</?(?:b|i|sub|span)[^<>]*>", "", text)
    return settable(html.unescape(text))


def _values(values: Any) -> np.ndarray:
    """A column of numbers, NaN for null; plotly may write it as base64."""
    if isinstance(values, Mapping):
        return np.frombuffer(base64.b64decode(values["bdata"]), dtype=values["dtype"]).astype(float)
    return np.array([math.nan if v is None else v for v in values], dtype=float)


def _trace(ax: Axes, trace: PlotlyJson, legend: list[tuple[Any, str]]) -> None:
    kind = trace.get("type", "scatter")
    if kind == "bar":
        handle = _bars(ax, trace)
    elif kind == "scatter":
        handle = _points(ax, trace)
    else:
        raise ReportError("a figure contains a type of trace that cannot be printed", found=str(kind))
    if trace.get("name") and trace.get("showlegend", True):
        legend.append((handle, words(trace["name"])))


def _bars(ax: Axes, trace: PlotlyJson) -> Patch:
    x, y = _values(trace["x"]), _values(trace["y"])
    base, width = trace.get("base", 0.0), trace.get("width", 0.8)
    colour, alpha = trace.get("marker", {}).get("color", LIGHT.accent), trace.get("opacity", 1.0)
    ax.bar(
        x, y, width if isinstance(width, (int, float)) else _values(width),
        base if isinstance(base, (int, float)) else _values(base), color=colour, alpha=alpha, linewidth=0, zorder=2,
    )  # fmt: skip
    return Patch(color=colour, alpha=alpha, linewidth=0)


def _points(ax: Axes, trace: PlotlyJson) -> Any:
    x, y = _values(trace["x"]), _values(trace["y"])
    mode, line, marker = trace.get("mode", "lines"), trace.get("line", {}), trace.get("marker", {})
    handle: Any = Line2D([], [])
    if trace.get("fill") == "tonexty":
        before = ax.get_lines()[-1].get_ydata()
        colour = trace.get("fillcolor", LIGHT.bands[1])
        ax.fill_between(x, y, before, color=colour, linewidth=0, zorder=1)
        ax.plot(x, y, linewidth=0)
        return Patch(color=colour)
    if "lines" in mode:
        (handle,) = ax.plot(
            x, y, color=line.get("color", LIGHT.accent), linewidth=line.get("width", 2) * _POINTS,
            linestyle=_DASHES.get(line.get("dash", "solid"), "solid"), zorder=3,
        )  # fmt: skip
    if "markers" in mode:
        handle = _markers(ax, x, y, marker, trace)
    return handle


def _markers(ax: Axes, x: np.ndarray, y: np.ndarray, marker: PlotlyJson, trace: PlotlyJson) -> Any:
    symbols = marker.get("symbol", "circle")
    each = [symbols] * x.size if isinstance(symbols, str) else list(symbols)
    colour, edge = marker.get("color", LIGHT.accent), marker.get("line", {})
    handle = None
    for symbol in dict.fromkeys(each):
        here = np.array([s == symbol for s in each])
        hollow = symbol.endswith("-open")
        (drawn_here,) = ax.plot(
            x[here], y[here], linestyle="none", marker=_MARKERS.get(symbol, "o"),
            markersize=marker.get("size", 6) * _POINTS * 1.05,
            markerfacecolor="none" if hollow else colour,
            markeredgecolor=colour if hollow else edge.get("color", colour),
            markeredgewidth=(edge.get("width", 0) or 0) * _POINTS,
            alpha=marker.get("opacity", 1.0), clip_on=trace.get("cliponaxis", True) is not False, zorder=4,
        )  # fmt: skip
        handle = handle or drawn_here
    return handle


def _wrapped(text: str, letters: int) -> str:
    return "\n".join(part for line in text.split("\n") for part in textwrap.wrap(line, letters, break_long_words=False))


def _scales(ax: Axes, x: PlotlyJson, y: PlotlyJson, letters: int) -> None:
    name: Literal["x", "y"]
    for axis, name, grid in ((x, "x", False), (y, "y", True)):
        if axis.get("visible") is False:
            getattr(ax, f"{name}axis").set_visible(False)
            ax.spines["bottom" if name == "x" else "left"].set_visible(False)
        if axis.get("type") == "log":
            getattr(ax, f"set_{name}scale")("log")
        ends = axis.get("range")
        if ends:
            log = axis.get("type") == "log"
            getattr(ax, f"set_{name}lim")(*(10.0**v if log else v for v in ends))
        elif axis.get("rangemode") == "tozero":
            getattr(ax, f"set_{name}lim")(**{"bottom" if name == "y" else "left": 0})
        ticker = getattr(ax, f"{name}axis")
        if axis.get("tickvals") is not None:
            labels = [words(str(t)) for t in axis.get("ticktext") or axis["tickvals"]]
            ticker.set_minor_locator(NullLocator())
            ticker.set_ticks(_values(axis["tickvals"]).tolist(), labels=labels)
        else:
            suffix = axis.get("ticksuffix", "")
            if axis.get("type") != "log":
                ticker.set_major_formatter(FuncFormatter(lambda v, _, end=suffix: f"{v:g}".replace("-", "−") + end))
        if axis.get("showticklabels") is False:
            ticker.set_tick_params(labelbottom=False)
        if axis.get("showgrid", grid):
            ax.grid(True, axis=name)
        title = axis.get("title", {}).get("text")
        if title:
            getattr(ax, f"set_{name}label")(_wrapped(words(title), letters if name == "y" else 200), fontsize=7.2)


def _place(axes: Mapping[int, Axes], reference: str) -> tuple[Axes, Any]:
    """The axes of a reference such as "x2 domain", and its transform in that direction."""
    if reference in ("paper", "container"):
        ax = axes[min(axes)]
        return ax, ax.transAxes
    ax = axes.get(_number(reference), axes[min(axes)])
    return ax, ax.transAxes if "domain" in reference else ax.transData


def _both(axes: Mapping[int, Axes], it: PlotlyJson) -> tuple[Axes, Any]:
    ax, x = _place(axes, it.get("xref", "x"))
    _, y = _place(axes, it.get("yref", "y"))
    return ax, blended_transform_factory(x, y)


def _shape(axes: Mapping[int, Axes], shape: PlotlyJson) -> None:
    ax, transform = _both(axes, shape)
    line = shape.get("line", {})
    below = 0.5 if shape.get("layer") == "below" else 3.5
    ends = [shape[name] for name in ("x0", "x1", "y0", "y1")]
    if shape.get("type") == "rect":
        x0, x1, y0, y1 = ends
        width = (line.get("width", 0) or 0) * _POINTS
        style = {"facecolor": shape.get("fillcolor", "none"), "linewidth": width, "zorder": below}
        edge = line.get("color", "none")
        ax.add_patch(Rectangle((x0, y0), x1 - x0, y1 - y0, transform=transform, edgecolor=edge, **style))
        return
    ax.add_line(
        Line2D(ends[:2], ends[2:], transform=transform, color=line.get("color", LIGHT.ink),
               linewidth=line.get("width", 1.5) * _POINTS, linestyle=_DASHES.get(line.get("dash", "solid"), "solid"),
               zorder=below)
    )  # fmt: skip


def _annotation(axes: Mapping[int, Axes], layout: PlotlyJson, it: PlotlyJson) -> None:
    ax, transform = _both(axes, it)
    place = []
    for letter in ("x", "y"):
        value, reference = it.get(letter, 0.5), it.get(f"{letter}ref", letter)
        scale = layout.get(_axis(letter, _number(reference)), {}).get("type")
        # Plotly takes an annotation's place on a logarithmic axis as its logarithm, unlike a shape's.
        place.append(10.0**value if scale == "log" and re.fullmatch(rf"{letter}\d*", reference) else value)
    shift = ScaledTranslation(
        it.get("xshift", 0) * _INCHES, (it.get("yshift", 0) + 3) * _INCHES, ax.figure.dpi_scale_trans
    )
    anchors: Sequence[Mapping[str, str]] = (
        {"left": "left", "right": "right", "center": "center", "auto": "center"},
        {"bottom": "bottom", "top": "top", "middle": "center", "auto": "center"},
    )
    font = it.get("font", {})
    ax.text(
        place[0], place[1], words(it.get("text", "")),
        transform=transform + shift, ha=anchors[0][it.get("xanchor", "auto")],
        va=anchors[1][it.get("yanchor", "auto")], fontsize=font.get("size", 12) * _POINTS * 1.04,
        color=font.get("color", LIGHT.ink), zorder=5,
    )  # fmt: skip
