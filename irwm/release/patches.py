"""The byte ranges of weight files that a release changes: new rows instead of the embedding's (Algorithm 5)."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from irwm.checkpoint.dtypes import TORCH
from irwm.checkpoint.model import Checkpoint
from irwm.errors import ParameterError
from irwm.evidence.parallel import in_order
from irwm.scheme.noise import Noise, adds

# Numbers of a block of rows, 4 MB as float32. With smaller blocks, the cores wait for Python's lock; with larger ones,
# they wait for the memory.
BLOCK_NUMBERS = 1 << 20
SEEN_FIRST = 64


@dataclass(frozen=True, slots=True)
class Patch:
    """Bytes that replace the same number of bytes, from byte `start` of the file on."""

    start: int
    data: bytes

    @property
    def stop(self) -> int:
        return self.start + len(self.data)

    def write(self, low: int, into: memoryview) -> None:
        """Fills a buffer with the new bytes at position `low` of the file; the buffer must end within the patch."""
        into[:] = memoryview(self.data)[low - self.start : low - self.start + len(into)]


@dataclass(frozen=True, slots=True)
class LazyPatch:
    """Bytes that are computed when they are written, so that a large embedding is never completely in memory.

    Attributes:
        start, stop: their range in the file.
        make: called with a position relative to `start` and a buffer, it fills the buffer with the bytes at that
            position.
    """

    start: int
    stop: int
    make: Callable[[int, memoryview], None]

    def write(self, low: int, into: memoryview) -> None:
        """As `Patch.write`."""
        self.make(low - self.start, into)


Replacement = Patch | LazyPatch
Patches = dict[Path, list[Replacement]]


def checked_patches(
    source: Checkpoint, patches: Mapping[Path, Sequence[Replacement]]
) -> dict[Path, tuple[Replacement, ...]]:
    """The patches of each shard, sorted.

    Raises:
        ParameterError: a file that is not a shard of `source`, two patches that overlap, or one that reaches into the
            header or beyond the end; only tensors may change.
    """
    result = {}
    for file, items in patches.items():
        file = Path(file)
        entries = [part for tensor in source.tensors.values() for part in tensor.parts if part.file == file]
        if file not in source.shards or not entries:
            raise ParameterError("A patch targets a file that is not a shard of the checkpoint", file=file)
        reached, end = min(entry.start for entry in entries), max(entry.stop for entry in entries)
        ordered = tuple(sorted(items, key=lambda patch: patch.start))
        for patch in ordered:
            if patch.start < reached or patch.stop > end:
                raise ParameterError(
                    "A patch overlaps another patch, or extends beyond the tensors' bytes",
                    file=file,
                    expected=f"within bytes {reached} to {end}",
                    found=f"bytes {patch.start} to {patch.stop}",
                )
            reached = patch.stop
        result[file] = ordered
    return result


def overlay(piece: memoryview, begin: int, patches: Sequence[Replacement], first: int) -> int:
    """Writes the patches that touch `piece`, the file's bytes from `begin` on, into it.

    Args:
        patches: sorted and disjoint.
        first: index of the first patch that ends after `begin`.

    Returns:
        The same index for the piece that follows this one.
    """
    end = begin + len(piece)
    while first < len(patches) and patches[first].start < end:
        patch = patches[first]
        low, high = max(patch.start, begin), min(patch.stop, end)
        patch.write(low, piece[low - begin : high - begin])
        if patch.stop > end:
            break
        first += 1
    return first


def replaced(size: int, begin: int, patches: Sequence[Replacement], first: int) -> bool:
    """Whether one patch replaces all of a piece, `size` bytes of the file from `begin` on; `first` as for `overlay`."""
    return first < len(patches) and patches[first].start <= begin and begin + size <= patches[first].stop


def row_patches(model: Checkpoint, row_ids: NDArray[np.int64], rows: torch.Tensor, names: Sequence[str]) -> Patches:
    """The patches that replace the rows `row_ids` (l,) of a matrix by `rows` (l, d).

    Args:
        names: the tensors that hold the matrix (`irwm.release.unmarked.holders`); each gets the rows in its own dtype.
    """
    patches: Patches = {}
    for name in names:
        (entry,) = model.tensors[name].parts
        raw = rows.to(TORCH[entry.dtype]).contiguous().view(torch.uint8).numpy()
        width = raw.shape[1]
        for row, data in sorted(zip(row_ids.tolist(), raw, strict=True), key=lambda pair: pair[0]):
            patches.setdefault(Path(entry.file), []).append(Patch(entry.start + row * width, data.tobytes()))
    return {file: sorted(items, key=lambda patch: patch.start) for file, items in patches.items()}


class NoisyRows:
    """All rows of one recipient's copy, made block by block when they are written (Algorithm 5).

    Args:
        model: the original.
        noise: the recipient's noise.
        marked_rows: (l,) L_W.
        rows: (l, d) the marked rows, in the embedding's dtype.
    """

    def __init__(self, model: Checkpoint, noise: Noise, marked_rows: NDArray[np.int64], rows: torch.Tensor) -> None:
        self._model, self._noise = model, noise
        order = np.argsort(marked_rows)
        self._marked_rows, self._rows = marked_rows[order], rows[torch.from_numpy(order)]
        self._changed = np.zeros(model.vocab_size, dtype=bool)
        self._height = max(1, BLOCK_NUMBERS // model.hidden_size)
        # Added noise takes half as long in float32, and few numbers of 16 bits differ (docs/key-format.md, *Rounding*).
        self._precise = torch.float32 if adds(noise.size) and rows.dtype.itemsize == 2 else torch.float64
        self._last, self._block_of_last = -1, torch.empty(0)
        self._ahead = self._from(0)

    @property
    def changed_rows(self) -> NDArray[np.int64]:
        """Ascending ids of the rows written so far that differ from the original's."""
        return np.flatnonzero(self._changed)

    def patches(self, names: Sequence[str]) -> Patches:
        """One patch for each of the tensors that hold the matrix (`irwm.release.unmarked.holders`)."""
        patches: Patches = {}
        for name in names:
            (entry,) = self._model.tensors[name].parts
            make = partial(self.write, TORCH[entry.dtype])
            patches.setdefault(Path(entry.file), []).append(LazyPatch(entry.start, entry.stop, make))
        return patches

    def close(self) -> None:
        """Ends the threads that compute blocks ahead."""
        self._ahead.close()

    def _from(self, number: int) -> Generator[torch.Tensor, None, None]:
        return in_order(self._made, range(number, -(-self._model.vocab_size // self._height)), "cpu")

    def write(self, dtype: torch.dtype, low: int, into: memoryview) -> None:
        """Fills a buffer with the copy's rows in a number format, beginning at byte `low` of the matrix."""
        size = self._height * self._model.hidden_size * dtype.itemsize
        target, high = np.frombuffer(into, np.uint8), low + len(into)
        for number in range(low // size, -(-high // size)):
            made = self._block(number).to(dtype).view(torch.uint8).numpy().reshape(-1)
            begin = number * size
            part = slice(max(low, begin), min(high, begin + len(made)))
            target[part.start - low : part.stop - low] = made[part.start - begin : part.stop - begin]

    def _block(self, number: int) -> torch.Tensor:
        """(n, d) a block of the copy's rows, in the embedding's dtype.

        Each core computes a block, and a few blocks ahead, because a file is written from its start to its end. The
        last block is kept: the next piece of the file begins in it.
        """
        if number != self._last:
            if number != self._last + 1:
                self.close()
                self._ahead = self._from(number)
            self._last, self._block_of_last = number, next(self._ahead)
        return self._block_of_last

    def _made(self, number: int) -> torch.Tensor:
        first, last = number * self._height, min((number + 1) * self._height, self._model.vocab_size)
        original = self._model.embedding(slice(first, last))
        noisy = self._noise.over(original.to(self._precise).numpy(), np.arange(first, last))
        written = torch.from_numpy(noisy).to(self._rows.dtype)
        begin, end = np.searchsorted(self._marked_rows, (first, last))
        written[self._marked_rows[begin:end] - first] = self._rows[begin:end]
        self._changed[first:last] = _differ(written, original)
        return written


def _differ(rows: torch.Tensor, others: torch.Tensor) -> NDArray[np.bool_]:
    """(n,) which rows differ in any number. Nearly all that do differ in one of the first `SEEN_FIRST`."""
    differ: NDArray[np.bool_] = (rows[:, :SEEN_FIRST].float() != others[:, :SEEN_FIRST]).any(dim=1).numpy()
    equal = np.flatnonzero(~differ)
    differ[equal] = (rows[equal].float() != others[equal]).any(dim=1).numpy()
    return differ


def together(parts: Iterable[Patches]) -> Patches:
    """Patches of several tensors, which may share a file."""
    patches: Patches = {}
    for part in parts:
        for file, items in part.items():
            patches.setdefault(file, []).extend(items)
    return patches
