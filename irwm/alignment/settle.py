"""The place of every row once the coordinates are known, including those that no id and no tokenizer told."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from irwm.alignment.certain import certain_pairs
from irwm.alignment.neighbours import nearest
from irwm.alignment.result import Alignment
from irwm.alignment.rows import LEADING_COORDINATES, Rows

# A pair of rows counts where its cosine is at least this share of the median pair's.
LEAST_SHARE = 0.5
PASSES = 4
# More pairs than these take seconds to compare; those that are certain are found first.
MOST_COMPARED = 1 << 29
# Share of the rows that tell by themselves how much a pair resembles each other.
MOSTLY = 0.5


def settle(suspect: Rows, model: Rows, alignment: Alignment) -> NDArray[np.int64]:
    """(s,) int64, the suspect's row for every row of the original, -1 where it is gone.

    Rows are paired by mutual nearest neighbours in the original's leading principal components, and kept where the
    two resemble each other about as much as most pairs do.

    Args:
        alignment: how the suspect's coordinates become the original's; its own rows are not used.
    """
    basis = model.principal_components[:, :LEADING_COORDINATES]  # enough to tell near-duplicates apart
    mean = model.centre @ basis
    ours, ours_usable = model.leading_coordinates
    ours_usable = ours_usable.clone()
    theirs, theirs_usable = suspect.project(_their_basis(alignment, basis))
    theirs = (theirs - _their_shift(alignment, suspect, basis)) / _unit(alignment, suspect, model) - mean
    ours = ours - mean
    rows = torch.full((model.count,), -1, dtype=torch.int64, device=ours.device)
    # Rows without a direction, zero in most models that have any, are all alike.
    ours_blank, theirs_blank = (~ours_usable).nonzero()[:, 0], (~theirs_usable).nonzero()[:, 0]
    blank = min(len(ours_blank), len(theirs_blank))
    rows[ours_blank[:blank]] = theirs_blank[:blank]
    least = 0.0
    if len(ours) * len(theirs) > MOST_COMPARED:
        here, there = ours_usable.nonzero()[:, 0], theirs_usable.nonzero()[:, 0]
        certain = certain_pairs(theirs[there], ours[here])
        here, there = here[certain >= 0], there[certain[certain >= 0]]
        cosines = torch.nn.functional.cosine_similarity(theirs[there], ours[here], dim=1)
        if len(here) >= MOSTLY * int(ours_usable.sum()):  # else they are the best of the pairs, and not like most
            least = LEAST_SHARE * float(cosines.median())
        kept = cosines >= least
        rows[here[kept]] = there[kept]
        ours_usable[here[kept]] = False
        theirs_usable[there[kept]] = False
    for turn in range(PASSES):
        # A row whose favourite chose another is paired among what is left, so that near-duplicates all find a place.
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
