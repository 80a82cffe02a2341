"""One look for every figure: the observed value in the accent colour, chance in grey, the setting in ink.

Colours repeat `ui.theme`'s palettes, which this module cannot import: reports are written in child processes that
never load Gradio. tests/report/plots compares the two.
"""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go

from irwm.errors import printable
from irwm.report.numbers import minus
from irwm.scheme.stated_odds import LEAST_LOG10

# A part of a figure as plotly's JSON: a layout, an axis, a trace, a marker.
PlotlyJson = Mapping[str, Any]

# Families without quotes or commas inside names, so that the same text serves SVG, CSS and plotly.
FONT_STACK = "IBM Plex Sans, Segoe UI, Helvetica Neue, Arial, sans-serif"
# Pixels. Gradio sets no height, and a figure that grows with its content makes the page jump while a job runs.
HEIGHT = 420
TALL = 560
# Gradio sends no plotly config, so the layout has all settings that it can hold. These figures do not need panning and
# selecting; dragging zooms, and a double click resets.
_BUTTONS_LEFT_OUT = ("zoom", "pan", "select", "lasso", "zoomIn", "zoomOut", "autoScale")
CONFIG = {"displaylogo": False, "responsive": True, "displayModeBar": "hover"}


@dataclass(frozen=True, slots=True)
class Colours:
    """Colours of one mode.

    Attributes:
        accent: observed values only.  accent_soft: a light tint of it behind positions that count.
        null: chance.  bands: the same grey three times, the outermost band first.
        ink: text and the chosen setting.  quiet: secondary text.  line: grid and axes.  paper: the page.
    """

    accent: str
    accent_soft: str
    null: str
    bands: tuple[str, str, str]
    ink: str
    quiet: str
    line: str
    paper: str


ACCENT_LIGHT = "#0b5b60"
ACCENT_DARK = "#6fcac7"
NULL_GREY = "#86948f"
NULL_GREY_DARK = "#74837f"
LIGHT = Colours(
    accent=ACCENT_LIGHT,
    accent_soft="#e4f0f0",
    null=NULL_GREY,
    bands=("#e6eae9", "#d0d7d5", "#b1bcb8"),
    ink="#14211f",
    quiet="#546361",
    line="#dfe6e5",
    paper="#ffffff",
)
DARK = Colours(
    accent=ACCENT_DARK,
    accent_soft="#16312f",
    null=NULL_GREY_DARK,
    bands=("#25302e", "#364441", "#4f5f5b"),
    ink="#e6edeb",
    quiet="#9fb1ad",
    line="#293533",
    paper="#0f1514",
)


def colours(dark: bool) -> Colours:
    return DARK if dark else LIGHT


def template(dark: bool) -> go.layout.Template:
    """The template of every figure, for the light or the dark page."""
    c = colours(dark)
    axis = {
        "color": c.quiet,
        "gridcolor": c.line,
        "linecolor": c.null,
        "showline": True,
        "zeroline": False,
        "ticks": "outside",
        "ticklen": 4,
        "tickcolor": c.null,
        "tickfont": {"size": 12},
        "title": {"font": {"size": 13, "color": c.quiet}, "standoff": 8},
        "automargin": True,
    }
    return go.layout.Template(
        layout={
            "font": {"family": FONT_STACK, "size": 13, "color": c.ink},
            "title": {
                "x": 0,
                "xref": "paper",
                "xanchor": "left",
                "y": 1,
                "yref": "container",
                "yanchor": "top",
                "pad": {"t": 12},
                "font": {"size": 16, "color": c.ink, "weight": 600},
                "subtitle": {"font": {"size": 13, "color": c.quiet}},
            },
            "paper_bgcolor": c.paper,
            "plot_bgcolor": c.paper,
            "colorway": [c.accent, c.null, c.ink],
            "xaxis": axis,
            "yaxis": axis,
            "legend": {
                "orientation": "h",
                "x": 0,
                "xanchor": "left",
                "y": 0.01,
                "yref": "container",
                "yanchor": "bottom",
                "font": {"size": 12, "color": c.quiet},
                "bgcolor": "rgba(0,0,0,0)",
                "traceorder": "normal",
                "itemclick": False,
                "itemdoubleclick": False,
            },
            "hoverlabel": {
                "bgcolor": c.paper,
                "bordercolor": c.null,
                "font": {"family": FONT_STACK, "size": 13, "color": c.ink},
                "align": "left",
            },
            "hovermode": "closest",
            "dragmode": "zoom",
            "bargap": 0.0,
            "barmode": "overlay",
            "modebar": {
                "remove": list(_BUTTONS_LEFT_OUT),
                "bgcolor": "rgba(0,0,0,0)",
                "color": c.null,
                "activecolor": c.accent,
            },
            "margin": {"l": 64, "r": 24, "t": 88, "b": 96},
        }
    )


