"""The figures of Explore about a model: ranks under noise, stored entries, conditions, hiding, colluders.

Lines are theory or computed from the model's own rows, dots are simulations on these rows; the chosen setting is in the
accent colour and its neighbours are grey.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray
from plotly.subplots import make_subplots

from irwm.explore import answering
from irwm.explore.capacity import Collusion, most_colluders
from irwm.explore.planning import MOST_POSITIONS, odds
from irwm.explore.prediction import Rehearsal, counting_share
from irwm.explore.survival import Survival
from irwm.report.numbers import number
from irwm.report.plots.theme import TALL, add_line, colours, dashed, figure, note, power_ticks
from ui.explore_plots import add_aside, add_chosen, chance, exact, round_ticks
from ui.explore_settings import MOST_COPIES, MOST_NOISE, ExploreSettings

POINTS = 80
# Noise at which rows are simulated; the range in which marks disappear.
SIMULATED_NOISE = (0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0)
SIMULATED_COLLUDERS = (1, 2, 4, 8)
# The paper's constraints, drawn together with the chosen ones.
NEIGHBOURS = (5, 10, 20)
_SCALES = (0.1, 1e5)
# Noise on every log-probability of an answer, in nats; rounding to one decimal adds as much as the first.
ANSWER_NOISE = {0.03: "rounded to one decimal", 0.2: "0.2 nats of noise", 0.5: "0.5 nats of noise"}
USUAL_ANSWER_NOISE = 0.2
# Range of the number of answers in the figure, in widths of the model.
MOST_ANSWER_WIDTHS = 10
# Range of a fingerprint's sizes in the figure: below it rounding removes most of it, above it the cost is that of
# noise that is written over.
SPREADS = (0.01, 1.0)
_DASHES = ("dot", "dash", "longdash")


def ranks_under_noise(
    settings: ExploreSettings, simulated: Mapping[str, NDArray[np.float64]] | None = None, *, dark: bool = False
) -> go.Figure:
    """Share of the marked positions that still count under white noise, by both statistics.

    Args:
        simulated: shares at `SIMULATED_NOISE`, for "joint" and "sum".
    """
    c, p = colours(dark), settings.parameters
    t, beta, l, rho = p.constraints, p.rank_threshold, p.positions, p.required_positions
    here = {name: float(counting_share(settings.noise, t, beta, name)) for name in ("joint", "sum")}
    fig = figure(
        f"With noise of {settings.noise:g} σ, {100 * here['joint']:.0f}% of the positions still count under the joint "
        f"statistic and {100 * here['sum']:.0f}% under the sum",
        "Lines: theory. Dots: simulated noise on this model’s rows, ranked as in detection."
        if simulated
        else "Lines: theory. Choose a model to add simulations that use its rows.",
        dark=dark,
    )
    x = np.linspace(0, MOST_NOISE, POINTS)
    looks = (
        ("joint", "joint, used for the verdict", c.accent, "solid", "circle"),
        ("sum", "sum, as in the paper", c.null, "dash", "square"),
    )
    for statistic, name, colour, dash, symbol in looks:
        shares = counting_share(x, t, beta, statistic)
        fig.add_scatter(
            x=x.tolist(), y=shares.tolist(), mode="lines", name=name, hoverinfo="text",
            line={"color": colour, "width": 2.5, "dash": dash},
            hovertext=[_rank_text(k, s, l, rho, name) for k, s in zip(x.tolist(), shares.tolist(), strict=True)],
        )  # fmt: skip
        if simulated is not None:
            fig.add_scatter(
                x=list(SIMULATED_NOISE), y=simulated[statistic].tolist(), mode="markers", hoverinfo="text",
                name=f"{statistic}, simulated",
                marker={"color": c.paper, "symbol": symbol, "size": 9, "line": {"width": 2, "color": colour}},
                hovertext=[
                    f"<b>simulated, {name}</b><br>noise {k:g} σ<br>{100 * s:.1f}% of the positions count"
                    for k, s in zip(SIMULATED_NOISE, simulated[statistic].tolist(), strict=True)
                ],
            )  # fmt: skip
        add_chosen(fig, c, settings.noise, here[statistic], _rank_text(settings.noise, here[statistic], l, rho, name))
    fig.add_hline(y=beta, line=dashed(c))
    add_aside(fig, c, beta, f"by chance (β = {beta:g})", below=True)
    add_line(fig, c, settings.noise, f"noise {settings.noise:g} σ", of=MOST_NOISE)
    fig.update_xaxes(
        title_text="White noise on the rows (k, in units of a row’s standard deviation σ)", range=[0, MOST_NOISE]
    )
    fig.update_yaxes(title_text=f"Positions that count (rank below β = {beta:g})", range=[0, 1.04], tickformat=".0%")
    return fig


def positions_needed(settings: ExploreSettings, *, dark: bool = False) -> go.Figure:
    """How many positions the verdict needs after white noise, for the chosen constraints and for others."""
    c, p = colours(dark), settings.parameters
    chosen = survival_of(settings)
    survived, needed = chosen.noise(p.positions), chosen.positions(settings.noise)
    fig = figure(
        f"{number(p.positions)} positions survive noise of {survived:.2f} σ; to survive {settings.noise:g} σ, "
        f"{'more than ' + number(MOST_POSITIONS) if needed is None else number(needed)} are needed",
        f"For a verdict that finds the mark in 99 of 100 cases, corrected for {_keys_text(settings.recipients)}.",
        dark=dark,
    )
    x = np.linspace(0, MOST_NOISE, POINTS)
    others = [t for t in NEIGHBOURS if t != p.constraints]
    for t, dash in [*zip(others, _DASHES, strict=False), (p.constraints, "solid")]:
        own = t == p.constraints
        y = replace(chosen, constraints=t).positions_of(x.tolist())
        fig.add_scatter(
            x=x.tolist(), y=y, mode="lines", name=f"t = {t}{', chosen' if own else ''}", hoverinfo="text",
            line={"color": c.accent if own else c.null, "width": 2.5 if own else 1.5, "dash": dash},
            hovertext=[
                f"<b>t = {t}</b><br>noise {k:.3g} σ<br>"
                f"{'no number is enough' if l is None else number(l) + ' positions'}"
                for k, l in zip(x.tolist(), y, strict=True)
            ],
        )  # fmt: skip
    own_text = f"<b>chosen: {number(p.positions)} positions</b><br>survive noise of {survived:.2f} σ"
    add_chosen(fig, c, min(survived, MOST_NOISE), p.positions, own_text)
    add_line(fig, c, settings.noise, f"noise {settings.noise:g} σ", of=MOST_NOISE)
    fig.update_xaxes(
        title_text="White noise on the rows (k, in units of a row’s standard deviation σ)", range=[0, MOST_NOISE]
    )
    fig.update_yaxes(title_text="Positions needed (l; log scale)", type="log", range=[0, math.log10(MOST_POSITIONS)])
    return fig


def answers_needed(settings: ExploreSettings, width: int, *, dark: bool = False) -> go.Figure:
    """The answers of a served copy that the verdict needs, by the noise on them, after the attack on its weights.

    Args:
        width: d of the model.
    """
    c, p, k = colours(dark), settings.parameters, settings.noise
    survived = survival_of(settings).noise(p.positions)
    needed = {nats: answering.answers_needed(width, nats, survived, k) for nats in (0.0, *ANSWER_NOISE)}
    usual = needed[USUAL_ANSWER_NOISE]
    if needed[0.0] is None:
        title = (
            f"No number of answers is enough: {number(p.positions)} positions survive {survived:.2f} σ, but the attack "
            f"is {k:g} σ"
        )
    else:
        many = f"more than {number(answering.MOST_WIDTHS * width)}" if usual is None else number(usual)
        title = (
            f"{number(needed[0.0])} exact answers are enough; with {USUAL_ANSWER_NOISE:g} nats of noise, {many} are "
            "needed"
        )
        if usual == needed[0.0]:
            title = f"{number(usual)} answers are enough, whether exact or with {USUAL_ANSWER_NOISE:g} nats of noise"
    fig = figure(
        title,
        f"For d = {number(width)} and noise of {k:g} σ on the weights. Areas: range across four models. Lines: the "
        "worst model.",
        dark=dark,
    )
    x = np.unique(np.geomspace(width + 1, MOST_ANSWER_WIDTHS * width, POINTS).astype(int)).tolist()
    for (nats, label), dash in zip(ANSWER_NOISE.items(), ("solid", "dash", "dot"), strict=True):
        own = nats == USUAL_ANSWER_NOISE
        colour = c.accent if own else c.null
        left = np.hypot(answering.noise_left(x, width, nats), k)
        low, high = np.minimum(left, 2 * MOST_NOISE)  # outside the drawn range; a figure has no infinity
        fig.add_scatter(
            x=[*x, *x[::-1]], y=[*low.tolist(), *high[::-1].tolist()], fill="toself", mode="lines", opacity=0.18,
            line={"width": 0}, fillcolor=colour, hoverinfo="skip", showlegend=False,
        )  # fmt: skip
        fig.add_scatter(
            x=x, y=high.tolist(), mode="lines", name=label, hoverinfo="text",
            line={"color": colour, "width": 2.5 if own else 1.5, "dash": dash},
            hovertext=[
                f"<b>{label}</b><br>{number(n)} answers<br>noise of {a:.2f} to {b:.2f} σ remains on the rows"
                for n, a, b in zip(x, low.tolist(), high.tolist(), strict=True)
            ],
        )  # fmt: skip
    fig.add_hline(y=survived, line=dashed(c))
    add_aside(fig, c, survived, f"{number(p.positions)} positions survive {survived:.2f} σ")
    if usual is not None and usual <= x[-1]:
        here = math.hypot(answering.noise_left([usual], width, USUAL_ANSWER_NOISE)[1, 0], k)
        said = f"<b>{number(usual)} answers</b><br>{ANSWER_NOISE[USUAL_ANSWER_NOISE]}<br>at worst, {here:.2f} σ remains"
        add_chosen(fig, c, usual, here, said)
    ticks = round_ticks(x[0], x[-1])
    fig.update_xaxes(title_text="Answers with the log-probabilities of enough tokens (n; log scale)", type="log",
                     range=[math.log10(x[0]), math.log10(x[-1])], **ticks)  # fmt: skip
    fig.update_yaxes(
        title_text="Noise added to the rows (k, in units of a row’s standard deviation σ)",
        range=[0, 1.25 * max(survived, 0.4)],
    )
    return fig


def survival_of(settings: ExploreSettings) -> Survival:
    """The damage that a mark with these settings survives, with this number of keys."""
    p = settings.parameters
    return Survival(p.constraints, p.permutations, settings.recipients)


def _keys_text(keys: int) -> str:
    return "one key" if keys == 1 else f"{number(keys)} keys"


def _rank_text(k: float, share: float, l: int, rho: int, name: str) -> str:
    success = float(odds(l, rho, 0.5, min(max(share, 1e-12), 1 - 1e-12), 1).success)
    return (
        f"<b>{name}</b><br>noise {k:.3g} σ<br>{100 * share:.2f}% of the positions count"
        f"<br>then at least ρ = {rho} of {l} count with probability {chance(success)} (eq. 1)"
    )


def entry_sizes(rehearsals: Sequence[Rehearsal], chosen: Rehearsal, *, dark: bool = False) -> go.Figure:
    """Stored entries over the rows' own, by scale, for several t; at 1 they are as large as their neighbours."""
    c, size = colours(dark), chosen.relative_size
    fig = figure(
        f"A stored number is {_times(size)} the size of its neighbours",
        f"At the dashed line, no number in a row stands out. The scale there is {chosen.natural_scale:.3g} (“auto”) "
        f"for t = {chosen.constraints}.",
        dark=dark,
    )
    low, high = min(_SCALES[0], chosen.scale_used / 2), max(_SCALES[1], chosen.scale_used * 2)
    x = np.geomspace(low, high, 30)
    others = [each for each in rehearsals if each.constraints != chosen.constraints]
    for each, dash in zip([*others, chosen], (*_DASHES[: len(others)], "solid"), strict=True):
        own = each is chosen
        y = each.natural_scale / x
        name = f"t = {each.constraints}{', chosen' if own else ''}"
        fig.add_scatter(
            x=x.tolist(), y=y.tolist(), mode="lines", name=name, hoverinfo="text",
            line={"color": c.accent if own else c.null, "width": 2.5 if own else 1.5, "dash": dash},
            hovertext=[f"<b>{name}</b><br>scale {s:.4g}<br>{_times(v)} the size of its neighbours"
                       for s, v in zip(x.tolist(), y.tolist(), strict=True)],
        )  # fmt: skip
    usual = np.quantile(chosen.sizes, (0.05, 0.95))
    fig.add_scatter(
        x=[chosen.scale_used] * 2, y=np.maximum(usual, 1e-9).tolist(), mode="lines", name="90% of the stored numbers",
        line={"color": c.accent, "width": 7}, opacity=0.35, hoverinfo="text",
        hovertext=[
            f"90% of them are between<br>{_times(usual[0])} and {_times(usual[1])} the size of the row’s own numbers"
        ] * 2,
    )  # fmt: skip
    text = (
        f"<b>chosen: scale {chosen.scale_used:.4g}</b><br>{_times(size)} the size of its neighbours (root mean square)"
    )
    add_chosen(fig, c, chosen.scale_used, size, text)
    fig.add_hline(y=1, line=dashed(c))
    add_aside(fig, c, 0.0, "as large as their neighbours")
    fig.update_xaxes(title_text="Scale (scale_wm; log scale)", type="log", range=[math.log10(low), math.log10(high)],
                     **power_ticks(math.log10(low), math.log10(high)))  # fmt: skip
    ends = math.log10(chosen.natural_scale / high) - 0.5, math.log10(chosen.natural_scale / low) + 0.5
    fig.update_yaxes(title_text="Stored numbers / row’s own<br>(root mean squares; log scale)", type="log",
                     range=list(ends), **power_ticks(*ends))  # fmt: skip
    return fig


