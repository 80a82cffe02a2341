"""Nearest neighbours of many rows among many: all compared with all in blocks, or only certain ones found by a tree.

`certain_pairs` finds pairs without comparing all with all. Two rows are at least as far apart in all coordinates as in
a few. So if a row's nearest neighbour in a few coordinates is, in all of them, no farther than the second nearest is in
the few, it is the nearest of all; a tree finds both. This pairs nearly all of 128 000 rows of a copy that was only
rotated and rounded, and leaves almost none for the comparison of all with all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from irwm.alignment.rows import rows_at_once

if TYPE_CHECKING:
    from scipy.spatial import cKDTree

# A block's best values are searched among the best of groups of this size.
_GROUP = 64
# Coordinates of the tree.
FEW = 16
# Rows used to estimate the distance of pairs; the tree searches REACH times farther than 90% of the distances.
PROBES, NEARLY_ALL, REACH = 512, 0.9, 1.5
PROBES_AT_ONCE = 64
# Rows of a copy that were only reordered are at distance 0 from the original's.
SHORTEST = 1e-3
# If more rows are within reach, a tree is no faster than comparing all with all.
MOST_WITHIN_REACH = 4.0
# The error that rounding may add to a distance between unit vectors in float32.
ROUNDING = 1e-5


@dataclass(frozen=True, slots=True, eq=False)
class Nearest:
    """For each of our rows: the best of theirs, how much better it is than the second best, whether it is mutual."""

    best: torch.Tensor
    margin: torch.Tensor
    mutual: torch.Tensor


def nearest(
    theirs: torch.Tensor,
    ours: torch.Tensor,
    theirs_usable: torch.Tensor,
    ours_usable: torch.Tensor,
    by_distance: bool = False,
) -> Nearest:
    """Nearest neighbours by cosine, or by Euclidean distance, in blocks of bounded memory.

    Args:
        theirs, ours: (m, k) and (n, k) float32.
        theirs_usable, ours_usable: (m,) and (n,) bool; other rows have no neighbours.
    """
    if by_distance:
        # -|a - b|^2 up to a constant per row of ours: the same order as by distance, from one product.
        right, bias = 2 * theirs, -theirs.square().sum(dim=1)
        left = ours
    else:
        right, bias = torch.nn.functional.normalize(theirs, dim=1), torch.zeros(len(theirs), device=theirs.device)
        left = torch.nn.functional.normalize(ours, dim=1)
    # Whole groups, at least two; padding rows have no neighbours.
    filler = max(2 * _GROUP, -(-len(theirs) // _GROUP) * _GROUP) - len(theirs)
    bias = torch.nn.functional.pad(torch.where(theirs_usable, bias, -torch.inf), (0, filler), value=-torch.inf)
    right = torch.nn.functional.pad(right, (0, 0, 0, filler)).T.contiguous()
    count = len(ours)
    best = torch.zeros(count, dtype=torch.int64, device=ours.device)
    value, margin = torch.zeros(count, device=ours.device), torch.zeros(count, device=ours.device)
    offer = torch.full((len(bias),), -torch.inf, device=ours.device)  # the best value for each of theirs so far
    step = rows_at_once(len(bias), ours.device)
    # The same memory for all blocks: allocating it again takes longer than reading the computed values.
    memory = torch.empty(min(step, count), len(bias), device=ours.device)
    for start in range(0, count, step):
        block = memory[: min(step, count - start)]
        torch.addmm(bias, left[start : start + step], right, out=block)
        if by_distance:  # the constant of each row of ours, so that values of different rows are comparable
            block -= left[start : start + step].square().sum(dim=1, keepdim=True)
        first, second, index = _two_best(block)
        best[start : start + step], value[start : start + step] = index, first
        if by_distance:  # the ratio test: how many times nearer than the second
            margin[start : start + step] = (-second).clamp_min(0).sqrt() / (-first).clamp_min(1e-12).sqrt()
        else:
            margin[start : start + step] = first - second
        usable = ours_usable[start : start + step]
        if usable.any():
            offer = torch.maximum(offer, (block if usable.all() else block[usable]).amax(dim=0))
    mutual = (value >= offer[best]) & ours_usable
    # If equal rows of ours have the same best, only the first is paired.
    numbers = torch.arange(count, device=ours.device)
    first_of = torch.full((len(bias),), count, device=ours.device)
    first_of.scatter_reduce_(0, best[mutual], numbers[mutual], "amin")
    return Nearest(best, margin, mutual & (first_of[best] == numbers))


def _two_best(block: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(n,) each row's greatest value, its second greatest, and the number of the greatest.

    A `topk` of whole rows takes as long as the product before it, and one of groups a few percent of that time.
    """
    grouped = block.view(len(block), -1, _GROUP)
    tops, groups = grouped.amax(dim=2).topk(2, dim=1)
    inside, numbers = grouped[torch.arange(len(block), device=block.device), groups[:, 0]].topk(2, dim=1)
    return inside[:, 0], torch.maximum(inside[:, 1], tops[:, 1]), groups[:, 0] * _GROUP + numbers[:, 0]


def certain_pairs(theirs: torch.Tensor, ours: torch.Tensor) -> torch.Tensor:
    """(n,) int64, for each of ours the row of theirs if the two are certainly each other's nearest by cosine, else -1.

    Args:
        theirs, ours: (m, k) and (n, k) float32, the most varied coordinates first.
    """
    from scipy.spatial import cKDTree  # takes a tenth of a second to import, and only large models need it

    theirs, ours = (torch.nn.functional.normalize(rows, dim=1) for rows in (theirs, ours))
    found = torch.full((len(ours),), -1, dtype=torch.int64, device=ours.device)
    reach = _reach(theirs, ours)
    if reach is None:
        return found
    a, b = theirs.cpu().numpy(), ours.cpu().numpy()
    chosen = _nearest(cKDTree(a[:, :FEW]), a, b, reach)
    sure = np.flatnonzero(chosen >= 0)
    back = _nearest(cKDTree(b[:, :FEW]), b, a[chosen[sure]], reach)
    mutual = sure[back == sure]
    found[torch.as_tensor(mutual, device=ours.device)] = torch.as_tensor(chosen[mutual], device=ours.device)
    return found


def _reach(theirs: torch.Tensor, ours: torch.Tensor) -> float | None:
    """The search distance of a tree for most rows' partners; None if too many others are as near."""
    some = ours[:: max(1, len(ours) // PROBES)].split(PROBES_AT_ONCE)
    distances = torch.cat([(few - theirs[(few @ theirs.T).argmax(dim=1)]).norm(dim=1) for few in some])
    reach = max(REACH * float(distances.quantile(NEARLY_ALL)), SHORTEST)
    within = sum(int((torch.cdist(few[:, :FEW], theirs[:, :FEW]) < reach).sum()) for few in some)
    return reach if within <= MOST_WITHIN_REACH * len(distances) else None


def _nearest(tree: cKDTree, those: NDArray[np.float32], rows: NDArray[np.float32], reach: float) -> NDArray[np.int64]:
    """(n,) each row's nearest among `those`, whose first coordinates the tree holds; -1 if it is not certain."""
    apart, numbers = tree.query(rows[:, :FEW], k=2, distance_upper_bound=reach, workers=-1)
    some = np.isfinite(apart[:, 0])
    nearest = np.where(some, numbers[:, 0], 0)
    distance = np.linalg.norm(rows - those[nearest], axis=1)
    return np.where(some & (distance + ROUNDING <= np.minimum(apart[:, 1], reach)), nearest, -1)
