"""The position of every row once the coordinates are known: found by content, and checked against an alignment."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from irwm.alignment.neighbours import certain_pairs, nearest
from irwm.alignment.result import Alignment
from irwm.alignment.rows import LEADING_COORDINATES, Rows, has_direction

# A pair of rows counts if its cosine is at least this share of the median pair's.
LEAST_SHARE = 0.5
PASSES = 4
# Comparing more pairs of rows than this takes seconds; then the certain ones are found first.
MOST_COMPARED = 1 << 29
# If this share of the rows is in certain pairs, these pairs alone show how similar pairs are.
MOSTLY = 0.5
# Rows that are compared at a time, few enough for the cache.
_ROWS_AT_ONCE = 256


def settle(suspect: Rows, model: Rows, alignment: Alignment) -> NDArray[np.int64]:
    """(s,) int64, the suspect's row for every row of the original, -1 if it is gone; ids and names are not used.

    Mutual nearest neighbours in the original's leading principal components are paired, and a pair is kept if the two
    are about as similar as most pairs are.

    Args:
        alignment: how the suspect's coordinates become the original's; its own rows are not used.
    """
    basis = model.principal_components[:, :LEADING_COORDINATES]  # enough to distinguish near-duplicates
    mean = model.centre @ basis
    ours, ours_usable = model.leading_coordinates
    ours_usable = ours_usable.clone()
    theirs, theirs_usable = suspect.project(_their_basis(alignment, basis))
    theirs = (theirs - _their_shift(alignment, suspect, basis)) / _unit(alignment, suspect, model) - mean
    ours = ours - mean
    rows = torch.full((model.count,), -1, dtype=torch.int64, device=ours.device)
    # Rows without a direction are indistinguishable; in most models they are zero.
    ours_blank, theirs_blank = (~ours_usable).nonzero()[:, 0], (~theirs_usable).nonzero()[:, 0]
    blank = min(len(ours_blank), len(theirs_blank))
    rows[ours_blank[:blank]] = theirs_blank[:blank]
    least = 0.0
    if len(ours) * len(theirs) > MOST_COMPARED:
        here, there = ours_usable.nonzero()[:, 0], theirs_usable.nonzero()[:, 0]
        certain = certain_pairs(theirs[there], ours[here])
        here, there = here[certain >= 0], there[certain[certain >= 0]]
        cosines = torch.nn.functional.cosine_similarity(theirs[there], ours[here], dim=1)
        if len(here) >= MOSTLY * int(ours_usable.sum()):  # fewer would be the best pairs, not typical ones
            least = LEAST_SHARE * float(cosines.median())
        kept = cosines >= least
        rows[here[kept]] = there[kept]
        ours_usable[here[kept]] = False
        theirs_usable[there[kept]] = False
    for turn in range(PASSES):
        # A row whose nearest row chose another is paired among the rest, so that near-duplicates all find a place.
        here, there = ours_usable.nonzero()[:, 0], theirs_usable.nonzero()[:, 0]
        if not len(here) or not len(there):
            break
        near = nearest(theirs[there], ours[here], theirs_usable[there], ours_usable[here])
        cosines = torch.nn.functional.cosine_similarity(theirs[there][near.best], ours[here], dim=1)
        if turn == 0 and not least and near.mutual.any():
            least = LEAST_SHARE * float(cosines[near.mutual].median())
        kept = near.mutual & (cosines >= least)
        rows[here[kept]] = there[near.best[kept]]
        ours_usable[here[kept]] = False
        theirs_usable[there[near.best[kept]]] = False
        if not kept.any():
            break
    return rows.cpu().numpy()


def _their_basis(alignment: Alignment, basis: torch.Tensor) -> torch.Tensor:
    """The same components in the suspect's own coordinates, (d', k)."""
    if alignment.rotation is not None:
        return torch.as_tensor(alignment.rotation, dtype=torch.float32, device=basis.device) @ basis
    turned = torch.zeros_like(basis)
    signs = torch.as_tensor(alignment.signs, dtype=torch.float32, device=basis.device)
    turned[torch.as_tensor(alignment.columns, device=basis.device)] = signs[:, None] * basis
    return turned


def _their_shift(alignment: Alignment, suspect: Rows, basis: torch.Tensor) -> torch.Tensor:
    offsets = torch.as_tensor(alignment.offsets / suspect.length, dtype=torch.float32, device=basis.device)
    if suspect.row_constants:
        offsets = offsets - offsets.mean()
    return offsets @ basis


def _unit(alignment: Alignment, suspect: Rows, model: Rows) -> float:
    """Length of the suspect's aligned rows, as read, in units of the original's, as read."""
    return alignment.scale * model.length / suspect.length


class Places:
    """The rows of one aligned suspect. Each row's cosine is computed once for all keys that read it."""

    def __init__(self, suspect: Rows, model: Rows, alignment: Alignment, by_id: NDArray[np.int64]) -> None:
        self._suspect, self._model, self._alignment, self._by_id = suspect, model, alignment, by_id
        self._mean = model.centre.double().cpu().numpy() * model.length
        self._known = np.zeros(model.count, dtype=bool)
        self._cosines = np.full(model.count, np.nan)  # NaN if the suspect's row cannot be compared

    def misplaced(self, tokens: NDArray[np.int64]) -> int:
        """How many of the given tokens' rows do not resemble the original's at the position that the alignment gives;
        all of them if the alignment puts any of them at a position other than its own id.

        A tokenizer's names are no evidence: no key is bound to a tokenizer. After making the key, the person who shows
        the original could change its tokenizer to choose which rows the key reads and which are "gone".
        """
        rows = self._alignment.rows
        if (rows[tokens] != self._by_id[tokens]).any():
            return int(tokens.size)
        cosines = self._of(tokens[rows[tokens] >= 0])
        cosines = cosines[~np.isnan(cosines)]
        if not cosines.size:
            return 0
        typical = min(self._alignment.similarity, float(np.median(cosines)))
        return int((cosines < self._alignment.least_in_place(typical)).sum())

    def _of(self, tokens: NDArray[np.int64]) -> NDArray[np.float64]:
        """(n,) cosine of each token's row with the original's, both minus the original's median row."""
        new = np.unique(tokens[~self._known[tokens]])
        if new.size:
            for start in range(0, new.size, _ROWS_AT_ONCE):
                some = new[start : start + _ROWS_AT_ONCE]
                theirs = self._suspect.source.embedding(self._alignment.rows[some])
                self._cosines[some] = self._between(theirs, self._model.source.embedding(some))
            self._known[new] = True
        return self._cosines[tokens]

    def _between(self, theirs: torch.Tensor, ours: torch.Tensor) -> NDArray[np.float64]:
        """(n,) cosine of each of their rows, in our coordinates, with ours; NaN if their row has no direction."""
        usable = has_direction(theirs).numpy()
        originals = ours[usable].double().numpy()
        a = self._alignment.restore(theirs[usable].double().numpy(), originals) / self._alignment.scale - self._mean
        b = originals - self._mean
        lengths = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
        cosines = np.full(len(theirs), np.nan)
        cosines[usable] = np.einsum("ij,ij->i", a, b) / np.maximum(lengths, 1e-300)
        return cosines
