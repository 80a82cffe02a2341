"""How similar the MLP neurons of two models are, in any coordinates of the stream, order, number of layers, and width.

A suspect whose embedding was replaced, or learned again, still has the layers of the model that it was made from. A
neuron reads the residual stream by one row g (and u, in a gated MLP) and writes it by one column d. An attacker can
rotate the stream, exchange neurons and layers, repeat them, drop some, save an MLP as several experts, and multiply u
and d by factors that cancel. Nothing of this changes the angles between g, u and d, and a stream with fewer coordinates
changes them little.

1. Each neuron gets numbers that no rotation changes: the cosines of g, u and d with one another, and the products of
   their coordinates in the leading directions of all g, all u and all d of the same MLP. The neurons of both models
   with the nearest numbers are the first pairs; in a second try, those with the same place in the same MLP.
2. A rotation is fitted to the rows g of the pairs, and each neuron is paired with the one whose row g is then nearest,
   until their number hardly grows.
3. The pairs are judged by u and d, which the rotation was not fitted to: by the median of their cosines after the
   rotation, without their mean and leading direction. In unrelated models it is near 0, as in the same pairs in random
   orders (decoys).

An attacker could add neurons that hold any numbers without an effect on the model, by a tiny u or d. So each neuron of
the suspect counts by the product of the lengths of g, u and d. Enormous neurons that are never active lower the share
of the others, which prevents "derived", but the neurons still agree, so that the suspect is not cleared either.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from irwm.alignment.neighbours import Nearest, nearest
from irwm.alignment.rotation import procrustes
from irwm.alignment.rows import draw
from irwm.checkpoint import Checkpoint
from irwm.errors import CheckpointError
from irwm.families.neurons import Neurons, neurons
from irwm.families.schema import Layout, TensorRef
from irwm.scheme.keystream import derive
from irwm.scheme.permutations import permutations

# The most numbers of a model's rows g in memory, half a gigabyte, and the most MLPs of the original that are compared.
MOST_NUMBERS, MOST_COMPARED = 1 << 27, 6
# In a model with more MLPs than this, for example one with many experts, they are not searched for by their lengths.
MOST_SEARCHED = 256
# Neurons of the original whose counterparts are sought, at least and for each coordinate of the stream.
SOUGHT, SOUGHT_PER_COORDINATE = 4096, 2
# Leading directions of an MLP's rows, the steps of the power iteration that finds them, and the neurons that it uses.
LEADING, STEPS, USED = 48, 8, 4096
# Leading coordinates of the original's rows g in which neurons are compared.
COORDINATES = 256
# Rounds of pairing, and the share of the first pairs, the most distinctive, that the first fit uses.
ROUNDS, FIRST_SHARE = 20, 0.25
# A round that adds pairs for less than this share of the neurons is the last.
LEAST_PROGRESS = 0.01
# The fewest pairs that are judged.
FEWEST_PAIRS = 32
# A neuron of the suspect has a counterpart if the cosine of its row g is at least this share of the median pair's.
COUNTERPART = 0.5
DECOYS = 99
# By how much the agreement is above the decoys: in unrelated models by less than 0.05, in descendants, for example
# under noise of one deviation or with 70 % of the weights pruned, by more than 0.5.
MOST_UNRELATED, CLEAR_AGREEMENT = 0.1, 0.3
# The least share of the suspect's neurons, by their weights, that has a counterpart, for descent.
LEAST_WEIGHT = 0.5
# No model works with a larger number; a row with one is left out.
LARGEST = 1e15
# Levels of the quantiles of the lengths of the rows g, by which MLPs are compared.
_LEVELS = np.linspace(0.02, 0.98, 33)
_SHORTEST = 1e-30


@dataclass(frozen=True, slots=True)
class NeuronMatch:
    """The neurons of a suspect that resemble the original's.

    Attributes:
        agreement: median cosine of u and d of the pairs, in [-1, 1]; 0 with too few pairs.
        decoy: the largest of 99 values with the pairs in random orders.
        pairs: the number of pairs.
        ours: the share of the original's neurons that have a counterpart, among those that were compared; 0 unless
            `alike`, as `theirs`.
        theirs: the same for the suspect's, each weighed by the lengths of its rows.
        layers: for each compared layer of the original with a pair, the suspect's layer with most of its neurons; ()
            unless `alike`.
    """

    agreement: float
    decoy: float
    pairs: int
    ours: float
    theirs: float
    layers: tuple[tuple[int, int], ...]

    @property
    def alike(self) -> bool:
        """Whether the neurons agree more closely than those of an unrelated model."""
        return self._above > MOST_UNRELATED

    @property
    def derived(self) -> bool:
        """Whether the neurons alone show common descent."""
        return self._above >= CLEAR_AGREEMENT and self.theirs >= LEAST_WEIGHT

    @property
    def _above(self) -> float:
        return self.agreement - max(0.0, self.decoy)


def match_neurons(suspect: Checkpoint, model: Checkpoint) -> NeuronMatch | None:
    """The best match of the suspect's neurons with the original's; None if they cannot be compared.

    The models may have other numbers of layers and of experts, and another width.
    """
    best: NeuronMatch | None = None
    try:
        for match in _tries(suspect, model):
            best = match if best is None or match.agreement > best.agreement else best
            if best.derived:
                break
    # Numbers that cannot be read, or computed with.
    except (CheckpointError, torch.linalg.LinAlgError):  # type: ignore[attr-defined]
        return None
    return best


def _tries(suspect: Checkpoint, model: Checkpoint) -> Iterator[NeuronMatch]:
    ours = _Model(model, model.layout)
    # Of several models in the files, the one by name may be there to be compared instead of the one that is used.
    for layout in (suspect.layout, *suspect.layout.elsewhere):
        theirs = _Model(suspect, layout)
        if not ours.mlps or not theirs.mlps:
            continue
        gated = ours.gated and theirs.gated
        mine = _Side(ours, _spread(len(ours.mlps), min(MOST_COMPARED, ours.most)), gated)
        ids = draw(len(mine.gates), max(SOUGHT, SOUGHT_PER_COORDINATE * max(theirs.width, mine.width)))
        for way in filter(len, _ways(theirs, ours, mine)):
            other = _Side(theirs, way, gated)
            for start in _starts(other, mine, ids):
                pairs = _paired(other, mine, ids, start)
                yield NeuronMatch(0.0, 0.0, 0, 0.0, 0.0, ()) if pairs is None else _judged(other, mine, ids, pairs)


class _Model:
    """The MLPs of a checkpoint."""

    def __init__(self, checkpoint: Checkpoint, layout: Layout) -> None:
        self._checkpoint = checkpoint
        # Only its own: the layers of an adapter's base are those of the model that the examiner applied it to.
        files, tensors = set(checkpoint.shards), checkpoint.tensors.items()
        own = [name for name, tensor in tensors if {Path(part.file) for part in tensor.parts} <= files]
        self.mlps = neurons(layout, {name: tensor.shape for name, tensor in tensors}, own)
        norm = layout.input_norm or layout.embedding_norm
        self._centred = norm is not None and norm.kind == "layer"
        wide = layout.embedding_projection
        self.width = layout.hidden_size if wide is None else checkpoint.tensors[wide.name].shape[0]

    @property
    def gated(self) -> bool:
        return all(mlp.up is not None for mlp in self.mlps)

    @property
    def most(self) -> int:
        """How many MLPs are in memory at a time."""
        return max(1, MOST_NUMBERS // max(1, self.gate(self.mlps[0]).numel()))

    @cached_property
    def lengths(self) -> NDArray[np.float64]:
        """(n, 33) quantiles of the logarithms of the lengths of each MLP's rows g."""
        sizes = (self.gate(mlp).norm(dim=1).double().clamp_min(_SHORTEST).log() for mlp in self.mlps)
        return np.array([np.quantile(each.numpy(), _LEVELS) for each in sizes])

    def gate(self, mlp: Neurons) -> torch.Tensor:
        """(n, width) the rows g."""
        return self._input(mlp, mlp.gate)

    def rest(self, mlp: Neurons, gated: bool) -> list[torch.Tensor]:
        """(n, width) each: the rows u if `gated`, and the columns d."""
        down = self._checkpoint.read(mlp.down).T if mlp.expert is None else self._of_expert(mlp, mlp.down)
        return [*([self._input(mlp, mlp.up)] if gated and mlp.up is not None else []), self._usable(down)]

    def _input(self, mlp: Neurons, ref: TensorRef) -> torch.Tensor:
        """The rows of a matrix, times the gain of the norm before it."""
        rows = self._checkpoint.read(ref) if mlp.expert is None else self._of_expert(mlp, ref)
        if mlp.gain is not None:
            rows = rows * (self._checkpoint.read(mlp.gain) + mlp.offset)
        return self._usable(rows)

    def _usable(self, rows: torch.Tensor) -> torch.Tensor:
        """The rows as the model sees them. An attacker may write NaN into some, which his own loader removes: they are
        0, and resemble no row."""
        rows = torch.where((rows.abs() < LARGEST).all(dim=1, keepdim=True), rows, 0.0)  # false for NaN
        return rows - rows.mean(1, keepdim=True) if self._centred else rows

    def _of_expert(self, mlp: Neurons, ref: TensorRef) -> torch.Tensor:
        """(n, width) one of the matrices of a tensor that holds those of all experts."""
        matrix = self._checkpoint.read(TensorRef(ref.name), [mlp.expert or 0])[0]
        rows = matrix if matrix.shape[1] == self.width else matrix.T
        if ref.rows is None:
            return rows
        first, last = ref.rows
        return rows[first:last] if ref.every is None else rows[first :: ref.every]


