"""The figures of Explore that need no model: equations 1 to 3 over any of their quantities, and where they can be met.

The chosen setting is in the accent colour, its neighbours grey; requirements are dashed lines in ink.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray
from plotly.subplots import make_subplots

from irwm.explore.planning import MOST_POSITIONS, MOST_RECIPIENTS, Odds, Plan, bounds, odds
from irwm.report.numbers import CAPPED_HTML, number, power_hover, power_of_ten
from irwm.report.plots.theme import TALL, Colours, colours, dashed, figure, power_ticks
from irwm.scheme.parameters import RANGES
from irwm.scheme.probabilities import log10_random_user, log10_wrong_user
from ui.explore_settings import ExploreSettings

# Number of points of a curve; more would not be visible, and each takes a tail of a binomial law.
POINTS = 70
# Survivals drawn together with the chosen one: the paper computes with .7 and .8.
NEIGHBOURS = (0.6, 0.7, 0.8, 0.9)
# A smaller chance is practically zero, and the axis ends here.
_LOWEST = -40.0
_DASHES = ("dot", "dash", "longdash", "dashdot", "longdashdot")


@dataclass(frozen=True, slots=True)
class Axis:
    """One quantity on the horizontal axis.

    Attributes:
        name: its value in the page's choice.
        title: in plain words, followed by the paper's symbol.
        symbol: the paper's.
        log: whether the axis is logarithmic.
        value: its value in the settings.
        grid: ascending values around the chosen one, which is among them.
    """

    name: str
    title: str
    symbol: str
    log: bool
    value: Callable[[ExploreSettings], float]
    grid: Callable[[ExploreSettings], list[float]]


def _required(s: ExploreSettings) -> list[float]:
    return _whole(1, s.parameters.positions, s.parameters.required_positions, log=False)


def _positions(s: ExploreSettings) -> list[float]:
    least, chosen = s.parameters.required_positions, s.parameters.positions
    return _whole(least, min(int(RANGES["positions"][1]), max(20 * least, 4 * chosen)), chosen)


def _thresholds(s: ExploreSettings) -> list[float]:
    chosen = s.parameters.rank_threshold
    return _with(np.geomspace(min(0.01, chosen), RANGES["rank_threshold"][1], POINTS).tolist(), chosen)


def _survivals(s: ExploreSettings) -> list[float]:
    return _with(np.linspace(0.01, 0.99, POINTS).round(4).tolist(), s.survival)


def _recipients(s: ExploreSettings) -> list[float]:
    return _whole(1, min(MOST_RECIPIENTS, max(10**6, 10 * s.recipients)), s.recipients)


AXES: tuple[Axis, ...] = (
    Axis("required", "Positions that must count", "ρ", False, lambda s: s.parameters.required_positions, _required),
    Axis("positions", "Positions that carry the mark", "l", True, lambda s: s.parameters.positions, _positions),
    Axis("threshold", "Rank threshold", "β", True, lambda s: s.parameters.rank_threshold, _thresholds),
    Axis("survival", "Share of positions that survive an attack", "p", False, lambda s: s.survival, _survivals),
    Axis("recipients", "Recipients", "num_u", True, lambda s: s.recipients, _recipients),
)


def axis_of(name: str | None) -> Axis:
    """The axis of this name; the first if there is none, because a page may send any value."""
    return next((axis for axis in AXES if axis.name == name), AXES[0])


def odds_over(settings: ExploreSettings, axis: Axis, *, dark: bool = False) -> go.Figure:
    """Success (equation 1) above, false accusation (2 and 3) below, over one quantity; the others stay as chosen."""
    c, x, chosen = colours(dark), axis.grid(settings), axis.value(settings)
    here, p = _here(settings), settings.parameters
    success, missed = float(here.success), float(here.missed)
    # In log space, because the chosen setting's own odds are shown even when they are very small.
    one = log10_random_user(p.positions, p.required_positions, p.rank_threshold)
    any_of = log10_wrong_user(p.positions, p.required_positions, p.rank_threshold, settings.recipients)
    fig = figure(
        f"Success {chance(success)}, false accusation {power_of_ten(any_of)}",
        f"The dot is the chosen setting. Along the axis, only {axis.symbol} changes; " + _held(settings, axis) + ".",
        dark=dark,
        height=TALL,
    )
    make_subplots(rows=2, cols=1, shared_xaxes=True, vertical_spacing=0.1, figure=fig)
    shares = [settings.survival] if axis.name == "survival" else [*_beside(settings.survival), settings.survival]
    for share, dash in zip(shares, (*_DASHES[: len(shares) - 1], "solid"), strict=True):
        own = share == settings.survival
        along = _along(settings, axis, x, share)
        name = "as chosen" if axis.name == "survival" else f"p = {share:g}{', chosen' if own else ''}"
        fig.add_scatter(
            x=x, y=along.success.tolist(), mode="lines", name=f"success, {name}",
            line={"color": c.accent if own else c.null, "width": 2.5 if own else 1.5, "dash": dash},
            hovertext=[
                f"<b>{axis.symbol} = {exact(value)}</b><br>p = {(value if axis.name == 'survival' else share):.6g}"
                f"<br>success {chance(v)} (eq. 1)<br>failure {small(w)}"
                for value, v, w in zip(x, along.success.tolist(), along.missed.tolist(), strict=True)
            ],
            hoverinfo="text", row=1, col=1,
        )  # fmt: skip
    along, n = _along(settings, axis, x, settings.survival), settings.recipients
    curves = [("one key (eq. 2)", "solid", log10_of(along.one), one)]
    if settings.recipients > 1 or axis.name == "recipients":
        whose = "any recipient’s key" if axis.name == "recipients" else f"any of {number(n)} keys"
        curves.append((f"{whose} (eq. 3)", "dash", log10_of(along.any_of), any_of))
    lowest = max(_LOWEST, min(-9.0, math.floor(max(one, _LOWEST)) - 4.0))
    for name, dash, logs, _ in curves:
        fig.add_scatter(
            x=x, y=[v if v >= lowest - 5 else None for v in logs], mode="lines", name=f"false accusation, {name}",
            line={"color": c.null, "width": 2.5, "dash": dash},
            hovertext=[
                f"<b>{axis.symbol} = {exact(value)}</b><br>{name}<br>false accusation {power_hover(v)}"
                for value, v in zip(x, logs, strict=True)
            ],
            hoverinfo="text", row=2, col=1,
        )  # fmt: skip
    told = f"<b>chosen: {axis.symbol} = {exact(chosen)}</b><br>success {chance(success)} (eq. 1)"
    told += f"<br>failure {small(missed)}"
    add_chosen(fig, c, chosen, success, told, row=1)
    for name, _, _, log in curves:
        text = f"<b>chosen: {axis.symbol} = {exact(chosen)}</b><br>{name}<br>false accusation {power_hover(log)}"
        add_chosen(fig, c, chosen, log, text, row=2)
    fig.add_hline(y=settings.success, line=dashed(c), row=1, col=1)
    add_aside(fig, c, settings.success, f"required: {settings.success:.6g}", row=1, below=True)
    if math.log10(settings.risk) > lowest:
        fig.add_hline(y=math.log10(settings.risk), line=dashed(c), row=2, col=1)
        add_aside(fig, c, math.log10(settings.risk), f"accepted risk: {power_of_ten(math.log10(settings.risk))}", row=2)
    _x_axis(fig, axis, x)
    fig.update_yaxes(
        title_text="Success (eq. 1)", range=[-0.04, 1.06], row=1, col=1,
        tickvals=[0, 0.25, 0.5, 0.75, 1], ticktext=["0%", "25%", "50%", "75%", "100%"],
    )  # fmt: skip
    fig.update_yaxes(
        title_text="False accusation<br>(eq. 2, 3; log scale)", range=[lowest, 0.6], row=2, col=1,
        **power_ticks(lowest, 0, most=6, logarithms=True),
    )  # fmt: skip
    return fig


def region(settings: ExploreSettings, found: Plan | None = None, *, dark: bool = False) -> go.Figure:
    """The rho that satisfy both requirements, for every l: the risk gives the lower bound, the success the upper one.

    Drawn as shares of l, which shows how the two bounds approach beta and p.
    """
    c, wish, l = colours(dark), settings.wish, settings.parameters.positions
    rho = settings.parameters.required_positions
    smallest = found.range.positions if found else None
    last = min(MOST_POSITIONS, max(200, 3 * l, 3 * (smallest or 0)))
    grid = [int(v) for v in _whole(5, last, min(l, last)) if v <= MOST_POSITIONS]
    grid = sorted({*grid, *([smallest] if smallest else [])})
    pairs = [bounds(wish, each) for each in grid]
    fig = figure(
        f"At least {smallest} positions are needed to meet both requirements"
        if smallest
        else "No setting meets both requirements",
        f"Risk at most {power_of_ten(math.log10(wish.risk))} for {number(wish.recipients)} "
        f"{'keys' if wish.recipients > 1 else 'key'}, success at least {wish.success:.6g} at p = {wish.survival:g}. "
        f"{'The shaded area meets both.' if smallest else 'The dashed line must rise above the solid one.'}",
        dark=dark,
    )
    low = [lo / each if lo <= each else None for each, (lo, _) in zip(grid, pairs, strict=True)]
    high = [hi / each if hi >= 1 else None for each, (_, hi) in zip(grid, pairs, strict=True)]
    both = [(each, a, b) for each, a, b in zip(grid, low, high, strict=True) if a and b and a <= b]
    if both:
        xs = [each for each, _, _ in both]
        fig.add_scatter(
            x=xs + xs[::-1], y=[b for _, _, b in both] + [a for _, a, _ in both][::-1], mode="lines",
            line={"width": 0}, fill="toself", fillcolor=c.accent_soft, hoverinfo="skip", name="both requirements met",
        )  # fmt: skip
    for name, dash, values, word in (
        ("largest ρ for the required success", "dash", high, "largest for the required success:"),
        ("smallest ρ for the accepted risk", "solid", low, "smallest for the accepted risk:"),
    ):
        fig.add_scatter(
            x=grid, y=values, mode="lines", line={"color": c.null, "width": 2.5, "dash": dash, "shape": "hv"},
            name=name, hoverinfo="text",
            hovertext=[
                f"<b>l = {number(each)}</b><br>{word} ρ = {round(v * each)} ({100 * v:.1f}%)" if v else ""
                for each, v in zip(grid, values, strict=True)
            ],
        )  # fmt: skip
    if found:
        text = f"<b>smallest: l = {found.range.positions}, ρ = {found.required}</b><br>success "
        text += f"{chance(found.success)}<br>false accusation {power_hover(found.log10_risk)}"
        fig.add_scatter(
            x=[found.range.positions], y=[found.required / found.range.positions], mode="markers", name="smallest l",
            marker={"color": c.ink, "size": 12, "symbol": "diamond-open", "line": {"width": 2}},
            hovertext=[text], hoverinfo="text",
        )  # fmt: skip
    success = float(_here(settings).success)
    risk = log10_wrong_user(l, rho, wish.rank_threshold, wish.recipients)
    fig.add_scatter(
        x=[l], y=[rho / l], mode="markers", name=f"chosen: l = {number(l)}, ρ = {number(rho)}", hoverinfo="text",
        marker={"color": c.accent, "size": 12, "line": {"width": 1.5, "color": c.paper}},
        hovertext=[f"<b>chosen: l = {number(l)}, ρ = {number(rho)}</b><br>success {chance(success)}"
                   f"<br>false accusation {power_hover(risk)}"],
    )  # fmt: skip
    ends = math.log10(grid[0]), math.log10(max(grid[-1], l) * 1.1)
    fig.update_xaxes(
        title_text="Positions that carry the mark (l; log scale)", type="log", range=list(ends),
        **round_ticks(grid[0], max(grid[-1], l) * 1.1),
    )  # fmt: skip
    fig.update_yaxes(title_text="Share of positions that must count (ρ / l)", range=[0, 1.03], tickformat=".0%")
    return fig


def _here(s: ExploreSettings) -> Odds:
    """The chosen setting's odds."""
    p = s.parameters
    return odds(p.positions, p.required_positions, p.rank_threshold, s.survival, s.recipients)


