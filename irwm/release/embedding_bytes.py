"""The bytes of a checkpoint's files that put new rows in the place of the embedding's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from irwm.checkpoint import Checkpoint
from irwm.release.patches import LazyPatch, Patch
from irwm.scheme.noise import Noise

_ROWS_PER_READ = 8192

Patches = dict[Path, list[Patch | LazyPatch]]


def row_patches(model: Checkpoint, row_ids: NDArray[np.int64], rows: torch.Tensor) -> Patches:
    """The byte ranges that put `rows` (l, d), in the embedding's dtype, in the place of some of its rows."""
    raw = rows.contiguous().view(torch.uint8).numpy()
    patches: Patches = {}
    for name in _stored_names(model, row_ids):
        (entry,) = model.tensors[name].parts
        width = raw.shape[1]
        for row, data in sorted(zip(row_ids.tolist(), raw, strict=True), key=lambda pair: pair[0]):
            patches.setdefault(Path(entry.file), []).append(Patch(entry.start + row * width, data.tobytes()))
    return {file: sorted(items, key=lambda patch: patch.start) for file, items in patches.items()}


class NoisyRows:
    """All rows of one recipient's copy, made block by block as they are written (Algorithm 5).

    Args:
        model: the original.
        noise: the recipient's noise.
        marked_rows: (l,) L_W.
        rows: (l, d) what stands there instead of noise, in the embedding's dtype.
    """

    def __init__(self, model: Checkpoint, noise: Noise, marked_rows: NDArray[np.int64], rows: torch.Tensor) -> None:
        self._model, self._noise = model, noise
        order = np.argsort(marked_rows)
        self._marked_rows, self._rows = marked_rows[order], rows[torch.from_numpy(order)]
        self._changed = np.zeros(model.vocab_size, dtype=bool)

    @property
    def changed_rows(self) -> NDArray[np.int64]:
        """Ascending ids of the rows written so far that differ from the original's."""
        return np.flatnonzero(self._changed)

    def patches(self) -> Patches:
        """One patch for each place where the embedding is stored."""
        patches: Patches = {}
        for name in _stored_names(self._model, None):
            (entry,) = self._model.tensors[name].parts
            patches.setdefault(Path(entry.file), []).append(LazyPatch(entry.start, entry.stop, self._bytes))
        return patches

    def values(self, first: int, last: int) -> torch.Tensor:
        """(n, d) the copy's rows from `first` up to `last`, in the embedding's dtype."""
        original = self._model.embedding(slice(first, last))
        tokens = np.arange(first, last)
        noisy = torch.from_numpy(self._noise.over(original.double().numpy(), tokens)).to(self._rows.dtype)
        begin, end = np.searchsorted(self._marked_rows, (first, last))
        noisy[self._marked_rows[begin:end] - first] = self._rows[begin:end]
        self._changed[first:last] = (noisy.float() != original).any(dim=1).numpy()
        return noisy

    def _bytes(self, low: int, high: int) -> bytes:
        width = self._model.hidden_size * self._rows.element_size()
        first, last = low // width, -(-high // width)
        raw = self.values(first, last).contiguous().view(torch.uint8).numpy().tobytes()
        return raw[low - first * width : high - first * width]


def _stored_names(model: Checkpoint, row_ids: NDArray[np.int64] | None) -> list[str]:
    """The tensors that hold the embedding: it, a tied head stored beside it, copies.

    Those that are equal stay equal. Where a head declared as tied differs already, transformers unties it on loading,
    and it is none of the mark's business.

    Args:
        row_ids: the rows that are to change; all of them for None.
    """
    embedding, head = model.tensors[model.layout.embedding.name], model.layout.head if model.tied else None
    ids = np.arange(model.vocab_size) if row_ids is None else row_ids
    blocks = [ids[start : start + _ROWS_PER_READ] for start in range(0, len(ids), _ROWS_PER_READ)]
    names = [model.layout.embedding.name]
    for ref in (head, *model.layout.copies):
        if ref is None:
            continue
        entry = model.tensors[ref.name]
        if (entry.dtype, entry.shape) == (embedding.dtype, embedding.shape) and all(
            torch.equal(model.read(ref, block), model.embedding(block)) for block in blocks
        ):
            names.append(ref.name)
    return names