def conditions(
    found: NDArray[np.float64], sizes: NDArray[np.float64], limit: float, constraints: int, *, dark: bool = False
) -> go.Figure:
    """Above: cond(A2) of every try and the best so far. Below: the size of the entries that result from a try.

    Args:
        found: (n,) cond(A2) of each try, in order.
        sizes: (m,) RMS of the solved entries over the rows' own, for the first m tries.
    """
    c, x = colours(dark), np.arange(1, found.size + 1)
    met = found < limit
    first = f"attempt {int(np.argmax(met)) + 1} is used" if met.any() else "no attempt can be used"
    fig = figure(
        f"Stable enough: {int(met.sum())} of {found.size} attempts; {first}",
        f"Filled dots: cond(A2) below τ = {limit:g}. A lower limit needs more attempts and keeps the solved numbers "
        "small.",
        dark=dark,
        height=TALL,
    )
    make_subplots(rows=2, cols=1, vertical_spacing=0.22, figure=fig)
    for kept, name, symbol, colour in ((met, "stable enough", "circle", c.accent), (~met, "rejected", "circle-open",
                                       c.null)):  # fmt: skip
        at = np.flatnonzero(kept)
        fig.add_scatter(
            x=x[at].tolist(), y=found[at].tolist(), mode="markers", name=name, hoverinfo="text",
            marker={"color": colour, "symbol": symbol, "size": 7},
            hovertext=[f"<b>attempt {i + 1}</b><br>cond(A2) = {found[i]:.4g}<br>{name}" for i in at], row=1, col=1,
        )  # fmt: skip
        at = at[at < sizes.size]
        fig.add_scatter(
            x=found[at].tolist(), y=sizes[at].tolist(), mode="markers", showlegend=False, hoverinfo="text",
            marker={"color": colour, "symbol": symbol, "size": 7}, row=2, col=1,
            hovertext=[
                f"<b>attempt {i + 1}</b><br>cond(A2) = {found[i]:.4g}<br>"
                f"solved numbers: {_times(sizes[i])} the size of the row’s own"
                for i in at
            ],
        )  # fmt: skip
    best = np.minimum.accumulate(found)
    fig.add_scatter(
        x=x.tolist(), y=best.tolist(), mode="lines", name="best so far", hoverinfo="text", row=1, col=1,
        line={"color": c.ink, "width": 1.5, "shape": "hv"},
        hovertext=[f"<b>best up to attempt {n}</b><br>cond(A2) = {v:.4g}" for n, v in zip(x, best, strict=True)],
    )  # fmt: skip
    fig.add_hline(y=limit, line=dashed(c), row=1, col=1)
    add_aside(fig, c, math.log10(limit), f"τ = {limit:g}")
    low, high = float(min(found.min(), limit)) / 1.3, float(max(np.quantile(found, 0.98), limit)) * 1.3
    fig.add_vline(x=limit, line=dashed(c), row=2, col=1)
    fig.update_xaxes(title_text="Attempt", type="log", range=[-0.05, math.log10(found.size) + 0.05], row=1, col=1,
                     **round_ticks(1, found.size))  # fmt: skip
    fig.update_yaxes(title_text="cond(A2) (log scale)", type="log", range=[math.log10(low), math.log10(high)],
                     row=1, col=1, **round_ticks(low, high))  # fmt: skip
    fig.update_xaxes(title_text="cond(A2) of the attempt (log scale)", type="log", row=2, col=1,
                     range=[math.log10(low), math.log10(high)], **round_ticks(low, high))  # fmt: skip
    bottom, top = float(sizes.min()) / 1.3, float(np.quantile(sizes, 0.98)) * 1.3
    fig.update_yaxes(title_text=f"Solved numbers / row’s own<br>(t = {constraints}; log scale)", type="log",
                     row=2, col=1, range=[math.log10(bottom), math.log10(top)], **round_ticks(bottom, top))  # fmt: skip
    return fig


