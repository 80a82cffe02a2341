"""The fingerprint in the neurons of a release: the patches of its MLPs, and their verification.

The noise is added to the rows g as the stream sees them, with the gain of the norm, which stays unchanged. So what is
added to a stored row is divided by the gain, but by no less than `LEAST_GAIN` of the root mean square of all gains.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from irwm.checkpoint import Checkpoint, open_checkpoint
from irwm.checkpoint.dtypes import TORCH
from irwm.checkpoint.rows import read_tensor
from irwm.checkpoint.tensors import TensorEntry
from irwm.errors import MarginError
from irwm.evidence.finding import ALIGNED
from irwm.evidence.fingerprint import sampled_log10_p
from irwm.evidence.neuron_reading import AlignedNeurons
from irwm.evidence.parallel import in_order
from irwm.keys.key import Key
from irwm.keys.neurons import FingerprintKey, rows_of
from irwm.release.patches import BLOCK_NUMBERS, LazyPatch, Patches, together
from irwm.release.unmarked import SEARCHED_ROWS, ChangedRows, holders
from irwm.scheme.parameters import NEURONS
from irwm.tracing import RISK

LEAST_GAIN = 0.1
_SMALLEST = 1e-30


def neurons_of(model: Checkpoint, key: Key) -> NoisyNeurons | None:
    """The fingerprint to write into the neurons of an original; None if the key has none there.

    Raises:
        KeyMismatchError: the key was made for other neurons.
    """
    part = key.fingerprint_at(NEURONS)
    return None if part is None else NoisyNeurons(model, part)


class NoisyNeurons:
    """The rows g of some MLPs of one recipient's copy, made when they are written.

    Args:
        model: the original.
        part: what the recipient's fingerprint is derived from.
    """

    def __init__(self, model: Checkpoint, part: FingerprintKey) -> None:
        self._model, self._part = model, part
        self._rows = rows_of(model, part)
        self._noise = part.noise(self._rows)
        self._last: tuple[str, NDArray[np.uint8]] | None = None

    @property
    def layers(self) -> tuple[int, ...]:
        """The layers of the MLPs."""
        return tuple(sorted({mlp.layer for mlp in self._rows.chosen}))

    @property
    def views(self) -> list[Checkpoint]:
        """The original with the rows of each MLP in the embedding's place."""
        return [self._model.with_matrix(mlp.gate, mlp.count) for mlp in self._rows.chosen]

    def holders(self, places: Sequence[Checkpoint]) -> list[list[str]]:
        """`irwm.release.unmarked.holders` of each MLP; `places` are all marked matrices."""
        return [holders(view, None, places) for view in self.views]

    @property
    def changes(self) -> list[ChangedRows]:
        """Some of the changed rows of each MLP."""
        some = [np.linspace(0, mlp.count - 1, SEARCHED_ROWS).astype(np.int64) for mlp in self._rows.chosen]
        return [
            ChangedRows(view, ids, self._changed(place, ids), everywhere=True)
            for place, (view, ids) in enumerate(zip(self.views, some, strict=True))
        ]

    def patches(self, names: Sequence[Sequence[str]]) -> Patches:
        """The patches of all MLPs; `names` are their `holders`."""
        return together(self._patches(place, each) for place, each in enumerate(names))

    def verify(self, folder: Path, *, whole: bool) -> None:
        """Reads the fingerprint back from a written copy.

        Args:
            whole: from all rows, instead of from a sample.

        Raises:
            MarginError: it does not identify its recipient.
        """
        with closing(open_checkpoint(folder)) as written:
            neurons = AlignedNeurons(written, self._model, lambda: None)
            if not neurons.readable(ALIGNED, self._part.derivation.sample_key()):
                raise MarginError(
                    "the written neurons are not in their places",
                    file=folder,
                    advice="Check the disk, and write the release to another folder",
                )
            reading = neurons.of(self._part)
            if sampled_log10_p(reading, self._part, whole=whole) > math.log10(RISK):
                raise MarginError(
                    "the written fingerprint in the neurons does not identify its recipient",
                    file=folder,
                    tensor=self._rows.chosen[0].gate.name,
                    advice="Use more noise coordinates, or leave out the neurons (using the setting `places`)",
                )

    def _changed(self, place: int, numbers: NDArray[np.int64]) -> torch.Tensor:
        """(n, width) float32 the copy's rows, as stored, of these neurons (n,) of one of the MLPs."""
        mlps, mlp = self._rows.mlps, self._rows.chosen[place]
        # As for the rows of an embedding (`irwm.release.patches.NoisyRows`).
        precise = torch.float32 if self._model.tensors[mlp.gate.name].dtype != "F32" else torch.float64
        rows = mlps.gate(mlp, numbers).to(precise).numpy()
        added = self._noise.over(rows, self._rows.starts[place] + numbers) - rows
        gain = mlps.gain(mlp).double().numpy()
        least = max(LEAST_GAIN * math.sqrt(np.square(gain).mean()), _SMALLEST)
        divisor = np.where(np.abs(gain) < least, np.copysign(least, gain), gain)
        return (mlps.stored(mlp, mlp.gate, numbers).double() + torch.from_numpy(added / divisor)).float()

    def _patches(self, place: int, names: Sequence[str]) -> Patches:
        patches: Patches = {}
        for name in names:
            (entry,) = self._model.tensors[name].parts
            start, stop = entry.start, entry.stop
            mlp = self._rows.chosen[place]
            if not mlp.gate.transposed and mlp.gate.rows is not None:  # the other rows of a fused tensor stay
                size = (stop - start) // entry.shape[0]
                start, stop = (start + row * size for row in mlp.gate.rows)
            make = partial(self._write, place, entry, start - entry.start)
            patches.setdefault(Path(entry.file), []).append(LazyPatch(start, stop, make))
        return patches

    def _write(self, place: int, entry: TensorEntry, begin: int, low: int, into: memoryview) -> None:
        """Fills a buffer with a tensor's bytes from `begin + low` on."""
        if self._last is None or self._last[0] != entry.name:
            self._last = None  # its memory is needed
            self._last = entry.name, self._written(place, entry)
        part = self._last[1][begin + low : begin + low + len(into)]
        np.frombuffer(into, np.uint8)[:] = part

    def _written(self, place: int, entry: TensorEntry) -> NDArray[np.uint8]:
        """The bytes of a copy's tensor. The other rows of a fused tensor are unchanged."""
        mlp = self._rows.chosen[place]
        height = max(1, BLOCK_NUMBERS // self._rows.hidden_size)
        blocks = [np.arange(mlp.count)[first : first + height] for first in range(0, mlp.count, height)]
        tensor = read_tensor(entry)
        logical, row = tensor.T if mlp.gate.transposed else tensor, mlp.gate.rows[0] if mlp.gate.rows else 0
        for part in in_order(partial(self._changed, place), blocks, "cpu"):
            logical[row : row + len(part)] = part.to(TORCH[entry.dtype])
            row += len(part)
        data: NDArray[np.uint8] = tensor.contiguous().view(torch.uint8).numpy().reshape(-1)
        return data