def figure(title: str, subtitle: str, *, dark: bool, height: int = HEIGHT) -> go.Figure:
    """An empty figure with the template, a title that says what it shows and a line on how to read it.

    Both lines are trusted plain text; a name from a file must go through `label` first.
    """
    layout = {"template": template(dark), "height": height, "autosize": True}
    return go.Figure(layout=layout | {"title": {"text": title, "subtitle": {"text": subtitle}}})


def about(fig: go.Figure, whom: str) -> go.Figure:
    """The figure with words that say whose it is, before the line on how to read it."""
    subtitle = fig.layout.title.subtitle
    subtitle.text = f"{whom} {subtitle.text}"
    return fig


def label(text: str, limit: int = 60) -> str:
    """Text from a file made inert for plotly, which reads a subset of HTML in titles and hovers
    (but not every entity: quotes stay as they are)."""
    return html.escape(printable(text, limit), quote=False)


def note(fig: go.Figure, lines: Sequence[str], dark: bool) -> None:
    """Write in the middle of an empty figure why it is empty, in place of its axes."""
    fig.update_xaxes(visible=False)
    fig.update_yaxes(visible=False)
    fig.add_annotation(
        text="<br>".join(lines),
        x=0.5,
        y=0.5,
        xref="paper",
        yref="paper",
        showarrow=False,
        font={"size": 14, "color": colours(dark).quiet},
    )


def add_line(fig: go.Figure, c: Colours, x: float, text: str = "", *, of: float = math.inf, row: int = 1) -> None:
    """A dashed vertical line in ink, its label above it; near `of`, the end of the axis, the label turns inwards."""
    anchor = "center" if of == math.inf or 0.15 < x / of < 0.85 else "right" if x / of > 0.5 else "left"
    vertical_line(fig, x, dashed(c), text, row=row, xanchor=anchor)


def vertical_line(
    fig: go.Figure,
    x: float,
    line: PlotlyJson,
    text: str = "",
    *,
    height: float = 1.0,
    row: int = 1,
    **more: Any,
) -> None:
    """A vertical line up to a share of the axis, and its label in the line's colour, if any.

    Args:
        more: plotly's properties of the label.
    """
    axis = "" if row == 1 else str(row)
    place = {"xref": f"x{axis}", "yref": f"y{axis} domain"}
    fig.add_shape(type="line", x0=x, x1=x, y0=0, y1=height, line=line, **place)
    if text:
        usual = {
            "yanchor": "bottom",
            "showarrow": False,
            "font": {"size": 12, "color": line["color"]},
        }
        fig.add_annotation(text=text, x=x, y=height, **usual | place | more)


def dashed(c: Colours) -> dict[str, object]:
    return {"color": c.ink, "width": 1.5, "dash": "dash"}


def power_ticks(low: float, high: float, *, most: int = 8, logarithms: bool = False) -> dict[str, list[Any]]:
    """At most this many ticks at whole powers of ten, given the ends of the axis as log10.

    A logarithmic axis takes the values themselves; an axis that already holds logarithms takes the exponents, which
    is how chances below the smallest double are drawn. Chances below `LEAST_LOG10` have one label, at the end of the
    axis, that they are smaller.
    """
    lowest, highest = math.ceil(low), math.floor(high)
    if logarithms and low < LEAST_LOG10:
        part = (highest - LEAST_LOG10) / (highest - lowest)
        ticks = power_ticks(LEAST_LOG10, high, most=1 + math.ceil(most * part), logarithms=True)
        if LEAST_LOG10 - lowest > (highest - lowest) / (2 * most):  # else the labels would overlap
            ticks["tickvals"].append(lowest)
            ticks["ticktext"].append(f"&lt; 10<sup>{minus(round(LEAST_LOG10))}</sup>")
        return ticks
    least = (highest - lowest) / (most - 1)
    step = next((s for s in (1, 2, 3, 5, 10, 20, 50, 100, 200, 500) if s >= least), 1000)
    exponents = list(range(highest, lowest - 1, -step))
    short = {0: "1", 1: "10", 2: "100", -1: "0.1", -2: "0.01", -3: "0.001"}
    text = [short.get(n, f"10<sup>{minus(n)}</sup>") for n in exponents]
    return {"tickvals": exponents if logarithms else [10.0**n for n in exponents], "ticktext": text}
