from __future__ import annotations

import json
import math

import numpy as np
import pytest
from plotly.offline import get_plotlyjs
from scipy.stats import beta as beta_law

from irwm import Parameters, Reading
from irwm.alignment import Alignment
from irwm.evidence.detection import reading_of
from irwm.families import TensorRef
from irwm.report import schema
from irwm.report.document import plain
from irwm.report.plots import detection
from irwm.report.plots.similarities import similarities
from irwm.report.plots.summaries import LEVELS, ReadingSummary, similarity_section, summarise
from irwm.report.plots.theme import DARK, LIGHT
from irwm.scheme.probabilities import log10_random_user, log10_wrong_user, success_probability

PARAMETERS = Parameters()
ROWS = np.arange(1000, 1050)


def a_reading(l=50, permutations=1000, marked=40, gone=(), statistic="joint", seed=0) -> Reading:
    """Ranks of a half-destroyed mark: `marked` positions far below their null, the others drawn from it."""
    rng = np.random.default_rng(seed)
    null = np.linalg.norm(rng.standard_normal((l, permutations, 10)), axis=2)
    observed = np.linalg.norm(rng.standard_normal((l, 10)), axis=1)
    observed[:marked] *= 0.001
    if statistic == "difference":
        null, observed = null - null.mean(), -np.where(np.arange(l) < marked, 3.0, 0.0)
    observed[list(gone)] = np.nan
    null[list(gone)] = np.nan
    return reading_of(statistic, "original", observed, null, Parameters(positions=l, permutations=permutations))


def an_alignment(n=500, mean=0.9, rotated=False) -> Alignment:
    rng = np.random.default_rng(1)
    cosines = np.clip(rng.normal(mean, 0.05, n), -1, 1) if n else np.empty(0)
    decoys = rng.normal(0, 0.05, n) if n else np.empty(0)
    none = np.empty(0, dtype=np.int64)
    return Alignment(
        aligned=n > 0,
        embedding=TensorRef("model.embed_tokens.weight"),
        rows=np.arange(n),
        columns=np.arange(8),
        signs=np.ones(8),
        offsets=np.zeros(8),
        rotation=np.eye(8) if rotated else None,
        scale=1.0,
        uniqueness=1.0,
        cosines=cosines,
        decoy_cosines=decoys,
        broken_rows=none,
        reason="said by the alignment",
    )


def a_summary(**settings) -> ReadingSummary:
    return summarise(a_reading(**settings), PARAMETERS)


def a_section(*settings, **more) -> schema.Alignment:
    """The part of a document that the figure of similarities is drawn from."""
    return plain(similarity_section(an_alignment(*settings, **more)))


FIGURES = {
    "positions": lambda dark: detection.position_ranks(a_summary(gone=(6, 20)), PARAMETERS, ROWS, dark=dark),
    "positions, sum": lambda dark: detection.position_ranks(a_summary(statistic="sum"), PARAMETERS, ROWS, dark=dark),
    "positions, difference": lambda dark: detection.position_ranks(
        a_summary(statistic="difference"), PARAMETERS, ROWS, dark=dark
    ),
    "ranks": lambda dark: detection.sorted_ranks(a_summary(gone=(6, 20)), PARAMETERS, ROWS, dark=dark),
    "odds": lambda dark: detection.odds(PARAMETERS, 300, dark=dark),
    "similarities": lambda dark: similarities(a_section(), dark=dark),
    "similarities, rotated": lambda dark: similarities(a_section(mean=0.2, rotated=True), dark=dark),
}


@pytest.fixture(params=[False, True], ids=["light", "dark"], scope="module")
def dark(request):
    return request.param


@pytest.fixture(params=FIGURES, scope="module")
def figure(request, dark):
    return FIGURES[request.param](dark)


def named(figure, start: str):
    return next(trace for trace in figure.data if (trace.name or "").startswith(start))


def test_a_figure_has_titles_and_a_hover_with_numbers_for_every_shown_value(figure):
    assert figure.layout.title.text
    assert figure.layout.title.subtitle.text
    assert figure.layout.height
    axes = [axis for axis in (*figure.select_xaxes(), *figure.select_yaxes()) if axis.visible is not False]
    # Panels that share an x axis have its title only once, at the bottom.
    assert sum(bool(axis.title.text) for axis in axes) >= 2
    assert all(axis.title.text for axis in figure.select_yaxes())
    shown = [trace for trace in figure.data if trace.hoverinfo != "skip"]
    assert shown
    for trace in shown:
        assert trace.hoverinfo == "text"
        assert len(trace.hovertext) == len(trace.x)
        assert all(any(c.isdigit() for c in text) for text in trace.hovertext)


def test_observed_is_accent_and_chance_is_grey(figure, dark):
    colours = DARK if dark else LIGHT
    grey = {colours.null, *colours.bands}
    for trace in figure.data:
        if trace.type == "bar" or trace.mode == "markers":
            used = trace.marker.color
        else:
            used = trace.fillcolor or trace.line.color
        if "observed" in (trace.name or ""):
            assert used == colours.accent
        else:
            assert used != colours.accent
        if any(word in (trace.name or "") for word in ("chance", "wrong row", "never inserted", "such keys")):
            assert used in grey


def test_plotly_version_matches_that_of_gradio():
    assert get_plotlyjs()[:200].find("plotly.js v3") > 0


