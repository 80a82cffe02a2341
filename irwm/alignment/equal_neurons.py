"""Adds up the neurons of an MLP that read the stream by the same row g.

An attacker can split a neuron in many ways: only the sum of u d^T over all neurons with the same g has an effect. It is
a single u d^T again if he split one neuron, and 0 for neurons that cancel. Of a sum of higher rank, the leading part
counts.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

# Rows are equal if their difference is at most this share of their length, several times that of rounding to bfloat16.
TOLERANCE = 0.02
# Rows are compared in cells of a grid over a few random directions and the length. Equal rows on both sides of a border
# are in the same cell of another grid.
_DIRECTIONS, _CELL, _GRIDS = 12, 5 * TOLERANCE, 8
# A sum below this share of its parts is rounding.
_ROUNDING = 1e-5


def groups(rows: torch.Tensor, lengths: torch.Tensor) -> NDArray[np.int64]:
    """(n,) for each row the number of the first row that equals it.

    Args:
        rows: (n, width) of length 1, or 0; a row of zeros equals no other.
        lengths: (n,) the logarithms of their lengths before.
    """
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import connected_components

    random = torch.Generator().manual_seed(0)
    turn = torch.randn(rows.shape[1], _DIRECTIONS, generator=random)
    points = torch.cat([rows @ turn / _DIRECTIONS**0.5, lengths[:, None].float()], dim=1) / _CELL
    usable = np.flatnonzero((rows.abs().amax(dim=1) > 0).numpy())
    count = len(rows)
    first = np.arange(count)
    edges = [(first, first)]
    for _ in range(_GRIDS):
        cells = (points + torch.rand(points.shape[1], generator=random)).floor().numpy()[usable]
        _, places, labels = np.unique(cells, axis=0, return_index=True, return_inverse=True)
        mine, other = usable, usable[places[labels.reshape(-1)]]
        apart = np.flatnonzero(mine != other)
        mine, other = mine[apart], other[apart]
        near = (rows[mine] - rows[other]).norm(dim=1) <= TOLERANCE
        near &= (lengths[mine] - lengths[other]).abs() <= TOLERANCE
        edges.append((mine[near.numpy()], other[near.numpy()]))
    mine, other = (np.concatenate(side) for side in zip(*edges, strict=True))
    _, labels = connected_components(coo_matrix((np.ones(len(mine)), (mine, other)), shape=(count, count)))
    found = np.full(labels.max(initial=0) + 1, count)
    np.minimum.at(found, labels, first)
    firsts: NDArray[np.int64] = found[labels]
    return firsts


def added(parts: Sequence[torch.Tensor], group: NDArray[np.int64]) -> list[torch.Tensor]:
    """The rows u and d, (n, width) each, or d alone, with those of each group added up in its first row."""
    of_first, sizes = np.unique(group, return_counts=True)
    several = of_first[sizes > 1]
    if not len(several):
        return list(parts)
    found = [part.clone() for part in parts]
    for first in several:
        members = torch.from_numpy(np.flatnonzero(group == first))
        own = [part[members].double() for part in parts]
        sums = [own[0].sum(dim=0)] if len(own) == 1 else _leading(*own)
        parts_of_sum = torch.stack([each.norm(dim=1) for each in own]).prod(dim=0).sum()
        nothing = torch.stack([each.norm() for each in sums]).prod() < _ROUNDING * parts_of_sum
        for whole, each in zip(found, sums, strict=True):
            whole[first] = 0.0 if nothing else each.to(whole.dtype)
    return found


def _leading(u: torch.Tensor, d: torch.Tensor) -> list[torch.Tensor]:
    """The leading part of the sum of u_i d_i^T over the rows of both, (k, width) each, as two rows of one length."""
    (left, inner), (right, other) = torch.linalg.qr(u.T), torch.linalg.qr(d.T)
    first, sizes, second = torch.linalg.svd(inner @ other.T)
    root = sizes[0].sqrt()
    return [root * left @ first[:, 0], root * right @ second[0]]
