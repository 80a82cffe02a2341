"""The map from a suspect's rows to the original's that does not depend on a score: affine least squares with ridge.

It includes every rotation, scaling, widening and dropping of directions of the residual stream, and a linear map that
an attacker's own loader undoes. Ranks are uniform under any map that was chosen without the key's orders. So a reading
with this map requires no proof that the two models are related.

A row is never restored by a map that was fitted to it. A marked row in the fit would pull itself back to the original.
So two maps are fitted to two disjoint samples, and each restores the rows of the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from irwm.alignment.rows import PUBLIC, Rows, draw, has_direction, median_row, working_dtype
from irwm.alignment.sample import EXTREME_LENGTH

# Rows of a sample per coordinate; with four the map is as good as with eight.
ROWS_PER_COORDINATE = 4
# With fewer rows than coordinates a map only reproduces the fitted rows.
FEWEST_ROWS_PER_COORDINATE = 1
# Ridge in units of the mean variance of a coordinate. From 1e-8 to 1e-2 the readings are the same.
RIDGE = 1e-3
# Number of rows used to decide between two pairings.
COMPARED_ROWS = 1024
# An unrelated model's map fits many rows a little, a descendant's the uncorrupted ones well; a quarter separates them
# best.
AGREEING_SHARE = 0.25
_SMALLEST = 1e-12


@dataclass(frozen=True, slots=True, eq=False)
class LeastSquares:
    """Two fitted maps x -> (x - their_centre) @ matrix + our_centre.

    Attributes:
        rows: (s,) int64, the suspect's row of every row of the original, -1 if it is gone.
        samples: two ascending arrays of tokens, to which the maps were fitted.
        matrices: two (d', d) float64.
        their_centres, our_centres: two (d',) and two (d,) float64.
        agreement: the cosine with the original's rows that a quarter of the restored ones reach, on rows that were not
            used for their map; from 0 to 1. An attacker may have corrupted most of the others.
    """

    rows: NDArray[np.int64]
    samples: tuple[NDArray[np.int64], NDArray[np.int64]]
    matrices: tuple[NDArray[np.float64], NDArray[np.float64]]
    their_centres: tuple[NDArray[np.float64], NDArray[np.float64]]
    our_centres: tuple[NDArray[np.float64], NDArray[np.float64]]
    agreement: float = 0.0

    def restore(self, rows: NDArray[np.float64], tokens: NDArray[np.int64]) -> NDArray[np.float64]:
        """The suspect's rows (n, d') of these tokens (n,), in the original's coordinates (n, d)."""
        restored = np.empty((len(rows), self.matrices[0].shape[1]))
        second = np.isin(tokens, self.samples[0])
        for which, chosen in ((0, ~second), (1, second)):
            restored[chosen] = (rows[chosen] - self.their_centres[which]) @ self.matrices[which]
            restored[chosen] += self.our_centres[which]
        return restored


def least_squares(
    suspect: Rows, model: Rows, pairings: Sequence[NDArray[np.int64]], secret: bytes = PUBLIC
) -> LeastSquares | None:
    """The maps under that pairing (s,) of rows under which unseen rows agree best; None if all pairings have too few
    rows.

    Args:
        secret: the seed of the samples. No orders of a key are derived from it.
    """
    fits = [fit for rows in pairings if (fit := _fitted(suspect, model, rows, secret)) is not None]
    scored = (replace(fit, agreement=_agreement(suspect, model, fit, secret)) for fit in fits)
    return max(scored, key=lambda fit: fit.agreement, default=None)


def _agreement(suspect: Rows, model: Rows, fit: LeastSquares, secret: bytes) -> float:
    """The upper quartile of the cosines of a sample of the original's rows with the restored ones; 0 for missing
    ones."""
    tokens = draw(model.count, COMPARED_ROWS, secret)
    sampled, tokens = tokens.size, tokens[fit.rows[tokens] >= 0]
    if not tokens.size:
        return 0.0
    theirs = suspect.source.embedding(fit.rows[tokens]).double().numpy()
    ours = model.source.embedding(tokens).double().numpy() - fit.our_centres[0]
    restored = fit.restore(theirs, tokens) - fit.our_centres[0]
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        cosines = (restored * ours).sum(axis=1) / (np.linalg.norm(restored, axis=1) * np.linalg.norm(ours, axis=1))
    ranked = np.sort(np.clip(np.nan_to_num(cosines), 0.0, 1.0))[::-1]
    at = int(AGREEING_SHARE * sampled)
    return float(ranked[at]) if at < ranked.size else 0.0


def _fitted(suspect: Rows, model: Rows, rows: NDArray[np.int64], secret: bytes) -> LeastSquares | None:
    """Both maps, fitted to samples of the rows that have a place; None if there are too few."""
    present = np.flatnonzero(rows >= 0)
    wide = max(suspect.width, model.width)
    tokens = present[draw(present.size, 2 * ROWS_PER_COORDINATE * wide, secret)]
    halves = tokens[::2], tokens[1::2]
    first, second = (_fit(suspect, model, rows, half) for half in halves)
    if first is None or second is None:
        return None
    return LeastSquares(rows, halves, (first[0], second[0]), (first[1], second[1]), (first[2], second[2]))


def _fit(
    suspect: Rows, model: Rows, rows: NDArray[np.int64], tokens: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]] | None:
    """The matrix (d', d) and both centres, in the models' own units; None if too few rows are usable."""
    dtype = working_dtype(max(suspect.width, model.width))
    theirs, ours = suspect.read(rows[tokens]).to(dtype), model.read(tokens).to(dtype)
    usable = has_direction(theirs)
    length = theirs.norm(dim=1)
    usable &= length <= EXTREME_LENGTH * length[usable].median() if usable.any() else usable
    if int(usable.sum()) < FEWEST_ROWS_PER_COORDINATE * max(suspect.width, model.width):
        return None
    theirs, ours = theirs[usable], ours[usable]
    here, there = median_row(theirs), median_row(ours)
    theirs, ours = theirs - here, ours - there
    # Rows are used with unit length, so that a few long ones cannot decide the map.
    weights = 1 / theirs.norm(dim=1, keepdim=True).clamp_min(_SMALLEST)
    weighted = theirs * weights
    products = weighted.T @ weighted
    variance = float(products.diagonal().mean())
    if not variance > 0.0:
        return None  # all rows are the same
    products.diagonal().add_(RIDGE * variance)
    try:
        matrix = torch.linalg.solve(products, weighted.T @ (ours * weights))
    except RuntimeError:  # a singular matrix
        return None
    unit = model.length / suspect.length
    made, their_centre, our_centre = (each.double().cpu().numpy() for each in (matrix, here, there))
    return made * unit, their_centre * suspect.length, our_centre * model.length
