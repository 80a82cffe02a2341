"""The result of a format's reader, and the checks that all readers make."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

from irwm.checkpoint.files import FileState, open_regular, read_into
from irwm.checkpoint.magic import DOWNLOAD_AGAIN, MAGIC_BYTES, recognise_magic
from irwm.checkpoint.tensors import Tensor
from irwm.errors import (
    CheckpointError,
    CorruptCheckpointError,
    NotACheckpointError,
    UnsupportedCheckpointError,
    printable,
)

# Other data in the header of a weight file; in GGUF, the model's settings and vocabulary.
Metadata = Mapping[str, Any]

# The largest real models have some 100 000 tensors (a mixture of experts of a trillion parameters).
MAX_TENSORS = 200_000
# torch counts elements and strides in signed 64-bit integers, and allows at most 64 dimensions.
MAX_COUNT = 2**63 - 1
MAX_DIMENSIONS = 64


@dataclass(frozen=True, slots=True)
class Content:
    """The content of one weight file.

    Attributes:
        tensors: its tensors by name.
        metadata: other data in its header; for GGUF, the model's settings and vocabulary.
        notes: sentences for the user.
    """

    tensors: Mapping[str, Tensor]
    metadata: Metadata
    notes: tuple[str, ...] = ()


def first_bytes(path: Path, folder: Path | None = None, most: int = MAGIC_BYTES) -> tuple[bytes, FileState]:
    """The beginning of a file, by default enough to identify its format, and its state; see `open_regular`.

    Raises:
        NotACheckpointError: missing, unreadable, or not a regular file.
        CheckpointChangedError: it shrank while it was read.
    """
    with open_regular(path, folder) as (descriptor, seen):
        start = bytearray(min(seen.size, most))
        read_into(descriptor, path, 0, memoryview(start))
    return bytes(start), seen


def another_format(path: Path, start: bytes, wanted: str) -> CheckpointError:
    """The error for a file that is not in the `wanted` format, by its first bytes."""
    if not start:
        return NotACheckpointError("The file is empty", file=path, found="0 bytes", advice=DOWNLOAD_AGAIN)
    foreign = recognise_magic(start)
    kind = UnsupportedCheckpointError if foreign is not None and foreign.is_model else NotACheckpointError
    return kind(
        f"The file is not a {wanted} file but {foreign.name}"
        if foreign is not None
        else f"The file is not a {wanted} file",
        file=path,
        expected=f"a {wanted} file",
        found=f"first bytes {start[:8].hex(' ')}",
        advice=foreign.advice if foreign is not None else DOWNLOAD_AGAIN,
    )


def broken(
    path: Path, tensor: str | None, problem: str, expected: str | None = None, found: Any = None
) -> CorruptCheckpointError:
    """The error for a file, or one tensor's entry in it, that breaks the format's rules."""
    shown = None if found is None else printable(str(found), 120)
    return CorruptCheckpointError(
        problem, file=path, tensor=tensor, expected=expected, found=shown, advice=DOWNLOAD_AGAIN
    )


def require_unicode(path: Path, name: str) -> None:
    """Rejects a tensor's name with a lone surrogate, written as an escape, which cannot be shown, hashed or saved.

    Raises:
        CorruptCheckpointError: the name has one.
    """
    try:
        name.encode("utf-8")
    except UnicodeEncodeError as error:
        raise broken(path, name, "The tensor's name is not valid Unicode text") from error


def is_count(value: Any) -> TypeGuard[int]:
    """Whether a value from JSON is a whole number from 0 to 2^63 - 1."""
    # type() and not isinstance(): JSON's true is an int to Python.
    return type(value) is int and 0 <= value <= MAX_COUNT
