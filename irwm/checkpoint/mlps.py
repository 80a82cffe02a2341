"""The rows by which a checkpoint's neurons read the residual stream, with the gain of the norm before them.

A norm multiplies the stream by its gain before an MLP reads it. An attacker can move gains into the rows and back, so
rows are compared, and fingerprinted, as the stream sees them: row times gain.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from pathlib import Path
from threading import Lock
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from irwm.checkpoint.fingerprint_cache import fingerprint_of
from irwm.checkpoint.model import Checkpoint
from irwm.checkpoint.rows import Rows, row_numbers
from irwm.families.neurons import Neurons, neurons
from irwm.families.schema import Layout, TensorRef

_DOMAIN = b"irwm-neurons-v1"
# Matrices that cannot be read row by row and are kept; two threads read neighbouring rows.
_KEPT = 2
# Columns that show the directions of a widened stream, for each of its coordinates.
_ENOUGH = 4
# The least share of the largest moment of a direction that is written to.
_LEAST_WRITTEN = 1e-5
T = TypeVar("T")


class MLPs:
    """The MLPs in a checkpoint's own files.

    Args:
        checkpoint: the checkpoint.
        layout: one of the models in its files; None for the one that is used.
        width: the width of the model that it is compared with. A wider stream is read in as many coordinates, in the
            directions that the MLPs write to. Nothing writes to the others, if the stream was widened, so an attacker
            can give the rows g and u any numbers there.

    Attributes:
        every: their neurons, layer by layer and expert by expert; () if no tensor has a known name.
        width: the number of coordinates of all rows.
    """

    def __init__(self, checkpoint: Checkpoint, layout: Layout | None = None, width: int | None = None) -> None:
        layout = layout or checkpoint.layout
        self.checkpoint = checkpoint
        # Only its own: the layers of an adapter's base are those of the model that the examiner applied it to.
        files, tensors = set(checkpoint.shards), checkpoint.tensors.items()
        own = [name for name, tensor in tensors if {Path(part.file) for part in tensor.parts} <= files]
        self.every = neurons(layout, {name: tensor.shape for name, tensor in tensors}, own)
        norm = layout.input_norm or layout.embedding_norm
        self._centred = norm is not None and norm.kind == "layer"
        wide = layout.embedding_projection
        self._stream = layout.hidden_size if wide is None else checkpoint.tensors[wide.name].shape[0]
        self.width = min(self._stream, width or self._stream)

    @property
    def gated(self) -> bool:
        """Whether each neuron has a row u."""
        return all(mlp.up is not None for mlp in self.every)

    @property
    def bytes_of_gates(self) -> int:
        """The stored size of the matrices of all rows g."""
        return sum(self.checkpoint.tensors[name].nbytes for name in {mlp.gate.name for mlp in self.every})

    def gate(self, mlp: Neurons, rows: Rows = None) -> torch.Tensor:
        """(n, width) float32 the rows g of an MLP, or some of them; a row that no model works with is 0."""
        return self._input(mlp, mlp.gate, rows)

    def up(self, mlp: Neurons, rows: Rows = None) -> torch.Tensor:
        """(n, width) the rows u of a gated MLP, or some of them."""
        assert mlp.up is not None
        return self._input(mlp, mlp.up, rows)

    def rest(self, mlp: Neurons, gated: bool) -> list[torch.Tensor]:
        """(n, width) each: the rows u if `gated`, and the columns d."""
        return [*([self.up(mlp)] if gated and mlp.up is not None else []), self._usable(self._down(mlp))]

    def gain(self, mlp: Neurons) -> torch.Tensor:
        """(width,) the gain of the norm that the MLP reads, or ones."""
        return torch.ones(self._stream) if mlp.gain is None else self.checkpoint.read(mlp.gain) + mlp.offset

    def stored(self, mlp: Neurons, ref: TensorRef, rows: Rows = None) -> torch.Tensor:
        """(n, width) float32 rows of a matrix, without the gain."""
        if mlp.expert is None:
            return self.checkpoint.read(ref, rows)
        return self._of_expert(mlp, ref)[row_numbers(rows, mlp.count, ref.name)]

    def _input(self, mlp: Neurons, ref: TensorRef, rows: Rows = None) -> torch.Tensor:
        return self._usable(self.stored(mlp, ref, rows) * self.gain(mlp))

    def _usable(self, rows: torch.Tensor) -> torch.Tensor:
        """The rows as the model sees them. An attacker may write NaN into some, which his own loader removes: they are
        0, and resemble no row."""
        usable = torch.isfinite(rows).all(dim=1)
        if not usable.all():
            rows = torch.where(usable[:, None], rows, 0.0)
        if self._centred:
            rows = rows - rows.mean(1, keepdim=True)
        return rows if rows.shape[1] == self.width else rows @ self._written

    @cached_property
    def _written(self) -> torch.Tensor:
        """(stream, width) the leading directions of the columns d."""
        return written(self.every, self._down, self.width)

    def _down(self, mlp: Neurons) -> torch.Tensor:
        return self.checkpoint.read(mlp.down).T if mlp.expert is None else self._of_expert(mlp, mlp.down)

    def _of_expert(self, mlp: Neurons, ref: TensorRef) -> torch.Tensor:
        """(n, width) one of the matrices of a tensor that holds those of all experts."""
        matrix = self.checkpoint.read(TensorRef(ref.name), [mlp.expert or 0])[0]
        rows = matrix if matrix.shape[1] == self._stream else matrix.T
        if ref.rows is None:
            return rows
        first, last = ref.rows
        return rows[first:last] if ref.every is None else rows[first :: ref.every]


def written(matrices: Sequence[T], read: Callable[[T], torch.Tensor], width: int) -> torch.Tensor:
    """(stream, width) orthonormal directions to which a model's matrices write, and zeros if these are fewer.

    Args:
        matrices: in the order of their layers. Some that are spread over the model are read, enough to show everything.
        read: gives a matrix, transposed, (n, stream). Its rows count the same, long or short.
        width: the number of directions.
    """
    moments, count = torch.zeros(()), 0
    # Reversed binary digits put the first, the middle one and those in between at the beginning.
    for place in sorted(range(len(matrices)), key=lambda place: f"{place:b}"[::-1]):
        rows = read(matrices[place])
        rows = rows[torch.isfinite(rows).all(dim=1)]
        rows = rows / rows.abs().amax(dim=1, keepdim=True).clamp_min(torch.finfo().tiny)
        rows = (rows / rows.norm(dim=1, keepdim=True).clamp_min(torch.finfo().tiny)).float()
        moments, count = moments + rows.T @ rows, count + len(rows)
        if count >= _ENOUGH * rows.shape[1]:
            break
    sizes, directions = torch.linalg.eigh(moments)
    found: torch.Tensor = directions[:, -width:] * (sizes[-width:] > _LEAST_WRITTEN * sizes[-1])
    return found


class NeuronRows:
    """The rows g of some MLPs, one after the other, in the form of an embedding (`irwm.checkpoint.matrix.Matrix`).

    Args:
        mlps: the checkpoint's MLPs.
        numbers: which of them, in this order.
    """

    def __init__(self, mlps: MLPs, numbers: Sequence[int]) -> None:
        self.mlps, self.numbers = mlps, tuple(numbers)
        self.chosen = [mlps.every[number] for number in numbers]
        self.starts = np.cumsum([0, *(mlp.count for mlp in self.chosen)])
        self._whole: dict[int, torch.Tensor] = {}
        self._reading = Lock()

    def __reduce__(self) -> tuple[type[NeuronRows], tuple[MLPs, tuple[int, ...]]]:
        return NeuronRows, (self.mlps, self.numbers)  # another process reads its own rows

    @property
    def vocab_size(self) -> int:
        """The number of rows."""
        return int(self.starts[-1])

    @property
    def hidden_size(self) -> int:
        """The number of coordinates of the residual stream."""
        return self.mlps.width

    def embedding(self, rows: Rows = None) -> torch.Tensor:
        """(n, width) float32 rows; arguments as for `Checkpoint.embedding`."""
        wanted = row_numbers(rows, self.vocab_size, "rows of the MLPs").numpy()
        found = torch.empty(len(wanted), self.hidden_size)
        places = np.searchsorted(self.starts, wanted, side="right") - 1
        for place in np.unique(places).tolist():
            here = places == place
            found[torch.from_numpy(here)] = self._rows(place, wanted[here] - self.starts[place])
        return found

    def _rows(self, place: int, rows: NDArray[np.int64]) -> torch.Tensor:
        mlp = self.chosen[place]
        if mlp.expert is None and not mlp.gate.transposed:
            return self.mlps.gate(mlp, rows)
        with self._reading:
            if place not in self._whole:
                if len(self._whole) == _KEPT:
                    del self._whole[next(iter(self._whole))]
                self._whole[place] = self.mlps.gate(mlp)
            return self._whole[place][torch.from_numpy(rows)]

    @cached_property
    def fingerprint(self) -> str:
        """Hex SHA-256 that identifies these rows, see docs/key-format.md (*The MLP layers*)."""
        return self.mlps.checkpoint.kept(f"neurons {self.numbers}", self._hashed)

    def _hashed(self) -> str:
        digest = hashlib.sha256(len(_DOMAIN).to_bytes(8, "little") + _DOMAIN)
        for size in (self.hidden_size, len(self.chosen)):
            digest.update(size.to_bytes(8, "little"))
        for mlp in self.chosen:
            digest.update(mlp.count.to_bytes(8, "little"))
            digest.update(_float32(self.mlps.gain(mlp)))
            kind = _DOMAIN + repr((mlp.gate, mlp.expert)).encode()
            tensor = self.mlps.checkpoint.tensors[mlp.gate.name]
            digest.update(bytes.fromhex(fingerprint_of(tensor, partial(self._hashed_rows, mlp), kind)))
        return digest.hexdigest()

    def _hashed_rows(self, mlp: Neurons) -> str:
        return hashlib.sha256(_float32(self.mlps.stored(mlp, mlp.gate))).hexdigest()


def _float32(values: torch.Tensor) -> memoryview:
    data: memoryview = values.contiguous().numpy().astype("<f4", copy=False).data
    return data
