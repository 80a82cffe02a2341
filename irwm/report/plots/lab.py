"""Figures of a lab: the cost of each attack to the model, against what remains of the mark."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, cast

import plotly.graph_objects as go

from irwm import Parameters
from irwm.evidence.verdict import FOUND_LOG10_RISK
from irwm.report import schema
from irwm.report.lab_rows import (
    ATTACK,
    CONTROL,
    RELEASE,
    TOP,
    USABLE,
    WAY_WORDS,
    change_of,
    number_of,
    verdict_way,
    way_of,
)
from irwm.report.numbers import decimal, minus, number, percent, power_hover
from irwm.report.plots.theme import TALL, Colours, add_line, colours, dashed, figure, label, note, power_ticks
from irwm.scheme.parameters import chance_of_counting

Way = tuple[str, str]
Cost = Callable[[schema.LabRow], float | None]
VERDICT_WAY: Way = next(iter(WAY_WORDS))
# The verdict's way of reading and the paper's.
USUAL_WAYS: tuple[Way, ...] = tuple(WAY_WORDS)[:2]
# Found, not found, and neither have different shapes, so that they differ in a grey print too.
SHAPES = {"found": "circle", "not found": "x-thin", "inconclusive": "diamond-open"}
_WORDS = {"found": "mark found", "not found": "not found", "inconclusive": "inconclusive"}
_DASHES = ("solid", "dash", "dot", "dashdot")
# The narrowest and the widest axis of perplexity ratios.
_LEAST_RATIO, _MOST_RATIO = 2.0, 1e8


def curved(rows: Sequence[schema.LabRow]) -> list[str]:
    """Names of the attacks that were carried out at two strengths or more, in their order."""
    counts: dict[str, int] = {}
    for row in rows:
        if row["role"] == ATTACK and row["ways"]:
            counts[row["attack"]] = counts.get(row["attack"], 0) + 1
    return [name for name, count in counts.items() if count > 1]


def trials(mark: schema.LabMark, *, dark: bool = False) -> go.Figure:
    """Every trial as a point: the loss of the model against the odds of the mark's reading."""
    c, rows = colours(dark), [row for row in mark["rows"] if row["ways"]]
    cost = _cost_of(rows)
    shown = [row for row in rows if cost(row) is not None]
    title = "Cost of each attack to the model, and what remains of the mark"
    fig = figure(title, _tally(rows, cost), dark=dark, height=TALL)
    if not shown:
        why = (
            "No trial has been measured yet"
            if not rows
            else "The model cannot be run, so the damage to it is not known"
        )
        note(fig, [why], dark)
        return fig
    deepest = min([FOUND_LOG10_RISK * 1.5, *(_way(row)["log10_risk"] for row in shown)])
    for word in SHAPES:
        own = [row for row in shown if row["role"] == ATTACK and row["verdict"] == word]
        if own:
            fig.add_scatter(
                x=[cost(row) for row in own], y=[_way(row)["log10_risk"] for row in own], mode="markers",
                name=_WORDS[word], marker=_marker(c, word, 11), hovertext=[_said(row) for row in own],
                hoverinfo="text", cliponaxis=False,
            )  # fmt: skip
    # Hollow, so that they do not hide trials with the same numbers.
    for role, name, symbol in ((RELEASE, "not attacked", "star-open"), (CONTROL, "unmarked original", "square-open")):
        own = [row for row in shown if row["role"] == role]
        if own:
            fig.add_scatter(
                x=[cost(row) for row in own], y=[_way(row)["log10_risk"] for row in own], mode="markers",
                name=name, marker={"color": c.ink, "size": 18, "symbol": symbol, "line": {"width": 1.5}},
                hovertext=[_said(row) for row in own], hoverinfo="text", cliponaxis=False,
            )  # fmt: skip
    _level(fig, c, FOUND_LOG10_RISK, f"found at or below 10<sup>{minus(round(FOUND_LOG10_RISK))}</sup>")
    if cost is _ratio:
        add_line(fig, c, 1 + USABLE)
        fig.add_annotation(
            text=f"{percent(USABLE)} higher", x=math.log10(1 + USABLE), y=1, yref="y domain", xanchor="center",
            yanchor="bottom", showarrow=False, font={"size": 12, "color": c.ink},
        )  # fmt: skip
    fig.update_xaxes(**_cost_axis(cost, shown, "as"))
    if cost is _alike:
        fig.update_xaxes(autorange="reversed", range=None)
    fig.update_yaxes(
        range=[1.5 - 0.02 * deepest, deepest * 1.06], **power_ticks(deepest * 1.05, 0, logarithms=True),
        title_text="Probability of this reading without the mark (p; stronger towards the top)",
    )  # fmt: skip
    return fig


