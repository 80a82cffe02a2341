"""How many colluders tracing can handle: z by theory, and by real noise on real rows (see `irwm.evidence.sign_sums`).

In units of a row's own deviation a copy's noise sets m of d coordinates to ± r, with r² = 1 on average. There it
differs from the original by ± r - e, where e is the overwritten entry. Each of the c - 1 other copies has noise at the
same place with odds m / d. So the number N of these copies is binomial with mean q = (c - 1) m / d and variance
q (1 - m / d), each with its own sign but with the same - e. The mean of c copies plus white noise of k then has, at the
m places of one copy, an alternating sum with mean and variance

    m r / c   and   m v,   v = ( E(1 + N)² + q ) / c² + k² = ( (1 + q)² + q (1 - m / d) + q ) / c² + k².

z sums it over s rows and divides by the root of the sum of squares, which includes its own mean:

    z = √s · m r̄ / c / √( m² / c² + m v ),

with r̄ = √π / 2 if sizes follow Rayleigh's law (`noise_level` "row"), 1 if all are equal ("global").

Noise of size b that is added (`noise_level` b) keeps e and has a sign for each place, so z sums m times as many terms,
each of mean b / c and variance q b² / c² + k²:

    z = √(s m) b / c / √( (1 + q) b² / c² + k² ).

The weakest of the c guilty copies is below this by the amount by which the smallest of c normal numbers is below 0. The
theory ignores the weights of rows, which makes little difference; `simulated` includes them.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from irwm.errors import ParameterError
from irwm.scheme.basis import Basis
from irwm.scheme.keystream import derive, public_key
from irwm.scheme.noise import LEAST_VARIANCE, MEAN_SIZE, Noise, adds, places
from irwm.scheme.parameters import NOISE_LEVELS
from irwm.scheme.probabilities import rademacher_tail_log10

# The most colluders considered.
MOST_COLLUDERS = 100_000


@dataclass(frozen=True, slots=True)
class Collusion:
    """One case for the theory.

    Attributes:
        rows: s, rows that carry noise.
        hidden_size: d.
        noise_coordinates: m, num_noise.
        colluders: c, copies that are averaged.
        noise: k, white noise on the mean, in row deviations.
        noise_level: as in `Parameters`.

    Raises:
        ParameterError: a value is outside its range.
    """

    rows: int
    hidden_size: int
    noise_coordinates: int
    colluders: int = 1
    noise: float = 0.0
    noise_level: float | str = NOISE_LEVELS[0]

    def __post_init__(self) -> None:
        if not 1 <= self.noise_coordinates <= self.hidden_size or self.rows < 1:
            raise ParameterError(
                "no recipient can be traced without noise coordinates",
                expected=f"1 to {self.hidden_size} noise coordinates and at least 1 row",
                found=f"noise coordinates: {self.noise_coordinates}, rows: {self.rows}",
                advice="Set num_noise (noise coordinates) to about t (constraints)",
            )
        if not 1 <= self.colluders <= MOST_COLLUDERS or not 0.0 <= self.noise < math.inf:
            raise ParameterError(
                "the number of copies or the noise is out of range",
                expected=f"1 to {MOST_COLLUDERS} copies and a noise level of 0 or more",
                found=f"{self.colluders}",
            )
        if isinstance(self.noise_level, str) and self.noise_level not in NOISE_LEVELS:
            raise ParameterError("unknown noise level", expected=" or ".join(NOISE_LEVELS), found=self.noise_level)

    @property
    def expected_z(self) -> float:
        """The mean z of one guilty copy."""
        m, c, d = self.noise_coordinates, self.colluders, self.hidden_size
        q = (c - 1) * m / d
        if isinstance(self.noise_level, float):
            mean = self.noise_level / c
            return math.sqrt(self.rows * m) * mean / math.sqrt((1 + q) * mean**2 + self.noise**2)
        mean = m * (MEAN_SIZE if self.noise_level == "row" else 1.0) / c
        v = ((1 + q) ** 2 + q * (1 - m / d) + q) / c**2 + self.noise**2
        return math.sqrt(self.rows) * mean / math.sqrt(m**2 / c**2 + m * v)

    @property
    def weakest_z(self) -> float:
        """The mean z of the weakest guilty copy: the smallest of c normal numbers by Blom's rule."""
        return self.expected_z + float(ndtri((1 - 0.375) / (self.colluders + 0.25)))


def naming_z(risk: float, comparisons: int) -> float:
    """The z at which tracing names a recipient: the odds over all comparisons are then at most `risk`.

    Args:
        comparisons: `irwm.Tracing.comparisons`: recipients times the maps and the forms of
            evidence for each.

    Raises:
        ParameterError: the risk is out of range, or there is no recipient.
    """
    if not 0.0 < risk < 1.0 or comparisons < 1:
        raise ParameterError(
            "the risk is out of range", expected="a risk between 0 and 1, and at least one recipient", found=f"{risk}"
        )
    allowed = math.log10(risk) - math.log10(comparisons)
    low, high = 0.0, 4.0 + math.sqrt(-5.0 * allowed)  # above it Hoeffding's bound alone is below the allowed odds
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if rademacher_tail_log10(middle) <= allowed else (middle, high)
    return high


def most_colluders(case: Collusion, z: float) -> int:
    """The largest c whose weakest copy has a mean z of at least `z`, by bisection, since z falls with c; 0 if none."""
    return bisect_left(range(1, MOST_COLLUDERS + 1), True, key=lambda c: replace(case, colluders=c).weakest_z < z)


def simulated(
    rows: NDArray[np.float64], tokens: NDArray[np.int64], case: Collusion, seed: int = 0
) -> NDArray[np.float64]:
    """(c,) z of each guilty copy on real rows: c copies with the noise of c keys, their mean, noise, tracing's sum.

    Args:
        rows: (n, d) original rows.
        tokens: (n,) their ids, which determine each key's places.
        case: the z are scaled by the root to its number of `rows`, as if there were that many rows like these.
        seed: the seed of keys and noise.
    """
    d, m = case.hidden_size, case.noise_coordinates
    keys = [public_key(seed, f"irwm/explore/noise/{i}") for i in range(case.colluders)]
    basis = Basis.derive(derive(keys[0], b"irwm", b"irwm/explore/basis"), d)
    deviation = float(rows.std()) if case.noise_level == "global" else None
    none = np.empty(0, dtype=np.int64)
    mean = np.zeros(rows.shape)
    for key in keys:
        mean += Noise(basis, m, case.noise_level, key, deviation, none).over(rows, tokens) / case.colluders
    draw = np.random.Generator(np.random.PCG64(seed))
    units = np.linalg.norm(rows, axis=1) / math.sqrt(d)
    attacked = mean + case.noise * units[:, None] * draw.standard_normal(rows.shape)
    inside = basis.into(attacked - rows, tokens)
    inside -= inside.mean(axis=0)
    variance = np.square(inside).mean(axis=1)
    weights = units / np.maximum(variance, LEAST_VARIANCE * float(np.median(variance)))
    z = np.empty(case.colluders)
    for i, key in enumerate(keys):
        positions, signs = places(key, tokens, m, d, adds=adds(case.noise_level))
        terms = np.take_along_axis(inside, positions, axis=1) * signs * weights[:, None]
        if not adds(case.noise_level):
            terms = terms.sum(axis=1)
        z[i] = terms.sum() / np.sqrt(np.square(terms).sum())
    return np.asarray(z * math.sqrt(case.rows / len(rows)))