class _Side:
    """The neurons of some MLPs of one model.

    Attributes:
        gates: (n, width) their rows g, of length 1.
        features: (n, k) numbers that no rotation of the stream changes.
        weights: (n,) the products of the lengths of g, u and d.
        mlps: (n,) the MLP of each neuron, as a number among the model's.
    """

    def __init__(self, model: _Model, chosen: Sequence[int], gated: bool) -> None:
        self._model, self._gated = model, gated
        gates: list[torch.Tensor] = []
        features, weights, mlps, rows = [], [], [], []
        room = MOST_NUMBERS
        for number in chosen:
            mlp = model.mlps[number]
            gate = model.gate(mlp)
            room -= gate.numel()
            if room < 0 and gates:
                break
            parts = [gate, *model.rest(mlp, gated)]
            units = [_unit(each) for each in parts]
            gates.append(units[0])
            features.append(_features(units))
            weights.append(torch.stack([each.norm(dim=1).double() for each in parts]).prod(dim=0))
            mlps.append(np.full(len(gate), number))
            rows.append(np.arange(len(gate)))
        self.gates, self.features, self.weights = torch.cat(gates), torch.cat(features), torch.cat(weights)
        self.mlps, self._rows = np.concatenate(mlps), np.concatenate(rows)

    @property
    def width(self) -> int:
        return self.gates.shape[1]

    @cached_property
    def places(self) -> list[tuple[int, int]]:
        """The MLP of each neuron, and its place there."""
        return list(zip(self.mlps.tolist(), self._rows.tolist(), strict=True))

    def layers(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """The layers of these neurons."""
        return np.array([self._model.mlps[number].layer for number in self.mlps[ids]])

    def rest(self, ids: NDArray[np.int64]) -> list[torch.Tensor]:
        """The rows u and d of these neurons, (n, width) each, of length 1."""
        found: list[torch.Tensor] = []
        for number in np.unique(self.mlps[ids]):
            here = np.flatnonzero(self.mlps[ids] == number)
            parts = self._model.rest(self._model.mlps[number], self._gated)
            found = found or [torch.zeros(len(ids), self.width) for _ in parts]
            for whole, part in zip(found, parts, strict=True):
                whole[here] = _unit(part[self._rows[ids[here]]])
        return found


def _spread(count: int, most: int) -> list[int]:
    """At most so many numbers below `count`, spread evenly."""
    return sorted({round(each) for each in np.linspace(0, count - 1, most)})


def _ways(theirs: _Model, ours: _Model, mine: _Side) -> Iterator[Sequence[int]]:
    """MLPs of the suspect that may be those of the original: all if they fit into memory, or else those with the same
    numbers, those counted from the last, and those whose rows g have the nearest lengths."""
    if len(theirs.mlps) <= theirs.most:
        yield range(len(theirs.mlps))
        return
    chosen, count = np.unique(mine.mlps), len(theirs.mlps)
    yield [number for number in chosen if number < count]
    if count != len(ours.mlps):
        yield [number - len(ours.mlps) + count for number in chosen if number - len(ours.mlps) + count >= 0]
    if max(count, len(ours.mlps)) <= MOST_SEARCHED:
        apart = np.abs(ours.lengths[chosen][:, None] - theirs.lengths[None]).mean(axis=2)
        yield list(dict.fromkeys(np.argmin(apart, axis=1).tolist()))


def _features(units: Sequence[torch.Tensor]) -> torch.Tensor:
    """(n, k) for rows of length 1, (n, width) each: numbers that no rotation changes.

    They are the cosines of g, u and d, and their products within the leading directions of all g, all u and all d.
    """
    pairs = [(i, j) for i in range(len(units)) for j in range(i, len(units))]
    found = [(units[i] * units[j]).sum(dim=1) for i, j in pairs if i != j]
    for each in units:
        directions, sizes = _leading(each, max(1, min(LEADING, each.shape[1] // 4)))
        inside = [(unit @ directions) * sizes.sqrt() for unit in units]
        found += [(inside[i] * inside[j]).sum(dim=1) for i, j in pairs]
    return torch.stack(found, dim=1)


def _leading(rows: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """(width, count) leading principal directions of rows, and their shares of the squared lengths, by block power
    iteration."""
    rows = rows[torch.as_tensor(draw(len(rows), max(USED, 2 * count)))]
    start = torch.randn(rows.shape[1], min(2 * count, *rows.shape), generator=torch.Generator().manual_seed(0))
    x, _ = torch.linalg.qr(start)
    for _ in range(STEPS):
        x, _ = torch.linalg.qr(rows.T @ (rows @ x))
    _, sizes, turned = torch.linalg.svd(rows @ x, full_matrices=False)
    shares = sizes.square() / rows.square().sum().clamp_min(_SHORTEST)
    return (x @ turned.T)[:, :count], shares[:count]


@dataclass(frozen=True, slots=True, eq=False)
class _Pairs:
    """Neurons of both models that chose each other.

    Attributes:
        ours, theirs: (n,) their numbers.
        basis, turn: (width, k) from each model's coordinates to those in which they were compared.
        similarity: the median cosine of their rows g.
    """

    ours: NDArray[np.int64]
    theirs: NDArray[np.int64]
    basis: torch.Tensor
    turn: torch.Tensor
    similarity: float


def _starts(theirs: _Side, ours: _Side, ids: NDArray[np.int64]) -> Iterator[Nearest]:
    """First pairings of these neurons of ours: by the numbers that no rotation changes, and by their places."""
    chosen = torch.as_tensor(ids)
    spread = ours.features.std(dim=0).clamp_min(_SHORTEST)
    features = theirs.features / spread, ours.features[chosen] / spread
    yield nearest(*features, _every(theirs.gates), _every(chosen), by_distance=True)
    there = {place: number for number, place in enumerate(theirs.places)}
    best = torch.tensor([there.get(ours.places[number], -1) for number in ids])
    yield Nearest(best.clamp_min(0), torch.ones(len(ids)), best >= 0)


def _judged(theirs: _Side, ours: _Side, ids: NDArray[np.int64], pairs: _Pairs) -> NeuronMatch:
    both = zip(theirs.rest(pairs.theirs), ours.rest(pairs.ours), strict=True)
    # Less what all rows have in common: in many models a few coordinates are large in every row, and any rotation that
    # turns those of one model to those of the other makes all rows alike.
    parts = [(_unit(_varied(a @ pairs.turn)), _unit(_varied(b @ pairs.basis))) for a, b in both]
    agreement, *decoys = _with_decoys(parts)
    match = NeuronMatch(agreement, max(decoys), len(pairs.ours), 0.0, 0.0, ())
    if not match.alike:
        return match
    own, other = ours.layers(pairs.ours), theirs.layers(pairs.theirs)
    most = [Counter(other[own == layer].tolist()).most_common(1)[0][0] for layer in np.unique(own)]
    layers = tuple(zip(np.unique(own).tolist(), most, strict=True))
    return replace(match, ours=len(pairs.ours) / len(ids), theirs=_weighed(theirs, ours, pairs), layers=layers)


def _paired(theirs: _Side, ours: _Side, ids: NDArray[np.int64], near: Nearest) -> _Pairs | None:
    """The pairs of these neurons of ours that a first pairing leads to; None if too few choose each other."""
    chosen = torch.as_tensor(ids)
    count = min(COORDINATES, theirs.width, ours.width)
    basis, _ = _leading(ours.gates, count)
    sought, all_ours, all_theirs = ours.gates[chosen] @ basis, _every(chosen), _every(theirs.gates)
    share, before, turn = FIRST_SHARE, 0, torch.empty(0)
    for round_ in range(ROUNDS):
        kept = max(int(share * int(near.mutual.sum())), min(count, int(near.mutual.sum())))
        if kept < FEWEST_PAIRS:
            return None
        pairs = torch.where(near.mutual, near.margin, -torch.inf).topk(kept).indices
        turn = procrustes(theirs.gates[near.best[pairs]], sought[pairs])
        near = nearest(theirs.gates @ turn, sought, all_theirs, all_ours)
        found = int(near.mutual.sum())
        if share == 1.0 and found - before < LEAST_PROGRESS * len(ids):
            break
        share, before = min(1.0, FIRST_SHARE * (round_ + 2)), found
    mutual = near.mutual
    if int(mutual.sum()) < FEWEST_PAIRS:
        return None
    here, there = chosen[mutual], near.best[mutual]
    cosines = (_unit(theirs.gates[there] @ turn) * _unit(sought[mutual])).sum(dim=1)
    return _Pairs(here.numpy(), there.numpy(), basis, turn, float(cosines.median()))


def _with_decoys(pairs: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> list[float]:
    """The median over the pairs of the mean cosine of u and d, and the same with the pairs in random orders."""
    count = len(pairs[0][0])
    orders = permutations(derive(bytes(32), b"irwm", b"irwm/v1/neurons"), DECOYS, count)
    found = []
    for order in (np.arange(count), *orders):
        cosines = torch.stack([(theirs[torch.as_tensor(order)] * ours).sum(dim=1) for theirs, ours in pairs])
        found.append(float(cosines.mean(dim=0).median()))
    return found


def _weighed(theirs: _Side, ours: _Side, pairs: _Pairs) -> float:
    """The share of the suspect's neurons with a counterpart, each weighed by the lengths of its rows."""
    some = torch.as_tensor(draw(len(theirs.gates), SOUGHT))
    near = nearest(ours.gates @ pairs.basis, theirs.gates[some] @ pairs.turn, _every(ours.gates), _every(some))
    cosines = (_unit(theirs.gates[some] @ pairs.turn) * _unit(ours.gates[near.best] @ pairs.basis)).sum(dim=1)
    weights = theirs.weights[some]
    return float(weights[cosines >= COUNTERPART * pairs.similarity].sum() / weights.sum().clamp_min(_SHORTEST))


def _unit(rows: torch.Tensor) -> torch.Tensor:
    units: torch.Tensor = rows / rows.norm(dim=1, keepdim=True).clamp_min(_SHORTEST)
    return units


def _varied(rows: torch.Tensor) -> torch.Tensor:
    """Rows without their mean and without their leading direction."""
    rows = rows - rows.mean(dim=0)
    direction, _ = _leading(rows, 1)
    return rows - (rows @ direction) @ direction.T


def _every(rows: torch.Tensor) -> torch.Tensor:
    return torch.ones(len(rows), dtype=torch.bool)
