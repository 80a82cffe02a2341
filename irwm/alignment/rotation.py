"""Finds the applied rotation by orthogonal Procrustes, and checks that it fits better than between unrelated models.

With the right tokens paired, a rotation always makes the embeddings of two models of one language similar, even if they
were trained separately: word frequency and meaning span the leading principal components of both. The other components
are not shared. So the fit is scored on held-out rows, and only in the original's minor components.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from irwm.alignment.result import MINOR_COSINE
from irwm.alignment.sample import Sample, centred, factor, row_cosines

# Paired rows per coordinate: half of them for the fit, the others to score it.
ROWS_PER_COORDINATE = 4
# Below this many pairs per coordinate a rotation fits noise.
FEWEST_ROWS_PER_COORDINATE = 2
# Share of the principal components that count as leading. In the last quarter, models trained separately for 1 500
# steps reach a cosine of 0.19, in the last half 0.25; a descendant under noise of one deviation keeps 0.28 (d = 128).
LEADING_SHARE = 0.75
# Leading components that show whether a rotation is worth fitting.
LEADING_TURNED = 96
# Up to this many columns a singular value decomposition is fast enough.
MOST_BY_SVD = 1024
# With more columns a fit is slow, so the scored one is also used: it is fitted to all rows except every fourth.
HELD_OUT = 4
# Newton's iteration takes six or seven steps; it squares its error, so no error is left after a step of this size.
MOST_STEPS, SETTLED = 20, 1e-3


@dataclass(frozen=True, slots=True, eq=False)
class Rotation:
    """How well the best rotation for half of the rows fits the others.

    Attributes:
        cosines, decoy_cosines: as in `Alignment`; minor components only.
        whole: median cosine of the same rows in all components, which models trained separately partly share.
        turn: (d', d) the scored rotation, if it is as good as a fit to all rows; None if that fit must still be made.
    """

    cosines: NDArray[np.float64]
    decoy_cosines: NDArray[np.float64]
    whole: float
    turn: torch.Tensor | None = None

    @property
    def fits(self) -> bool:
        return float(np.median(self.cosines)) >= MINOR_COSINE


def by_procrustes(sample: Sample, minor: torch.Tensor) -> Rotation:
    """Fits a rotation to half of a sample of paired rows, or most of it, and scores it on the others.

    Args:
        minor: (d, m) the original's minor components, in which the fit is scored.
    """
    minor = minor.to(sample.ours.dtype)
    if min(sample.theirs.shape[1], sample.ours.shape[1]) > MOST_BY_SVD:
        theirs, ours = sample.theirs[::HELD_OUT], sample.ours[::HELD_OUT]
        # As a difference, since a copy of three quarters of the rows would be as large as all of them.
        turn = orthogonal_factor((sample.theirs.T @ sample.ours).sub_(theirs.T @ ours))
        restored, reference = centred(theirs) @ turn, centred(ours)
        return Rotation(*row_cosines(restored @ minor, reference @ minor), _median_cosine(restored, reference), turn)
    # Half by half, since at d = 4096 each of these is an eighth of a gigabyte.
    turn = procrustes(centred(sample.theirs[::2]), centred(sample.ours[::2]))
    restored, reference = centred(sample.theirs[1::2]) @ turn, centred(sample.ours[1::2])
    return Rotation(*row_cosines(restored @ minor, reference @ minor), _median_cosine(restored, reference))


def _median_cosine(restored: torch.Tensor, reference: torch.Tensor) -> float:
    return float(np.median(row_cosines(restored, reference)[0]))


def turned_alike(sample: Sample, components: torch.Tensor) -> float:
    """Median cosine of held-out rows after the best rotation of the others, in the leading components only.

    Args:
        components: (d, d) the original's, most varied first.
    """
    leading = components[:, : min(LEADING_TURNED, leading_count(len(components)))].to(sample.ours.dtype)
    theirs, ours = centred(sample.theirs), sample.ours @ leading
    ours = centred(ours)
    turn = procrustes(theirs[::2], ours[::2])
    return float(np.median(row_cosines(theirs[1::2] @ turn, ours[1::2])[0]))


def best_rotation(sample: Sample, turn: torch.Tensor | None = None) -> tuple[NDArray[np.float64], float]:
    """The rotation and the factor that fit all of a sample, unscored.

    Args:
        turn: `Rotation.turn` of the sample, if it has one.

    Returns:
        (d', d) float64 of orthonormal columns (or rows, if the suspect is narrower), with which suspect @ matrix has
        the original's coordinates; and `scale` as in `Alignment`.
    """
    # Not centred: the rows' mean is rotated like everything else.
    matrix = procrustes(sample.theirs, sample.ours) if turn is None else turn
    return matrix.double().cpu().numpy(), factor(sample.theirs, sample.ours, matrix)


def procrustes(theirs: torch.Tensor, ours: torch.Tensor) -> torch.Tensor:
    """(d', d) matrix R of orthonormal columns or rows that aligns theirs R with ours (Schoenemann 1966).

    For d' = d it minimises |theirs R - c ours| for every c > 0. A suspect whose stream was widened (d' > d) is rotated
    and narrowed in one step.
    """
    return orthogonal_factor(theirs.T @ ours)


def orthogonal_factor(product: torch.Tensor) -> torch.Tensor:
    """(d', d) U V^T of the singular value decomposition of a matrix (d', d)."""
    if min(product.shape) > MOST_BY_SVD and product.shape[0] == product.shape[1]:
        turn = polar_factor(product)
        if turn is not None:
            return turn
    u, _, vh = torch.linalg.svd(product, full_matrices=False)
    factor: torch.Tensor = u @ vh
    return factor


def polar_factor(matrix: torch.Tensor) -> torch.Tensor | None:
    """(d, d) orthogonal factor of a square matrix, U V^T of its singular value decomposition, in half the time.

    Newton's iteration X <- (c X + X^-T / c) / 2 with the scaling of Higham (1986); None if it does not converge, as
    for a singular matrix.
    """
    x = matrix / matrix.norm()
    for _ in range(MOST_STEPS):
        inverse, failed = torch.linalg.inv_ex(x)
        if bool(failed) or not bool(torch.isfinite(inverse.sum())):
            return None
        sizes = [torch.linalg.matrix_norm(each, order) for each in (inverse, x) for order in (1, torch.inf)]
        scaling = float((sizes[0] * sizes[1] / (sizes[2] * sizes[3])) ** 0.25)
        following = inverse.T.div_(2 * scaling).add_(x, alpha=scaling / 2)
        moved = float((following - x).norm() / following.norm())
        x = following
        if moved < SETTLED:
            probe = torch.ones(len(x), 1, dtype=x.dtype, device=x.device)
            return x if float((x.T @ (x @ probe) - probe).norm() / probe.norm()) < SETTLED else None
    return None


def leading_count(d: int) -> int:
    """The number of leading components among d principal components."""
    return int(LEADING_SHARE * d)