@pytest.mark.parametrize("draw", [detection.position_ranks, detection.sorted_ranks])
def test_missing_positions_are_hollow_and_named(draw):
    figure = draw(a_summary(gone=(6, 20, 33)), PARAMETERS, ROWS)
    gone, seen = named(figure, "gone or unusable"), named(figure, "observed")
    assert gone.marker.symbol == "circle-open"
    assert gone.name.endswith("7, 21 and 34")
    assert len(gone.x) == 3
    assert len(seen.x) == 47
    assert {"position 7, token 1006", "position 21, token 1020", "position 34, token 1033"} == {
        text.split("<b>")[1].split("</b>")[0] for text in gone.hovertext
    }
    assert all(v is not None and math.isfinite(v) for trace in (gone, seen) for v in trace.y)


@pytest.mark.parametrize("draw", [detection.position_ranks, detection.sorted_ranks])
def test_a_reading_without_ranks_says_so(draw):
    figure = draw(a_summary(gone=range(50)), PARAMETERS, ROWS)
    said = figure.layout.title.text + "".join(a.text or "" for a in figure.layout.annotations)
    assert "None of the 50" in said
    assert not [trace for trace in figure.data if (trace.name or "").startswith("observed")]


def test_a_figure_does_not_carry_the_null():
    few, many = (detection.position_ranks(a_summary(permutations=n), PARAMETERS, ROWS) for n in (100, 5000))
    assert len(many.to_json()) < 60_000
    assert len(many.to_json()) < 1.05 * len(few.to_json())


def test_positions_hover_shows_rank_observed_and_the_null():
    reading = a_reading()
    figure = detection.position_ranks(
        summarise(reading, PARAMETERS), PARAMETERS, ROWS, {1000: "<script>x</script>\u202e"}
    )
    text = named(figure, "observed").hovertext[0]
    assert "token 1000" in text
    assert f"{reading.observed[0]:.6g}" in text
    assert "0.000999001 = 1 of 1\u00a0001" in text
    assert f"50%: {np.quantile(reading.null[0], 0.5):.4g}" in text
    assert "<script" not in text
    assert "\u202e" not in text


def test_a_position_counts_exactly_when_it_is_below_its_tick():
    for beta, n in ((0.2, 1000), (0.01, 99), (0.05, 1000), (0.3, 333)):
        params = Parameters(rank_threshold=beta, permutations=n)
        rng = np.random.default_rng(n)
        null = rng.standard_normal((50, n))
        observed = np.quantile(null, rng.uniform(0, 2 * beta, 50), axis=1).diagonal().copy()
        observed[:10] = np.sort(null[:10], axis=1)[:, max(0, math.ceil(beta * (n + 1)) - 2)]  # ties, around the tick
        reading = reading_of("joint", "original", observed, null, params)
        summary = summarise(reading, params)
        below = summary.observed < summary.thresholds
        np.testing.assert_array_equal(below, reading.ranks < beta)
        np.testing.assert_allclose(summary.bands, np.quantile(null, LEVELS, axis=1).T)


def test_a_perfect_zero_stays_visible_on_a_log_axis():
    reading = a_reading()
    reading.observed[3] = 0.0
    figure = detection.position_ranks(summarise(reading, PARAMETERS), PARAMETERS, ROWS)
    seen = named(figure, "observed")
    assert figure.layout.yaxis.type == "log"
    assert seen.y[3] > 0
    assert seen.marker.symbol[3] == "triangle-down"
    assert "observed 0," in seen.hovertext[3]


def test_sorted_ranks_are_compared_with_order_statistics():
    reading = a_reading(gone=(6,))
    figure = detection.sorted_ranks(summarise(reading, PARAMETERS), PARAMETERS, ROWS)
    ranks = named(figure, "observed").y
    assert list(ranks) == sorted(reading.ranks[np.isfinite(reading.ranks)])
    low, mean = named(figure, "95%").y, named(figure, "average expected").y
    np.testing.assert_allclose(mean, np.arange(1, 50) / 50)
    np.testing.assert_allclose(low[10:], beta_law.ppf(0.025, np.arange(11, 50), np.arange(39, 0, -1)))
    shaded = next(shape for shape in figure.layout.shapes if shape.type == "rect")
    assert shaded.x1 == reading.count + 0.5
    assert f"{reading.count} of 49" in figure.layout.title.text
    assert "at least ρ = 30 positions must count" in {a.text for a in figure.layout.annotations}
    assert dict(zip(figure.layout.yaxis.ticktext, figure.layout.yaxis.tickvals, strict=True))["β = 0.2"] == 0.2


def test_odds_are_those_of_equations_1_to_3():
    figure = detection.odds(PARAMETERS, 100_000)
    assert "0.99968" in figure.layout.title.subtitle.text
    assert "6.94 × 10<sup>−5</sup>" in figure.layout.title.subtitle.text
    at = list(figure.data[0].x).index(30)
    for trace, p in zip(figure.data[:3], (0.7, 0.8, 0.9), strict=True):
        assert trace.y[at] == success_probability(50, 30, p)
    one, wrong = named(figure, "one key"), named(figure, "any of 100\u00a0000")
    assert one.y[at] == log10_random_user(50, 30, 0.2)
    assert wrong.y[at] == log10_wrong_user(50, 30, 0.2, 100_000)


def test_odds_far_below_the_smallest_double_are_drawn():
    figure = detection.odds(Parameters(positions=400, required_positions=390, rank_threshold=0.01), recipients=10)
    chances = named(figure, "one key").y
    assert all(math.isfinite(v) for v in chances)
    assert min(chances) < -700
    assert json.loads(figure.to_json())


def test_figure_of_very_many_positions_stays_small():
    figure = detection.odds(Parameters(positions=5_000, required_positions=1_777))
    assert len(figure.data[0].x) <= 241
    assert 1_777 in figure.data[0].x


def test_figure_without_permutations_is_drawn():
    params = Parameters(permutations=0)
    for draw in (detection.position_ranks, detection.sorted_ranks):
        draw(summarise(a_reading(permutations=0), params), params, ROWS).to_json()