def curve(
    mark: schema.LabMark,
    attack: str,
    *,
    ways: Sequence[Way] = USUAL_WAYS,
    top: float | None = None,
    dark: bool = False,
) -> go.Figure:
    """One attack over its strengths: the share of positions that count on the left, perplexity on the right.

    Args:
        mark: one of a lab's marks.
        attack: its name; the figure says so if it was carried out at fewer than two strengths.
        ways: which (statistic, invariant) to draw; the verdict's own in the accent colour.
        top: one of `irwm.report.lab_rows.TOP`: draw the positions whose rank is below this threshold instead of β.
    """
    c, beta = colours(dark), mark["parameters"]["rank_threshold"]
    rows = [row for row in mark["rows"] if row["attack"] == attack and row["role"] == ATTACK and row["ways"]]
    start = next((row for row in mark["rows"] if row["role"] == RELEASE and row["ways"]), None)
    if not rows:
        fig = figure(
            "An attack at several strengths", "The mark on the left, the model on the right", dark=dark, height=TALL
        )
        note(fig, ["This attack has not been carried out"], dark)
        return fig
    first = rows[0]
    fig = figure(f"{label(first['label'])}: the mark and the model", _ends(rows), dark=dark, height=TALL)
    shares = _as_numbers(rows)
    points = ([start] if start is not None else []) + rows
    x = [_place(row, shares, row is start) for row in points]
    for way in [way for way in WAY_WORDS if way in ways]:
        read = [way_of(row, *way) for row in points]
        accent = way == VERDICT_WAY
        fig.add_scatter(
            x=x, y=[_share(reading, top) for reading in read], mode="lines+markers",
            name=WAY_WORDS[way][0], hoverinfo="text", cliponaxis=False,
            line={"color": c.accent if accent else c.ink, "width": 2.5 if accent else 1.5,
                  "dash": _DASHES[list(WAY_WORDS).index(way)]},
            marker=_markers(c, [reading["verdict"] if reading else "not found" for reading in read], accent),
            hovertext=[_read(row, reading, way, top) for row, reading in zip(points, read, strict=True)],
        )  # fmt: skip
    cost = _cost_of(points)
    measured = [(each, row) for each, row in zip(x, points, strict=True) if cost(row) is not None]
    if measured:
        fig.add_scatter(
            x=[each for each, _ in measured], y=[cost(row) for _, row in measured], mode="lines+markers", yaxis="y2",
            name="perplexity (right)" if cost is _ratio else "similarity of hidden states (right)", hoverinfo="text",
            line={"color": c.null, "width": 2}, cliponaxis=False, hovertext=[_said(row) for _, row in measured],
            marker={"color": c.null, "size": 7, "symbol": "square"},
        )  # fmt: skip
        axis = _cost_axis(cost, [row for _, row in measured], ",")
        title = {"text": axis.pop("title_text")}
        axis |= {"overlaying": "y", "side": "right", "showgrid": False, "color": c.quiet, "title": title}
        fig.update_layout(yaxis2=axis, margin={"r": 76})
        if cost is _ratio:
            fig.add_scatter(
                x=[x[0], x[-1]], y=[1 + USABLE] * 2, mode="lines", yaxis="y2", hoverinfo="skip",
                name=f"{percent(USABLE)} higher (right)", line={"color": c.null, "width": 1.5, "dash": "dash"},
            )  # fmt: skip
    if top is None:
        _level(fig, c, beta, f"chance: β = {beta:g}")
    else:
        chance = chance_of_counting(Parameters.from_dict(mark["parameters"]), top)
        _level(fig, c, chance, f"chance: {percent(round(chance, 4))}")
    for word in dict.fromkeys(row["verdict"] for row in points if row["verdict"] is not None):
        # An entry of the legend for each shape in the figure.
        marker = _marker(c, word, 10) | {"color": c.ink}
        fig.add_scatter(x=[None], y=[None], mode="markers", name=_WORDS[word], marker=marker)
    what = "Positions that count (share)" if top is None else f"Positions in the top {percent(top)} (share)"
    share = {"range": [0, 1.04], "tickformat": ".0%", "title": {"text": what}}
    fig.update_layout(yaxis=share)
    symbol = f" ({first['symbol']})" if first["symbol"] else ""
    if shares:
        fig.update_xaxes(title_text=f"Strength{symbol}", tickvals=x, ticktext=_ticks(points, start))
    else:
        fig.update_xaxes(title_text=f"Strength{symbol}", type="category", categoryorder="array", categoryarray=x)
    return fig


