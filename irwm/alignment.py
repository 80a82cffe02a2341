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
# With fewer rows the best of many columns resembles any other by chance.
FEWEST_ROWS, FEWEST_ROWS_TO_MATCH = 16, 256
# Share of the columns that must stand in place or have a counterpart that chooses them back.
LEAST_UNIQUENESS = 0.9
# Up to this share of columns out of place, the others are taken to stand where they belong.
FEW_COLUMNS = 0.05
# A row this many times longer than the median one was planted or broken; it would drown every column it touches.
EXTREME_LENGTH = 20.0
# An offset below this share of the entries' own size is noise.
LEAST_OFFSET = 0.1


@dataclass(frozen=True, slots=True, eq=False)
class Alignment:
    """How the suspect's coordinates relate to the original's.

    Attributes:
        aligned: whether the suspect could be put into the original's coordinates.
        rows: (s,) int64, the suspect's row for every row of the original, -1 where it is gone.
        columns: (d,) int64; suspect[:, columns] has the original's order of columns.
        signs: (d,) float64, 1 or -1 for each column of the original.
        offsets: (d,) float64 in the suspect's units, added to every row by the suspect (a LayerNorm model does not
            notice a constant).
        uniqueness: share of columns that stand in place or match mutually, in [0, 1].
        cosines: (n,) cosine of each sampled row with the original's, columns restored and means removed.
        decoy_cosines: (n,) the same against a wrong row, the null of `cosines`.
        broken_rows: sampled rows of the suspect that hold NaN or Inf.
        undone: sentences, one per disguise undone.
        reason: one sentence; why it is or is not aligned.
    """

    aligned: bool
    rows: NDArray[np.int64]
    columns: NDArray[np.int64]
    signs: NDArray[np.float64]
    offsets: NDArray[np.float64]
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
        """The suspect's rows (n, d) in the original's order of columns, signs and offsets undone."""
        return rows[:, self.columns] * self.signs - self.offsets


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
    theirs, ours = suspect.embedding(sample, device=device).double(), model.embedding(sample, device=device).double()
    finite = torch.isfinite(theirs).all(dim=1)
    broken = sample[~finite.cpu().numpy()]
    length = theirs.norm(dim=1)
    usual = finite & ((length <= EXTREME_LENGTH * length[finite].median()) if finite.any() else finite)
    extreme = int(finite.sum() - usual.sum())
    theirs, ours = theirs[usual], ours[usual]
    if len(ours) < FEWEST_ROWS:
        return _failed(rows, d, f"only {len(ours)} sampled rows of the suspect hold usable numbers", broken)
    a, b = _centred(theirs), _centred(ours)
    columns, signs, uniqueness, matched = _match_columns(a[::2], b[::2])
    # Scored on rows that the matching has not seen: the best of many columns resembles any other by chance.
    start = 1 if matched else 0
    index, sign = torch.as_tensor(columns, device=a.device), torch.as_tensor(signs, device=a.device)
    restored, reference = a[start :: 1 + start][:, index] * sign, b[start :: 1 + start]
    cosines = _row_cosines(restored, reference)
    decoys = _row_cosines(restored.roll(1, dims=0), reference)
    offsets = _offsets(theirs[:, index] * sign, ours, restored, reference)
    similarity = float(np.median(cosines))
    aligned = similarity >= ALIGNED_COSINE and uniqueness >= LEAST_UNIQUENESS
    undone = _undone(s, suspect.vocab_size, columns, signs, offsets, extreme) if aligned else ()
    reason = f"the median sampled row has cosine {similarity:.3f} with the original's"
    if uniqueness < LEAST_UNIQUENESS:
        reason = f"cannot be aligned: only {100 * uniqueness:.0f} % of its columns have a counterpart in the original"
    elif not aligned:
        reason = f"cannot be aligned: {reason}, below the {ALIGNED_COSINE} that related models keep"
    return Alignment(aligned, rows, columns, signs, offsets, uniqueness, cosines, decoys, broken, undone, reason)


