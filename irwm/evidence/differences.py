"""How a suspect differs from the original, in the basis of a release; tracing searches these numbers for noise."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from irwm.alignment import Alignment
from irwm.alignment.least_squares import LeastSquares
from irwm.checkpoint.matrix import Matrix
from irwm.scheme.basis import Basis
from irwm.scheme.noise import LEAST_VARIANCE

# A row with more than this multiple of the usual variance was rewritten and does not show how copies were mixed.
MOST_VARIANCE = 100.0
# No model works with a larger difference, and its square may be out of float32's range.
LARGEST = 1e15
# The mean of fewer changed rows is not representative of all rows, and would remove the noise of these rows.
ROWS_OF_CENTRE = 32
# Rows that are read and converted at once: each step of a conversion takes as much memory again.
_ROWS_AT_ONCE = 256


@dataclass(frozen=True, slots=True, eq=False)
class Difference:
    """Differences of some rows.

    Attributes:
        values: (n, d) float32, (suspect - original) B, less the usual difference of each coordinate.
        weights: (n,) float64, the weight of each row: large if noise would be large and other differences are small.
        units: (n,) float64, each original row's own deviation ||row|| / sqrt(d); 0 for a row that is not compared.
        gauges: (n,) float64, `units`, but 0 for rows that were rewritten. Shares are measured with them, since the
            weights are smallest in the rows where a copy's noise happens to be large.
    """

    values: NDArray[np.float32]
    weights: NDArray[np.float64]
    units: NDArray[np.float64]
    gauges: NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Differences:
    """Reads differences, in this process or another.

    Weights and centre depend only on the suspect and the original. Under the null the recipient's signs are independent
    of both, so no choice made here changes the odds.

    Attributes:
        suspect, model: the matrices of the suspect and the original.
        alignment: the token of each row, and the map from the suspect's coordinates to the original's.
        fitted: the map that replaces the alignment's map of coordinates, if one was fitted.
        basis: the basis of the release.
        centre: (d,) mean difference of each coordinate in ordinary rows, which no recipient's noise changes.
        usual: the median row's variance.
    """

    suspect: Matrix
    model: Matrix
    alignment: Alignment
    basis: Basis
    centre: NDArray[np.float64] = field(repr=False)
    usual: float
    fitted: LeastSquares | None = None

    @classmethod
    def between(
        cls,
        suspect: Matrix,
        model: Matrix,
        alignment: Alignment,
        basis: Basis,
        sample: NDArray[np.int64],
        fitted: LeastSquares | None = None,
    ) -> Differences:
        """Differences of a suspect, with the centre and the usual variance of a sample of tokens."""
        bare = cls(suspect, model, alignment, basis, np.zeros(model.hidden_size), 0.0, fitted)
        values, units = np.empty((sample.size, model.hidden_size)), np.empty(sample.size)
        for first in range(0, sample.size, _ROWS_AT_ONCE):
            here = slice(first, first + _ROWS_AT_ONCE)
            values[here], units[here] = bare._raw(sample[here])
        changed = (units > 0) & (np.ptp(values, axis=1) > 0)
        if not changed.any():
            return bare
        # Planted or broken rows are excluded from the mean: a single one, of an unused token, could move the centre by
        # more than all noise.
        sizes = _mean_squares(values)
        ordinary = changed & (sizes <= MOST_VARIANCE * np.median(sizes[changed]))
        centre = bare.centre
        if ordinary.sum() >= ROWS_OF_CENTRE:
            centre = values.mean(axis=0, where=ordinary[:, None])
            values -= centre
        usual = float(np.median(_mean_squares(values)[ordinary]))
        return replace(bare, centre=centre, usual=usual)

    def read(self, tokens: NDArray[np.int64]) -> Difference:
        """The differences of these tokens (n,); 0 with weight 0 for a row that is gone or broken."""
        values, units = self._raw(tokens)
        # A row that equals the original's stays 0: it is no evidence.
        values[(values != 0).any(axis=1)] -= self.centre
        variance = np.square(values).mean(axis=1)
        with np.errstate(divide="ignore", invalid="ignore"):
            least = np.maximum(variance, LEAST_VARIANCE * self.usual)
            weights = np.where((units > 0) & (variance > 0), units / least, 0.0)
        gauges = np.where(variance <= MOST_VARIANCE * self.usual, units, 0.0)
        return Difference(values.astype(np.float32), weights, units, gauges)

    def _raw(self, tokens: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """(n, d) differences in the basis and (n,) units, 0 where a row cannot be compared."""
        d = self.model.hidden_size
        values, units = np.zeros((tokens.size, d)), np.zeros(tokens.size)
        where = (self.alignment if self.fitted is None else self.fitted).rows[tokens]
        present = np.flatnonzero(where >= 0)
        if not present.size:
            return values, units
        ours = self.model.embedding(tokens[present]).double().numpy()
        theirs = self.suspect.embedding(where[present]).double().numpy()
        if self.fitted is not None:
            difference = self.fitted.restore(theirs, tokens[present]) - ours
        else:
            difference = self.alignment.restore(theirs, ours) / self.alignment.scale - ours
        with np.errstate(invalid="ignore"):
            finite = (np.abs(difference) < LARGEST).all(axis=1)
        values[present[finite]] = self.basis.into(difference[finite], tokens[present[finite]])
        units[present[finite]] = np.linalg.norm(ours[finite], axis=1) / np.sqrt(d)
        return values, units


def _mean_squares(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """(n,) the mean square of each of (n, d) rows, without another array of their size."""
    squares: NDArray[np.float64] = np.einsum("ij,ij->i", values, values) / values.shape[1]
    return squares
