"""A screening dismisses keys without a signal early: p stays valid, and a mark is found as without it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import binom, binomtest, chi2

import irwm
from irwm.errors import KeyMismatchError, ParameterError
from irwm.evidence.detection import SCREENING, detect_marks, reading_of
from irwm.report.document import finding_document
from irwm.scheme.parameters import Parameters, chance_of_counting
from tests.conftest import Marked

DEFAULT = Parameters()
LEAKED = 7


@pytest.fixture(scope="module")
def found(release_of: Callable[[str], Marked]) -> dict[bool, list[irwm.Finding]]:
    """The findings of twelve keys on the release of one of them, with and without a screening."""
    model, key, release = release_of("demo")
    keys = [irwm.generate_key(model, secret=key.secret, recipient=f"Recipient {number}") for number in range(12)]
    keys[LEAKED] = key
    examination = irwm.Examination(irwm.open_checkpoint(release), model)
    return {screen: list(irwm.detect_each(examination, keys, screen=screen)) for screen in (False, True)}


def test_a_marked_release_is_found_as_without_a_screening(found: dict[bool, list[irwm.Finding]]) -> None:
    whole, screened = found[False][LEAKED], found[True][LEAKED]
    assert not screened.screened
    assert screened.verdict == "found"
    assert screened.reason == whole.reason
    np.testing.assert_array_equal(screened.ranks, whole.ranks)
    np.testing.assert_array_equal(screened.null, whole.null)


def test_other_keys_are_dismissed_with_the_same_verdict(found: dict[bool, list[irwm.Finding]]) -> None:
    assert not any(finding.screened for finding in found[False])
    dismissed = [number for number, finding in enumerate(found[True]) if finding.screened]
    assert LEAKED not in dismissed
    assert len(dismissed) >= 6
    for number in dismissed:
        coarse = found[True][number]
        assert coarse.verdict == found[False][number].verdict == "not found"
        for reading in (each for each in (coarse.reading, coarse.elsewhere) if each is not None and each.screened):
            least = dict(SCREENING)[reading.null.shape[1]]
            assert reading.null.shape[0] == DEFAULT.positions
            assert reading.log10_either > least


@pytest.fixture(scope="module")
def wrong(demo_path: Path) -> tuple[list[irwm.Finding], list[irwm.Finding]]:
    """The findings of 300 wrong keys on an unmarked model, screened, and of the first 60 of them in full."""
    model = irwm.open_checkpoint(demo_path)
    examination = irwm.Examination(irwm.open_checkpoint(demo_path), model)
    params = replace(DEFAULT, places=("embedding",))
    keys = [irwm.generate_key(model, params, bytes([7]) * 32, recipient=f"Recipient {n}") for n in range(300)]
    screened = detect_marks(examination, keys, keys_tried=1, screen=True)
    return list(screened), list(detect_marks(examination, keys[:60], keys_tried=1))


def test_a_key_is_dismissed_by_the_first_orders_of_its_null(
    wrong: tuple[list[irwm.Finding], list[irwm.Finding]],
) -> None:
    for coarse, whole in zip(*wrong, strict=False):
        stages = [
            (
                reading_of(
                    "joint", "original", whole.observed, whole.null[:, :count], replace(DEFAULT, permutations=count)
                ),
                least,
            )
            for count, least in SCREENING
        ]
        first = next((reading for reading, least in stages if reading.log10_either > least), None)
        assert coarse.screened == (first is not None)
        if first is None:
            np.testing.assert_array_equal(coarse.ranks, whole.ranks)
            continue
        # In float32, where a value that is almost tied with the observed one counts against the mark.
        np.testing.assert_allclose(coarse.reading.null, first.null, rtol=1e-4)
        assert (coarse.ranks >= first.ranks).all()
        assert (coarse.ranks > first.ranks).sum() <= 2


def test_p_of_wrong_keys_on_an_unmarked_model_is_calibrated(
    wrong: tuple[list[irwm.Finding], list[irwm.Finding]],
) -> None:
    p = 10.0 ** np.array([finding.reading.log10_either for finding in wrong[0]])
    for level in (0.5, 0.3, 0.1, 0.03, 0.01):
        assert binomtest(int((p <= level).sum()), p.size, level, alternative="greater").pvalue > 1e-4
    assert not any(finding.verdict == "found" for finding in wrong[0])


def test_keys_with_few_permutations_are_never_screened(release_of: Callable[[str], Marked]) -> None:
    model, _, release = release_of("demo")
    few = replace(DEFAULT, permutations=SCREENING[0][0])
    keys = [irwm.generate_key(model, few, secret=bytes(32), recipient=f"Recipient {number}") for number in range(3)]
    examination = irwm.Examination(irwm.open_checkpoint(release), model)
    assert not any(finding.screened for finding in detect_marks(examination, keys, screen=True))


def test_a_screened_finding_is_not_reported(found: dict[bool, list[irwm.Finding]]) -> None:
    nothing: Any = None
    (first, *_) = (finding for finding in found[True] if finding.screened)
    with pytest.raises(ParameterError, match="screened"):
        finding_document(
            first, suspect=nothing, original=nothing, key_info=nothing, case={}, created_utc="", tool_versions={}
        )


def test_a_key_with_other_rows_is_refused_when_it_is_reached(release_of: Callable[[str], Marked]) -> None:
    model, key, release = release_of("demo")
    keys = [key, replace(key, rows_digest="0" * 64)]
    findings = irwm.detect_each(irwm.Examination(irwm.open_checkpoint(release), model), keys)
    assert next(findings).verdict == "found"
    with pytest.raises(KeyMismatchError, match="another original"):
        next(findings)
    with pytest.raises(KeyMismatchError, match="another original"):
        next(irwm.detect_each(irwm.Examination(irwm.open_checkpoint(release), model), keys[::-1]))


def either_log10(below: NDArray[np.int64], orders: int) -> NDArray[np.float64]:
    """(n,) `Reading.log10_either` of n keys whose null has `below` (n, l) values up to the observed ones."""
    ranks = (1 + below) / (1 + orders)
    fisher = chi2.logsf(-2 * np.log(ranks).sum(axis=1), 2 * ranks.shape[1])
    count = (ranks < DEFAULT.rank_threshold).sum(axis=1)
    counted = binom.logsf(count - 1, ranks.shape[1], chance_of_counting(replace(DEFAULT, permutations=orders)))
    either: NDArray[np.float64] = np.minimum(0.0, np.minimum(fisher, counted) / np.log(10) + np.log10(2))
    return either


def screened(quantiles: NDArray[np.float64], draw: np.random.Generator) -> tuple[NDArray[np.float64], ...]:
    """(n,) log10 p that a screening gives, and that by all orders, of keys whose observed values are at these quantiles
    (n, l) of the null."""
    below, done, stages = np.zeros(quantiles.shape, dtype=np.int64), 0, []
    for count, least in (*SCREENING, (DEFAULT.permutations, -np.inf)):
        below, done = below + draw.binomial(count - done, quantiles), count
        stages.append((either_log10(below, count), least))
    whole = given = stages[-1][0]
    for p, least in reversed(stages[:-1]):
        given = np.where(p > least, p, given)
    return given, whole


def test_p_of_several_stages_is_calibrated(in_full: bool) -> None:
    """Simulated: a wrong key's observed values have the law of its null. Every level is reached at most as often as it
    says."""
    draw, keys = np.random.default_rng(0), 0
    levels = np.array([-0.5, -1.0, -2.0, -3.0, -4.0])
    reached = np.zeros(levels.size)
    for _ in range(100 if in_full else 10):
        given, _ = screened(draw.random((10_000, DEFAULT.positions)), draw)
        reached += (given[:, None] <= levels).sum(axis=0)
        keys += given.size
    expected = keys * 10.0**levels
    assert (reached <= expected + 4 * np.sqrt(expected)).all()
    assert reached[1] > 0.2 * expected[1]  # Bonferroni's factor 2 costs at most half


@pytest.mark.parametrize("left", [None, 8, 10])
def test_a_screening_dismisses_no_mark_that_all_orders_find(left: int | None) -> None:
    """Simulated: of marks so weak that all orders give a p of 1e-8 to 1e-10, none of ten thousand is dismissed.

    Some are faint in all rows, some are whole in 8 or 10 rows and gone from the others.
    """
    draw = np.random.default_rng(1)
    quantiles = draw.random((60_000, DEFAULT.positions))
    if left is None:
        quantiles **= 1 / 0.42  # from Beta(0.42, 1)
    else:
        quantiles[:, :left] = 0
    given, whole = screened(quantiles, draw)
    weak = (whole <= -8) & (whole >= -10)
    assert weak.sum() > 10_000
    assert (given == whole)[weak].all()
