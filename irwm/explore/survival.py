"""How many positions a mark needs to be found after damage, and how much damage a mark with l positions survives.

Damage is measured as white noise of k times a row's own deviation. After it a position's joint² is V = k² / (1 + k²)
times chi-square of t degrees, while any other order of the entries gives chi-square of t degrees
(`irwm.explore.prediction`). Its rank among N others is then about (N u + 1) / (N + 1), u the law of chi-square at that
value. The verdict sums -2 ln rank of all positions (Fisher), which by chance is chi-square of 2l degrees. The mean and
the variance of one position's term determine how often the sum is large enough.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtr, chdtri, ndtri

from irwm.errors import ParameterError
from irwm.explore.planning import MOST_POSITIONS, MOST_RECIPIENTS
from irwm.scheme.parameters import RANGES, require_whole

# The p-value that a verdict needs: 10^-6, corrected for two ways of combining ranks, two maps and two forms of
# evidence.
NEEDED_LOG10_P = -6.0 - math.log10(8)
# The share of cases in which the mark must be found.
SUCCESS = 0.99
# Quantiles from which a position's mean and variance are computed.
_QUANTILES = 2000
_HALVINGS = 24
# White noise beyond this destroys a model.
MOST_NOISE = 10.0


@dataclass(frozen=True, slots=True)
class Survival:
    """A mark of t constraints that is read with N permutations, and the required success rate.

    Attributes:
        constraints: t.
        permutations: N.
        keys: the number of keys for which a verdict is corrected.
        success: the share of cases in which the mark must be found.
    """

    constraints: int
    permutations: int = 1000
    keys: int = 1
    success: float = SUCCESS

    def __post_init__(self) -> None:
        require_whole("the number of constraints (t)", self.constraints, *RANGES["constraints"])
        require_whole("the number of permutations (N)", self.permutations, *RANGES["permutations"])
        require_whole("the number of keys", self.keys, 1, MOST_RECIPIENTS)
        if not 0.0 < self.success < 1.0:
            raise ParameterError(
                "the success probability is out of range", expected="between 0 and 1", found=f"{self.success:g}"
            )

    def positions(self, noise: float) -> int | None:
        """The smallest l with which the mark is found after white noise of `noise` row deviations; None if even
        `MOST_POSITIONS` are not sufficient.

        Raises:
            ParameterError: a noise that is negative or not finite.
        """
        return self.positions_of((noise,))[0]

    def positions_of(self, noises: Sequence[float]) -> list[int | None]:
        """`positions` of each of these noises."""
        every = np.arange(1, MOST_POSITIONS + 1)
        needed = self._needed(every)
        enough = (self._reached(noise, every) >= needed for noise in noises)
        return [int(found.argmax()) + 1 if found.any() else None for found in enough]

    def noise(self, positions: int) -> float:
        """The largest white noise, in row deviations, after which a mark of l `positions` is found; 0 if there is none,
        and at most `MOST_NOISE`."""
        l = np.array([positions])
        needed, low, high = self._needed(l), 0.0, MOST_NOISE
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            low, high = (middle, high) if self._reached(middle, l) >= needed else (low, middle)
        return low

    def _needed(self, positions: NDArray[np.int64]) -> NDArray[np.float64]:
        """(n,) the sum of -2 ln rank that a verdict needs."""
        return np.asarray(chdtri(2.0 * positions, 10.0**NEEDED_LOG10_P / self.keys))

    def _reached(self, noise: float, positions: NDArray[np.int64]) -> NDArray[np.float64]:
        """(n,) the sum that is reached in all but 1 - `success` of the cases."""
        if not 0.0 <= noise < math.inf:
            raise ParameterError(
                "the noise is out of range", expected="0 or more standard deviations of a row", found=f"{noise:g}"
            )
        chances = (np.arange(_QUANTILES) + 0.5) / _QUANTILES
        values = chdtri(self.constraints, 1.0 - chances) * noise**2 / (1.0 + noise**2)
        ranks = (self.permutations * chdtr(self.constraints, values) + 1.0) / (self.permutations + 1.0)
        parts = -2.0 * np.log(ranks)
        return np.asarray(positions * parts.mean() - ndtri(self.success) * parts.std() * np.sqrt(positions))
