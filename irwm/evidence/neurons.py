"""How similar the MLP neurons of two models are, once they are paired (`irwm.alignment.neurons`).

A suspect whose embedding was replaced, or learned again, still has the layers of the model that it was made from. The
pairs are judged by u and d, which the rotation was not fitted to: by the median of their cosines after the rotation,
without their two leading directions. In unrelated models it is near 0, as in the same pairs in random orders
(decoys).

An attacker could add neurons that hold any numbers without an effect on the model, by a tiny u or d. So each neuron of
the suspect counts by the product of the lengths of g, u and d. Enormous neurons that are never active lower the share
of the others, which prevents "derived", but the neurons still agree, so that the suspect is not cleared either.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from irwm.alignment.neighbours import nearest
from irwm.alignment.neurons import SOUGHT, Known, Pairing, Pairs, every, leading, pairings, unit, varied
from irwm.alignment.rows import draw
from irwm.checkpoint import Checkpoint
from irwm.errors import CheckpointError
from irwm.scheme.keystream import derive
from irwm.scheme.permutations import permutations

# A neuron of the suspect has a counterpart if the cosine of its row g is at least this share of the median pair's.
COUNTERPART = 0.5
DECOYS = 99
# By how much the agreement is above the decoys: in unrelated models by less than 0.05, in descendants, for example
# under noise of one deviation or with 70 % of the weights pruned, by more than 0.4.
MOST_UNRELATED, CLEAR_AGREEMENT = 0.1, 0.3
# The least share of the suspect's neurons, by their weights, that has a counterpart, for descent.
LEAST_WEIGHT = 0.5
# Directions of the rows g that u and d must not follow from, at most one for so many pairs.
PAIRS_PER_DIRECTION, MOST_DIRECTIONS = 8, 16
# The least share of the length of u or d that is left then; less is rounding.
LEAST_LEFT = 0.05
# With less above the decoys, further rounds are not worth their time.
LEAST_PROMISING = 0.005


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


@dataclass(frozen=True, slots=True, eq=False)
class Compared:
    """The best match of two models' neurons.

    Attributes:
        match: how similar they are.
        known: their pairs; None if they are not alike.
    """

    match: NeuronMatch
    known: Known | None


def match_neurons(suspect: Checkpoint, model: Checkpoint) -> NeuronMatch | None:
    """The best match of the suspect's neurons with the original's; None if they cannot be compared.

    The models may have other numbers of layers and of experts, and another width.
    """
    found = compare_neurons(suspect, model)
    return None if found is None else found.match


def compare_neurons(suspect: Checkpoint, model: Checkpoint) -> Compared | None:
    """As `match_neurons`, with the pairs."""
    best, first = None, None
    try:
        for pairing in pairings(suspect, model):
            first = first or pairing
            if not _promising(pairing):
                continue
            pairing = pairing.settled()
            match = _judged(pairing)
            if best is None or match.agreement > best.match.agreement:
                best = Compared(match, Known.of(pairing) if match.alike else None)
            if best.match.derived:
                break
        if best is None and first is not None:
            best = Compared(_judged(first), None)
    # Numbers that cannot be read, or computed with.
    except (CheckpointError, torch.linalg.LinAlgError):  # type: ignore[attr-defined]
        return None
    return best


def _promising(pairing: Pairing) -> bool:
    """Whether further rounds of pairing may show descent, by u or d of the pairs."""
    if pairing.pairs is None:
        return False
    agreement, *decoys = _with_decoys(pairing, one=True)
    return agreement - max(0.0, *decoys) > LEAST_PROMISING


def _judged(pairing: Pairing) -> NeuronMatch:
    theirs, ours, pairs = pairing.theirs, pairing.ours, pairing.pairs
    if pairs is None:
        return NeuronMatch(0.0, 0.0, 0, 0.0, 0.0, ())
    agreement, *decoys = _with_decoys(pairing)
    match = NeuronMatch(agreement, max(decoys), len(pairs.ours), 0.0, 0.0, ())
    if not match.alike:
        return match
    own, other = ours.layers(pairs.ours), theirs.layers(pairs.theirs)
    most = [Counter(other[own == layer].tolist()).most_common(1)[0][0] for layer in np.unique(own)]
    layers = tuple(zip(np.unique(own).tolist(), most, strict=True))
    return replace(match, ours=len(pairs.ours) / len(pairing.ids), theirs=_weighed(pairing, pairs), layers=layers)


def _with_decoys(pairing: Pairing, *, one: bool = False) -> list[float]:
    """The median over the pairs of the cosines of u and d, and the same with the pairs in random orders.

    An attacker may give u and d of a gated neuron the other sign together, so each of the two cosines counts with the
    sign of the other. He may also give all g of plain neurons the other sign, with further neurons that compensate, and
    the rotation turns them back, so the sign of the median does not count there.

    Args:
        one: compare only u, without its sign, or d in a plain MLP, which takes a fraction of the time.
    """
    pairs = pairing.pairs
    assert pairs is not None
    sides = (pairing.theirs, pairs.theirs, pairs.turn), (pairing.ours, pairs.ours, pairs.basis)
    gated = pairing.ours.gated
    judging = (
        _judging([part @ turn for part in side.rest(ids, one=one)], side.gates[ids] @ turn, gated)
        for side, ids, turn in sides
    )
    parts = list(zip(*judging, strict=True))
    count = len(pairs.ours)
    orders = permutations(derive(bytes(32), b"irwm", b"irwm/v1/neurons"), DECOYS, count)
    found = []
    for order in (np.arange(count), *orders):
        cosines = [(theirs[torch.as_tensor(order)] * ours).sum(dim=1) for theirs, ours in parts]
        if len(cosines) == 2:
            u, d = cosines
            cosines = [u * d.sign(), d * u.sign()]
        elif gated:
            cosines = [cosines[0].abs()]
        median = float(torch.cat(cosines).median())
        found.append(median if gated else abs(median))
    return found


def _judging(parts: Sequence[torch.Tensor], gates: torch.Tensor, gated: bool) -> list[torch.Tensor]:
    """What rows u and d, (n, k) each, have that neither all of them have in common nor their rows g have, of length 1.

    In many models a few coordinates are large in every row, and any rotation that turns those of one model to those of
    the other makes all rows alike. In some, u or d resembles g, or follows from it, and the rotation was fitted to g.
    """
    gates = unit(gates)
    directions, _ = leading(gates, max(1, min(MOST_DIRECTIONS, len(gates) // PAIRS_PER_DIRECTION)))
    seen = gates @ directions
    # A sign that u and d share has to be the same in both models for what follows from g.
    sign = (parts[0] * gates).sum(dim=1, keepdim=True).sign() if gated else torch.ones(len(gates), 1)
    found = []
    for part in parts:
        rows = varied(part) * sign
        rows = rows - (rows * gates).sum(dim=1, keepdim=True) * gates
        left = rows - seen @ torch.linalg.lstsq(seen, rows).solution
        enough = left.norm(dim=1, keepdim=True) >= LEAST_LEFT * part.norm(dim=1, keepdim=True)
        found.append(torch.where(enough, unit(left), 0.0))
    return found


def _weighed(pairing: Pairing, pairs: Pairs) -> float:
    """The share of the suspect's neurons with a counterpart, each weighed by the lengths of its rows."""
    theirs, ours = pairing.theirs, pairing.ours
    some = torch.as_tensor(draw(len(theirs.gates), SOUGHT))
    near = nearest(ours.gates @ pairs.basis, theirs.gates[some] @ pairs.turn, every(ours.gates), every(some))
    cosines = (unit(theirs.gates[some] @ pairs.turn) * unit(ours.gates[near.best] @ pairs.basis)).sum(dim=1)
    weights = (theirs.weights[some] - theirs.weights[some].max()).exp()
    return float(weights[cosines >= COUNTERPART * pairs.similarity].sum() / weights.sum())