def _as_numbers(rows: Sequence[schema.LabRow]) -> bool:
    """Whether the strengths are shares, whose distances have a meaning; bits and steps are evenly spaced."""
    values = [row["value"] for row in rows if isinstance(row["value"], float)]
    return len(values) == len(rows) and all(a < b for a, b in itertools.pairwise(values))


def _place(row: schema.LabRow, share: bool, is_start: bool) -> float | str:
    if is_start:
        return 0.0 if share else "not attacked"
    return row["value"] if share else label(row["strength"])


def _ticks(points: Sequence[schema.LabRow], start: schema.LabRow | None) -> list[str]:
    return ["none" if row is start else label(row["strength"], 20) for row in points]


def _ends(rows: Sequence[schema.LabRow]) -> str:
    """The sentence under a curve's title: whether mark or model is lost first."""
    lost = next((row for row in rows if row["verdict"] != "found"), None)
    ruined = next((row for row in rows if (ratio := _ratio(row)) is not None and ratio > 1 + USABLE), None)
    if all(_ratio(row) is None for row in rows):
        said = "the perplexity is not known"
    elif ruined is None:
        said = "the model stays usable at every strength"
    else:
        said = f"the model first becomes unusable at {label(ruined['strength'])}"
    mark = (
        "The mark is found at every strength"
        if lost is None
        else f"The mark is first lost at {label(lost['strength'])}"
    )
    return f"{mark}; {said}."


def _ratio(row: schema.LabRow) -> float | None:
    """Perplexity as a multiple of the release's, bounded; None if it was not measured."""
    change = change_of(row)
    return None if change is None else min(1 + change, _MOST_RATIO)


def _alike(row: schema.LabRow) -> float | None:
    """The similarity of hidden states, for an encoder that predicts no tokens; None if it was not measured."""
    alike = None if row["utility"] is None else row["utility"]["similarity"]
    return None if alike is None else number_of(alike)


def _cost_of(rows: Sequence[schema.LabRow]) -> Cost:
    """The measure of these models' loss: perplexity if they have one, else the similarity of hidden states."""
    has_none = all(_ratio(row) is None for row in rows)
    return _alike if has_none and any(_alike(row) is not None for row in rows) else _ratio


def _cost_axis(cost: Cost, rows: Sequence[schema.LabRow], join: str) -> dict[str, object]:
    values = [value for row in rows if (value := cost(row)) is not None]
    if cost is _alike:
        return {
            "range": [min(0.0, *values), 1.04],
            "title_text": "Similarity of hidden states (mean cosine with the release’s)",
        }
    low, most = min([0.95, *values]) / 1.03, max([_LEAST_RATIO, *values]) * 1.3
    what = "as a multiple" if join == "as" else ", multiple"
    title = f"Perplexity {what} of the release’s (log scale)".replace(" ,", ",")
    ends = [math.log10(low), math.log10(most)]
    return {"type": "log", "range": ends, "title_text": title, **_ratio_ticks(low, most)}


def _tally(rows: Sequence[schema.LabRow], cost: Cost) -> str:
    """The sentence under the title: how many were found on either side of the line."""
    attacks = [row for row in rows if row["role"] == ATTACK]
    left_out = sum(cost(row) is None for row in rows)
    if cost is _alike:
        found = sum(row["verdict"] == "found" for row in attacks)
        said = "This encoder predicts no tokens, so it has no perplexity. "
        said += f"The mark was found after {found} of {len(attacks)} attacks."
    else:
        sides = [[row for row in attacks if (ratio := _ratio(row)) is not None and (ratio <= 1 + USABLE) is usable]
                 for usable in (True, False)]  # fmt: skip
        kept, outlived = (sum(row["verdict"] == "found" for row in side) for side in sides)
        said = (
            "To the left of the line, the model is usable. There, the mark was found in "
            f"{kept} of {len(sides[0])} trials; to the right of the line, in {outlived} of {len(sides[1])}."
        )
    return said + (f" Trials not measured and not shown: {left_out}." if left_out else "")


def _ratio_ticks(low: float, high: float) -> dict[str, list[Any]]:
    if high > 100:
        return power_ticks(0, math.log10(high))
    values = [v for v in (0.5, 0.7, 0.8, 0.9, 1, 1.1, 1.25, 1.5, 2, 3, 5, 10, 20, 50, 100) if low <= v <= high]
    return {"tickvals": values, "ticktext": [f"{v:g}×" for v in values]}