def _along(s: ExploreSettings, axis: Axis, x: Sequence[float], survival: float) -> Odds:
    """The odds with one quantity at each value of x."""
    p = s.parameters
    values: dict[str, Any] = {
        "positions": p.positions,
        "required": p.required_positions,
        "threshold": p.rank_threshold,
        "survival": survival,
        "recipients": s.recipients,
    }
    values[axis.name] = np.asarray(x)
    l, rho, beta, share, n = np.broadcast_arrays(*values.values())
    return odds(l, rho, beta, share, n)


def _held(s: ExploreSettings, axis: Axis) -> str:
    values = {
        "required": f"ρ = {number(s.parameters.required_positions)}",
        "positions": f"l = {number(s.parameters.positions)}",
        "threshold": f"β = {s.parameters.rank_threshold:g}",
        "survival": f"p = {s.survival:g}",
        "recipients": f"{number(s.recipients)} {'recipients' if s.recipients > 1 else 'recipient'}",
    }
    return ", ".join(text for name, text in values.items() if name != axis.name) + " stay fixed"


def _beside(survival: float) -> list[float]:
    """Two neighbours of the chosen survival."""
    return sorted(sorted((p for p in NEIGHBOURS if abs(p - survival) > 0.02), key=lambda p: abs(p - survival))[:2])


