"""The figure of match similarities against decoys: the similarity of the suspect's rows with the original's."""

from __future__ import annotations

import math

import plotly.graph_objects as go

from irwm.report.numbers import decimal, number
from irwm.report.plots.summaries import CosineHistogram
from irwm.report.plots.theme import HEIGHT, colours, dashed, figure, label, note, vertical_line

# A label that begins right of this value would leave the figure.
_ROOM_BEGINS = 0.7

_WRONG = "Non-matching rows have a similarity near 0 in any model."
_MINOR = "The minor components exclude what independently trained models have in common."


def similarities(h: CosineHistogram, *, dark: bool = False) -> go.Figure:
    """Similarities of matched rows with the original's, against decoys: the same rows paired with wrong ones."""
    c = colours(dark)
    fig = figure(
        "Similarity of matched rows, compared with non-matching rows (decoys)",
        "In a related model, the median is to the right of the dashed line. "
        f"{_MINOR if h.minor_components else _WRONG}",
        dark=dark,
        height=HEIGHT,
    )
    where = " in minor components" if h.minor_components else ""
    fig.update_xaxes(title_text=f"Similarity to the original’s row{where} (cosine; 1 = the same direction)")
    fig.update_xaxes(range=[-1.02, 1.02])
    fig.update_yaxes(title_text="Share of the compared rows", ticksuffix="%", rangemode="tozero")
    if not h.rows.sum():
        fig.update_yaxes(visible=False, range=[0, 1])
        note(fig, ["No rows could be compared:", label(h.reason, 120)], dark)
        return fig
    centres = ((h.edges[:-1] + h.edges[1:]) / 2).tolist()
    for tally, colour, name in (
        (h.decoys, c.null, "non-matching row (decoy)"),
        (h.rows, c.accent, "matched row (observed)"),
    ):
        total = max(int(tally.sum()), 1)
        used = tally > 0
        fig.add_bar(
            x=[v for v, keep in zip(centres, used, strict=True) if keep],
            y=(100 * tally[used] / total).tolist(),
            width=float(h.edges[1] - h.edges[0]),
            marker={"color": colour, "line": {"width": 0}},
            opacity=0.7,  # both are visible where they overlap
            name=f"{name}, {number(int(tally.sum()))} rows",
            hovertext=[
                f"<b>{name}</b><br>similarity {decimal(a, 2)} to {decimal(b, 2)}"
                f"<br>{number(k)} of {number(total)} rows ({100 * k / total:.4g}%)"
                for a, b, k in zip(h.edges[:-1][used], h.edges[1:][used], tally[used].tolist(), strict=True)
            ],
            hoverinfo="text",
        )
    # Two labels above one axis: the lower value's label ends at its line, the higher one's begins there if it fits.
    reached = h.median >= h.needed
    needed = f"the median must reach {h.needed:g}"
    vertical_line(fig, h.needed, dashed(c), needed, xanchor="right" if reached else "left")
    if math.isnan(h.median):
        return fig
    exact = f"median of the matched rows: {h.median:.6g}<br>median of non-matching rows: {h.decoy_median:.6g}"
    side = "left" if reached and h.median <= _ROOM_BEGINS else "right"
    line = {"color": c.accent, "width": 2}
    vertical_line(fig, h.median, line, f"median {decimal(h.median, 3)}", xanchor=side, hovertext=exact)
    return fig