def hiding(
    levels: Sequence[int], seen: Sequence[float], chosen: int, constraints: int, *, dark: bool = False
) -> go.Figure:
    """How well two recipients who compare copies can identify the marked rows, over num_noise.

    Args:
        levels: noise coordinates tried, ascending, `chosen` among them.
        seen: area under the curve at each.
    """
    c, here = colours(dark), seen[list(levels).index(chosen)]
    # Rows that change by less than all others are as visible as rows that change by more.
    plain = 2 * abs(here - 0.5)
    word = "cannot" if plain < 0.16 else "can partly" if plain < 0.5 else "can"
    fig = figure(
        f"Marked rows {word} be identified by the size of their change (area {here:.2f})",
        "An area of 0.5 is no better than a coin toss. At 1, marked rows change more than all others; at 0, less.",
        dark=dark,
    )
    fig.add_scatter(
        x=list(levels), y=list(seen), mode="lines+markers", name="comparison of two copies, on this model’s rows",
        line={"color": c.null, "width": 2.5}, marker={"color": c.null, "size": 7}, hoverinfo="text",
        hovertext=[f"<b>num_noise = {m}</b><br>area under the curve {v:.3f}"
                   for m, v in zip(levels, seen, strict=True)],
    )  # fmt: skip
    add_chosen(fig, c, chosen, here, f"<b>chosen: num_noise = {chosen}</b><br>area under the curve {here:.3f}")
    fig.add_hline(y=0.5, line=dashed(c))
    add_aside(fig, c, 0.5, "coin toss")
    add_line(fig, c, constraints, f"t = {constraints}", of=levels[-1])
    fig.update_xaxes(title_text="Noise coordinates per row (num_noise)", range=[-0.5, levels[-1] + 0.5])
    fig.update_yaxes(title_text="Area under the curve", range=[-0.03, 1.06])
    return fig