def add_chosen(fig: go.Figure, c: Colours, x: float, y: float, text: str, row: int = 1) -> None:
    """The dot of the chosen setting."""
    marker = {"color": c.accent, "size": 12, "line": {"width": 1.5, "color": c.paper}}
    axis = "" if row == 1 else str(row)
    fig.add_scatter(
        x=[x], y=[y], mode="markers", marker=marker, showlegend=False, hoverinfo="text", hovertext=[text],
        cliponaxis=False, xaxis=f"x{axis}", yaxis=f"y{axis}",
    )  # fmt: skip


def add_aside(fig: go.Figure, c: Colours, y: float, text: str, row: int = 1, below: bool = False) -> None:
    """A label on a dashed line, at its right end; y in the axis's units, a logarithm on a log axis."""
    axis = "" if row == 1 else str(row)
    fig.add_annotation(
        text=text, x=1, y=y, xref=f"x{axis} domain", yref=f"y{axis}", xanchor="right",
        yanchor="top" if below else "bottom", showarrow=False, font={"size": 12, "color": c.ink},
        bgcolor=c.paper, borderpad=2,
    )  # fmt: skip


def _x_axis(fig: go.Figure, axis: Axis, x: Sequence[float]) -> None:
    fig.update_xaxes(showgrid=False)
    scale = "; log scale" if axis.log else ""
    fig.update_xaxes(title_text=f"{axis.title} ({axis.symbol}{scale})", row=2, col=1)
    if axis.log:
        fig.update_xaxes(type="log", range=[math.log10(x[0]) - 0.02, math.log10(x[-1]) + 0.02])
        fig.update_xaxes(**round_ticks(x[0], x[-1]))


