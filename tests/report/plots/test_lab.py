"""Figures of a lab: their content, and figures of incomplete data."""

from __future__ import annotations

import json
import math
from typing import Any

import plotly.graph_objects as go
import pytest

from irwm.report.lab_rows import WAY_WORDS
from irwm.report.plots.lab import SHAPES, VERDICT_WAY, change_text, curve, curved, name_of, trials
from irwm.report.plots.theme import colours
from tests.ui.lab_documents import crafted, row

DARK_AND_LIGHT = pytest.mark.parametrize("dark", [False, True])
RELEASE, CONTROL = row("none", 0, role="release", change=0.0), row("original", 0, role="control", verdict="not found")
PRUNED = [
    row("prune", 0.1, change=0.01),
    row("prune", 0.5, change=0.5),
    row("prune", 0.9, change=900.0, verdict="not found"),
]


def mark(*rows: dict[str, Any], noise: int = 0) -> dict[str, Any]:
    return crafted([RELEASE, CONTROL, *rows], noise=noise)["marks"][0]


def hovers(fig: go.Figure) -> str:
    return "\n".join(text for trace in fig.data for text in (trace.hovertext or ()) if text)


def named(fig: go.Figure, name: str) -> Any:
    (found,) = [trace for trace in fig.data if trace.name == name]
    return found


@DARK_AND_LIGHT
def test_every_trial_is_a_point_of_cost_and_remaining_mark(dark: bool) -> None:
    fig = trials(mark(*PRUNED), dark=dark)
    found, lost = named(fig, "mark found"), named(fig, "not found")
    assert (list(found.x), list(found.y)) == ([1.01, 1.5], [-39.7, -39.7])
    assert (list(lost.x), list(lost.y)) == ([901.0], [0.0])
    assert found.marker.symbol == SHAPES["found"] != lost.marker.symbol
    assert found.marker.color == colours(dark).accent
    assert named(fig, "not attacked").x == (1.0,)
    assert named(fig, "not attacked").marker.symbol.endswith("-open"), "it does not hide trials at its place"
    assert fig.layout.xaxis.type == "log"
    assert 1.25 in [shape.x0 for shape in fig.layout.shapes]
    assert fig.layout.yaxis.range[0] > fig.layout.yaxis.range[1]  # stronger is higher
    for text in ("Pruned, 10%", "48 of 50", "log10 = −39.7", "901 times", "KL 0.02 nats"):
        assert text in hovers(fig)


@DARK_AND_LIGHT
def test_a_curve_shows_the_mark_and_the_model_over_the_strength(dark: bool) -> None:
    fig = curve(mark(*PRUNED), "prune", ways=list(WAY_WORDS), dark=dark)
    joint, perplexity = named(fig, WAY_WORDS[VERDICT_WAY][0]), named(fig, "perplexity (right)")
    assert list(joint.x) == list(perplexity.x) == [0.0, 0.1, 0.5, 0.9]
    assert list(joint.y) == [0.96, 0.96, 0.96, 0.18]
    assert list(joint.marker.symbol) == [SHAPES["found"]] * 3 + [SHAPES["not found"]]
    assert list(perplexity.y) == [1.0, 1.01, 1.5, 901.0]
    assert perplexity.yaxis == "y2"
    assert fig.layout.yaxis2.type == "log"
    assert joint.line.color == colours(dark).accent
    assert len([trace for trace in fig.data if trace.name in {short for short, _ in WAY_WORDS.values()}]) == 4
    (chance,) = [shape for shape in fig.layout.shapes if shape.yref == "y"]
    assert chance.y0 == 0.2
    assert fig.layout.xaxis.title.text == "Strength (share of weights)"
    assert list(fig.layout.xaxis.ticktext) == ["none", "10%", "50%", "90%"]


