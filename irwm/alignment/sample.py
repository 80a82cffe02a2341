"""Paired rows of both models, sampled and brought into a form in which they can be compared."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from irwm.alignment.rows import SAMPLE_ROWS, Rows, draw, median_row, working_dtype

# Rows that are enough for a median of ratios of entries, of which each has hundreds.
FACTOR_ROWS = 2048
# A row this many times longer than the median one was planted or broken; it would drown every column it touches.
EXTREME_LENGTH = 20.0


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """Paired rows that hold usable numbers.

    Attributes:
        theirs, ours: (n, d') and (n, d) in `working_dtype`, the suspect's and the original's rows of the same tokens,
            each in units of its model's typical row.
        tokens: (n,) the original's rows they are.
        broken: the suspect's rows among those sampled that hold NaN or Inf.
        extreme: how many rows were left out for their length.
    """

    theirs: torch.Tensor
    ours: torch.Tensor
    tokens: NDArray[np.int64]
    broken: NDArray[np.int64]
    extreme: int


def sample_pairs(suspect: Rows, model: Rows, rows: NDArray[np.int64], wanted: int = SAMPLE_ROWS) -> Sample:
    """Rows of both models for at most `wanted` tokens that `rows` (s,) has a place for."""
    present = np.flatnonzero(rows >= 0)
    tokens = present[draw(present.size, wanted)]
    dtype = working_dtype(max(suspect.width, model.width))
    theirs = suspect.read(rows[tokens]).to(dtype)
    finite = torch.isfinite(theirs).all(dim=1)
    usual = _usual_length(theirs, finite)
    # A constant row, such as pruning leaves, has no direction to compare.
    keep = finite & usual & (theirs.amax(dim=1) > theirs.amin(dim=1))
    ours = model.read(tokens).to(dtype)
    if not keep.all():  # else two copies of a quarter of a gigabyte each, at d = 4096, would be for nothing
        theirs, ours = theirs[keep], ours[keep]
    return Sample(
        theirs=theirs,
        ours=ours,
        tokens=tokens[keep.cpu().numpy()],
        broken=rows[tokens[~finite.cpu().numpy()]],
        extreme=int((finite & ~usual).sum()),
    )


def _usual_length(rows: torch.Tensor, finite: torch.Tensor) -> torch.Tensor:
    """(n,) bool, rows that are not of extreme length; `finite` says which may be measured."""
    length = rows.norm(dim=1)
    return length <= EXTREME_LENGTH * length[finite].median() if finite.any() else finite


def factor(theirs: torch.Tensor, ours: torch.Tensor, turn: torch.Tensor | None = None) -> float:
    """How many times longer their rows are than ours, in the same coordinates, once `turn` (d', d) is applied.

    The median over our larger entries, because pruning takes the small ones and noise does not move a median.
    """
    every = max(1, len(ours) // FACTOR_ROWS)
    theirs, ours = theirs[::every], ours[::every]
    theirs = theirs if turn is None else theirs @ turn
    size = ours.abs()
    large = size >= size.flatten()[:: max(1, size.numel() // 100_000)].median()
    ratios = theirs[large] / ours[large]
    value = float(ratios.median()) if ratios.numel() else float("nan")
    # A copy reduced to its signs has no median ratio; its length still says what to divide by.
    return value if value > 0 else float(theirs.norm() / ours.norm())


def centred(rows: torch.Tensor) -> torch.Tensor:
    """Rows less their median row: trained embeddings share one, and it would make unrelated rows look alike."""
    return rows - median_row(rows)


def row_cosines(a: torch.Tensor, b: torch.Tensor) -> NDArray[np.float64]:
    """(n,) cosine of each row of `a` with the same row of `b`."""
    return torch.nn.functional.cosine_similarity(a, b, dim=1).double().cpu().numpy()
