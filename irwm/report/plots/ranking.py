"""The figure of a tracing: every recipient's z by rank, with decoys and the threshold for being named."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from irwm.report import schema
from irwm.report.numbers import counted, decimal, minus, number, power_hover
from irwm.report.plots.theme import HEIGHT, TALL, Colours, colours, dashed, figure, label, note

# Above this z a linear axis would compress decoys, threshold and ordinary recipients into one line.
_PLAIN_UP_TO = 30.0
# More names would not fit in a line next to the points.
_MOST_NAMES = 4


def ranking(found: schema.Tracing, *, dark: bool = False, accuses: bool = True) -> go.Figure:
    """z over rank for the recipients of a document's section "tracing"; if there are very many, with a histogram of
    the others below.

    Without `accuses`, as on a suspect that cannot be judged, recipients above the threshold are indicated, not named.
    """
    c = colours(dark)
    word = "named" if accuses else "indicated"
    rows = [(row, row["z"]) for row in found["ranked"] if row["z"] is not None]
    named, others = found["named"], found["others"]
    # Keys, not recipients: among them may be the owner's, and keys whose copy was never written.
    keys = counted(found["recipients"], "key")
    who = f"{counted(named, 'recipient')} {word}" if named else "No recipient is named"
    fig = figure(
        f"{who}; {keys} tried",
        f"A recipient above the dashed line is {word}. Grey: recipients who were never issued a copy (decoys).",
        dark=dark,
        height=TALL if others["count"] else HEIGHT,
    )
    if not rows:
        fig.update_xaxes(visible=False, title_text="Recipients")
        fig.update_yaxes(visible=False, title_text="z")
        note(fig, ["No recipients could be compared:", label(found["reason"], 120)], dark)
        return fig
    if others["count"]:
        make_subplots(rows=2, cols=1, vertical_spacing=0.2, row_heights=[0.62, 0.38], figure=fig)
    z = [z for _, z in rows]
    decoys = [z for z in found["decoys"] if z is not None]
    scale = _scale(z, decoys, found["z_needed"])
    _add_decoys(fig, c, decoys, len(rows), scale)
    for chosen, name, filled in ((False, "not named (observed)", False), (True, f"{word} (observed)", True)):
        here = [(place, row, z) for place, (row, z) in enumerate(rows, 1) if row["named"] == chosen]
        if here:
            _add_recipients(fig, c, here, name, filled, scale, word)
    if accuses and 0 < named <= _MOST_NAMES and named <= len(rows) / 2:
        said = ", ".join(label(row["recipient"] or row["owner"], 28) for row, _ in rows if row["named"])
        fig.add_annotation(
            text=said, x=named, y=scale(z[named - 1]), xanchor="left", xshift=12, showarrow=False,
            font={"size": 12, "color": c.ink}, xref="x", yref="y",
        )  # fmt: skip
    ends = 0.5, len(rows) + 0.5
    bar = scale(found["z_needed"])
    place = {"xref": "x", "yref": "y"}
    fig.add_shape(type="line", x0=ends[0], x1=ends[1], y0=bar, y1=bar, line=dashed(c), **place)
    fig.add_annotation(
        text=f"{word} at z ≥ {decimal(found['z_needed'], 2)}", x=ends[1], y=bar, xanchor="right", yanchor="bottom",
        showarrow=False, font={"size": 12, "color": c.ink}, **place,
    )  # fmt: skip
    first = {"row": 1, "col": 1} if others["count"] else {}
    of = number(found["recipients"])
    what = f"Keys by rank (the first {len(rows)} of {of})" if others["count"] else f"Keys by rank ({of} in total)"
    fig.update_xaxes(title_text=what, range=list(ends), showgrid=False, **_whole(len(rows)), **first)
    fig.update_yaxes(title_text=_axis_title(scale), **_ticks(scale, [*z, *decoys, found["z_needed"]]), **first)
    if others["count"]:
        _add_others(fig, c, others, decoys)
    return fig


def _add_recipients(
    fig: go.Figure,
    c: Colours,
    here: Sequence[tuple[int, schema.Recipient, float]],
    name: str,
    filled: bool,
    scale: _Scale,
    word: str,
) -> None:
    fig.add_scatter(
        x=[place for place, _, _ in here],
        y=[scale(z) for _, _, z in here],
        mode="markers",
        cliponaxis=False,
        marker={
            "color": c.accent,
            "symbol": "circle" if filled else "circle-open",
            "size": 10 if filled else 7,
            "line": {"width": 1 if filled else 1.5, "color": c.paper if filled else c.accent},
        },
        hovertext=[_hover(row, z, word) for _, row, z in here],
        hoverinfo="text",
        name=name,
    )


def _hover(row: schema.Recipient, z: float, word: str) -> str:
    weight = "" if row["share"] is None else f"<br>weight {row['share']:.4g}"
    return (
        f"<b>{label(row['recipient'] or row['owner'])}</b>, {word if row['named'] else 'not named'}"
        f"<br>z = {z:.6g}, rank {number(row['place'])}"
        f"<br>probability, corrected for all recipients: {power_hover(row['log10_risk'])}{weight}"
        f"<br>{number(row['rows'])} rows compared"
    )


def _add_decoys(fig: go.Figure, c: Colours, decoys: Sequence[float], places: int, scale: _Scale) -> None:
    """Decoys by their own rank, spread over the same width: their curve shows chance."""
    if not decoys:
        return
    x = np.linspace(1, places, len(decoys)) if places > 1 else np.linspace(0.6, 1.4, len(decoys))
    fig.add_scatter(
        x=x.tolist(),
        y=[scale(z) for z in decoys],
        mode="markers",
        marker={"color": c.null, "size": 5, "opacity": 0.75},
        hovertext=[
            f"<b>decoy</b>, never issued a copy<br>z = {z:.6g}<br>rank {number(i)} of {number(len(decoys))} decoys"
            for i, z in enumerate(decoys, 1)
        ],
        hoverinfo="text",
        name="decoys: expected by chance",
    )


def _add_others(fig: go.Figure, c: Colours, others: schema.Others, decoys: Sequence[float]) -> None:
    edges = np.array(others["edges"], float)
    centres = (edges[:-1] + edges[1:]) / 2
    counted = np.array(others["counts"], int)
    chance = np.histogram(np.array(decoys, float), edges)[0] if len(decoys) else np.zeros(counted.size, int)
    many = number(others["count"])
    for tally, colour, name in (
        (chance, c.null, "decoys: expected by chance, in the same bins"),
        (counted, c.accent, f"the other {many}, not named (observed)"),
    ):
        used, total = tally > 0, max(int(tally.sum()), 1)
        fig.add_bar(
            x=centres[used].tolist(), y=(100 * tally[used] / total).tolist(), width=float(edges[1] - edges[0]),
            marker={"color": colour, "line": {"width": 0}}, opacity=0.7, name=name, showlegend=colour == c.accent,
            hovertext=[
                f"<b>{name}</b><br>z from {decimal(a, 2)} to {decimal(b, 2)}<br>{number(int(k))} of {number(total)}"
                for a, b, k in zip(edges[:-1][used], edges[1:][used], tally[used], strict=True)
            ],
            hoverinfo="text", row=2, col=1,
        )  # fmt: skip
    fig.update_xaxes(title_text=f"z of the other {many} recipients", row=2, col=1)
    fig.update_yaxes(title_text="Share", ticksuffix="%", rangemode="tozero", row=2, col=1)


_Scale = Callable[[float], float]


def _plain(z: float) -> float:
    return z


def _root(z: float) -> float:
    """Keeps the sign and the order; values near 0 and in the hundreds are both visible."""
    return math.copysign(math.sqrt(abs(z)), z)


def _scale(z: Sequence[float], decoys: Sequence[float], needed: float) -> _Scale:
    return _root if max((abs(v) for v in (*z, *decoys, needed)), default=0.0) > _PLAIN_UP_TO else _plain


def _axis_title(scale: _Scale) -> str:
    return "Sum over the recipient’s signs<br>(z, in standard deviations" + (
        "; square-root scale)" if scale is _root else ")"
    )


def _ticks(scale: _Scale, values: Sequence[float]) -> dict[str, object]:
    """Ticks at round z for the square-root scale; plotly's own otherwise."""
    if scale is _plain:
        return {}
    most = max(abs(v) for v in values)
    # 1, 4, 10, 25, ...: close enough to squares for even spacing.
    steps = [1, 4, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, 25_000, 50_000]
    up = [s for s in steps if s <= 1.2 * most]
    while len(up) > 6:
        up = up[1::2] if len(up) % 2 == 0 else up[::2]
    down = [-s for s in up if s <= 1.2 * abs(min(values, default=0.0)) and min(values) < 0][:2]
    kept = [*reversed(down), 0, *up]
    return {"tickvals": [scale(v) for v in kept], "ticktext": [minus(v) if v < 0 else number(v) for v in kept]}


def _whole(places: int) -> dict[str, object]:
    return {"tickvals": list(range(1, places + 1))} if places <= 12 else {}
