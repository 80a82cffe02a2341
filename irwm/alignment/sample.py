"""Samples of paired rows of two models, and how similar they are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from irwm.alignment.rows import Rows, draw, has_direction, is_finite, median_row, sample_size, working_dtype

# Rows and entries that are enough for a median of ratios of entries.
FACTOR_ROWS, FACTOR_ENTRIES = 2048, 1 << 20
# A row that is this many times longer than the median one was planted or is broken; it would dominate every column.
EXTREME_LENGTH = 20.0
# A row below this length, in units of the typical row, has no direction.
SMALLEST = 1e-8


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """Paired rows with usable numbers.

    Attributes:
        theirs, ours: (n, d') and (n, d) in `working_dtype`, the suspect's and the original's rows of the same tokens,
            each in units of its model's typical row.
        tokens: (n,) the numbers of the original's rows.
        broken: the sampled rows of the suspect that hold NaN or Inf.
        extreme: how many rows were left out because of their length.
    """

    theirs: torch.Tensor
    ours: torch.Tensor
    tokens: NDArray[np.int64]
    broken: NDArray[np.int64]
    extreme: int


def sample_pairs(suspect: Rows, model: Rows, rows: NDArray[np.int64], wanted: int | None = None) -> Sample:
    """Rows of both models for at most `wanted` tokens, by default `sample_size`; `rows` (s,) as in `Alignment`."""
    present = np.flatnonzero(rows >= 0)
    tokens = present[draw(present.size, sample_size(model.width) if wanted is None else wanted)]
    dtype = working_dtype(max(suspect.width, model.width))
    theirs = suspect.read(rows[tokens]).to(dtype)
    finite = is_finite(theirs)
    usual = _usual_length(theirs, finite)
    # A constant row, for example from pruning, has no direction to compare.
    keep = usual & has_direction(theirs)
    ours = model.read(tokens).to(dtype)
    if not keep.all():  # avoids two copies of a quarter of a gigabyte each, at d = 4096
        theirs, ours = theirs[keep], ours[keep]
    return Sample(
        theirs=theirs,
        ours=ours,
        tokens=tokens[keep.cpu().numpy()],
        broken=rows[tokens[~finite.cpu().numpy()]],
        extreme=int((finite & ~usual).sum()),
    )


def _usual_length(rows: torch.Tensor, finite: torch.Tensor) -> torch.Tensor:
    """(n,) bool, rows that are not of extreme length, as determined by the `finite` ones."""
    length = rows.norm(dim=1)
    return length <= EXTREME_LENGTH * length[finite].median() if finite.any() else finite


def factor(theirs: torch.Tensor, ours: torch.Tensor, turn: torch.Tensor | None = None) -> float:
    """How many times longer their rows are than ours in the same coordinates, after the rotation `turn` (d', d).

    It is the median over our larger entries: pruning removes the small ones, and noise does not change a median.
    """
    every = max(1, len(ours) // min(FACTOR_ROWS, max(1, FACTOR_ENTRIES // ours.shape[1])))
    theirs, ours = theirs[::every], ours[::every]
    theirs = theirs if turn is None else theirs @ turn
    size = ours.abs()
    large = size >= size.flatten()[:: max(1, size.numel() // 100_000)].median()
    ratios = theirs[large] / ours[large]
    value = float(ratios.median()) if ratios.numel() else float("nan")
    # A copy reduced to its signs has no median ratio; then the lengths give the factor.
    return value if value > 0 else float(theirs.norm() / ours.norm())


def centred(rows: torch.Tensor) -> torch.Tensor:
    """Rows minus their median row: rows of trained embeddings share it, so that unrelated ones look similar."""
    return rows - median_row(rows)


def row_cosines(a: torch.Tensor, b: torch.Tensor) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(n,) cosine of each row of `a` with the same row of `b`, and (n,) with the wrong row: the one after it."""
    # As products of rows: `cosine_similarity` first writes two normalised copies.
    lengths = a.norm(dim=1).clamp_min(SMALLEST), b.norm(dim=1).clamp_min(SMALLEST)
    same = _row_products(a, b) / (lengths[0] * lengths[1])
    wrong = torch.cat((_row_products(a[-1:], b[:1]), _row_products(a[:-1], b[1:])))
    wrong /= lengths[0].roll(1, dims=0) * lengths[1]
    return same.double().cpu().numpy(), wrong.double().cpu().numpy()


def column_cosines(a: torch.Tensor, b: torch.Tensor) -> NDArray[np.float64]:
    """(d,) cosine of each column of `a` with the same column of `b`."""
    sums = torch.ones(1, len(a), dtype=a.dtype, device=a.device)  # a product reads rows in memory order
    product, ours, theirs = ((sums @ (left * right))[0] for left, right in ((a, b), (a, a), (b, b)))
    return (product / (ours.sqrt().clamp_min(SMALLEST) * theirs.sqrt().clamp_min(SMALLEST))).double().cpu().numpy()


def _row_products(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.bmm(a[:, None, :], b[:, :, None])[:, 0, 0]
