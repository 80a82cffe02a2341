"""The weights of tokens and rows in the score: from answers and original alone, so that no choice here uses a key."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from irwm.answers.given import Answers

TEXT, LOG_PROBABILITIES = "text", "log-probabilities"
# The limit of a token's weight, in median deviations. A marked row of a tied model moves its token's log-probability by
# far more than a fingerprint does, and a server may write absurd numbers (docs/answers.md measures the limit).
MOST_DEVIATIONS = 2.0


def weightings(answers: Answers, own: Sequence[NDArray[np.float64]] | None) -> dict[str, list[NDArray[np.float64]]]:
    """The weights y (n,) of every sequence's tokens, for each way of weighting; those of a prompt are 0.

    Text alone: y = 1, for Rao's score test. With log-probabilities also y = log p_suspect(x_t) - log p_original(x_t),
    less the median over all tokens, and limited to `MOST_DEVIATIONS` median absolute deviations.

    Args:
        own: of every sequence (n,) log p_original(x_t); None without log-probabilities.
    """
    plain = [np.zeros(len(each)) for each in answers.sequences]
    for y, first in zip(plain, answers.firsts, strict=True):
        y[first:] = 1.0
    if answers.log_probabilities is None or own is None:
        return {TEXT: plain}
    told = [
        each[-(len(y) - first) :]
        for each, y, first in zip(answers.log_probabilities, plain, answers.firsts, strict=True)
    ]
    differences = [each - ours[first:] for each, ours, first in zip(told, own, answers.firsts, strict=True)]
    middle = np.median(np.concatenate(differences))
    centred = [each - middle for each in differences]
    # No limit if more than half of the tokens differ by the same number, as in answers that are nearly certain.
    most = MOST_DEVIATIONS * float(np.median(np.abs(np.concatenate(centred)))) or np.inf
    robust = [np.zeros(len(each)) for each in answers.sequences]
    for y, first, each in zip(robust, answers.firsts, centred, strict=True):
        y[first:] = np.clip(each, -most, most)
    return {TEXT: plain, LOG_PROBABILITIES: robust}
