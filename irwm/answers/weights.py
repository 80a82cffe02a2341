"""The weights of tokens and rows in the score: from answers and original alone, so that no choice here uses a key."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from irwm.answers.answers import Answers

TEXT, LOG_PROBABILITIES = "text", "log-probabilities"
# The limit of a token's weight, in median deviations. A marked row of a tied model moves its token's log-probability by
# far more than a fingerprint does, and a server may write absurd numbers (docs/answers-measured.md measures the limit).
MOST_DEVIATIONS = 2.0
# Temperatures that text may be sampled at, and log-probabilities computed at; between two of them log-probabilities are
# nearly linear. A server that reports those of another temperature than 1 would hide the fingerprint.
TEMPERATURES = tuple(2.0 ** (step / 16) for step in range(-32, 17))
FITS = 5


@dataclass(frozen=True, slots=True, eq=False)
class Weighting:
    """One way of weighting.

    Attributes:
        y: (n,) of every sequence, the weights of its tokens; those of a prompt are 0.
        temperature: that of the original's probabilities.
    """

    y: list[NDArray[np.float64]]
    temperature: float


def weightings(answers: Answers, own: Sequence[NDArray[np.float64]]) -> dict[str, Weighting]:
    """Every way of weighting that the answers allow.

    Text alone: y = 1, for Rao's score test, at the temperature at which the text is most likely. With log-probabilities
    also y = log p_suspect(x_t) - log p_original(x_t), less the median over all tokens, and limited to
    `MOST_DEVIATIONS` median absolute deviations, at the temperature that explains the differences best.

    Args:
        own: of every sequence (k, n) log p_original(x_t) at `TEMPERATURES`.
    """
    plain = [np.zeros(len(each)) for each in answers.sequences]
    for y, first in zip(plain, answers.firsts, strict=True):
        y[first:] = 1.0
    generated = np.concatenate([each[:, first:] for each, first in zip(own, answers.firsts, strict=True)], axis=1)
    text = Weighting(plain, TEMPERATURES[int(np.argmax(generated.sum(axis=1)))])
    if answers.log_probabilities is None:
        return {TEXT: text}
    sizes = [len(y) - first for y, first in zip(plain, answers.firsts, strict=True)]
    given = zip(answers.log_probabilities, sizes, strict=True)
    differences = np.concatenate([each[-size:] for each, size in given]) - generated
    nearest = int(np.argmin(np.median(np.abs(differences), axis=1)))
    limited = np.split(_at_its_temperature(differences, nearest), np.cumsum(sizes)[:-1])
    robust = [np.zeros(len(each)) for each in answers.sequences]
    for y, size, each in zip(robust, sizes, limited, strict=True):
        y[-size:] = each
    return {TEXT: text, LOG_PROBABILITIES: Weighting(robust, TEMPERATURES[nearest])}


def _at_its_temperature(differences: NDArray[np.float64], nearest: int) -> NDArray[np.float64]:
    """(n,) limited differences at the temperature between two of `TEMPERATURES` that explains most of them.

    Args:
        differences: (k, n) at each of them.
        nearest: the nearest one.
    """
    low, high = max(0, nearest - 1), min(len(differences) - 1, nearest + 1)
    slope, found = differences[high] - differences[low], differences[nearest]
    for _ in range(FITS if np.square(slope).sum() > 0 else 0):
        found = found - (_limited(found) @ slope) / (slope @ slope) * slope
    return _limited(found)


def _limited(differences: NDArray[np.float64]) -> NDArray[np.float64]:
    centred = differences - np.median(differences)
    # No limit if more than half of the tokens differ by the same number, as in answers that are nearly certain.
    most = MOST_DEVIATIONS * float(np.median(np.abs(centred))) or np.inf
    limited: NDArray[np.float64] = np.clip(centred, -most, most)
    return limited
