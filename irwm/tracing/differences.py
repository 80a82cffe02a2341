"""What a suspect differs from the original by, in the basis of a release: the numbers that noise is looked for in."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from irwm.alignment import Alignment
from irwm.checkpoint import Checkpoint
from irwm.scheme.basis import Basis
from irwm.scheme.noise import LEAST_VARIANCE

# One that varies a hundred times the usual was rewritten, and says nothing of how copies were mixed.
MOST_VARIANCE = 100.0
# A larger difference is no number a model computes with, and its square is out of float32's range.
LARGEST = 1e15
# Of fewer changed rows a mean says nothing of all, and would only take their own noise off them.
ROWS_OF_CENTRE = 32


@dataclass(frozen=True, slots=True, eq=False)
class Difference:
    """Differences of some rows.

    Attributes:
        values: (n, d) float32, (suspect - original) B, the usual difference of each coordinate taken off.
        weights: (n,) float64, what each row counts: large where noise would be large and all else is small.
        units: (n,) float64, each original row's own deviation ||row|| / sqrt(d); 0 of a row that is not compared.
        gauges: (n,) float64, `units` again, 0 for rows that were rewritten: what shares are measured with, since the
            weights would shrink exactly those rows in which a copy's noise happens to be large.
    """

    values: NDArray[np.float32]
    weights: NDArray[np.float64]
    units: NDArray[np.float64]
    gauges: NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Differences:
    """Reads differences, in this process or another.

    Weights and centre come from the suspect and the original alone. Under the null the recipient's signs are
    independent of both, so whatever is chosen here leaves the odds as they are.

    Attributes:
        suspect, model: the checkpoints.
        alignment: how the suspect's coordinates become the original's.
        basis: the release's.
        centre: (d,) mean difference of each coordinate in ordinary rows, of which no recipient's noise is a part.
        usual: the median row's variance.
    """

    suspect: Checkpoint
    model: Checkpoint
    alignment: Alignment
    basis: Basis
    centre: NDArray[np.float64] = field(repr=False)
    usual: float

    @classmethod
    def between(
        cls, suspect: Checkpoint, model: Checkpoint, alignment: Alignment, basis: Basis, sample: NDArray[np.int64]
    ) -> Differences:
        """Differences of an aligned suspect, with a centre and a usual variance from a sample of tokens."""
        bare = cls(suspect, model, alignment, basis, np.zeros(model.hidden_size), 0.0)
        values, units = bare._raw(sample)
        changed = np.flatnonzero((units > 0) & (np.ptp(values, axis=1) > 0))
        if not changed.size:
            return bare
        # Rows that were planted or broken take no part in the mean: one of them, of a token that nobody uses, could
        # move the centre by more than all noise there is.
        sizes = np.square(values[changed]).mean(axis=1)
        ordinary = values[changed][sizes <= MOST_VARIANCE * np.median(sizes)]
        centre = ordinary.mean(axis=0) if len(ordinary) >= ROWS_OF_CENTRE else bare.centre
        usual = float(np.median(np.square(ordinary - centre).mean(axis=1)))
        return cls(suspect, model, alignment, basis, centre, usual)

    def read(self, tokens: NDArray[np.int64]) -> Difference:
        """The differences of these tokens (n,); of a row that is gone or broken they are 0 and weigh nothing."""
        values, units = self._raw(tokens)
        # A row that is the original's stays at nothing: it is no evidence of anything.
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
        where = self.alignment.rows[tokens]
        present = np.flatnonzero(where >= 0)
        if not present.size:
            return values, units
        ours = self.model.embedding(tokens[present]).double().numpy()
        theirs = self.alignment.restore(self.suspect.embedding(where[present]).double().numpy(), ours)
        difference = theirs / self.alignment.scale - ours
        with np.errstate(invalid="ignore"):
            finite = (np.abs(difference) < LARGEST).all(axis=1)
        values[present[finite]] = self.basis.into(difference[finite], tokens[present[finite]])
        units[present[finite]] = np.linalg.norm(ours[finite], axis=1) / np.sqrt(d)
        return values, units
