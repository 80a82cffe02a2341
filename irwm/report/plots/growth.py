"""The figure of a tracing in generated text: z of the likeliest recipient by the number of tokens."""

from __future__ import annotations

import math

import plotly.graph_objects as go

from irwm.report import schema
from irwm.report.numbers import decimal, number
from irwm.report.plots.theme import colours, dashed, figure


def clear_of_chance(found: schema.Tracing) -> float:
    """About the z that the likeliest of as many recipients exceeds only rarely by chance."""
    return math.sqrt(2 * math.log(found["recipients"] + 1)) + 0.5


def tokens_enough(found: schema.Tracing) -> int | None:
    """About how many tokens would name the likeliest recipient, if z grows with the root of their number; None if z may
    be due to chance."""
    last = found["growth"][-1]
    z = last["z"] or 0.0
    if z < clear_of_chance(found):
        return None
    return math.ceil(last["tokens"] * (found["z_needed"] / z) ** 2 / 1000) * 1000


def growth(found: schema.Tracing, *, dark: bool = False, accuses: bool = True) -> go.Figure:
    """The measured points, the z that names a recipient, and, if nobody is named, how z may grow; `accuses` as in
    `irwm.report.plots.ranking.ranking`."""
    c = colours(dark)
    points = [(point["tokens"], point["z"]) for point in found["growth"] if point["z"] is not None]
    enough = None if found["named"] else tokens_enough(found)
    last = points[-1][0] if points else found["growth"][-1]["tokens"]
    end = max(last, enough or 0)
    fig = figure(
        "z of the likeliest recipient by the number of tokens",
        "For a copy that generated the text, z usually grows with the square root of this number. For others it stays "
        "near 0.",
        dark=dark,
    )
    fig.add_scatter(
        x=[tokens for tokens, _ in points],
        y=[z for _, z in points],
        mode="lines+markers",
        marker={"color": c.accent, "size": 8},
        line={"color": c.accent, "width": 1.5},
        hovertext=[f"<b>{number(tokens)} tokens</b><br>z = {decimal(z, 2)}" for tokens, z in points],
        hoverinfo="text",
        name="likeliest recipient (observed)",
    )
    if enough is not None and points:
        start, last_z = points[-1]
        x = [start + (enough - start) * step / 20 for step in range(21)]
        fig.add_scatter(
            x=x, y=[last_z * math.sqrt(value / start) for value in x], mode="lines",
            line={"color": c.null, "dash": "dot"}, hoverinfo="skip",
            name=f"if it grows further: {number(enough)} tokens are enough",
        )  # fmt: skip
    bar, word = found["z_needed"], "named" if accuses else "indicated"
    fig.add_shape(type="line", x0=0, x1=1.05 * end, y0=bar, y1=bar, line=dashed(c))
    fig.add_annotation(
        text=f"{word} at z ≥ {decimal(bar, 2)}", x=1.05 * end, y=bar, xanchor="right", yanchor="bottom",
        showarrow=False, font={"size": 12, "color": c.ink},
    )  # fmt: skip
    fig.update_xaxes(title_text="Tokens", range=[0, 1.05 * end])
    z = [z for _, z in points]
    low, high = min([0.0, *z]), max([bar, *z])  # lines alone do not widen an axis
    margin = 0.08 * (high - low)
    title = "Sum over the recipient’s signs<br>(z, in standard deviations)"
    fig.update_yaxes(title_text=title, range=[low - margin, high + margin])
    return fig