@pytest.mark.parametrize(("top", "share", "title"), [
    (None, 48 / 50, "Positions that count (share)"),
    (0.01, 40 / 50, "Positions in the top 1% (share)"),
    (0.1, 44 / 50, "Positions in the top 10% (share)"),
    (0.2, 48 / 50, "Positions in the top 20% (share)"),
    (0.5, 49 / 50, "Positions in the top 50% (share)"),
])  # fmt: skip
def test_curve_shows_the_positions_below_a_threshold(top: float | None, share: float, title: str) -> None:
    fig = curve(mark(row("prune", 0.1), row("prune", 0.2)), "prune", top=top)
    assert set(fig.data[0].y) == {share}
    assert fig.layout.yaxis.title.text == title
    (line,) = (each.y0 for each in fig.layout.shapes)
    assert line == pytest.approx(0.2 if top is None else top, abs=0.001)  # as ranks of a thousand orders allow


def test_strengths_that_are_not_shares_are_evenly_spaced() -> None:
    fig = curve(mark(row("round", 8), row("round", 4), row("round", 3)), "round")
    assert fig.layout.xaxis.type == "category"
    assert list(fig.data[0].x) == ["not attacked", "8 bits", "4 bits", "3 bits"]


def test_infinite_perplexity_is_drawn_at_the_edge_and_labelled() -> None:
    fig = trials(mark(row("prune", 0.9, change=math.inf)))
    assert named(fig, "mark found").x == (1e8,)
    assert "too large to measure" in hovers(fig)
    json.loads(fig.to_json())


@pytest.mark.parametrize("rows", [
    [], [row("prune", 0.1, ran=False)], [row("prune", 0.1, change=None), row("prune", 0.3, change=None)],
    [row("prune", 0.1, present=0, verdict="inconclusive"), row("prune", 0.3, present=0, verdict="inconclusive")],
    [row("prune", 0.1, change=-0.4)],
])  # fmt: skip
@DARK_AND_LIGHT
def test_rows_with_missing_values_are_drawn(rows: list[dict[str, Any]], dark: bool) -> None:
    for each in (mark(*rows), crafted(rows)["marks"][0]):
        for fig in (trials(each, dark=dark), curve(each, "prune", dark=dark), curve(each, "no such attack")):
            json.loads(fig.to_json())
            assert fig.layout.title.text


def test_an_encoder_is_drawn_by_hidden_state_similarity() -> None:
    rows = [row("prune", value, change=None) for value in (0.1, 0.5)]
    for each, alike in zip(rows, (0.9, 0.2), strict=True):
        each["utility"]["similarity"] = alike
    fig = trials(mark(*rows) | {"rows": rows})
    assert named(fig, "mark found").x == (0.9, 0.2)
    assert "cosine" in fig.layout.xaxis.title.text
    over = curve({**mark(), "rows": rows}, "prune")
    assert list(named(over, "similarity of hidden states (right)").y) == [0.9, 0.2]


def test_only_attacks_of_several_strengths_have_a_curve() -> None:
    rows = mark(*PRUNED, row("round", 4), row("noise", 0.1), row("noise", 0.3, ran=False))["rows"]
    assert curved(rows) == ["prune"]


@pytest.mark.parametrize(("change", "words"), [
    (0.0, "unchanged"), (-0.00006, "0.006% lower"), (0.1234, "12.3% higher"), (3.0, "300% higher"),
    (39.0, "40 times as high"), (1e9, "over a million times as high"), (math.inf, "too large to measure"),
])  # fmt: skip
def test_a_change_of_perplexity_is_written_in_words(change: float, words: str) -> None:
    assert change_text(change) == words


def test_a_hostile_label_is_inert() -> None:
    hostile = row("prune", 0.1) | {"label": "<a href='javascript:x'>", "strength": "<b>"}
    fig = trials(mark(hostile))
    assert "<a" not in hovers(fig)
    assert name_of(hostile) == "<a href='javascript:x'>, <b>"
    other = curve(mark(hostile, hostile | {"value": 0.2}), "prune")
    assert "<a" not in hovers(other) + other.layout.title.text
