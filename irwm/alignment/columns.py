"""Matches columns by cosine similarity (the paper's Permutation_Recover), with signs and offsets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from irwm.alignment.result import ALIGNED_COSINE
from irwm.alignment.rows import median_row
from irwm.alignment.sample import Sample, centred, column_cosines, factor, row_cosines

# With fewer rows some column always resembles another by chance.
FEWEST_ROWS_TO_MATCH = 256
# Share of the columns that must be in place or have a mutual counterpart.
LEAST_UNIQUENESS = 0.9
# If at most this share of the columns is out of place, the others are assumed to be in place.
FEW_COLUMNS = 0.05
# An offset below this share of the entries' own size is noise.
LEAST_OFFSET = 0.1


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """The order of columns that fits best, and how well it fits rows that were not used for the fit.

    Attributes:
        columns, signs, offsets, uniqueness, scale, cosines, decoy_cosines: as in `Alignment`.
    """

    columns: NDArray[np.int64]
    signs: NDArray[np.float64]
    offsets: NDArray[np.float64]
    uniqueness: float
    scale: float
    cosines: NDArray[np.float64]
    decoy_cosines: NDArray[np.float64]

    @property
    def fits(self) -> bool:
        return float(np.median(self.cosines)) >= ALIGNED_COSINE and self.uniqueness >= LEAST_UNIQUENESS


def by_cosine(sample: Sample, row_constants: bool, within: torch.Tensor | None = None) -> Columns:
    """Match the columns of a sample of paired rows.

    Args:
        row_constants: whether to subtract each row's mean first, for models that ignore a constant per row.
        within: (d, m) directions of the original used for the score; None for all. Rows that were paired by the leading
            directions are scored in the others.
    """
    theirs, ours = sample.theirs, sample.ours
    if row_constants:
        theirs, ours = theirs - theirs.mean(dim=1, keepdim=True), ours - ours.mean(dim=1, keepdim=True)
    a, b = centred(theirs), centred(ours)
    columns, signs, uniqueness, matched = _match(a[::2], b[::2])
    # Scored on rows that were not used for matching: among many columns some resemble each other by chance.
    start = 1 if matched else 0
    index, sign = torch.as_tensor(columns, device=a.device), torch.as_tensor(signs, device=a.device, dtype=a.dtype)
    moved = matched and not (np.array_equal(columns, np.arange(columns.size)) and (signs > 0).all())
    put: Callable[[torch.Tensor], torch.Tensor]
    put = (lambda rows: rows[:, index] * sign) if moved else (lambda rows: rows)  # a gather takes most of the time
    restored, reference = put(a[start :: 1 + start]), b[start :: 1 + start]
    scale = factor(restored, reference)
    offsets = _offsets(put(theirs) - scale * ours, LEAST_OFFSET * float(restored.square().mean().sqrt()))
    if within is not None:
        restored, reference = restored @ within.to(restored.dtype), reference @ within.to(reference.dtype)
    cosines, decoys = row_cosines(restored, reference)
    return Columns(columns, signs, offsets.double().cpu().numpy(), uniqueness, scale, cosines, decoys)


def _offsets(apart: torch.Tensor, least: float) -> torch.Tensor:
    """(d,) the median of the differences between two models' rows; zeros if it is below `least`."""
    # A median is within one deviation of the mean, so most models need no median.
    mean = apart.mean(dim=0)
    bound = mean.abs() + (apart.square().mean(dim=0) - mean.square()).clamp_min(0).sqrt()
    if bound.square().mean().sqrt() < least:
        return torch.zeros_like(mean)
    offsets = median_row(apart)
    return torch.zeros_like(offsets) if offsets.square().mean().sqrt() < least else offsets


def _match(theirs: torch.Tensor, ours: torch.Tensor) -> tuple[NDArray[np.int64], NDArray[np.float64], float, bool]:
    """Columns and signs that put `theirs` into the order of `ours`, the share that is unique, and whether any had to be
    matched. If nearly all columns resemble each other in place, only the others are matched, among themselves.
    """
    d = ours.shape[1]
    columns, signs = np.arange(d), np.ones(d)
    in_place = column_cosines(theirs, ours)
    open_ = np.flatnonzero(in_place < ALIGNED_COSINE)
    if open_.size > FEW_COLUMNS * d:
        open_ = np.arange(d)  # if so many moved, one in place may be so by chance
    if not open_.size:
        return columns, signs, 1.0, False
    if len(ours) < FEWEST_ROWS_TO_MATCH // 2:
        return columns, signs, 1.0 - open_.size / d, False
    normal = torch.nn.functional.normalize
    cosine = (normal(ours[:, open_], dim=0).T @ normal(theirs[:, open_], dim=0)).cpu().numpy()
    size = np.abs(cosine)
    best = size.argmax(axis=1)
    here = np.arange(open_.size)
    mutual = (size.argmax(axis=0)[best] == here) & (size[here, best] >= ALIGNED_COSINE)
    # Mutual pairs are one to one; the other columns share the remaining places.
    free = np.setdiff1d(here, best[mutual])
    best[~mutual] = free
    columns[open_] = open_[best]
    signs[open_[mutual]] = np.sign(cosine[here, best][mutual])
    return columns, signs, 1.0 - float((~mutual).sum()) / d, True
