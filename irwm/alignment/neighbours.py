"""Nearest neighbours of many rows among many, in blocks of bounded memory."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from irwm.alignment.rows import rows_at_once

# The best of a block are sought among the best of groups of this many.
_GROUP = 64


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
        theirs_usable, ours_usable: (m,) and (n,) bool; the others are no one's neighbour.
    """
    if by_distance:
        # -|a - b|^2 up to what is common to a row of ours: the same order as a distance, from one product.
        right, bias = 2 * theirs, -theirs.square().sum(dim=1)
        left = ours
    else:
        right, bias = torch.nn.functional.normalize(theirs, dim=1), torch.zeros(len(theirs), device=theirs.device)
        left = torch.nn.functional.normalize(ours, dim=1)
    # Whole groups, two at least; what fills them up is no one's neighbour.
    filler = max(2 * _GROUP, -(-len(theirs) // _GROUP) * _GROUP) - len(theirs)
    bias = torch.nn.functional.pad(torch.where(theirs_usable, bias, -torch.inf), (0, filler), value=-torch.inf)
    right = torch.nn.functional.pad(right, (0, 0, 0, filler)).T.contiguous()
    count = len(ours)
    best = torch.zeros(count, dtype=torch.int64, device=ours.device)
    value, margin = torch.zeros(count, device=ours.device), torch.zeros(count, device=ours.device)
    offer = torch.full((len(bias),), -torch.inf, device=ours.device)  # the best that each of theirs was offered
    step = rows_at_once(len(bias), ours.device)
    # One for all blocks: fetching fresh memory takes longer than reading what was computed.
    memory = torch.empty(min(step, count), len(bias), device=ours.device)
    for start in range(0, count, step):
        block = memory[: min(step, count - start)]
        torch.addmm(bias, left[start : start + step], right, out=block)
        if by_distance:  # each of ours has its own constant, without which its offers do not compare with another's
            block -= left[start : start + step].square().sum(dim=1, keepdim=True)
        first, second, index = _two_best(block)
        best[start : start + step], value[start : start + step] = index, first
        if by_distance:  # the ratio test: how much nearer than the second
            margin[start : start + step] = (-second).clamp_min(0).sqrt() / (-first).clamp_min(1e-12).sqrt()
        else:
            margin[start : start + step] = first - second
        usable = ours_usable[start : start + step]
        if usable.any():
            offer = torch.maximum(offer, (block if usable.all() else block[usable]).amax(dim=0))
    mutual = (value >= offer[best]) & ours_usable
    # Of equal rows that offer the same, one is enough.
    numbers = torch.arange(count, device=ours.device)
    first_of = torch.full((len(bias),), count, device=ours.device)
    first_of.scatter_reduce_(0, best[mutual], numbers[mutual], "amin")
    return Nearest(best, margin, mutual & (first_of[best] == numbers))


def _two_best(block: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(n,) each row's greatest value, its second greatest, and the number of the greatest.

    A `topk` of whole rows takes as long as the product that made them; that of groups is a few percent of it.
    """
    grouped = block.view(len(block), -1, _GROUP)
    tops, groups = grouped.amax(dim=2).topk(2, dim=1)
    inside, numbers = grouped[torch.arange(len(block), device=block.device), groups[:, 0]].topk(2, dim=1)
    return inside[:, 0], torch.maximum(inside[:, 1], tops[:, 1]), groups[:, 0] * _GROUP + numbers[:, 0]
