"""The figure of decoys: the readings of wrong keys on the suspect, and that of the key examined."""

from __future__ import annotations

import plotly.graph_objects as go

from irwm.report.numbers import minus, number, power_of_ten
from irwm.report.plots.summaries import DecoyHistogram
from irwm.report.plots.theme import colours, dashed, figure, power_ticks, vertical_line

# Chances below this are drawn at the end of the axis; the suspect's may be 10^-88, and the decoys would be one line.
_AXIS_ENDS = -12.0
_ROOM = 0.6


def decoy_risks(h: DecoyHistogram, *, dark: bool = False) -> go.Figure:
    """Decoys counted by their corrected chance, and the suspect's own as a line in the accent colour."""
    c = colours(dark)
    total = number(int(h.counts.sum()))
    low = max(min(h.suspect, h.found_at, h.smallest), _AXIS_ENDS) - _ROOM
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
    top = max(int(h.counts.max()), 1)
    fig.update_yaxes(title_text="Decoys (log scale)", type="log", range=[-0.35, len(str(top)) + 0.25])
    fig.update_yaxes(**power_ticks(0, len(str(top))))
    used = [i for i, count in enumerate(h.counts.tolist()) if count]
    lower, upper = h.edges[:-1], h.edges[1:]
    fig.add_bar(
        x=[float(lower[i] + upper[i]) / 2 for i in used],
        y=[int(h.counts[i]) for i in used],
        width=float(h.edges[1] - h.edges[0]) * 0.94,
        marker={"color": c.null, "line": {"width": 0}},
        name=f"wrong keys (decoys), {total}",
        hovertext=[
            f"<b>{number(int(h.counts[i]))} of {total} decoys</b>"
            f"<br>probability above {power_of_ten(float(lower[i]))}, up to {power_of_ten(float(upper[i]))}"
            for i in used
        ],
        hoverinfo="text",
    )
    _line(fig, h.found_at, f"found at or below 10<sup>{minus(round(h.found_at))}</sup>", dashed(c), low, 0.88)
    beyond = h.suspect < low + _ROOM
    at = low + _ROOM / 2 if beyond else h.suspect
    said = f"the key: {power_of_ten(h.suspect)}{', beyond the axis' if beyond else ''}"
    _line(fig, at, said, {"color": c.accent, "width": 3}, low, 1.0)
    fig.add_scatter(
        x=[at],
        y=[1.0],
        mode="markers",
        marker={"color": c.accent, "size": 12, "symbol": "diamond" if beyond else "circle"},
        name="the key examined (observed)",
        hovertext=[f"<b>the key examined</b><br>log10 of the corrected probability: {h.suspect:.6g}".replace("-", "−")],
        hoverinfo="text",
    )
    return fig


def _line(fig: go.Figure, x: float, text: str, line: dict[str, object], low: float, height: float) -> None:
    """A vertical line with its label, on the side with free space."""
    side, shift = ("right", -6) if x > 0.45 * low else ("left", 6)
    vertical_line(fig, x, line, text, height=height, yanchor="top", xanchor=side, xshift=shift)