def _marker(c: Colours, word: str, size: int) -> dict[str, object]:
    found = word == "found"
    colour = c.accent if found else c.ink
    width = 1 if found else 2.5 if word == "not found" else 2
    return {"color": colour, "size": size, "symbol": SHAPES[word],
            "line": {"width": width, "color": c.paper if found else colour}}  # fmt: skip


def _markers(c: Colours, words: Sequence[str], accent: bool) -> dict[str, object]:
    colour = c.accent if accent else c.ink
    # A ring, so that the verdict's marker stays visible if two readings agree.
    found = SHAPES["found"] if accent else "circle-open"
    return {
        "color": colour,
        "size": 11 if accent else 15,
        "symbol": [found if word == "found" else SHAPES.get(word, "x-thin") for word in words],
        "line": {"width": [1.5 if word == "found" else 2.5 for word in words],
                 "color": [c.paper if word == "found" and accent else colour for word in words]},
    }  # fmt: skip


def _level(fig: go.Figure, c: Colours, y: float, text: str) -> None:
    """A dashed line in ink across the figure, with its label at its left end."""
    fig.add_shape(type="line", xref="x domain", x0=0, x1=1, yref="y", y0=y, y1=y, line=dashed(c))
    fig.add_annotation(
        text=text, xref="x domain", x=0, yref="y", y=y, xanchor="left", yanchor="bottom", showarrow=False,
        font={"size": 12, "color": c.ink}, bgcolor=c.paper, borderpad=2,
    )  # fmt: skip


def name_of(row: schema.Attacked) -> str:
    """A row in a few words: the attack and its strength."""
    return row["label"] if row["strength"] in ("", "once") else f"{row['label']}, {row['strength']}"


def _way(row: schema.LabRow) -> schema.LabReading:
    """The reading that the verdict rests on, of a row that has readings."""
    return cast(schema.LabReading, verdict_way(row))


def _said(row: schema.LabRow) -> str:
    """The text of a trial's hover."""
    way = _way(row)
    lines = [f"<b>{label(name_of(row), 80)}</b>", _WORDS[row["verdict"] or way["verdict"]]]
    lines.append(f"{way['count']} of {way['present']} positions count")
    lines.append(f"probability by chance: {power_hover(way['log10_risk'])}")
    if row["traced"] is not None:
        lines.append(f"recipient {'named' if row['traced']['named'] else 'not named'}, z = {_z(row)}")
    u = row["utility"]
    if u is not None:
        if u["perplexity"] is not None:
            lines.append(f"perplexity {_number(u['perplexity'])}, {change_text(cast(float, change_of(row)))}")
        if u["kl"] is not None:
            lines.append(f"KL {number_of(u['kl']):.4g} nats")
        if u["top1"] is not None:
            lines.append(f"same most likely token: {100 * u['top1']:.1f}%")
        if (alike := _alike(row)) is not None:
            lines.append(f"similarity of hidden states {alike:.4f} (cosine)")
    return "<br>".join(lines)


def _share(reading: schema.LabReading | None, top: float | None) -> float | None:
    """The share of the positions that count, or whose rank is below `top`."""
    if reading is None or top is None or not reading["present"]:
        return reading["share"] if reading else None
    return reading["top"][TOP.index(top)] / reading["present"]


def _read(row: schema.LabRow, reading: schema.LabReading | None, way: Way, top: float | None) -> str:
    if reading is None:
        return ""
    below = "" if top is None else f"{reading['top'][TOP.index(top)]} in the top {percent(top)}<br>"
    return (
        f"<b>{label(name_of(row), 80)}</b><br>{WAY_WORDS[way][0]}: {_WORDS[reading['verdict']]}<br>"
        f"{reading['count']} of {reading['present']} positions count<br>{below}"
        f"probability by chance: {power_hover(reading['log10_risk'])}"
    )


def change_text(change: float) -> str:
    """A change of perplexity in words: "12.3% higher", "unchanged", "40 times as high"."""
    if math.isinf(change):
        return "too large to measure"
    if abs(change) < 5e-5:
        return "unchanged"
    if change < 9:
        return f"{100 * abs(change):.3g}% {'higher' if change > 0 else 'lower'}"
    return "over a million times as high" if change > 1e6 else f"{number(round(1 + change))} times as high"


def _number(value: schema.Extended) -> str:
    found = number_of(value)
    return "too large to measure" if math.isinf(found) else f"{found:.4g}"


def _z(row: schema.LabRow) -> str:
    z = None if row["traced"] is None else row["traced"]["z"]
    return "unknown" if z is None else decimal(z, 1)