def colluders(
    case: Collusion | None,
    naming: float,
    recipients: int,
    simulated: Sequence[float] = (),
    *,
    dark: bool = False,
) -> go.Figure:
    """z of the guilty over the number of averaged copies, compared with the z needed to name them.

    Args:
        case: model, noise and chosen number of copies; None if there is no noise to trace by.
        naming: the z from which one of `recipients` is named.
        simulated: mean z of the guilty at `SIMULATED_COLLUDERS`, as far as they were simulated.
    """
    c = colours(dark)
    if case is None:
        advice = ["Set num_noise (noise coordinates) to more than 0,", "or choose the preset “Many recipients”."]
        return _empty(
            "Without noise coordinates, no one can be traced",
            "A mixture of copies does not identify anyone.",
            advice,
            dark,
        )
    most = most_colluders(case, naming)
    fig = figure(
        f"Every colluder is named for up to c = {number(most)} averaged copies" if most else "No colluder is named",
        f"On average, with added noise of {case.noise:g} σ; s = {number(case.rows)}, d = {number(case.hidden_size)}."
        + (" Dots: simulations on this model’s rows." if len(simulated) else ""),
        dark=dark,
    )
    last = max(100, min(MOST_COPIES, 4 * most), case.colluders)
    x = sorted({int(v) for v in np.geomspace(1, last, POINTS)} | {case.colluders})
    cases = [replace(case, colluders=each) for each in x]
    for name, dash, z, width in (
        ("average colluder", "solid", [each.expected_z for each in cases], 2.5),
        ("weakest colluder", "dash", [each.weakest_z for each in cases], 2.0),
    ):
        fig.add_scatter(
            x=x, y=[v if v > 0.3 else None for v in z], mode="lines", name=f"{name}, theory", hoverinfo="text",
            line={"color": c.null, "width": width, "dash": dash},
            hovertext=[f"<b>{n} {'copies' if n > 1 else 'copy'} averaged</b><br>{name}: z = {v:.2f}"
                       for n, v in zip(x, z, strict=True)],
        )  # fmt: skip
    if len(simulated):
        fig.add_scatter(
            x=list(SIMULATED_COLLUDERS[: len(simulated)]), y=list(simulated), mode="markers", hoverinfo="text",
            name="average colluder, simulated",
            marker={"color": c.paper, "size": 9, "line": {"width": 2, "color": c.ink}},
            hovertext=[f"<b>simulated: c = {n}</b><br>mean z = {v:.2f}"
                       for n, v in zip(SIMULATED_COLLUDERS, simulated, strict=False)],
        )  # fmt: skip
    text = f"<b>chosen: c = {case.colluders}</b><br>average colluder: z = {case.expected_z:.2f}"
    text += f"<br>weakest colluder: z = {case.weakest_z:.2f}, {'named' if case.weakest_z >= naming else 'not named'}"
    add_chosen(fig, c, case.colluders, max(case.weakest_z, 0.3), text)
    fig.add_hline(y=naming, line=dashed(c))
    add_aside(fig, c, math.log10(naming), f"named at z ≥ {naming:.1f} (1 of {number(recipients)})")
    fig.update_xaxes(title_text="Averaged copies (c; log scale)", type="log", range=[-0.05, math.log10(last) + 0.03],
                     **round_ticks(1, last))  # fmt: skip
    top = cases[0].expected_z * 1.6
    fig.update_yaxes(title_text="Noise score (z; log scale)", type="log",
                     range=[0, math.log10(max(top, 2 * naming))], **round_ticks(1, max(top, 2 * naming)))  # fmt: skip
    return fig


