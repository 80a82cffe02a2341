"""The gradient of the answers' likelihood, as rows that signs are summed over."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from irwm.checkpoint import Checkpoint
from irwm.evidence.differences import Difference
from irwm.scheme.basis import Basis
from irwm.scheme.noise import LEAST_VARIANCE

# Row weights are divided by this power of a row's size, with which z is largest (docs/answers-measured.md): with 0,
# rows that hold other differences outweigh the rest, and with 2, rows that hold almost nothing do.
ROW_POWER = 0.5
# Rows of which the deviation is computed at once.
_ROWS_AT_ONCE = 8192


@dataclass(frozen=True, slots=True, eq=False)
class Gradient:
    """G = dL/dW at the original, for one place and one weighting of the tokens.

    Attributes:
        model: the original, or its output head.
        values: (s, d) float32, G.
        basis: the secret bases of a release.
        usual: the median row's mean square, among rows that the answers use.
    """

    model: Checkpoint
    values: NDArray[np.float32] = field(repr=False)
    basis: Basis
    usual: float

    @classmethod
    def of(cls, model: Checkpoint, values: NDArray[np.float32], basis: Basis) -> Gradient:
        """A gradient with the usual size of its rows."""
        starts = range(0, len(values), _ROWS_AT_ONCE)
        squares = np.concatenate([_squares(values[start : start + _ROWS_AT_ONCE]) for start in starts])
        used = squares[squares > 0]
        return cls(model, values, basis, float(np.median(used)) if used.size else 0.0)

    def read(self, tokens: NDArray[np.int64]) -> Difference:
        """The rows G_i B_i of these tokens (n,), each with the weight w_i = sigma_i / sqrt(r_i).

        sigma_i is the original row's own deviation, the unit of a fingerprint, and r_i the root mean square of G_i, at
        least a tenth of the usual one. Large rows of G hold most of what is not a fingerprint, such as marked rows;
        docs/answers-measured.md measures the division. Both are the same for all recipients. `gauges` are 0, because
        a gradient does not show which share of the suspect a copy has.
        """
        rows = self.values[tokens].astype(np.float64)
        squares = _squares(rows)
        ours = self.model.embedding(tokens).double().numpy()
        units = np.where(squares > 0, np.linalg.norm(ours, axis=1) / np.sqrt(self.model.hidden_size), 0.0)
        least = np.maximum(squares, LEAST_VARIANCE * self.usual)
        with np.errstate(divide="ignore", invalid="ignore"):
            weights = np.where(units > 0, units / np.power(least, ROW_POWER / 2), 0.0)
        return Difference(self.basis.into(rows, tokens).astype(np.float32), weights, units, np.zeros(len(tokens)))


def _squares(rows: NDArray[np.floating]) -> NDArray[np.float64]:
    """(n,) mean squares of rows (n, d)."""
    squares: NDArray[np.float64] = np.square(rows, dtype=np.float64).mean(axis=1)
    return squares
