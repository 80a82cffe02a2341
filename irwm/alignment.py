"""Permutation_Recover (Algorithm 3, line 12): put the suspect's embedding back into the original's coordinates.

The residual columns are matched by cosine similarity on a sample of shared rows. What was undone and how sure it is
stands in the result; a suspect that does not resemble the original "cannot be aligned", which is not a bad match.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from irwm.checkpoint import Checkpoint
from irwm.keystream import derive, permutations

# Rows behind the cosines: enough that a chance column cosine (about 1/sqrt(n)) stays below 0.02.
SAMPLE_ROWS = 4096
# Median row cosine from which two embeddings count as the same coordinates. Unrelated models end near 0 in place
# and below 0.1 after the best column matching; noise of one whole deviation on every weight still leaves 0.7.
ALIGNED_COSINE = 0.3


@dataclass(frozen=True, slots=True, eq=False)
class Alignment:
    """How the suspect's coordinates relate to the original's.

    Attributes:
        aligned: whether the suspect could be put into the original's coordinates.
        rows: (s,) int64, the suspect's row for every row of the original, -1 where it is gone.
        columns: (d,) int64; suspect[:, columns] has the original's order of columns.
        uniqueness: share of columns whose best match is mutual, in [0, 1].
        cosines: (n,) cosine of each sampled row with the original's, columns restored and means removed.
        decoy_cosines: (n,) the same against a wrong row, the null of `cosines`.
        broken_rows: sampled rows of the suspect that hold NaN or Inf.
        undone: sentences, one per disguise undone.
        reason: one sentence; why it is or is not aligned.
    """

    aligned: bool
    rows: NDArray[np.int64]
    columns: NDArray[np.int64]
    uniqueness: float
    cosines: NDArray[np.float64]
    decoy_cosines: NDArray[np.float64]
    broken_rows: NDArray[np.int64]
    undone: tuple[str, ...]
    reason: str

    @property
    def similarity(self) -> float:
        """Median row cosine; NaN when nothing could be compared."""
        return float(np.median(self.cosines)) if self.cosines.size else float("nan")

    def restore(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        """The suspect's rows (n, d) in the original's order of columns."""
        return rows[:, self.columns]


def align(suspect: Checkpoint, model: Checkpoint, device: str = "cpu") -> Alignment:
    """Align `suspect` to the original `model`.

    Rows are taken as they stand (same token, same id); missing ids count as gone. Reads at most 4 096 rows of each.

    Raises:
        CheckpointError: an embedding cannot be read.
    """
    s, d = model.vocab_size, model.hidden_size
    rows = np.where(np.arange(s) < suspect.vocab_size, np.arange(s), -1)
    if suspect.hidden_size != d:
        return _failed(rows, d, f"the suspect's rows have {suspect.hidden_size} coordinates, the original's have {d}")
    sample = _sample(min(s, suspect.vocab_size))
    theirs = suspect.embedding(sample, device=device)
    finite = torch.isfinite(theirs).all(dim=1)
    broken = sample[~finite.cpu().numpy()]
    theirs = theirs[finite]
    ours = model.embedding(sample, device=device)[finite]
    if len(ours) < 2:
        return _failed(rows, d, "no sampled row of the suspect holds finite numbers", broken)
    theirs, ours = _centred(theirs), _centred(ours)
    columns, uniqueness, undone = _match_columns(theirs, ours)
    restored = theirs[:, torch.as_tensor(columns, device=theirs.device)]
    cosines = _row_cosines(restored, ours)
    decoys = _row_cosines(restored.roll(1, dims=0), ours)
    similarity = float(np.median(cosines))
    aligned = similarity >= ALIGNED_COSINE
    if suspect.vocab_size > s:
        undone += (f"{suspect.vocab_size - s} rows beyond the original's {s} ignored",)
    elif suspect.vocab_size < s:
        undone += (f"{s - suspect.vocab_size} of the original's {s} rows are gone",)
    reason = f"the median sampled row has cosine {similarity:.3f} with the original's"
    if not aligned:
        reason = f"cannot be aligned: {reason}, below the {ALIGNED_COSINE} that related models keep"
    return Alignment(aligned, rows, columns, uniqueness, cosines, decoys, broken, undone, reason)


def _failed(rows: NDArray[np.int64], d: int, why: str, broken: NDArray[np.int64] | None = None) -> Alignment:
    empty = np.empty(0)
    none = np.empty(0, dtype=np.int64) if broken is None else broken
    return Alignment(False, rows, np.arange(d), 0.0, empty, empty, none, (), f"cannot be aligned: {why}")


def _sample(shared: int) -> NDArray[np.int64]:
    """Ascending ids of the rows behind the cosines; fixed, so that the same files always give the same answer."""
    if shared <= SAMPLE_ROWS:
        return np.arange(shared)
    order = permutations(derive(bytes(32), b"irwm", b"irwm/v1/alignment-sample"), 1, shared)[0]
    return np.sort(order[:SAMPLE_ROWS])


def _centred(rows: torch.Tensor) -> torch.Tensor:
    """Rows less their mean row: trained embeddings share one, and it would make unrelated rows look alike."""
    return rows - rows.mean(dim=0, keepdim=True)


def _match_columns(theirs: torch.Tensor, ours: torch.Tensor) -> tuple[NDArray[np.int64], float, tuple[str, ...]]:
    d = ours.shape[1]
    in_place = torch.nn.functional.cosine_similarity(theirs, ours, dim=0)
    if float(in_place.median()) >= ALIGNED_COSINE:
        return np.arange(d), 1.0, ()
    cosine = torch.nn.functional.normalize(ours, dim=0).T @ torch.nn.functional.normalize(theirs, dim=0)
    best = cosine.argmax(dim=1)
    mutual = cosine.argmax(dim=0)[best] == torch.arange(d, device=best.device)
    uniqueness = float(mutual.double().mean())
    if uniqueness < 1.0 and float(cosine.amax(dim=1).median()) < ALIGNED_COSINE:
        return np.arange(d), uniqueness, ()  # no column of the suspect is recognisable
    columns = best.cpu().numpy()
    moved = int((columns != np.arange(d)).sum())
    return columns, uniqueness, (f"{moved} of {d} columns were reordered; put back by cosine similarity",)


def _row_cosines(a: torch.Tensor, b: torch.Tensor) -> NDArray[np.float64]:
    return torch.nn.functional.cosine_similarity(a, b, dim=1).double().cpu().numpy()
