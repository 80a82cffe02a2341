"""Answers are checked when they are made, and every error names the sequence and the next step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import irwm
from irwm.answers.weights import LOG_PROBABILITIES, TEMPERATURES, weightings
from irwm.errors import AnswersError

TOKENS = [np.array([1, 2, 3, 4]), np.array([5, 6, 7])]
LENGTHS = [2, 1]
LOGARITHMS = [np.array([-1.0, -2.0]), np.array([-0.5, 0.0])]


@pytest.mark.parametrize(
    "given",
    [
        ([], []),
        ([[1, 2], [3]], [1, 0]),
        ([[1, 2], [0.5, 1.0]], [1, 1]),
        ([[1, 2], [[3, 4]]], [1, 1]),
        ([[1, 2], [[3, 4], [5]]], [1, 1]),
        ([[1, 2], [3, -4]], [1, 1]),
        ([np.array([1, 2**64 - 1], dtype=np.uint64)], [1]),
        (TOKENS, [2]),
        (TOKENS, [2, 3]),
        (TOKENS, [2, -1]),
        (TOKENS, [True, 1]),
        (TOKENS, [2, 1.0]),
        (TOKENS, LENGTHS, LOGARITHMS[:1]),
        (TOKENS, LENGTHS, [[-1.0, -2.0], [-1.0]]),
        (TOKENS, LENGTHS, [[-1.0] * 4, [-1.0] * 2]),
        (TOKENS, LENGTHS, [[-1.0, -2.0], [-1.0, np.nan]]),
        (TOKENS, LENGTHS, [[-1.0, -np.inf], [-1.0, -1.0]]),
        (TOKENS, LENGTHS, [[-1.0, 0.25], [-1.0, -1.0]]),
        (TOKENS, LENGTHS, [["a", "b"], [-1.0, -1.0]]),
        (TOKENS, LENGTHS, [[-1.0, None], [-1.0, -1.0]]),
    ],
)
def test_bad_answers_are_refused_with_the_problem_and_the_next_step(given: Any) -> None:
    with pytest.raises(AnswersError) as caught:
        irwm.Answers(*given)
    assert caught.value.expected
    assert caught.value.found
    assert caught.value.advice


def test_answers_keep_what_was_given_and_cannot_be_changed() -> None:
    tokens = np.array([1, 2, 3, 4])
    answers = irwm.Answers([tokens, [5, 6, 7]], LENGTHS, [[-1.0, 5e-4], LOGARITHMS[1]])
    tokens[0] = 9
    assert answers.sequences[0].tolist() == [1, 2, 3, 4]
    assert answers.sequences[0].dtype == np.int64
    assert answers.log_probabilities is not None
    assert answers.log_probabilities[0].tolist() == [-1.0, 0.0], "a rounding error above 0 counts as 0"
    with pytest.raises(ValueError, match="read-only"):
        answers.sequences[0][0] = 9


def test_the_first_token_of_a_sequence_without_a_prompt_carries_no_evidence() -> None:
    answers = irwm.Answers(TOKENS, [0, 1])
    assert answers.firsts == (1, 1)
    assert answers.tokens == 3 + 2


def test_tokens_that_differ_keep_their_weight_if_most_do_not() -> None:
    own = [np.tile([np.nan, -1.0, -1.0, -1.0, -2.0], (len(TEMPERATURES), 1))]
    answers = irwm.Answers([np.arange(5)], [1], [np.array([-1.0, -1.0, -1.0, -2.5])])
    (weights,) = weightings(answers, own)[LOG_PROBABILITIES].y
    assert weights.tolist() == [0.0, 0.0, 0.0, 0.0, -0.5]