def _undone(
    size: int,
    suspect_size: int,
    columns: NDArray[np.int64],
    signs: NDArray[np.float64],
    offsets: NDArray[np.float64],
    extreme: int,
) -> tuple[str, ...]:
    """What was undone or left aside, a sentence each."""
    d, said = columns.size, []
    moved, flipped = int((columns != np.arange(d)).sum()), int((signs < 0).sum())
    if moved:
        said.append(f"{moved} of {d} columns were reordered; put back by cosine similarity")
    if flipped:
        said.append(f"{flipped} of {d} columns had their sign flipped")
    if offsets.any():
        said.append("a constant had been added to the columns; taken off again")
    if suspect_size > size:
        said.append(f"{suspect_size - size} rows beyond the original's {size} ignored")
    elif suspect_size < size:
        said.append(f"{size - suspect_size} of the original's {size} rows are gone")
    if extreme:
        said.append(f"{extreme} rows of extreme length left out of the comparison")
    return tuple(said)


def _failed(rows: NDArray[np.int64], d: int, why: str, broken: NDArray[np.int64] | None = None) -> Alignment:
    empty = np.empty(0)
    none = np.empty(0, dtype=np.int64) if broken is None else broken
    return Alignment(
        False, rows, np.arange(d), np.ones(d), np.zeros(d), 0.0, empty, empty, none, (), f"cannot be aligned: {why}"
    )


def _sample(shared: int) -> NDArray[np.int64]:
    """Ascending ids of the rows behind the cosines; fixed, so that the same files always give the same answer."""
    if shared <= SAMPLE_ROWS:
        return np.arange(shared)
    order = permutations(derive(bytes(32), b"irwm", b"irwm/v1/alignment-sample"), 1, shared)[0]
    return np.sort(order[:SAMPLE_ROWS])


def _centred(rows: torch.Tensor) -> torch.Tensor:
    """Rows less their median row: trained embeddings share one, and it would make unrelated rows look alike."""
    return rows - rows.median(dim=0, keepdim=True).values


def _match_columns(
    theirs: torch.Tensor, ours: torch.Tensor
) -> tuple[NDArray[np.int64], NDArray[np.float64], float, bool]:
    """Columns and signs that put `theirs` into the order of `ours`, the share that is unique, whether any was matched.

    Where nearly all columns resemble each other in place, only the others are matched, among themselves.
    """
    d = ours.shape[1]
    columns, signs = np.arange(d), np.ones(d)
    in_place = torch.nn.functional.cosine_similarity(theirs, ours, dim=0).cpu().numpy()
    open_ = np.flatnonzero(in_place < ALIGNED_COSINE)
    if open_.size > FEW_COLUMNS * d:
        open_ = np.arange(d)  # so many have moved that another may stand where it resembles by chance
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
    # Mutual pairs are one to one; what is left over stays where it can without taking another's place.
    free = np.setdiff1d(here, best[mutual])
    best[~mutual] = free
    columns[open_] = open_[best]
    signs[open_[mutual]] = np.sign(cosine[here, best][mutual])
    return columns, signs, 1.0 - float((~mutual).sum()) / d, True


def _offsets(
    theirs: torch.Tensor, ours: torch.Tensor, restored: torch.Tensor, reference: torch.Tensor
) -> NDArray[np.float64]:
    """(d,) constants added to the columns, zero where they are no more than noise."""
    scale = (restored * reference).sum() / reference.square().sum().clamp_min(1e-300)
    offsets = (theirs - scale * ours).median(dim=0).values
    if offsets.square().mean().sqrt() < LEAST_OFFSET * restored.square().mean().sqrt():
        return np.zeros(ours.shape[1])
    return np.asarray(offsets.cpu().numpy(), dtype=np.float64)


def _row_cosines(a: torch.Tensor, b: torch.Tensor) -> NDArray[np.float64]:
    return torch.nn.functional.cosine_similarity(a, b, dim=1).double().cpu().numpy()
