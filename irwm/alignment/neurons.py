"""Pairs the MLP neurons of two models, in any coordinates of the stream, order, number of layers, and width.

A neuron reads the residual stream by one row g (and u, in a gated MLP) and writes it by one column d. An attacker can
rotate the stream, exchange neurons and layers, repeat them, drop some, save an MLP as several experts, and multiply u
and d by factors that cancel, of either sign. Nothing of this changes the lines of g, u and d and the angles between
them, and a stream with fewer coordinates changes these little.

1. Each neuron gets numbers that no rotation and no sign of this kind changes: the cosines of g, u and d with one
   another, and the products of their coordinates in the leading directions of all g, all u and all d of the same MLP.
   The neurons of both models with the nearest numbers are the first pairs; in a second try, those with the same place
   in the same MLP.
2. A rotation is fitted to the rows g of the pairs, and each neuron is paired with the one whose row g is then nearest,
   until their number hardly grows.

`irwm.evidence.neurons` judges the pairs, and `NeuronMap` finds the counterpart of every neuron of any MLP by them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray

from irwm.alignment.equal_neurons import added, groups
from irwm.alignment.neighbours import Nearest, nearest
from irwm.alignment.result import ALIGNED_COSINE
from irwm.alignment.rotation import procrustes
from irwm.alignment.rows import draw
from irwm.checkpoint import Checkpoint
from irwm.checkpoint.mlps import MLPs

# The most numbers of a model's rows g in memory, half a gigabyte, and the most MLPs of the original that are compared.
MOST_NUMBERS, MOST_COMPARED = 1 << 27, 6
# In a model with more MLPs than this, for example one with many experts, they are not searched for by their lengths.
MOST_SEARCHED = 256
# Neurons of the original whose counterparts are sought, at least and for each coordinate of the stream.
SOUGHT, SOUGHT_PER_COORDINATE = 4096, 2
# Leading directions of an MLP's rows, the steps of the power iteration that finds them, and the neurons that it uses.
LEADING, STEPS, USED = 48, 5, 4096
# Leading coordinates of the original's rows g in which neurons are compared.
COORDINATES = 256
# Rounds of pairing, and the share of the first pairs, the most distinctive, that the first fit uses.
ROUNDS, FIRST_SHARE = 20, 0.25
# After so many rounds, pairs of which nothing agrees are given up: in unrelated models, they would only fit better.
FIRST_ROUNDS = 3
# A round that adds pairs for less than this share of the neurons is the last.
LEAST_PROGRESS = 0.01
# The fewest pairs that are judged.
FEWEST_PAIRS = 32
# Neurons of an MLP that show whether another MLP is its counterpart. One where their nearest rows are as similar as
# this is taken without a look at the others. If this share of them is in its place, all of the MLP is.
PROBES, CLEAR_COSINE, NEARLY_ALL = 256, 0.6, 0.9
# A pair of a `NeuronMap` is kept if it is at least this share as similar as the median pair.
LEAST_SHARE = 0.5
# Levels of the quantiles of the lengths of the rows g, by which MLPs are compared.
_LEVELS = np.linspace(0.02, 0.98, 33)
SHORTEST = 1e-30


@dataclass(frozen=True, slots=True, eq=False)
class Pairing:
    """Neurons of some MLPs of two models, and their pairs.

    Attributes:
        theirs, ours: the neurons of the suspect and the original.
        ids: (n,) the neurons of ours whose counterparts were sought.
        pairs: the pairs; None if too few were found.
    """

    theirs: Side
    ours: Side
    ids: NDArray[np.int64]
    pairs: Pairs | None

    def settled(self) -> Pairing:
        """The pairing after all rounds."""
        if self.pairs is None or self.pairs.rounds == ROUNDS:
            return self
        pairs = _paired(self.theirs, self.ours, self.ids, self.pairs.near, self.pairs.rounds, ROUNDS)
        return replace(self, pairs=pairs)


def pairings(suspect: Checkpoint, model: Checkpoint) -> Iterator[Pairing]:
    """Pairings of the suspect's neurons with the original's after a few rounds, from every start; none if they cannot
    be compared.

    Raises:
        CheckpointError: numbers that cannot be read.
        torch.linalg.LinAlgError: numbers that cannot be computed with.
    """
    ours = _Model(model)
    # Of several models in the files, the one by name may be there to be compared instead of the one that is used.
    for layout in (suspect.layout, *suspect.layout.elsewhere):
        theirs = _Model(suspect, layout, ours.width)
        if not ours.every or not theirs.every:
            continue
        gated = ours.gated and theirs.gated
        mine = Side(ours, spread(len(ours.every), min(MOST_COMPARED, ours.most)), gated)
        ids = draw(len(mine.gates), max(SOUGHT, SOUGHT_PER_COORDINATE * max(theirs.width, mine.width)))
        for way in filter(len, _ways(theirs, ours, mine)):
            other = Side(theirs, way, gated)
            # In other MLPs, the same place means nothing.
            same = np.array_equal(np.unique(other.mlps), np.unique(mine.mlps)) or len(way) == len(theirs.every)
            for start in _starts(other, mine, ids, same=same):
                yield Pairing(other, mine, ids, _paired(other, mine, ids, start, 0, FIRST_ROUNDS))


class _Model(MLPs):
    """The MLPs of a checkpoint, and what helps to find one among many."""

    @property
    def most(self) -> int:
        """How many MLPs are in memory at a time."""
        return max(1, MOST_NUMBERS // max(1, self.every[0].count * self.width))

    @cached_property
    def lengths(self) -> NDArray[np.float64]:
        """(n, 33) quantiles of the logarithms of the lengths of each MLP's rows g."""
        some = ((mlp, draw(mlp.count, USED)) for mlp in self.every)
        sizes = (_normalise(self.gate(mlp, rows))[1] for mlp, rows in some)
        return np.array([np.quantile(each.numpy(), _LEVELS) for each in sizes])


