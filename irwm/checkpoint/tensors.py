"""A tensor of a checkpoint: a piece of a file, or a weight that is made up of several pieces.

Every format's reader (safetensors, PyTorch, GGUF) returns these: it locates each tensor's bytes in the files. After
that, bytes are read by position, only the requested ones, and checked against the file's state.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch

from irwm.checkpoint.files import CHUNK, FileState, announce, open_seen, read_into

# The key under which `PackedTensor.decode` finds the row numbers that are read; no stored tensor has this role.
ROWS = "rows"


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """The location of one tensor.

    Attributes:
        name: the tensor's name; any text, never used as a path.
        dtype: the format's name for its number format, such as "BF16", or GGML's for blocks, such as "Q4_K".
        shape: the dimensions.
        file: the file it is in.
        start, stop: its half-open byte range, counted from the beginning of the file.
        seen: the state of the file when its header was read, which every later read must find unchanged.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    file: Path
    start: int
    stop: int
    seen: FileState = field(repr=False, compare=False)

    @property
    def nbytes(self) -> int:
        return self.stop - self.start

    @property
    def parts(self) -> tuple[TensorEntry, ...]:
        """The stored tensors behind it: itself."""
        return (self,)


@dataclass(frozen=True, slots=True, eq=False)
class PackedTensor:
    """A weight whose numbers are computed from several stored tensors, such as a quantised matrix and its scales.

    Attributes:
        name: the name the weight would have if it were stored plainly.
        dtype: the name of its format: "GPTQ, 4 bits".
        shape: the weight's own dimensions, (out, in) as its role requires.
        stored: the stored tensors by their roles in `decode`.
        by_rows: the roles whose tensors are ordered by the weight's rows along their first dimension, so that some rows
            can be read without the others.
        decode: computes float32 of `shape` from the stored tensors' values. If all of `by_rows` contain only some rows,
            it returns these rows, and `ROWS` holds their numbers, (n,) int64.
        parameters: every number that `decode` uses in addition to the stored tensors, as `parameters_of` writes them:
            two weights with the same bytes and different parameters are different weights.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    stored: Mapping[str, TensorEntry]
    by_rows: frozenset[str]
    decode: Callable[[Mapping[str, torch.Tensor]], torch.Tensor] = field(repr=False)
    parameters: bytes = field(repr=False)

    @property
    def recipe(self) -> bytes:
        """The rules that turn the stored bytes into a weight, as canonical text: roles, formats, shapes and
        `parameters`."""
        stored = [[role, entry.dtype, list(entry.shape)] for role, entry in sorted(self.stored.items())]
        return parameters_of(shape=self.shape, stored=stored) + self.parameters

    @property
    def file(self) -> Path:
        return self.parts[0].file

    @property
    def seen(self) -> FileState:
        return self.parts[0].seen

    @property
    def nbytes(self) -> int:
        return sum(part.nbytes for part in self.parts)

    @property
    def parts(self) -> tuple[TensorEntry, ...]:
        """The stored tensors behind it, in the order of their roles' names."""
        return tuple(self.stored[role] for role in sorted(self.stored))


Tensor = TensorEntry | PackedTensor


def parameters_of(**values: object) -> bytes:
    """Numbers, texts and lists of them as canonical bytes: JSON with sorted names, in ASCII."""
    return json.dumps(values, sort_keys=True, separators=(",", ":")).encode("ascii")


def same_bytes(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors have the same numbers, compared as bytes; stops reading at the first difference.

    Raises:
        CheckpointChangedError: a file changed after its header was read.
    """
    if (one.dtype, one.shape, one.nbytes) != (other.dtype, other.shape, other.nbytes):
        return False
    if isinstance(one, PackedTensor) != isinstance(other, PackedTensor):
        return False
    if isinstance(one, PackedTensor) and isinstance(other, PackedTensor) and one.recipe != other.recipe:
        return False
    places = [[(part.file, part.start, part.stop) for part in tensor.parts] for tensor in (one, other)]
    if places[0] == places[1]:
        return True
    # As bytes, since comparing memoryviews goes number by number.
    pairs = zip(stream_tensor(one), stream_tensor(other), strict=True)
    return all(bytes(first) == bytes(second) for first, second in pairs)


def stream_tensor(tensor: Tensor) -> Iterator[memoryview]:
    """The tensor's bytes as the files hold them, in pieces of at most 8 MiB that are valid until the next one.

    Raises:
        CheckpointChangedError: a file changed after its header was read.
    """
    for entry in tensor.parts:
        buffer = memoryview(bytearray(min(CHUNK, entry.nbytes)))
        with open_seen(entry.file, entry.seen) as descriptor:
            announce(entry.file, [(entry.start, entry.stop)])
            for begin in range(entry.start, entry.stop, CHUNK):
                piece = buffer[: min(CHUNK, entry.stop - begin)]
                read_into(descriptor, entry.file, begin, piece)
                yield piece
