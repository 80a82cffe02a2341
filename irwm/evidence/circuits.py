"""How similar the OV circuits of two models are: M = W_o W_v diag(gain) of several layers, compared with one another.

A suspect whose embedding was replaced, or learned again, still has the layers of the model that it was made from. An
attacker can turn the coordinates of the residual stream by R, so that M becomes R M R^T, and can exchange heads and map
v and o of a head against each other, which leaves M unchanged. So let U_l and V_l be the leading left and right
singular vectors of layer l. The entries of U_l^T U_m, U_l^T V_m, V_l^T U_m and V_l^T V_m depend neither on R nor on the
heads, and their magnitudes not on the signs of the vectors. Two models are compared by the correlation of these
magnitudes, less the means of rows and columns. In unrelated models it is near 0: they share no direction of any layer.

Units of the MLP that are never active can hold any numbers, and so can the q and k of a head without effect. They are
not compared, since an attacker could add them without any effect on the model. M itself is what attention adds to the
stream if it spreads evenly over the tokens, so it cannot be changed without a change of the model's results.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray

from irwm.checkpoint import Checkpoint
from irwm.errors import CheckpointError
from irwm.families.ov_circuits import OVCircuit, ov_circuits
from irwm.scheme.keystream import derive
from irwm.scheme.permutations import permutations

# Layers of the original that are compared, spread evenly, each with the next of them.
LAYERS = 6
# Leading singular vectors on either side of a layer. More of them differ less by chance; fewer survive more noise.
LEADING = 24
# Steps of the block power iteration, with twice as many vectors as are used.
_STEPS = 10
# A singular value below this share of the largest is rounding, and its vectors are arbitrary.
LEAST_SINGULAR_VALUE = 1e-6
DECOYS = 99
# Unrelated models agree to 0.04 at most, descendants under noise of 0.3 deviations to 0.17 or more.
MOST_UNRELATED = 0.1


@dataclass(frozen=True, slots=True, eq=False)
class Frame:
    """The leading singular vectors of one layer: U and V (width, r), and the singular values (r,), descending."""

    left: torch.Tensor
    right: torch.Tensor
    sizes: torch.Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Circuits:
    """The agreement of two models' OV circuits.

    Attributes:
        agreement: the largest correlation of any two compared layers, in [-1, 1].
        decoys: (99,), the same with the suspect's singular vectors in random orders.
    """

    agreement: float
    decoys: NDArray[np.float64]

    @property
    def largest_decoy(self) -> float:
        return float(self.decoys.max())

    @property
    def alike(self) -> bool:
        """Whether the layers agree better than those of an unrelated model."""
        return are_alike(self.agreement, self.largest_decoy)


def are_alike(agreement: float, largest_decoy: float) -> bool:
    """Whether layers agree better than those of an unrelated model; false for NaN."""
    return agreement > max(MOST_UNRELATED, largest_decoy)


def circuits(suspect: Checkpoint, model: Checkpoint) -> Circuits | None:
    """The agreement of a suspect's layers with the original's; None if it cannot be computed.

    The suspect may have more or fewer layers, or another width.
    """
    try:
        ours, theirs = _Layers(model), _Layers(suspect)
        compared = list(_compared(ours, theirs))
    except CheckpointError:  # numbers that cannot be read
        return None
    if not compared:
        return None
    values = np.zeros((DECOYS + 1, len(compared)))
    for at, (own, other) in enumerate(compared):
        rows, columns = _orders(other.shape[-1])
        values[0, at] = _correlation(own, other)
        for decoy in range(DECOYS):
            values[decoy + 1, at] = _correlation(own, other[:, rows[decoy]][:, :, columns[decoy]])
    largest = values.max(axis=1)
    return Circuits(float(largest[0]), largest[1:])


class _Layers:
    """The leading singular vectors of a checkpoint's OV circuits, each computed once."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._checkpoint = checkpoint
        self._circuits = ov_circuits(checkpoint.layout, checkpoint.tensors)
        norm = checkpoint.layout.input_norm or checkpoint.layout.embedding_norm
        self._centred = norm is not None and norm.kind == "layer"
        self._known: dict[int, Frame] = {}

    def __len__(self) -> int:
        return len(self._circuits)

    def spectrum(self, layer: int) -> torch.Tensor:
        """The logarithms of a layer's leading singular values, as shares of the largest, (r,)."""
        sizes = self.frame(layer).sizes
        return (sizes / sizes[:1]).log()

    def frame(self, layer: int) -> Frame:
        """The leading singular vectors of a layer.

        Raises:
            CheckpointError: its numbers cannot be read, or are not finite.
        """
        if layer not in self._known:
            self._known[layer] = self._computed(self._circuits[layer])
        return self._known[layer]

    def _computed(self, circuit: OVCircuit) -> Frame:
        read, layout = self._checkpoint.read, self._checkpoint.layout
        v, o = read(circuit.v).double(), read(circuit.o).double()
        if circuit.gain is not None:
            v = v * (read(circuit.gain).double() + circuit.offset)
        if o.shape[1] % layout.heads or v.shape[0] % (o.shape[1] // layout.heads) or v.shape[1] != o.shape[0]:
            raise CheckpointError("values and output of a layer do not fit together", tensor=circuit.o.name)
        size = o.shape[1] // layout.heads
        kv_heads = v.shape[0] // size
        if not kv_heads or layout.heads % kv_heads:
            raise CheckpointError("the heads of values and output do not fit together", tensor=circuit.v.name)
        # All query heads of a group write what they read from the same values, so their outputs are added up.
        o = o.unflatten(1, (kv_heads, layout.heads // kv_heads, size)).sum(2).flatten(1)
        if self._centred:  # the norms subtract the mean over the coordinates of what is read, and of what was written
            v, o = v - v.mean(1, keepdim=True), o - o.mean(0)
        if not (torch.isfinite(v).all() and torch.isfinite(o).all()):
            raise CheckpointError("a layer has numbers that are not finite", tensor=circuit.o.name)
        return _leading(o, v)


def _leading(o: torch.Tensor, v: torch.Tensor) -> Frame:
    """The leading singular vectors of o v, by block power iteration: o v itself is never formed."""
    width, rank = o.shape
    count = max(1, min(LEADING, rank // 2, width // 4))
    start = torch.randn(width, 2 * count, generator=torch.Generator().manual_seed(0), dtype=o.dtype)
    x, _ = torch.linalg.qr(start)
    for _ in range(_STEPS):
        x, _ = torch.linalg.qr(v.T @ (o.T @ (o @ (v @ x))))
    left, sizes, right = torch.linalg.svd(o @ (v @ x), full_matrices=False)
    count = min(count, int((sizes > LEAST_SINGULAR_VALUE * sizes[0]).sum()))
    return Frame(left[:, :count], (x @ right.T)[:, :count], sizes[:count])


def _compared(ours: _Layers, theirs: _Layers) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """For each two neighbouring layers among those compared: the entries of our model and of the suspect."""
    if len(ours) < 2 or len(theirs) < 2:
        return
    chosen = sorted({round(each) for each in np.linspace(0, len(ours) - 1, LAYERS)})
    for way in _ways(chosen, ours, theirs):
        for (own, own_next), (other, other_next) in zip(pairwise(chosen), pairwise(way), strict=True):
            if other == other_next or not {other, other_next} <= set(range(len(theirs))):
                continue
            pairs = (ours.frame(own), ours.frame(own_next)), (theirs.frame(other), theirs.frame(other_next))
            count = min(frame.sizes.numel() for pair in pairs for frame in pair)
            if count > 1:
                yield _entries(*pairs[0], count), _entries(*pairs[1], count)


def _ways(chosen: Sequence[int], ours: _Layers, theirs: _Layers) -> Iterator[Sequence[int]]:
    """The suspect's layers for the original's: counted from the first, counted from the last if one model is deeper,
    and found by their singular values, which no change of coordinates moves."""
    yield chosen
    if len(ours) != len(theirs):
        yield [layer - len(ours) + len(theirs) for layer in chosen]
    spectra = [theirs.spectrum(layer) for layer in range(len(theirs))]
    yield [int(np.argmin([_apart(ours.spectrum(layer), each) for each in spectra])) for layer in chosen]


def _apart(one: torch.Tensor, other: torch.Tensor) -> float:
    count = min(one.numel(), other.numel())
    return float((one[:count] - other[:count]).norm() / max(count, 1) ** 0.5)


def _entries(one: Frame, other: Frame, count: int) -> torch.Tensor:
    """(4, count, count): magnitudes of the products of two layers' vectors, less the means of rows and columns."""
    sides = [(a, b) for a in (one.left, one.right) for b in (other.left, other.right)]
    products = torch.stack([(a[:, :count].T @ b[:, :count]).abs() for a, b in sides])
    products = products - products.mean(1, keepdim=True)
    return products - products.mean(2, keepdim=True)


def _correlation(own: torch.Tensor, other: torch.Tensor) -> float:
    return float((own * other).sum() / (own.norm() * other.norm()).clamp_min(1e-300))


def _orders(count: int) -> Sequence[NDArray[np.int64]]:
    """Two times (99, count) orders of the singular vectors, for the rows and for the columns of the entries."""
    drawn = permutations(derive(bytes(32), b"irwm", b"irwm/v1/circuits"), 2 * DECOYS, count)
    return drawn[:DECOYS], drawn[DECOYS:]