class Side:
    """The neurons of some MLPs of one model.

    Attributes:
        gated: whether rows u are compared.
        gates: (n, width) their rows g, of length 1.
        features: (n, k) numbers that no rotation of the stream changes.
        weights: (n,) the logarithms of the products of the lengths of g, u and d.
        mlps, rows: (n,) the MLP of each neuron, as a number among the model's, and its place there. Neurons with the
            same g are one, in the place of the first (`irwm.alignment.equal_neurons`).
    """

    def __init__(self, model: _Model, chosen: Sequence[int], gated: bool) -> None:
        self.model, self.gated = model, gated
        self._groups: dict[int, NDArray[np.int64]] = {}
        gates: list[torch.Tensor] = []
        mlps, rows = [], []
        left = MOST_NUMBERS
        for number in chosen:
            gate = model.gate(model.every[number])
            left -= gate.numel()
            if left < 0 and gates:
                break
            gate, lengths = _normalise(gate)
            group = groups(gate, lengths)
            first = np.unique(group)
            self._groups[number] = group
            gates.append(gate if len(first) == len(gate) else gate[first])
            mlps.append(np.full(len(first), number))
            rows.append(first)
        self.gates = torch.cat(gates)
        self.mlps, self.rows = np.concatenate(mlps), np.concatenate(rows)

    @property
    def features(self) -> torch.Tensor:
        return self._measured[0]

    @property
    def weights(self) -> torch.Tensor:
        return self._measured[1]

    @cached_property
    def _measured(self) -> tuple[torch.Tensor, torch.Tensor]:
        features, weights = [], []
        for number, group in self._groups.items():
            first, gate = np.unique(group), self.model.gate(self.model.every[number])
            parts = [_normalise(each[first]) for each in (gate, *self._rest(number))]
            weights.append(torch.stack([lengths for _, lengths in parts]).sum(dim=0))
            features.append(_features([rows for rows, _ in parts], weights[-1]))
        return torch.cat(features), torch.cat(weights)

    @property
    def width(self) -> int:
        return self.gates.shape[1]

    @cached_property
    def places(self) -> list[tuple[int, int]]:
        """The MLP of each neuron, and its place there."""
        return list(zip(self.mlps.tolist(), self.rows.tolist(), strict=True))

    def layers(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """The layers of these neurons."""
        return np.array([self.model.every[number].layer for number in self.mlps[ids]])

    @cached_property
    def basis(self) -> torch.Tensor:
        """(width, k) the leading directions of the rows g."""
        return leading(self.gates, min(COORDINATES, *self.gates.shape))[0]

    def rest(self, ids: NDArray[np.int64], *, one: bool = False) -> list[torch.Tensor]:
        """The rows u and d of these neurons, (n, width) each, of length 1; if `one`, the faster ones to read."""
        found: list[torch.Tensor] = []
        for number in np.unique(self.mlps[ids]):
            here = np.flatnonzero(self.mlps[ids] == number)
            group = self._groups[number]
            if one and self.gated and len(np.unique(group)) == len(group):
                found = found or [torch.zeros(len(ids), self.width)]
                found[0][here] = unit(self.model.up(self.model.every[number], self.rows[ids[here]]))
                continue
            parts = self._rest(number)[: 1 if one else None]
            found = found or [torch.zeros(len(ids), self.width) for _ in parts]
            for whole, part in zip(found, parts, strict=True):
                whole[here] = unit(part[self.rows[ids[here]]])
        return found

    def _rest(self, number: int) -> list[torch.Tensor]:
        """The rows u and d of an MLP, (n, width) each, those of equal neurons added up."""
        return added(self.model.rest(self.model.every[number], self.gated), self._groups[number])


def spread(count: int, most: int) -> list[int]:
    """At most so many numbers below `count`, spread evenly."""
    return sorted({round(each) for each in np.linspace(0, count - 1, most)})


def _ways(theirs: _Model, ours: _Model, mine: Side) -> Iterator[Sequence[int]]:
    """MLPs of the suspect that may be those of the original: all if they fit into memory, or else those with the same
    numbers, those counted from the last, and those whose rows g have the nearest lengths."""
    if len(theirs.every) <= theirs.most:
        yield range(len(theirs.every))
        return
    chosen, count = np.unique(mine.mlps), len(theirs.every)
    yield [number for number in chosen if number < count]
    if count != len(ours.every):
        yield [number - len(ours.every) + count for number in chosen if number - len(ours.every) + count >= 0]
    if max(count, len(ours.every)) <= MOST_SEARCHED:
        apart = np.abs(ours.lengths[chosen][:, None] - theirs.lengths[None]).mean(axis=2)
        yield list(dict.fromkeys(np.argmin(apart, axis=1).tolist()))


def _features(units: Sequence[torch.Tensor], weights: torch.Tensor) -> torch.Tensor:
    """(n, k) for rows of length 1, (n, width) each, and the logarithms of the products of their lengths (n,): numbers
    that no rotation changes, nor a sign that u and d of a gated neuron share.

    They are this logarithm, the cosines of g, u and d, and their products within the leading directions of
    all g, all u and all d.
    """
    pairs = [(i, j) for i in range(len(units)) for j in range(i, len(units))]

    def products(rows: Sequence[torch.Tensor], i: int, j: int) -> torch.Tensor:
        found = (rows[i] * rows[j]).sum(dim=1)
        return found.abs() if i == 0 < j else found

    found = [weights.float()]
    found += [products(units, i, j) for i, j in pairs if i != j]
    for each in units:
        directions, sizes = leading(each, max(1, min(LEADING, each.shape[1] // 4)))
        inside = [(rows @ directions) * sizes.sqrt() for rows in units]
        found += [products(inside, i, j) for i, j in pairs]
    return torch.stack(found, dim=1)


def leading(rows: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """(width, count) leading principal directions of rows, and their shares of the squared lengths, by block power
    iteration."""
    rows = rows[torch.as_tensor(draw(len(rows), max(USED, 2 * count)))]
    start = torch.randn(rows.shape[1], min(2 * count, *rows.shape), generator=torch.Generator().manual_seed(0))
    x, _ = torch.linalg.qr(start)
    for _ in range(STEPS):
        x, _ = torch.linalg.qr(rows.T @ (rows @ x))
    _, sizes, turned = torch.linalg.svd(rows @ x, full_matrices=False)
    shares = sizes.square() / rows.square().sum().clamp_min(SHORTEST)
    return (x @ turned.T)[:, :count], shares[:count]


@dataclass(frozen=True, slots=True, eq=False)
class Pairs:
    """Neurons of both models that chose each other.

    Attributes:
        ours, theirs: (n,) their numbers.
        basis, turn: (width, k) from each model's coordinates to those in which they were compared.
        similarity: the median cosine of their rows g.
        near: the nearest neighbours that they are from.
        rounds: how many rounds led to them; `ROUNDS` if no further one can add many.
    """

    ours: NDArray[np.int64]
    theirs: NDArray[np.int64]
    basis: torch.Tensor
    turn: torch.Tensor
    similarity: float
    near: Nearest
    rounds: int


def _starts(theirs: Side, ours: Side, ids: NDArray[np.int64], *, same: bool) -> Iterator[Nearest]:
    """First pairings of these neurons of ours: by their rows g, if these are not rotated; else by the numbers that no
    rotation changes, and by their places."""
    chosen = torch.as_tensor(ids)
    if theirs.width == ours.width:
        basis = ours.basis
        probes = torch.as_tensor(ids[draw(len(ids), PROBES)])
        if _best_cosine(theirs.gates @ basis, ours.gates[probes] @ basis) >= CLEAR_COSINE:
            yield nearest(theirs.gates @ basis, ours.gates[chosen] @ basis, every(theirs.gates), every(chosen))
    spread = ours.features.std(dim=0).clamp_min(SHORTEST)
    features = theirs.features / spread, ours.features[chosen] / spread
    yield nearest(*features, every(theirs.gates), every(chosen), by_distance=True)
    if not same:
        return
    there = {place: number for number, place in enumerate(theirs.places)}
    best = torch.tensor([there.get(ours.places[number], -1) for number in ids])
    if (best >= 0).any():
        yield Nearest(best.clamp_min(0), torch.ones(len(ids)), best >= 0)


def _best_cosine(theirs: torch.Tensor, probes: torch.Tensor) -> float:
    """The median, over the probes, of the cosine with the nearest row of theirs."""
    near = nearest(theirs, probes, every(theirs), every(probes))
    return float((unit(theirs[near.best]) * unit(probes)).sum(dim=1).median())


def _paired(theirs: Side, ours: Side, ids: NDArray[np.int64], near: Nearest, first: int, last: int) -> Pairs | None:
    """The pairs of these neurons of ours that rounds from `first` up to `last` lead to; None if too few choose each
    other."""
    chosen = torch.as_tensor(ids)
    basis = ours.basis[:, : theirs.width]
    count = basis.shape[1]
    sought, all_ours, all_theirs = ours.gates[chosen] @ basis, every(chosen), every(theirs.gates)
    turn, rounds = torch.empty(0), last
    for round_ in range(first, last):
        share, before = min(1.0, FIRST_SHARE * (round_ + 1)), int(near.mutual.sum())
        kept = max(int(share * before), min(count, before))
        if kept < FEWEST_PAIRS:
            return None
        pairs = torch.where(near.mutual, near.margin, -torch.inf).topk(kept).indices
        turn = procrustes(theirs.gates[near.best[pairs]], sought[pairs])
        near = nearest(theirs.gates @ turn, sought, all_theirs, all_ours)
        if share == 1.0 and int(near.mutual.sum()) - before < LEAST_PROGRESS * len(ids):
            rounds = ROUNDS
            break
    mutual = near.mutual
    if int(mutual.sum()) < FEWEST_PAIRS:
        return None
    here, there = chosen[mutual], near.best[mutual]
    cosines = (unit(theirs.gates[there] @ turn) * unit(sought[mutual])).sum(dim=1)
    return Pairs(here.numpy(), there.numpy(), basis, turn, float(cosines.median()), near, rounds)


def _normalise(rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows (n, width), divided in place by their lengths, and the logarithms of these, (n,) float64. An attacker can
    make them so large or small that their squares are not numbers."""
    largest = rows.abs().amax(dim=1).clamp_min(SHORTEST)
    rows = rows.div_(largest[:, None])
    lengths = rows.norm(dim=1).clamp_min(SHORTEST)
    return rows.div_(lengths[:, None]), largest.double().log() + lengths.double().log()


def unit(rows: torch.Tensor) -> torch.Tensor:
    return _normalise(rows.clone())[0]


def varied(rows: torch.Tensor) -> torch.Tensor:
    """Rows without their two leading directions, which do not depend on the rows' signs, as their mean does."""
    directions, _ = leading(rows, 2)
    return rows - (rows @ directions) @ directions.T


def every(rows: torch.Tensor) -> torch.Tensor:
    return torch.ones(len(rows), dtype=torch.bool)


@dataclass(frozen=True, slots=True, eq=False)
class Known:
    """Pairs of neurons, without their rows.

    Attributes:
        theirs: the suspect's MLPs.
        mlps: (n, 2) the MLP of each pair, ours and theirs.
        rows: (n, 2) the neuron's place in it.
    """

    theirs: MLPs
    mlps: NDArray[np.int64]
    rows: NDArray[np.int64]

    @classmethod
    def of(cls, pairing: Pairing) -> Known:
        """The pairs of a pairing, which must have some."""
        assert pairing.pairs is not None
        sides = (pairing.ours, pairing.pairs.ours), (pairing.theirs, pairing.pairs.theirs)
        mlps = np.stack([side.mlps[ids] for side, ids in sides], axis=1)
        return cls(pairing.theirs.model, mlps, np.stack([side.rows[ids] for side, ids in sides], axis=1))


class NeuronMap:
    """Finds the counterparts of an original's neurons in a suspect.

    Args:
        theirs, ours: the MLPs of the suspect and the original.
        secret: the neurons of every sample follow from it: of public ones, an attacker could leave just these in place,
            or damage just these.
        known: pairs that a rotation is fitted to; None if the suspect has the original's own coordinates.
    """

    def __init__(self, theirs: MLPs, ours: MLPs, secret: bytes, known: Known | None = None) -> None:
        self.theirs, self.ours, self._secret, self._known = theirs, ours, secret, known

    @classmethod
    def in_place(cls, suspect: Checkpoint, model: Checkpoint, secret: bytes) -> NeuronMap | None:
        """The map of a suspect with the original's coordinates, and most of its neurons in their places; else None.

        Raises:
            CheckpointError: a tensor cannot be read.
        """
        found = cls(MLPs(suspect), MLPs(model), secret)
        if found.theirs.width != found.ours.width or len(found.theirs.every) != len(found.ours.every):
            return None
        alike = [found._share_in_place(number) > 0 for number in spread(len(found.ours.every), MOST_COMPARED)]
        return found if 2 * sum(alike) >= len(alike) > 0 else None

    @cached_property
    def turn(self) -> torch.Tensor | None:
        """(d', d) of orthonormal columns or rows, with which theirs @ turn has the original's coordinates; None for the
        identity."""
        if self._known is None:
            return None
        return procrustes(self._paired_rows(1, self.theirs), self._paired_rows(0, self.ours))

    def counterpart(self, number: int) -> tuple[int, NDArray[np.int64]]:
        """The suspect's MLP for one of the original's, and (n,) its row for each of the original's, -1 if gone.

        Raises:
            CheckpointError: a tensor cannot be read.
        """
        mlp = self.ours.every[number]
        if self.turn is None and self._share_in_place(number) >= NEARLY_ALL:
            return number, np.arange(mlp.count)
        gates = unit(self.ours.gate(mlp))
        basis, _ = leading(gates, min(COORDINATES, *gates.shape))
        towards = basis if self.turn is None else self.turn @ basis
        sought = gates @ basis
        probes = torch.as_tensor(draw(len(sought), PROBES, self._secret))
        best, place, rows = -1.0, -1, sought[:0]
        for candidate in self._candidates(number):
            found = unit(self.theirs.gate(self.theirs.every[candidate])) @ towards
            cosine = _best_cosine(found, sought[probes])
            if cosine > best:
                best, place, rows = cosine, candidate, found
            if best >= CLEAR_COSINE:
                break
        return place, _mutual(rows, sought)

    def _share_in_place(self, number: int) -> float:
        """The share of a sample of an MLP's rows g that resemble those at the same places of the suspect's MLP; 0 if
        most do not."""
        mine, other = self.ours.every[number], self.theirs.every[number]
        if mine.count != other.count:
            return 0.0
        ids = draw(mine.count, PROBES, self._secret)
        cosines = (unit(self.ours.gate(mine, ids)) * unit(self.theirs.gate(other, ids))).sum(dim=1)
        typical = float(cosines.median())
        return float((cosines >= LEAST_SHARE * typical).float().mean()) if typical >= ALIGNED_COSINE else 0.0

    def _candidates(self, number: int) -> list[int]:
        """The suspect's MLPs, the likeliest counterparts of one of the original's first."""
        first: list[int] = []
        if self._known is not None:
            here = self._known.mlps[self._known.mlps[:, 0] == number, 1]
            first = [mlp for mlp, _ in Counter(here.tolist()).most_common(1)]
        count, own = len(self.theirs.every), len(self.ours.every)
        others = sorted(range(count), key=lambda each: min(abs(each - number), abs(each - (number - own + count))))
        return list(dict.fromkeys([*first, *others]))[:MOST_SEARCHED]

    def _paired_rows(self, side: int, mlps: MLPs) -> torch.Tensor:
        """(n, width) the rows g of the known pairs of one side, of length 1."""
        assert self._known is not None
        numbers, rows = self._known.mlps[:, side], self._known.rows[:, side]
        found = torch.empty(len(numbers), mlps.width)
        for number in np.unique(numbers).tolist():
            here = np.flatnonzero(numbers == number)
            found[torch.from_numpy(here)] = mlps.gate(mlps.every[number])[torch.from_numpy(rows[here])]
        return unit(found)


def _mutual(theirs: torch.Tensor, ours: torch.Tensor) -> NDArray[np.int64]:
    """(n,) the row of theirs that is nearest to each of ours, if the two chose each other and are alike; else -1."""
    rows = np.full(len(ours), -1, dtype=np.int64)
    if not len(theirs):
        return rows
    near = nearest(theirs, ours, every(theirs), every(ours))
    cosines = (unit(theirs[near.best]) * unit(ours)).sum(dim=1)
    if not near.mutual.any():
        return rows
    kept = near.mutual & (cosines >= LEAST_SHARE * float(cosines[near.mutual].median()))
    rows[kept.numpy()] = near.best[kept].numpy()
    return rows
