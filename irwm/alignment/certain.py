"""Pairs of rows that must be each other's nearest neighbours, found without comparing all with all.

What lies apart in a few coordinates lies at least as far apart in all of them. So a row whose nearest in a few is, in
all, no farther than the second nearest in the few has its nearest neighbour; a tree finds both. Rows of a copy that was
only turned and rounded are told so, which of 128 000 rows leaves next to nothing for the comparison of all with all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

if TYPE_CHECKING:
    from scipy.spatial import cKDTree

# Coordinates in which the tree looks.
FEW = 16
# Rows that tell how far apart a pair is, and how much farther the tree looks than nine in ten of them are.
PROBES, NEARLY_ALL, REACH = 512, 0.9, 1.5
PROBES_AT_ONCE = 64
# A copy whose rows were only reordered has them at no distance at all.
SHORTEST = 1e-3
# With more rows within reach, of either kind, a tree is no faster than the comparison.
MOST_WITHIN_REACH = 4.0
# What rounding may add to a distance between unit vectors in float32.
ROUNDING = 1e-5


def certain_pairs(theirs: torch.Tensor, ours: torch.Tensor) -> torch.Tensor:
    """(n,) int64, for each of ours the row of theirs of which it is known that the two choose each other by cosine; -1
    where it is not known.

    Args:
        theirs, ours: (m, k) and (n, k) float32, the most varied coordinates first.
    """
    from scipy.spatial import cKDTree  # a tenth of a second that only large models need

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
    """How far a tree has to look for most rows' partners; None where too many others are within it."""
    some = ours[:: max(1, len(ours) // PROBES)].split(PROBES_AT_ONCE)
    distances = torch.cat([(few - theirs[(few @ theirs.T).argmax(dim=1)]).norm(dim=1) for few in some])
    reach = max(REACH * float(distances.quantile(NEARLY_ALL)), SHORTEST)
    within = sum(int((torch.cdist(few[:, :FEW], theirs[:, :FEW]) < reach).sum()) for few in some)
    return reach if within <= MOST_WITHIN_REACH * len(distances) else None


def _nearest(tree: cKDTree, those: NDArray[np.float32], rows: NDArray[np.float32], reach: float) -> NDArray[np.int64]:
    """(n,) each row's nearest among `those`, whose first coordinates are in the tree; -1 where it is not certain."""
    apart, numbers = tree.query(rows[:, :FEW], k=2, distance_upper_bound=reach, workers=-1)
    some = np.isfinite(apart[:, 0])
    nearest = np.where(some, numbers[:, 0], 0)
    distance = np.linalg.norm(rows - those[nearest], axis=1)
    return np.where(some & (distance + ROUNDING <= np.minimum(apart[:, 1], reach)), nearest, -1)
