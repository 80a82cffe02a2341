"""Nearest neighbours of many rows among many, in blocks of bounded memory; and rows told by their neighbourhood."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch

from irwm.alignment.rows import Rows, has_direction

# Entries of a block of similarities held at once; 256 MB of float32.
_BLOCK = 1 << 26
# Nearest neighbours whose cosines tell a row: fewer are shared by too many rows, more reach into the crowd.
NEIGHBOURS = 24


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
    with_margin: bool = True,
) -> Nearest:
    """Nearest neighbours by cosine, or by Euclidean distance, in blocks of bounded memory.

    Args:
        theirs, ours: (m, k) and (n, k) float32.
        theirs_usable, ours_usable: (m,) and (n,) bool; the others are no one's neighbour.
        with_margin: whether the second best is looked for; it costs more than the best.
    """
    if by_distance:
        # -|a - b|^2 up to what is common to a row of ours: the same order as a distance, from one product.
        right, bias = 2 * theirs, -theirs.square().sum(dim=1)
        left = ours
    else:
        right, bias = torch.nn.functional.normalize(theirs, dim=1), torch.zeros(len(theirs), device=theirs.device)
        left = torch.nn.functional.normalize(ours, dim=1)
    bias = torch.where(theirs_usable, bias, -torch.inf)
    count = len(ours)
    best = torch.zeros(count, dtype=torch.int64, device=ours.device)
    value, margin = torch.zeros(count, device=ours.device), torch.zeros(count, device=ours.device)
    offer = torch.full((len(theirs),), -torch.inf, device=ours.device)  # the best that each of theirs was offered
    step = max(1, _BLOCK // len(theirs))
    for start in range(0, count, step):
        block = torch.addmm(bias, left[start : start + step], right.T)
        if by_distance:  # each of ours has its own constant, without which its offers do not compare with another's
            block -= left[start : start + step].square().sum(dim=1, keepdim=True)
        if by_distance or with_margin:
            top, index = block.topk(min(2, block.shape[1]), dim=1)
        else:
            top, index = block.max(dim=1, keepdim=True)
        best[start : start + step], value[start : start + step] = index[:, 0], top[:, 0]
        if by_distance:  # the ratio test: how much nearer than the second
            margin[start : start + step] = (-top[:, -1]).clamp_min(0).sqrt() / (-top[:, 0]).clamp_min(1e-12).sqrt()
        else:
            margin[start : start + step] = top[:, 0] - top[:, -1]
        usable = ours_usable[start : start + step]
        if usable.any():
            offer = torch.maximum(offer, (block if usable.all() else block[usable]).amax(dim=0))
    mutual = (value >= offer[best]) & ours_usable
    # Of equal rows that offer the same, one is enough.
    numbers = torch.arange(count, device=ours.device)
    first = torch.full((len(theirs),), count, device=ours.device)
    first.scatter_reduce_(0, best[mutual], numbers[mutual], "amin")
    return Nearest(best, margin, mutual & (first[best] == numbers))


@lru_cache(maxsize=2)
def neighbourhoods(rows: Rows) -> tuple[torch.Tensor, torch.Tensor]:
    """(n, 24) the cosines of each row with its nearest other rows, descending, and (n,) bool which rows are usable.

    No rotation and no factor changes them, planted rows have only each other near, and trimming takes some.
    """
    values = rows.level(np.arange(rows.count))
    usable = has_direction(values)
    values = torch.where(usable[:, None], values, 0)
    values = values / values.norm(dim=1, keepdim=True).clamp_min(1e-12)
    count = min(NEIGHBOURS, max(1, len(values) - 1))
    found = torch.zeros(len(values), count, device=values.device)
    step = max(1, _BLOCK // len(values))
    for start in range(0, len(values), step):
        block = values[start : start + step] @ values.T
        block.diagonal(offset=start).fill_(-2.0)  # not itself
        found[start : start + step] = block.topk(count, dim=1).values
    return found, usable
