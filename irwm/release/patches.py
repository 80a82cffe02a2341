"""Byte ranges of weight files that a release changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from irwm.checkpoint.model import Checkpoint
from irwm.errors import ParameterError


@dataclass(frozen=True, slots=True)
class Patch:
    """Bytes that take the place of as many others, from byte `start` of the file on."""

    start: int
    data: bytes

    @property
    def stop(self) -> int:
        return self.start + len(self.data)

    def read(self, low: int, high: int) -> bytes | memoryview:
        """The new bytes from position `low` to `high` of the file, both within the patch."""
        return memoryview(self.data)[low - self.start : high - self.start]


@dataclass(frozen=True, slots=True)
class LazyPatch:
    """Bytes that are made when they are written: the whole of a large embedding never lies in memory.

    Attributes:
        start, stop: their range in the file.
        make: called with two positions relative to `start`, it returns the bytes between them.
    """

    start: int
    stop: int
    make: Callable[[int, int], bytes]

    def read(self, low: int, high: int) -> bytes:
        """As `Patch.read`."""
        return self.make(low - self.start, high - self.start)


Replacement = Patch | LazyPatch


def checked_patches(
    source: Checkpoint, patches: Mapping[Path, Sequence[Replacement]]
) -> dict[Path, tuple[Replacement, ...]]:
    """The patches of each shard, sorted.

    Raises:
        ParameterError: a file that is no shard of `source`, two patches that overlap, or one that reaches into the
            header or beyond the end; only tensors may change.
    """
    result = {}
    for file, items in patches.items():
        file = Path(file)
        entries = [part for tensor in source.tensors.values() for part in tensor.parts if part.file == file]
        if file not in source.shards or not entries:
            raise ParameterError("A patch is for a file that is no shard of the checkpoint", file=file)
        reached, end = min(entry.start for entry in entries), max(entry.stop for entry in entries)
        ordered = tuple(sorted(items, key=lambda patch: patch.start))
        for patch in ordered:
            if patch.start < reached or patch.stop > end:
                raise ParameterError(
                    "A patch overlaps another one or leaves the tensors' bytes",
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
        first: index of the first patch that ends behind `begin`.

    Returns:
        The same index for the piece that follows this one.
    """
    end = begin + len(piece)
    while first < len(patches) and patches[first].start < end:
        patch = patches[first]
        low, high = max(patch.start, begin), min(patch.stop, end)
        piece[low - begin : high - begin] = patch.read(low, high)
        if patch.stop > end:
            break
        first += 1
    return first
