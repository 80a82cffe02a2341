"""Matches rows to tokens by the rows themselves: for a suspect with reordered, trimmed or padded ids and a rotated
residual stream, without a tokenizer that names the rows.

The first pairs are based on values that rotations do not change: the sizes of a row's leading principal coordinates, or
the distances of its nearest neighbours. Noise and random trimming do not disturb the first; planted rows and trimming
of whole kinds of tokens do not disturb the second. Both are tried. A Procrustes fit to the most distinctive pairs then
rotates the suspect onto the original's leading components, all rows are paired again, and so on until the pairs stay
the same. From that fit on, only leading components are fitted or compared, so that the minor ones score a result that
they did not influence.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from irwm.alignment.neighbours import Nearest, nearest
from irwm.alignment.rotation import ROWS_PER_COORDINATE, leading_count, procrustes
from irwm.alignment.rows import Rows, draw, has_direction, median_row

# The numbers of coordinates that the first pairing compares, tried in this order: a few are distinct, more separate
# more rows.
SEED_COORDINATES = (16, 48, 8)
# The most leading coordinates compared: more identify no more rows, and cost time and memory.
MOST_COORDINATES = 96
# Rows of the original that are paired to find the fit; one of 96 coordinates needs no more.
ROWS_SOUGHT = 4096
# Share of the rows, the most distinctive ones, that the first fit uses.
FIRST_SHARE = 0.1
ROUNDS = 12
# After this round a search continues only if pairs that were not used for a fit are more similar than unpaired rows, by
# this many standard errors, in components that were not used for pairing. Unrelated rows reach 3; among the successful
# searches in tests/ the slowest is at 1.7 one round earlier and at 41 here.
HOPELESS_ROUND, HOPELESS_ERRORS = 5, 5.0
# With fewer pairs a search is not evaluated.
FEWEST_JUDGED = 16
# A round that adds pairs for less than this share of the rows is the last, once the fit uses this share of the pairs.
LEAST_PROGRESS, SETTLED_SHARE = 0.005, 0.9
# Neighbourhoods compare every row with every other; with more multiplications they would take minutes.
MOST_MULTIPLICATIONS = 5e12


@dataclass(frozen=True, slots=True, eq=False)
class _Sought:
    """Rows of the original whose counterparts are wanted: ids, leading coordinates, which are usable, level rows."""

    ids: NDArray[np.int64]
    values: torch.Tensor
    usable: torch.Tensor
    rows: torch.Tensor


def candidates(suspect: Rows, model: Rows) -> Iterator[NDArray[np.int64]]:
    """(s,) the suspect's row for each sampled row of `model` with a counterpart, else -1; yielded once for each first
    pairing that leads to a fit."""
    k = min(leading_count(model.width), MOST_COORDINATES)
    wide = max(suspect.width, model.width)
    ids = draw(model.count, max(ROWS_SOUGHT, ROWS_PER_COORDINATE * wide))
    components = model.principal_components
    everything, good = model.leading_coordinates
    numbers = torch.as_tensor(ids, device=everything.device)
    values, usable = everything[numbers, :k], good[numbers]
    if int(usable.sum()) < 2 * k or suspect.count < 2 * k:
        return
    ours, suspect = _Sought(ids, values, usable, model.level(ids)), suspect.held()
    for start in _starts(suspect, model, ours):
        near = _paired(suspect, ours, components[:, :k], components[:, k : 2 * k], start)
        if near is None:
            continue
        best, mutual = near.best.cpu().numpy(), near.mutual.cpu().numpy()
        rows = np.full(model.count, -1)
        rows[ids[mutual]] = best[mutual]
        yield rows


def _starts(suspect: Rows, model: Rows, ours: _Sought) -> Iterator[Nearest]:
    """First pairings of every `_every`-th wanted row, the likeliest to succeed first."""
    most = min(max(SEED_COORDINATES), suspect.width, model.width)
    theirs, usable = suspect.project(suspect.principal_components[:, :most])
    if int(usable.sum()) < 2 * most:
        return  # its rows hold almost no information
    everything, good = model.leading_coordinates
    theirs, all_ours = _sizes(theirs, usable), _sizes(everything[:, :most], good)

    def paired(theirs: torch.Tensor, all_ours: torch.Tensor, usable: torch.Tensor) -> Nearest:
        every = _every(ours)
        chosen = all_ours[torch.as_tensor(ours.ids[::every], device=all_ours.device)]
        return nearest(theirs, chosen, usable, ours.usable[::every], by_distance=True)

    for number, k in enumerate(SEED_COORDINATES):
        yield paired(theirs[:, :k], all_ours[:, :k], usable)
        work = suspect.count**2 * suspect.width + model.count**2 * model.width
        # Neighbourhoods are not comparable if one side has leading coordinates only.
        if number == 0 and work <= MOST_MULTIPLICATIONS and suspect.width == model.width:
            near_theirs, near_usable = suspect.neighbourhoods
            near_ours, ours_usable = model.neighbourhoods
            spread = near_ours[ours_usable].std(dim=0).clamp_min(1e-9)
            yield paired(near_theirs / spread, near_ours / spread, near_usable)


def _every(ours: _Sought) -> int:
    return max(1, len(ours.ids) // ROWS_SOUGHT)


def _paired(suspect: Rows, ours: _Sought, basis: torch.Tensor, unseen: torch.Tensor, near: Nearest) -> Nearest | None:
    """For each of our rows the best of theirs and whether they chose each other; None if the start leads to no fit.

    Args:
        basis, unseen: (d, k) the leading components, which pair rows, and (d, k') the next ones, which judge the pairs.
        near: the first pairing, of every `_every`-th row.
    """
    every = _every(ours)
    some, values, usable = ours.rows[::every], ours.values[::every], ours.usable[::every]
    first = torch.where(near.mutual, near.margin, near.margin - near.margin.max())
    pairs = torch.argsort(first, descending=True)[: max(int(FIRST_SHARE * len(values)), 2 * values.shape[1])]
    before = 0
    for turn in range(ROUNDS):
        turned, there, theirs_usable = _turned(suspect, some, basis, near.best, pairs)
        near = nearest(turned, values - there, theirs_usable, usable)
        found = int(near.mutual.sum())
        if not found or (found - before < LEAST_PROGRESS * len(values) and len(pairs) >= SETTLED_SHARE * before):
            break
        if turn == HOPELESS_ROUND and _errors_above_chance(suspect, some, unseen, near) < HOPELESS_ERRORS:
            return None
        before = found
        # Each iteration uses more of the pairs, the doubtful ones last.
        kept = max(int(found * (turn + 2) / (ROUNDS / 2)), 2 * values.shape[1])
        pairs = torch.argsort(torch.where(near.mutual, near.margin, -torch.inf), descending=True)[: min(kept, found)]
    if every > 1:
        turned, there, theirs_usable = _turned(suspect, some, basis, near.best, pairs)
        near = nearest(turned, ours.values - there, theirs_usable, ours.usable)
    return near


def _errors_above_chance(suspect: Rows, ours: torch.Tensor, unseen: torch.Tensor, near: Nearest) -> float:
    """How many standard errors more similar mutual pairs are than unpaired rows, in unused components.

    A fit to every other pair rotates the remaining ones onto components that were not used for the pairing.
    """
    mutual = near.mutual.nonzero()[:, 0]
    a, b = suspect.level(near.best[mutual].cpu().numpy()), ours[mutual]
    good = has_direction(a) & has_direction(b)
    if int(good.sum()) < FEWEST_JUDGED:
        return 0.0
    a, b = _unit(a[good] - median_row(a[good])), _unit(b[good] - median_row(b[good])) @ unseen
    turned, b = a[1::2] @ procrustes(a[::2], b[::2]), b[1::2]
    cosine = torch.nn.functional.cosine_similarity
    excess = cosine(turned, b, dim=1) - cosine(turned.roll(1, dims=0), b, dim=1)
    return float(excess.mean() / excess.std().clamp_min(1e-12) * len(excess) ** 0.5)


def _turned(
    suspect: Rows, ours: torch.Tensor, basis: torch.Tensor, chosen: torch.Tensor, pairs: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """All of their rows rotated onto our leading components by a fit to the given pairs.

    Returns:
        (m, k) their rows there, (k,) what to subtract from ours for the comparison, (m,) bool which are usable.
    """
    a, b = suspect.level(chosen[pairs].cpu().numpy()), ours[pairs]
    good = has_direction(a) & has_direction(b)
    a, b = a[good], b[good]
    if not len(a):  # without pairs to fit to, no pairs will be mutual
        nothing = torch.zeros(suspect.count, basis.shape[1], device=basis.device)
        return nothing, basis[0], torch.zeros(suspect.count, dtype=torch.bool, device=basis.device)
    here, there = median_row(a), median_row(b)
    # Unit lengths, so that a planted long row among the pairs does not decide the rotation.
    turn = procrustes(_unit(a - here), _unit(b - there) @ basis)
    values, usable = suspect.project(turn)
    return values - here @ turn, there @ basis, usable


def _unit(rows: torch.Tensor) -> torch.Tensor:
    units: torch.Tensor = rows / rows.norm(dim=1, keepdim=True).clamp_min(1e-12)
    return units


def _sizes(values: torch.Tensor, usable: torch.Tensor) -> torch.Tensor:
    """Coordinates about their median without their signs, in units of their median size."""
    sizes = (values - median_row(values[usable])).abs()
    return sizes / median_row(sizes[usable]).clamp_min(1e-12)