def round_ticks(low: float, high: float) -> dict[str, list[Any]]:
    """Ticks of a log axis that may span less than a decade: 1, 2 and 5 of each power, or whole powers of many."""
    if high / low > 2000:
        return power_ticks(math.log10(low), math.log10(high))
    exponents = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    values = [m * 10.0**n for n in exponents for m in (1, 2, 5) if low <= m * 10.0**n <= high * 1.0001]
    return {"tickvals": values, "ticktext": [exact(round(v, 6)) for v in values]}


def _whole(low: int, high: int, chosen: int, log: bool = True) -> list[float]:
    """Whole numbers from low to high, at most `POINTS` and the chosen one."""
    space = np.geomspace if log else np.linspace
    return _with(sorted({int(v) for v in space(low, max(low, high), POINTS).round()}), chosen)


def _with(values: Sequence[float], chosen: float) -> list[float]:
    return sorted({*values, chosen})


def log10_of(values: NDArray[np.float64]) -> list[float]:
    """log10 of chances, -inf of 0."""
    with np.errstate(divide="ignore"):
        logs: list[float] = np.log10(values).tolist()
    return logs


def small(p: float) -> str:
    """A chance that may be very small, for text that is shown on hover: "3.2 × 10⁻⁴"."""
    return power_hover(math.log10(p)) if p > 0 else CAPPED_HTML


def chance(p: float) -> str:
    """A success to five places that never rounds to certainty."""
    return "above 0.99999" if p > 0.99999 else f"{p:.5f}"


def exact(value: float) -> str:
    """A number for hovers and ticks: thousands separated, without extra digits."""
    return number(int(value)) if float(value).is_integer() else f"{value:.6g}"
