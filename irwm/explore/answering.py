"""The remaining noise on rows recovered from answers, and the number of answers that a mark needs
(docs/answers-measured.md).

With n answers, H (n, d) the last layer's outputs and Gaussian noise of `nats` on every log-probability, a row of the
output head is recovered with an error of covariance nats² (H^T H)^-1. The map to the original's coordinates that a
detection fits weakens each direction in proportion to its noise (Wiener). The unexplained share of the row's variance
is k² = sum over the directions of w / (1 + c r / nats²): w is the share of that variance in a direction, r the variance
that the direction contributes to the logits of an answer. Some of the n answers are used up to find d directions, so
they are worth c = n / (1 + sum of (r / nats²) / (1 + c r / nats²)) (the deterministic equivalent of a sample
covariance's resolvent: Marchenko and Pastur 1967).

A recovered row then has 1 - k² of its variance, and a marked row meets the equations except for the missing k²:
V = k² / (1 - k²) in place of 1. White noise of K row deviations gives V = K² / (1 + K²) (`irwm.explore.survival`), so
it counts as K² = k² / (1 - 2k²), and at k² = 1/2 or more the mark is not detectable.

w and r are not known for a large model before it is run. They are taken from four small models (`python -m
benchmarks.answers --only vectors --parts directions`), which differ, so a prediction is a range. The logits of a wider
model have the same total variance, so each of its directions contributes less.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from irwm.errors import ParameterError
from irwm.scheme.parameters import require_whole

# Directions are grouped into parts, strongest first: start and end of each part, as shares of d.
EDGES = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)


@dataclass(frozen=True, slots=True)
class Directions:
    """The contributions of the directions of a model's last layer, part by part.

    Attributes:
        of_logits: the variance that a part contributes to a token's logits over answers, in nats².
        of_rows: its share of the variance of the head's rows.
    """

    of_logits: tuple[float, ...]
    of_rows: tuple[float, ...]


# Measured on the bundled model and on the small Gemma, Phi-3 and GPT-2 of the tests.
KNOWN = (
    Directions(
        (2.1, 0.44, 0.6, 0.44, 0.47, 0.24, 0.12, 0.047, 0.013, 0.0049, 0.0026, 0.001, 0.00041),
        (0.053, 0.022, 0.057, 0.12, 0.15, 0.15, 0.13, 0.11, 0.066, 0.048, 0.039, 0.027, 0.024),
    ),
    Directions(
        (1.3, 1.2, 0.44, 0.59, 0.45, 0.18, 0.11, 0.069, 0.045, 0.025, 0.014, 0.0089, 0.0031),
        (0.061, 0.044, 0.049, 0.096, 0.16, 0.12, 0.08, 0.11, 0.066, 0.071, 0.059, 0.049, 0.037),
    ),
    Directions(
        (1.2, 1.2, 0.37, 0.44, 0.34, 0.16, 0.11, 0.07, 0.037, 0.017, 0.0067, 0.0028, 0.00096),
        (0.066, 0.059, 0.043, 0.076, 0.22, 0.08, 0.1, 0.088, 0.073, 0.099, 0.035, 0.033, 0.025),
    ),
    Directions(
        (1.9, 1.2, 0.45, 0.62, 0.45, 0.12, 0.032, 0.01, 0.0025, 0.00072, 0.00031, 0.00012, 4.7e-05),
        (0.071, 0.035, 0.031, 0.1, 0.19, 0.18, 0.13, 0.082, 0.062, 0.036, 0.032, 0.025, 0.023),
    ),
)
_HALVINGS = 60
# The largest number of answers considered, as a multiple of the width.
MOST_WIDTHS = 100


def noise_left(answers: Sequence[int], width: int, nats: float) -> NDArray[np.float64]:
    """(2, a) the least and the largest K, in row deviations, over the known models; infinite if no mark is detectable.

    Args:
        answers: (a,) numbers of answers, n.
        width: d of the model.
        nats: standard deviation of the noise on every log-probability; 0 for none.

    Raises:
        ParameterError: no more answers than the width, or a noise that is negative or not finite.
    """
    require_whole("the width", width, 1, 1 << 20)
    for number in answers:
        require_whole("the number of answers", number, width + 1, MOST_WIDTHS * width)
    if not (math.isfinite(nats) and nats >= 0):
        raise ParameterError("the noise is out of range", expected="0 or more nats", found=f"{nats:g}")
    if nats == 0:
        return np.zeros((2, len(answers)))
    every = np.array([as_white_noise(_unexplained(each, np.array(answers), width, nats)) for each in KNOWN])
    return np.stack([every.min(axis=0), every.max(axis=0)])


def as_white_noise(unexplained: NDArray[np.float64]) -> NDArray[np.float64]:
    """K for the shares k² of a row's variance that the map does not explain."""
    seen = np.maximum(1 - 2 * unexplained, 0.0)
    return np.sqrt(np.divide(unexplained, seen, out=np.full_like(unexplained, np.inf), where=seen > 0))


def _unexplained(known: Directions, answers: NDArray[np.int64], width: int, nats: float) -> NDArray[np.float64]:
    """(a,) k² after these numbers of answers (a,)."""
    directions = np.maximum(np.diff(EDGES) * width, 1.0)
    clearness = np.array(known.of_logits) / directions / nats**2
    worth, high = np.zeros(len(answers)), answers.astype(np.float64)
    for _ in range(_HALVINGS):
        middle = (worth + high) / 2
        seen = middle[:, None] * clearness
        enough = middle + (seen / (1 + seen)) @ directions >= answers
        worth, high = np.where(enough, worth, middle), np.where(enough, middle, high)
    unexplained: NDArray[np.float64] = (1 / (1 + worth[:, None] * clearness)) @ np.array(known.of_rows)
    return unexplained


def answers_needed(width: int, nats: float, survived: float, damage: float = 0.0) -> int | None:
    """The least n at which a mark survives the noise of the answers together with the damage to the served weights, on
    every known model; None if even `MOST_WIDTHS` times the width is not sufficient.

    Args:
        survived: the white noise that the mark survives, in row deviations (`Survival.noise`).
        damage: the damage to the served weights, in the same unit.

    Raises:
        ParameterError: as `noise_left`.
    """

    def enough(answers: int) -> bool:
        return math.hypot(noise_left([answers], width, nats)[1, 0], damage) <= survived

    low, high = width + 1, MOST_WIDTHS * width
    return low + bisect_left(range(low, high), True, key=enough) if enough(high) else None
