"""The figure of match similarities against decoys: the similarity of the suspect's rows with the original's."""

from __future__ import annotations

import plotly.graph_objects as go

from irwm.report import schema
from irwm.report.numbers import decimal, number
from irwm.report.plots.theme import HEIGHT, colours, dashed, figure, label, note, vertical_line

# A label that begins right of this value would leave the figure.
_ROOM_BEGINS = 0.7

_WRONG = "Non-matching rows have a similarity near 0 in any model."
_MINOR = "The minor components exclude what independently trained models have in common."


def similarities(alignment: schema.Alignment, *, dark: bool = False) -> go.Figure:
    """Similarities of matched rows with the original's, against decoys: the same rows paired with wrong ones."""
    c = colours(dark)
    minor, least = alignment["minor_components"], alignment["needed_median_cosine"]
    median, wrong = alignment["median_cosine"], alignment["median_decoy_cosine"]
    counts = alignment["histogram"]
    edges = counts["edges"]
    fig = figure(
        "Similarity of matched rows, compared with non-matching rows (decoys)",
        f"In a related model, the median is to the right of the dashed line. {_MINOR if minor else _WRONG}",
        dark=dark,
        height=HEIGHT,
    )
    where = " in minor components" if minor else ""
    fig.update_xaxes(title_text=f"Similarity to the original’s row{where} (cosine; 1 = the same direction)")
    fig.update_xaxes(range=[-1.02, 1.02])
    fig.update_yaxes(title_text="Share of the compared rows", ticksuffix="%", rangemode="tozero")
    if not any(counts["rows"]):
        fig.update_yaxes(visible=False, range=[0, 1])
        note(fig, ["No rows could be compared:", label(alignment["reason"], 120)], dark)
        return fig
    for tally, colour, name in (
        (counts["decoys"], c.null, "non-matching row (decoy)"),
        (counts["rows"], c.accent, "matched row (observed)"),
    ):
        total = max(sum(tally), 1)
        used = [(a, b, k) for a, b, k in zip(edges[:-1], edges[1:], tally, strict=True) if k]
        fig.add_bar(
            x=[(a + b) / 2 for a, b, _ in used],
            y=[100 * k / total for _, _, k in used],
            width=edges[1] - edges[0],
            marker={"color": colour, "line": {"width": 0}},
            opacity=0.7,  # both are visible where they overlap
            name=f"{name}, {number(sum(tally))} rows",
            hovertext=[
                f"<b>{name}</b><br>similarity {decimal(a, 2)} to {decimal(b, 2)}"
                f"<br>{number(k)} of {number(total)} rows ({100 * k / total:.4g}%)"
                for a, b, k in used
            ],
            hoverinfo="text",
        )
    # Two labels above one axis: the lower value's label ends at its line, the higher one's begins there if it fits.
    reached = median is not None and median >= least
    needed = f"the median must reach {least:g}"
    vertical_line(fig, least, dashed(c), needed, xanchor="right" if reached else "left")
    if median is None or wrong is None:
        return fig
    exact = f"median of the matched rows: {median:.6g}<br>median of non-matching rows: {wrong:.6g}"
    side = "left" if reached and median <= _ROOM_BEGINS else "right"
    line = {"color": c.accent, "width": 2}
    vertical_line(fig, median, line, f"median {decimal(median, 3)}", xanchor=side, hovertext=exact)
    return fig
