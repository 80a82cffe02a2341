"""The figure of decoys: the readings of wrong keys on the suspect, and that of the key examined."""

from __future__ import annotations

import plotly.graph_objects as go

from irwm.report import schema
from irwm.report.numbers import minus, number, power_of_ten
from irwm.report.plots.theme import colours, dashed, figure, power_ticks, vertical_line

# Chances below this are drawn at the end of the axis; the suspect's may be 10^-88, and the decoys would be one line.
_AXIS_ENDS = -12.0
_ROOM = 0.6


def decoy_risks(decoys: schema.Decoys, found_at: float, *, dark: bool = False) -> go.Figure:
    """Decoys counted by their corrected chance, and the suspect's own as a line in the accent colour."""
    c = colours(dark)
    own, edges, counts = decoys["suspect_log10_risk"], decoys["histogram"]["edges"], decoys["histogram"]["counts"]
    total = number(sum(counts))
    low = max(min(own, found_at, decoys["smallest_log10_risk"]), _AXIS_ENDS) - _ROOM
    fig = figure(
        f"{total} wrong keys on this suspect, and the key examined",
        "Grey: wrong keys (decoys). Keys to the left of the dashed line count as “found”.",
        dark=dark,
    )
    fig.update_xaxes(
        title_text="Corrected probability without the mark (log scale; smaller to the left)",
        range=[low, 0.25],
        showgrid=False,
        **power_ticks(low, 0, most=10, logarithms=True),
    )
    top = max(*counts, 1)
    fig.update_yaxes(title_text="Decoys (log scale)", type="log", range=[-0.35, len(str(top)) + 0.25])
    fig.update_yaxes(**power_ticks(0, len(str(top))))
    used = [(a, b, count) for a, b, count in zip(edges[:-1], edges[1:], counts, strict=True) if count]
    fig.add_bar(
        x=[(a + b) / 2 for a, b, _ in used],
        y=[count for _, _, count in used],
        width=(edges[1] - edges[0]) * 0.94,
        marker={"color": c.null, "line": {"width": 0}},
        name=f"wrong keys (decoys), {total}",
        hovertext=[
            f"<b>{number(count)} of {total} decoys</b><br>probability above {power_of_ten(a)}, up to {power_of_ten(b)}"
            for a, b, count in used
        ],
        hoverinfo="text",
    )
    _line(fig, found_at, f"found at or below 10<sup>{minus(round(found_at))}</sup>", dashed(c), low, 0.88)
    beyond = own < low + _ROOM
    at = low + _ROOM / 2 if beyond else own
    said = f"the key: {power_of_ten(own)}{', beyond the axis' if beyond else ''}"
    _line(fig, at, said, {"color": c.accent, "width": 3}, low, 1.0)
    fig.add_scatter(
        x=[at],
        y=[1.0],
        mode="markers",
        marker={"color": c.accent, "size": 12, "symbol": "diamond" if beyond else "circle"},
        name="the key examined (observed)",
        hovertext=[f"<b>the key examined</b><br>log10 of the corrected probability: {own:.6g}".replace("-", "−")],
        hoverinfo="text",
    )
    return fig


def _line(fig: go.Figure, x: float, text: str, line: dict[str, object], low: float, height: float) -> None:
    """A vertical line with its label, on the side with free space."""
    side, shift = ("right", -6) if x > 0.45 * low else ("left", 6)
    vertical_line(fig, x, line, text, height=height, yanchor="top", xanchor=side, xshift=shift)
