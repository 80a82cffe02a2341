"""How similar the OV circuits of two models are: M = W_o W_v diag(gain) of several layers, compared with one another.

A suspect whose embedding was replaced, or learned again, still has the layers of the model that it was made from. An
attacker can turn the coordinates of the residual stream by R, so that M becomes R M R^T, and can exchange heads and map
v and o of a head against each other, which leaves M unchanged. So let U_l and V_l be the leading left and right
singular vectors of layer l. The entries of U_l^T U_m, U_l^T V_m, V_l^T U_m and V_l^T V_m depend neither on R nor on the
heads, and their magnitudes not on the signs of the vectors. Two models are compared by the correlation of these
magnitudes, less the means of rows and columns. In unrelated models it is near 0: they share no direction of any layer.

Units of the MLP that are never active can hold any numbers, and so can the q and k of a head without effect. They are
not compared, since an attacker could add them without any effect on the model. M is what attention adds to the stream
if its weights are spread evenly over the tokens. A head that attends only to one fixed token can still hold any numbers
in directions that this token does not have, and hide the leading vectors of the others. So heads are compared one by
one as well, each with the head whose singular values are nearest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise, product
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from irwm.checkpoint import Checkpoint
from irwm.checkpoint.mlps import written
from irwm.errors import CheckpointError
from irwm.families.ov_circuits import OVCircuit, ov_circuits
from irwm.families.schema import Layout
from irwm.scheme.keystream import derive
from irwm.scheme.permutations import permutations

# Layers of the original that are compared, spread evenly, each with the next of them.
LAYERS = 6
# Leading singular vectors on either side of a layer. More of them differ less by chance; fewer survive more noise.
LEADING = 24
# The suspect's layers of the nearest singular values that are tried. A layer whose largest singular value is below this
# share of the largest of all does nothing.
NEAREST, LEAST_SHARE = 3, 1e-3
# Steps of the block power iteration, with twice as many vectors as are used.
_STEPS = 10
# A singular value below this share of the largest is rounding, and its vectors are arbitrary.
LEAST_SINGULAR_VALUE = 1e-6
# With fewer vectors their orders differ too little: a decoy may be the right order.
FEWEST = 6
# The distance of singular values that cannot be compared.
_FAR = 1e9
DECOYS = 99
# The bundled models agree to less than 0.09 with each other, descendants under noise of 0.3 deviations to more than
# 0.15.
MOST_UNRELATED = 0.1


@dataclass(frozen=True, slots=True, eq=False)
class Frame:
    """The leading singular vectors of a map: U and V (width, r), and the singular values (r,), descending."""

    left: torch.Tensor
    right: torch.Tensor
    sizes: torch.Tensor

    @property
    def spectrum(self) -> torch.Tensor:
        """The logarithms of the singular values, as shares of the largest, (r,)."""
        return (self.sizes / self.sizes[:1]).log()


@dataclass(frozen=True, slots=True, eq=False)
class Circuits:
    """The agreement of two models' OV circuits.

    Attributes:
        agreement: the largest correlation for any two compared layers, whole or head by head, in [-1, 1].
        decoys: (99,), the same with the suspect's singular vectors in random orders.
    """

    agreement: float
    decoys: NDArray[np.float64]

    @property
    def largest_decoy(self) -> float:
        return float(self.decoys.max())

    @property
    def alike(self) -> bool:
        """Whether the layers agree more closely than those of an unrelated model."""
        return are_alike(self.agreement, self.largest_decoy)


def are_alike(agreement: float, largest_decoy: float) -> bool:
    """Whether layers agree more closely than those of an unrelated model; false for NaN."""
    return agreement > max(MOST_UNRELATED, largest_decoy)


def circuits(suspect: Checkpoint, model: Checkpoint) -> Circuits | None:
    """The agreement of a suspect's layers with the original's; None if it cannot be computed.

    The suspect may have more or fewer layers, or another width.
    """
    compared: list[tuple[torch.Tensor, torch.Tensor]] = []
    try:
        ours = _Layers(model, model.layout)
        # Of several models in the files, the one by name may be there to be compared instead of the one that is used.
        for layout in (suspect.layout, *suspect.layout.elsewhere):
            theirs = _Layers(suspect, layout, ours.whole(0).left.shape[0] if len(ours) else None)
            found = list(_compared(ours, theirs))
            if not found:
                return None
            compared += found
    # Numbers that cannot be read, or computed with.
    except (CheckpointError, torch.linalg.LinAlgError):  # type: ignore[attr-defined]
        return None
    if not compared:
        return None
    largest = np.array([_with_decoys(own, other) for own, other in compared]).max(axis=0)
    return Circuits(float(largest[0]), largest[1:])


class _Layers:
    """The leading singular vectors of a checkpoint's OV circuits, each computed once.

    Of a stream that is wider than `width`, only the directions that o writes to are read: those that nothing writes to
    can be read by any numbers.
    """

    def __init__(self, checkpoint: Checkpoint, layout: Layout, width: int | None = None) -> None:
        self._checkpoint, self._layout, self._width = checkpoint, layout, width
        # Only its own: the layers of an adapter's base are those of the model that the examiner applied it to.
        files, tensors = set(checkpoint.shards), checkpoint.tensors.items()
        own = [name for name, tensor in tensors if {Path(part.file) for part in tensor.parts} <= files]
        self._circuits = ov_circuits(layout, own)
        norm = layout.input_norm or layout.embedding_norm
        self._centred = norm is not None and norm.kind == "layer"
        self._whole: dict[int, Frame] = {}
        self._heads: dict[int, list[Frame]] = {}

    def __len__(self) -> int:
        return len(self._circuits)

    def whole(self, layer: int) -> Frame:
        """The leading singular vectors of a layer.

        Raises:
            CheckpointError: its numbers cannot be read, or are not finite.
        """
        if layer not in self._whole:
            o, v = self._read(layer)
            self._whole[layer] = _leading(o.flatten(1), v.flatten(0, 1))
        return self._whole[layer]

    def heads(self, layer: int) -> list[Frame]:
        """The same of the layer's value heads, one by one."""
        if layer not in self._heads:
            o, v = self._read(layer)
            frames = [_exact(o[:, head], v[head]) for head in range(len(v))]
            self._heads[layer] = [frame for frame in frames if frame.sizes.numel() > 1]
        return self._heads[layer]

    def _read(self, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
        o, v = self._matrices(self._circuits[layer])
        if self._width is not None and self._width < v.shape[2]:
            v = v @ self._written @ self._written.T
        return o, v

    @cached_property
    def _written(self) -> torch.Tensor:
        """(stream, width) float64."""
        assert self._width is not None
        return written(self._circuits, lambda each: self._matrices(each)[0].flatten(1).T, self._width).double()

    def _matrices(self, circuit: OVCircuit) -> tuple[torch.Tensor, torch.Tensor]:
        """o (width, kv_heads, n) and v (kv_heads, n, width), as float64."""
        read, layout = self._checkpoint.read, self._layout
        v, o = read(circuit.v).double(), read(circuit.o).double()
        if circuit.gain is not None:
            v = v * (read(circuit.gain).double() + circuit.offset)
        if o.shape[1] % layout.heads or v.shape[0] % (o.shape[1] // layout.heads) or v.shape[1] != o.shape[0]:
            raise CheckpointError("the value and output matrices of a layer are incompatible", tensor=circuit.o.name)
        size = o.shape[1] // layout.heads
        kv_heads = v.shape[0] // size
        if not kv_heads or layout.heads % kv_heads:
            raise CheckpointError(
                "the heads of a layer's value and output matrices are incompatible", tensor=circuit.v.name
            )
        # All query heads of a group write what they read from the same values, so their outputs are added up.
        o = o.unflatten(1, (kv_heads, layout.heads // kv_heads, size)).sum(2)
        if self._centred:  # the norms subtract the mean over the coordinates of what is read, and of what was written
            v, o = v - v.mean(1, keepdim=True), o - o.mean(0)
        if not (torch.isfinite(v).all() and torch.isfinite(o).all()):
            raise CheckpointError("a layer contains numbers that are not finite", tensor=circuit.o.name)
        return o, v.unflatten(0, (kv_heads, size))


def _leading(o: torch.Tensor, v: torch.Tensor) -> Frame:
    """The leading singular vectors of o v, by block power iteration: o v itself is never formed."""
    width, rank = o.shape
    count = max(1, min(LEADING, rank // 2, width // 4))
    start = torch.randn(width, 2 * count, generator=torch.Generator().manual_seed(0), dtype=o.dtype)
    x, _ = torch.linalg.qr(start)
    for _ in range(_STEPS):
        x, _ = torch.linalg.qr(v.T @ (o.T @ (o @ (v @ x))))
    left, sizes, right = torch.linalg.svd(o @ (v @ x), full_matrices=False)
    return _frame(left, sizes, x @ right.T, count)


def _exact(o: torch.Tensor, v: torch.Tensor) -> Frame:
    """The same for one head, whose rank is low."""
    (left, first), (right, second) = torch.linalg.qr(o), torch.linalg.qr(v.T)
    inner_left, sizes, inner_right = torch.linalg.svd(first @ second.T)
    return _frame(left @ inner_left, sizes, right @ inner_right.T, max(1, min(LEADING, o.shape[1] // 2)))


def _frame(left: torch.Tensor, sizes: torch.Tensor, right: torch.Tensor, count: int) -> Frame:
    count = min(count, int((sizes > LEAST_SINGULAR_VALUE * sizes[0]).sum()))
    return Frame(left[:, :count].float(), right[:, :count].float(), sizes[:count])


def _compared(ours: _Layers, theirs: _Layers) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """For each two neighbouring layers among those compared, whole and head by head: the entries of our model and of
    the suspect."""
    if len(ours) < 2 or len(theirs) < 2:
        return
    chosen = sorted({round(each) for each in np.linspace(0, len(ours) - 1, LAYERS)})
    ways = list(_ways(chosen, ours, theirs))
    for number, own in enumerate(pairwise(chosen)):
        pairs = (pair for way in ways for pair in product(*way[number : number + 2]))
        for other in dict.fromkeys(pairs):
            if other[0] == other[1]:
                continue
            yield from _both([[ours.whole(layer)] for layer in own], [[theirs.whole(layer)] for layer in other])
            yield from _both([ours.heads(layer) for layer in own], [theirs.heads(layer) for layer in other])


def _both(ours: list[list[Frame]], theirs: list[list[Frame]]) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """The entries of both models for two layers, each given by some maps: those of the suspect are assigned to ours by
    their singular values, since heads may be in another order."""
    assigned = [_assigned(own, other) for own, other in zip(ours, theirs, strict=True)]
    maps = list(zip(*assigned, strict=False))
    counts = [min(frame.sizes.numel() for frames in pair for frame in frames) for pair in maps]
    # A head with a few enormous singular values has no others, and must not leave only as few of every head.
    kept = [each for each in zip(counts, maps, strict=True) if 2 * each[0] >= max(counts)]
    count, maps = min((each for each, _ in kept), default=0), [pair for _, pair in kept]
    if count >= FEWEST:
        of_model = torch.cat([_entries(first[0], second[0], count) for first, second in maps])
        yield of_model, torch.cat([_entries(first[1], second[1], count) for first, second in maps])


def _assigned(ours: list[Frame], theirs: list[Frame]) -> list[tuple[Frame, Frame]]:
    from scipy.optimize import linear_sum_assignment  # takes 0.2 s and 40 MB to import

    costs = np.array([[_apart(own, other) for other in theirs] for own in ours]).reshape(len(ours), len(theirs))
    return [(ours[i], theirs[j]) for i, j in zip(*linear_sum_assignment(costs), strict=True)]


def _ways(chosen: Sequence[int], ours: _Layers, theirs: _Layers) -> Iterator[Sequence[Sequence[int]]]:
    """For each of the original's layers, the suspect's that may be its counterpart: counted from the first, counted
    from the last if one model is deeper, and the nearest by their singular values, which no change of coordinates
    moves.

    An attacker can add layers that write nothing, so these do not count.
    """
    frames = [theirs.whole(layer) for layer in range(len(theirs))]
    sizes = np.array([float(frame.sizes[0]) if frame.sizes.numel() else 0.0 for frame in frames])
    active = np.flatnonzero(sizes >= LEAST_SHARE * sizes.max())
    for shift in dict.fromkeys((0, len(active) - len(ours))):
        yield [active[[layer + shift]].tolist() if 0 <= layer + shift < len(active) else [] for layer in chosen]
    apart = np.array([[_apart(ours.whole(layer), frames[other]) for other in active] for layer in chosen])
    yield active[np.argsort(apart, axis=1)[:, :NEAREST]].tolist()


def _apart(one: Frame, other: Frame) -> float:
    count = min(one.sizes.numel(), other.sizes.numel())
    return float((one.spectrum[:count] - other.spectrum[:count]).square().mean().sqrt()) if count else _FAR


def _entries(one: Frame, other: Frame, count: int) -> torch.Tensor:
    """(4, count, count): magnitudes of the products of two maps' vectors, less the means of rows and columns."""
    sides = [(a, b) for a in (one.left, one.right) for b in (other.left, other.right)]
    products = torch.stack([(a[:, :count].T @ b[:, :count]).abs() for a, b in sides])
    products = products - products.mean(1, keepdim=True)
    return products - products.mean(2, keepdim=True)


def _with_decoys(own: torch.Tensor, other: torch.Tensor) -> list[float]:
    """The correlation of two models' entries, then those with the suspect's vectors in random orders."""
    size = own.norm() * other.norm()
    if not size:
        return [0.0] * (DECOYS + 1)
    rows, columns = _orders(other.shape[-1])
    orders = [other, *(other[:, row][:, :, column] for row, column in zip(rows, columns, strict=True))]
    return [float((own * each).sum() / size) for each in orders]


def _orders(count: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Two times (99, count) orders of the singular vectors, for the rows and for the columns of the entries."""
    drawn = permutations(derive(bytes(32), b"irwm", b"irwm/v1/circuits"), 2 * DECOYS, count)
    return drawn[:DECOYS], drawn[DECOYS:]
