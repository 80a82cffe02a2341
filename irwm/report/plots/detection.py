"""Figures from plain results. The observed value is in the accent colour, chance is grey, the setting is ink.

Every function returns a `go.Figure` of fixed height with a title, a line on how to read it, axes in plain words
followed by the paper's symbol, and hovers with exact numbers. A figure is drawn from the summaries of
`irwm.report.plots.summaries`, which a report's JSON also has, so the figures of a report can be drawn again from it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import ArrayLike, NDArray
from plotly.subplots import make_subplots
from scipy.special import betaincinv

from irwm.report.numbers import listed, number, ordinal, percent, power_hover, power_of_ten
from irwm.report.plots.summaries import (
    GONE,
    ReadingSummary,
    counts,
    position_name,
    position_text,
    rank,
)
from irwm.report.plots.theme import TALL, Colours, add_line, colours, dashed, figure, label, note, power_ticks
from irwm.scheme.parameters import Parameters
from irwm.scheme.probabilities import log10_random_user, log10_wrong_user, success_probability

# Shares of the positions that still count in a copy that was tampered with: the paper computes success at .7 and .8;
# .9 shows what a lighter change leaves.
PLAUSIBLE_SHARES = (0.7, 0.8, 0.9)
# Number of values of rho on a curve; more would not be visible.
_MOST_POINTS = 240
# The axis is logarithmic if the largest value is this many times the smallest; below it a linear axis reads better.
_LOG_SPREAD = 20.0
# The quantity, then the statistic's name and formula; in two lines, because one would not fit next to the axis.
_STATISTIC = {
    "joint": "Distance from the key’s equations<br>(joint, ‖L⁻¹A′e′‖",
    "sum": "Residual of the key’s equations<br>(sum, |Σ A′e′|",
    "difference": "Minus the correlation with<br>the mark’s own change (difference",
}


def position_ranks(
    s: ReadingSummary,
    parameters: Parameters,
    marked_rows: ArrayLike | None = None,
    tokens: Mapping[int, str] | None = None,
    *,
    dark: bool = False,
) -> go.Figure:
    """Every position's observed statistic on the bands of its own null.

    Positions stay in the key's order: sorting them would make noise look like a trend, and the sorted view has its own
    figure with the band of chance.

    Args:
        s: one statistic's outcome.
        parameters: the key's parameters; beta places the ticks.
        marked_rows: (l,) token ids for the hovers, None to withhold them.
        tokens: token text by id, for the hovers.
    """
    c = colours(dark)
    l = s.observed.size
    fig = figure(
        "Each marked position compared with its own null distribution",
        f"A dot counts if it is below its tick. Grey: the same row in {number(s.permutations)} random orders.",
        dark=dark,
    )
    fig.update_xaxes(title_text=f"Marked position, in the key’s own order (1 to l = {l})", showgrid=False)
    fig.update_xaxes(range=[0.2, l + 0.8], zeroline=False)
    seen = np.isfinite(s.observed)
    if not seen.any():
        fig.update_yaxes(visible=False, range=[0, 1])
        note(fig, [f"None of the {l} marked rows could be ranked.", "There is no observed value to show."], dark)
        return fig
    x = np.arange(1, l + 1)
    names = [position_name(i, marked_rows, tokens) for i in range(l)]
    texts = [f"<b>{names[i]}</b><br>{position_text(s, i, parameters)}" for i in range(l)]
    log, low, high = _y_range(s, seen)
    for (lower, upper), colour in zip(((0, 6), (1, 5), (2, 4)), c.bands, strict=True):
        below, above = s.bands[seen, lower], s.bands[seen, upper]
        below = np.maximum(below, low)  # a log axis cannot show a bar from 0
        fig.add_bar(
            x=x[seen].tolist(),
            base=below.tolist(),
            y=(above - below).tolist(),
            width=0.82,
            marker={"color": colour, "line": {"width": 0}},
            hovertext=[texts[i] for i in np.flatnonzero(seen)] if lower == 0 else None,
            hoverinfo="text" if lower == 0 else "skip",
            name="chance: 50, 90 and 98% bands",
            showlegend=lower == 1,
        )
    ticked = seen & np.isfinite(s.thresholds)
    limit = f"upper limit for a dot to count (β = {parameters.rank_threshold:g})"
    _add_ticks(fig, x[ticked], s.thresholds[ticked], c, limit)
    lane = low * 1.3 if log else low + 0.04 * (high - low)
    off_scale = (s.observed <= 0) & log
    fig.add_scatter(
        x=x[seen].tolist(),
        y=np.where(off_scale, lane, s.observed)[seen].tolist(),
        hovertext=[texts[i] for i in np.flatnonzero(seen)],
        name="observed with the key",
        **_dots(c, l, symbols=["triangle-down" if off else "circle" for off in off_scale[seen]]),
    )
    gone = np.flatnonzero(~seen)
    if gone.size:
        fig.add_scatter(
            x=x[gone].tolist(),
            y=[lane] * gone.size,
            hovertext=[f"<b>{names[i]}</b><br>{GONE}" for i in gone],
            name=f"gone or unusable: {listed((gone + 1).tolist())}",
            **_dots(c, l, gone=True),
        )
    title = _STATISTIC.get(s.statistic, f"Statistic ({label(s.statistic, 30)}")
    if log:
        fig.update_yaxes(title_text=f"{title}; log scale)", type="log", range=[math.log10(low), math.log10(high)])
        fig.update_yaxes(**power_ticks(math.log10(low), math.log10(high)))
    else:
        fig.update_yaxes(title_text=f"{title})", range=[low, high])
    return fig


def sorted_ranks(
    s: ReadingSummary,
    parameters: Parameters,
    marked_rows: ArrayLike | None = None,
    tokens: Mapping[int, str] | None = None,
    *,
    dark: bool = False,
) -> go.Figure:
    """Ranks in ascending order against chance: the order statistics of a uniform distribution.

    The i-th smallest of n uniform ranks follows Beta(i, n + 1 - i); its mean i / (n + 1) and its central 95% are the
    grey line and band (pointwise). The rule count >= rho holds exactly where the curve is below beta at rho.
    """
    c = colours(dark)
    l, n, floor = s.ranks.size, s.present, 1.0 / (1 + s.permutations)
    threshold, rho = parameters.rank_threshold, parameters.required_positions
    title = (
        f"{s.count} of {n} positions rank below {threshold:g}; "
        f"the rule requires {rho}, and chance gives {threshold * n:.0f}"
    )
    if not n:
        title = f"None of the {l} positions could be ranked"
    how = "Each dot is one position. Without the mark, the dots follow the grey line."
    fig = figure(title, how if n else "Hollow: gone or unusable. There are no ranks to compare.", dark=dark)
    fig.update_xaxes(title_text=f"Positions, smallest rank first (1 to l = {l})", range=[0, l + 1], showgrid=False)
    bottom = min(floor, threshold) / 1.6
    fig.update_yaxes(
        title_text="Rank among random permutations (log scale)",
        type="log",
        range=[math.log10(bottom), math.log10(1.6)],
        **_rank_ticks(bottom, threshold),
    )
    if s.count:
        fig.add_shape(
            type="rect", x0=0, x1=s.count + 0.5, y0=bottom, y1=threshold,
            fillcolor=c.accent_soft, line={"width": 0}, layer="below",
        )  # fmt: skip
    if n:
        order = np.argsort(np.where(np.isfinite(s.ranks), s.ranks, np.inf), kind="stable")[:n]
        i = np.arange(1, n + 1)
        low, high = (np.maximum(betaincinv(i, n + 1 - i, q), floor) for q in (0.025, 0.975))
        mean = i / (n + 1)
        x = i.tolist()
        fig.add_scatter(x=x, y=high.tolist(), mode="lines", line={"width": 0}, showlegend=False, hoverinfo="skip")
        fig.add_scatter(
            x=x, y=low.tolist(), mode="lines", line={"width": 0}, fill="tonexty", fillcolor=c.bands[1],
            hoverinfo="skip", name="95% range expected by chance (pointwise)",
        )  # fmt: skip
        fig.add_scatter(
            x=x, y=np.maximum(mean, floor).tolist(), mode="lines", line={"color": c.null, "width": 2},
            hoverinfo="skip", name="average expected by chance",
        )  # fmt: skip
        texts = [
            f"<b>{ordinal(k + 1)} smallest: {position_name(p, marked_rows, tokens)}</b>"
            f"<br>rank {rank(s.ranks[p], s.permutations)}, {counts(s.ranks[p], threshold)}"
            f"<br>chance gives {mean[k]:.4g} on average, {low[k]:.4g} to {high[k]:.4g} in 95% of cases"
            for k, p in enumerate(order.tolist())
        ]
        fig.add_scatter(
            x=x,
            y=s.ranks[order].tolist(),
            hovertext=texts,
            name="observed with the key",
            cliponaxis=False,
            **_dots(c, l),
        )
    gone = np.flatnonzero(~np.isfinite(s.ranks))
    if gone.size:
        fig.add_scatter(
            x=list(range(n + 1, l + 1)),
            y=[1.0] * gone.size,
            hovertext=[f"<b>{position_name(p, marked_rows, tokens)}</b><br>{GONE}" for p in gone.tolist()],
            name=f"gone or unusable: {listed((gone + 1).tolist())}",
            **_dots(c, l, gone=True),
        )
    fig.add_hline(y=threshold, line=dashed(c))
    add_line(fig, c, rho, f"at least ρ = {rho} positions must count", of=l)
    return fig


def odds(
    parameters: Parameters,
    recipients: int = 1,
    *,
    dark: bool = False,
) -> go.Figure:
    """The odds of a setting: success (equation 1) and false accusation (equations 2 and 3) over rho.

    Args:
        parameters: l, beta and the chosen rho.
        recipients: keys in use, for equation 3.
    """
    c = colours(dark)
    l, rho, threshold = parameters.positions, parameters.required_positions, parameters.rank_threshold
    grid = np.unique(np.append(np.linspace(1, l, min(l, _MOST_POINTS)).round().astype(int), rho)).tolist()
    one, any_of = log10_random_user(l, rho, threshold), log10_wrong_user(l, rho, threshold, recipients)
    usual = PLAUSIBLE_SHARES[len(PLAUSIBLE_SHARES) // 2]
    whom = f"among {number(recipients)} keys" if recipients > 1 else "per key"
    fig = figure(
        f"The probabilities for these settings: ρ = {rho} of {l}, β = {threshold:g}",
        f"Success: {_chance(success_probability(l, rho, usual))} at p = {usual:g}; "
        f"false accusation: {power_of_ten(any_of)} {whom}.",
        dark=dark,
        height=TALL,
    )
    make_subplots(rows=2, cols=1, shared_xaxes=True, vertical_spacing=0.12, figure=fig)
    for share, dash in zip(PLAUSIBLE_SHARES, ("dot", "dash", "solid"), strict=True):
        name = f"if {percent(share)} of positions survive (p = {share:g})"
        chances = [success_probability(l, r, share) for r in grid]
        fig.add_scatter(
            x=grid, y=chances, mode="lines", line={"color": c.ink, "width": 2, "dash": dash}, name=name,
            hovertext=[
                f"<b>{name}</b><br>ρ = {r} of {l}<br>success: {v:.6g}" for r, v in zip(grid, chances, strict=True)
            ],
            hoverinfo="text", row=1, col=1,
        )  # fmt: skip
    curves = [("one key that was never inserted", "solid", [log10_random_user(l, r, threshold) for r in grid])]
    if recipients > 1:
        name = f"any of {number(recipients)} such keys"
        curves.append((name, "dash", [log10_wrong_user(l, r, threshold, recipients) for r in grid]))
    for name, dash, logs in curves:
        fig.add_scatter(
            x=grid, y=logs, mode="lines", line={"color": c.null, "width": 2.5, "dash": dash}, name=name,
            hovertext=[
                f"<b>{name}</b><br>ρ = {r} of {l}<br>false accusation: {power_hover(v)}"
                for r, v in zip(grid, logs, strict=True)
            ],
            hoverinfo="text", row=2, col=1,
        )  # fmt: skip
    bottom = min(-9, math.floor(min(one, any_of)) - 3)
    fig.update_xaxes(range=[0, l + 1], showgrid=False)
    fig.update_xaxes(title_text=f"Positions that must count (ρ, of l = {l})", row=2, col=1)
    fig.update_yaxes(title_text="Success (eq. 1)", range=[-0.04, 1.06], row=1, col=1)
    fig.update_yaxes(tickvals=[0, 0.25, 0.5, 0.75, 1], ticktext=["0%", "", "50%", "", "100%"], row=1, col=1)
    fig.update_yaxes(
        title_text="False accusation<br>(eq. 2, 3; log scale)", range=[bottom, 0.6], row=2, col=1,
        **power_ticks(bottom, 0, most=5, logarithms=True),
    )  # fmt: skip
    add_line(fig, c, rho, f"chosen: ρ = {rho}", of=l)
    add_line(fig, c, rho, row=2)
    fig.add_scatter(
        x=[rho] * len(curves), y=[one, any_of][: len(curves)], mode="markers", showlegend=False,
        marker={"color": c.ink, "size": 8}, row=2, col=1, hoverinfo="text",
        hovertext=[
            f"<b>chosen: ρ = {rho}</b><br>{name}<br>false accusation: {power_hover(v)}"
            for (name, _, _), v in zip(curves, (one, any_of), strict=False)
        ],
    )  # fmt: skip
    return fig


def _y_range(s: ReadingSummary, seen: NDArray[np.bool_]) -> tuple[bool, float, float]:
    """Whether the axis is logarithmic, and its ends in data units; the lowest part is for values that do not fit."""
    values = np.concatenate((s.observed[seen], s.bands[seen].ravel(), s.thresholds[seen]))
    values = values[np.isfinite(values)]
    positive = values[values > 0]
    if positive.size and values.min() >= 0 and s.statistic != "difference":
        smallest, largest = float(positive.min()), float(positive.max())
        if largest / smallest > _LOG_SPREAD:
            return True, smallest / 2.5, largest * 1.6
    low, high = float(values.min()), float(values.max())
    margin = max(high - low, 1e-12) * 0.08
    return False, low - 1.5 * margin, high + margin


def _dots(c: Colours, l: int, *, gone: bool = False, symbols: list[str] | str = "circle") -> dict[str, object]:
    """How positions are drawn: filled and in the accent colour when observed, hollow when gone."""
    marker: dict[str, object] = {"color": c.accent, "symbol": symbols, "line": {"width": 1, "color": c.paper}}
    if gone:
        marker = {"color": c.quiet, "symbol": "circle-open", "line": {"width": 1.5}}
    return {"mode": "markers", "hoverinfo": "text", "marker": marker | {"size": 9 if l <= 80 else 6}}


def _rank_ticks(bottom: float, threshold: float) -> dict[str, list[Any]]:
    """Ticks of an axis of ranks, including beta; a power of ten that is too close to beta is left out."""
    ticks = power_ticks(math.log10(bottom), 0)
    pairs = zip(ticks["tickvals"], ticks["ticktext"], strict=True)
    kept = [(v, text) for v, text in pairs if abs(math.log10(v / threshold)) > 0.15] + [
        (threshold, f"β = {threshold:g}")
    ]
    return {"tickvals": [v for v, _ in kept], "ticktext": [text for _, text in kept]}


def _add_ticks(fig: go.Figure, x: NDArray[Any], y: NDArray[Any], c: Colours, name: str) -> None:
    """One short horizontal line per position, as a single trace with gaps."""
    xs = [v for i in x.tolist() for v in (i - 0.41, i + 0.41, None)]
    ys = [v for t in y.tolist() for v in (t, t, None)]
    fig.add_scatter(x=xs, y=ys, mode="lines", line={"color": c.ink, "width": 1.5}, hoverinfo="skip", name=name)


def _chance(p: float) -> str:
    """A probability to five places that never rounds to certainty."""
    return "above 0.99999" if p > 0.99999 else f"{p:.5f}"
