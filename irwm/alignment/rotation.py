"""Which rotation was applied, by orthogonal Procrustes, and whether that is more than any two models would show.

With the right tokens paired, the embeddings of two models that were trained apart on the same language can always be
turned to resemble each other: word frequency and meaning span the leading principal components of both. What training
does not share is the rest. So the fit is scored on held-out rows, and only in the original's minor components.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from irwm.alignment.result import MINOR_COSINE
from irwm.alignment.sample import Sample, centred, factor, row_cosines

# Paired rows per coordinate: half of them for the fit that is scored, the others to score it on.
ROWS_PER_COORDINATE = 4
# Below this many pairs per coordinate a rotation fits noise.
FEWEST_ROWS_PER_COORDINATE = 2
# Share of the principal components that count as leading. In the last quarter models trained apart for 1 500 steps
# reach a cosine of 0.19, in the last half 0.25; a descendant under noise of one deviation keeps 0.28 (d = 128).
LEADING_SHARE = 0.75


@dataclass(frozen=True, slots=True, eq=False)
class Rotation:
    """The rotation that fits best, and how well it fits rows that it was not fitted to.

    Attributes:
        matrix: (d', d) float64 of orthonormal columns (or rows, where the suspect is narrower); suspect @ matrix has
            the original's coordinates.
        scale, cosines, decoy_cosines: as in `Alignment`; minor components only.
    """

    matrix: NDArray[np.float64]
    scale: float
    cosines: NDArray[np.float64]
    decoy_cosines: NDArray[np.float64]

    @property
    def fits(self) -> bool:
        return float(np.median(self.cosines)) >= MINOR_COSINE


def by_procrustes(sample: Sample, minor: torch.Tensor) -> Rotation:
    """Fit a rotation to a sample of paired rows; half of them for the fit that is scored, all for the one returned.

    Args:
        minor: (d, m) the original's minor components, in which the fit is scored.
    """
    minor = minor.to(sample.ours.dtype)
    # Half by half, since at d = 4096 each of these is an eighth of a gigabyte.
    turn = procrustes(centred(sample.theirs[::2]), centred(sample.ours[::2])) @ minor
    restored, reference = centred(sample.theirs[1::2]) @ turn, centred(sample.ours[1::2]) @ minor
    cosines, decoys = row_cosines(restored, reference), row_cosines(restored.roll(1, dims=0), reference)
    matrix, scale = best_rotation(sample)
    return Rotation(matrix, scale, cosines, decoys)


def best_rotation(sample: Sample) -> tuple[NDArray[np.float64], float]:
    """The rotation (d', d) and the factor that fit all of a sample, unscored."""
    # Not centred: the rows' mean is a direction of the stream like any other.
    matrix = procrustes(sample.theirs, sample.ours)
    return matrix.double().cpu().numpy(), factor(sample.theirs, sample.ours, matrix)


def procrustes(theirs: torch.Tensor, ours: torch.Tensor) -> torch.Tensor:
    """(d', d) matrix R of orthonormal columns or rows that aligns theirs R with ours (Schoenemann 1966).

    For d' = d it minimises |theirs R - c ours| for every c > 0. A suspect whose stream was widened (d' > d) is turned
    and narrowed at once.
    """
    u, _, vh = torch.linalg.svd(theirs.T @ ours, full_matrices=False)
    return u @ vh


def leading_count(d: int) -> int:
    """How many of d principal components count as leading."""
    return int(LEADING_SHARE * d)
