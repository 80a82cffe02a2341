"""How many answers a mark needs: the prediction compared with answers of a real model."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import irwm
from irwm.errors import ParameterError
from irwm.explore.answering import MOST_WIDTHS, answers_needed, as_white_noise, noise_left
from irwm.explore.survival import Survival
from irwm.inference import default_text
from irwm.inference.serving import Serving, answers
from irwm.scheme.probabilities import fisher_log10
from tests.conftest import Marked


def test_exact_answers_leave_no_noise_above_the_width() -> None:
    assert noise_left([129], 128, 0.0).tolist() == [[0.0], [0.0]]
    assert answers_needed(4096, 0.0, survived=1.0) == 4097
    assert answers_needed(4096, 0.0, survived=1.0, damage=1.1) is None


def test_more_answers_reduce_error_and_noise_increases_it() -> None:
    by_number = noise_left((257, 300, 500, 2000), 256, 0.2).T.tolist()
    by_noise = [noise_left([400], 256, nats)[:, 0].tolist() for nats in (0.01, 0.05, 0.2, 1.0)]
    for low, high in (*by_number, *by_noise):
        assert 0 < low < high < 3
    assert all(a[0] > b[0] and a[1] > b[1] for a, b in pairwise(by_number))
    assert all(a[0] < b[0] and a[1] < b[1] for a, b in pairwise(by_noise))


def test_least_number_of_answers_is_found() -> None:
    needed, after_damage = (answers_needed(256, 0.5, survived=0.45, damage=damage) for damage in (0.0, 0.1))
    assert needed is not None
    after = noise_left((needed, needed - 1), 256, 0.5)[1]
    assert after[0] <= 0.45 < after[1]
    assert answers_needed(256, 0.5, survived=0.01) is None
    assert after_damage is not None
    assert after_damage > needed


def test_mark_is_undetectable_if_half_of_row_is_unexplained() -> None:
    assert as_white_noise(np.array([0.0, 0.2, 0.5, 0.9])).tolist() == [0.0, pytest.approx(3**-0.5), math.inf, math.inf]
    assert noise_left([129], 128, 50.0).tolist() == [[math.inf], [math.inf]]
    assert answers_needed(128, 50.0, survived=1.0) is None


@pytest.mark.parametrize(
    ("number", "noise"), [(128, 0.1), (128 * MOST_WIDTHS + 1, 0.1), (129, -1.0), (129, math.nan), (129, math.inf)]
)
def test_invalid_requests_are_refused(number: int, noise: float) -> None:
    with pytest.raises(ParameterError):
        noise_left([number], 128, noise)


def test_mark_is_found_with_predicted_number_of_answers(gemma_path: Path, release_of: Callable[[str], Marked]) -> None:
    """With strong noise, so that the number exceeds the minimum, and a mark with few positions."""
    original = irwm.open_checkpoint(gemma_path)
    params = irwm.Parameters(positions=20, required_positions=12)
    survived = Survival(params.constraints).noise(params.positions)
    needed = answers_needed(original.hidden_size, 0.7, survived)
    assert needed is not None
    assert needed > 1.2 * original.hidden_size
    marked = release_of("gemma")
    for seed in range(2):
        told = answers([Path(marked.release)], default_text(), needed, Serving(noise=0.7), seed=seed)
        suspect = irwm.suspect_from_answers(told, original)
        reading = irwm.detect(suspect, original, marked.key).reading
        some = np.random.default_rng(seed).choice(reading.ranks, params.positions, replace=False)
        assert fisher_log10(some) < -6