def fingerprint(case: Collusion | None, naming: float, recipients: int, *, dark: bool = False) -> go.Figure:
    """Above: z over the fingerprint's size, for one copy and for the weakest of those averaged, under the attack's
    noise. Below: the change of every row, which is the fingerprint's cost.

    Args:
        case, naming, recipients: as for `colluders`.
    """
    c = colours(dark)
    if case is None or isinstance(case.noise_level, str):
        advice = ["Set num_noise (noise coordinates) to more than 0,", "and choose “Added” as the noise."]
        return _empty("No fingerprint is added", "There is no size to choose.", advice, dark)
    chosen, each = case.noise_level, math.sqrt(case.noise_coordinates / case.hidden_size)
    sizes = sorted({*np.geomspace(SPREADS[0], SPREADS[1], POINTS).tolist(), chosen})
    cases = [replace(case, noise_level=size) for size in sizes]
    alone = [replace(it, colluders=1).expected_z for it in cases]
    weakest = [it.weakest_z for it in cases]
    enough = next((size for size, z in zip(sizes, weakest, strict=True) if z >= naming), None)
    copies = f"all {case.colluders} averaged copies" if case.colluders > 1 else "the copy"
    fig = figure(
        f"At α = {enough:.2g} or more, {copies} can be identified"
        if enough
        else f"No size is enough to identify {copies}",
        f"On average, with added noise of {case.noise:g} σ; s = {number(case.rows)}, d = {number(case.hidden_size)}. "
        f"At α = {chosen:g}, every row changes by {100 * chosen * each:.2g}% of its length.",
        dark=dark,
        height=TALL,
    )
    make_subplots(rows=2, cols=1, vertical_spacing=0.22, figure=fig)
    lines = [("one copy", "solid", alone)]
    if case.colluders > 1:
        lines.append((f"the weakest of {case.colluders} averaged copies", "dash", weakest))
    for name, dash, z in lines:
        fig.add_scatter(
            x=sizes, y=[v if v > 0.3 else None for v in z], mode="lines", name=name, hoverinfo="text", row=1, col=1,
            line={"color": c.null, "width": 2.5, "dash": dash},
            hovertext=[f"<b>α = {size:.3g}</b><br>{name}: z = {v:.2f}" for size, v in zip(sizes, z, strict=True)],
        )  # fmt: skip
    changes = [100 * size * each for size in sizes]
    fig.add_scatter(
        x=sizes, y=changes, mode="lines", showlegend=False, hoverinfo="text", row=2, col=1,
        line={"color": c.null, "width": 2.5},
        hovertext=[f"<b>α = {size:.3g}</b><br>every row changes by {change:.2g}% of its length"
                   for size, change in zip(sizes, changes, strict=True)],
    )  # fmt: skip
    here = case.weakest_z
    named = "named" if here >= naming else "not named"
    for row, y, text in ((1, max(here, 0.3), f"weakest copy: z = {here:.2f}, {named}"),
                         (2, 100 * chosen * each, f"every row changes by {100 * chosen * each:.2g}%")):  # fmt: skip
        add_chosen(fig, c, chosen, y, f"<b>chosen: α = {chosen:g}</b><br>{text}", row)
    fig.add_hline(y=naming, line=dashed(c), row=1, col=1)
    add_aside(fig, c, math.log10(naming), f"named at z ≥ {naming:.1f} (1 of {number(recipients)})")
    ends = math.log10(SPREADS[0]), math.log10(SPREADS[1])
    ticks = round_ticks(*SPREADS)
    fig.update_xaxes(title_text="Size of the fingerprint (α, in units of a row’s root mean square; log scale)",
                     type="log", range=list(ends), **ticks)  # fmt: skip
    top = max(alone) * 1.6
    fig.update_yaxes(title_text="Noise score<br>(z; log scale)", type="log", row=1, col=1,
                     range=[0, math.log10(max(top, 2 * naming))], **round_ticks(1, max(top, 2 * naming)))  # fmt: skip
    fig.update_yaxes(title_text="Change in each row<br>(% of its length; log scale)", type="log", row=2, col=1,
                     range=[math.log10(changes[0]), math.log10(changes[-1])],
                     **round_ticks(changes[0], changes[-1]))  # fmt: skip
    return fig


def _empty(title: str, subtitle: str, advice: list[str], dark: bool) -> go.Figure:
    """A figure without data, with the settings that would give some."""
    fig = figure(title, subtitle, dark=dark)
    note(fig, advice, dark)
    return fig


def _times(ratio: float) -> str:
    """ "1.3 times", "1/76 of": a ratio of sizes in words that fit before "the size of its neighbours"."""
    if 0.995 <= ratio < 1.005:
        return "about"
    if ratio >= 1:
        return f"{ratio:.3g} times"
    if ratio > 0.1:
        return f"{ratio:.2g} times"
    return f"1/{exact(round(1 / ratio))} of" if ratio > 1e-12 else "a negligible fraction of"
