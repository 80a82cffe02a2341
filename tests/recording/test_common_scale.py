"""Parts of an answer that were requested with a bias, on one scale: the derivation of `ui.recording.common_scale`."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import log_softmax, logsumexp

from ui.recording.common_scale import on_one_scale, parts_of

V, CHOSEN = 500, 61


def told(logits: NDArray[np.float64], biased: NDArray[np.int64], bias: float, temperature: float,
         after: bool = False) -> NDArray[np.float64]:  # fmt: skip
    """All log-probabilities of a server that adds a bias, before or after the temperature."""
    added = np.zeros_like(logits)
    added[biased] = bias
    return log_softmax(logits / temperature + added if after else (logits + added) / temperature)


@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("size", [2, 5, 20, 61])
def test_parts_combine_to_one_answer(temperature: float, after: bool, size: int) -> None:
    rng = np.random.default_rng(size)
    logits, tokens = 3 * rng.standard_normal(V), rng.permutation(V)[:CHOSEN]
    parts = []
    for number, places in enumerate(parts_of(CHOSEN, size)):
        biased = tokens[[0, *places]]
        bias = [45.0, 60.5, 100.0][number % 3]  # a different one each time
        values = told(logits, biased, bias, temperature, after)
        assert set(values.argsort()[-len(biased) :]) == set(biased), "the bias makes them the likeliest"
        parts.append((places, values[biased].astype(np.float32)))
    direct = log_softmax(logits / temperature)[tokens]
    row = on_one_scale(CHOSEN, parts)
    assert row.dtype == np.float32
    assert np.abs(row - (direct - logsumexp(direct))).max() < 1e-4
    assert abs(logsumexp(row.astype(np.float64))) < 1e-5
    # The part that detection uses, centred, equals that of the log-probabilities themselves.
    assert np.abs((row - row.mean()) - (direct - direct.mean())).max() < 1e-4


def test_parts_cover_all_but_the_reference_once() -> None:
    for count, size in ((61, 5), (2, 2), (9, 9), (10, 9), (1, 5)):
        parts = parts_of(count, size)
        assert [place for part in parts for place in part] == list(range(1, count))
        assert all(len(part) < size for part in parts)


def test_missing_values_stay_unknown_and_change_no_others() -> None:
    parts = [(range(1, 3), np.array([-1, -2, np.nan])), (range(3, 5), np.array([np.nan, -1, -1])),
             (range(5, 6), np.array([-5.0, -6.0]))]  # fmt: skip
    row = on_one_scale(6, [(places, values.astype(np.float32)) for places, values in parts])
    assert np.isnan(row).tolist() == [False, False, True, True, True, False]
    assert row[1] - row[0] == pytest.approx(-1)
    assert row[5] - row[0] == pytest.approx(-1)
