"""llama.cpp's GGUF files: their first bytes are checked here, their header is parsed in a child process and checked
again.

The child's answer is trusted as little as the file: every range must be inside the file, fit its tensor's shape and
type, and not overlap another. The file's author chose the names; they are used only as dictionary keys.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from irwm.checkpoint.dtypes import BLOCK_FORMATS, stored_as
from irwm.checkpoint.files import FileState
from irwm.checkpoint.formats.content import (
    MAX_COUNT,
    MAX_TENSORS,
    Content,
    another_format,
    broken,
    first_bytes,
    is_count,
    require_unicode,
)
from irwm.checkpoint.formats.read_budget import ReadBudget
from irwm.checkpoint.tensors import TensorEntry
from irwm.errors import CorruptCheckpointError, UnsupportedCheckpointError, printable

# Real files have some 40 settings.
MAX_SETTINGS = 20_000
_HEAD = struct.Struct("<4sIQQ")
# Settings of each piece of a split model.
_NUMBER, _COUNT, _TENSORS = "split.no", "split.count", "split.tensors.count"
_ARCHITECTURE = "general.architecture"
OF_A_PIECE = (_NUMBER, _COUNT, _TENSORS, _ARCHITECTURE)


def read_gguf(path: Path, budget: ReadBudget | None = None) -> Content:
    """Locates each tensor in the file, and reads the file's settings by their GGUF names; no tensor is read.

    Raises:
        NotACheckpointError: missing, unreadable, not a regular file, or a different kind of file.
        UnsupportedCheckpointError: a version, byte order or number format that is not supported.
        CorruptCheckpointError: the file breaks the format's rules.
        CheckpointChangedError: it was changed or replaced while it was read.
    """
    budget = budget or ReadBudget()
    start, seen = first_bytes(path, budget.folder)
    _require_plausible(path, start, seen.size)
    answer = budget.parsed("gguf_parser", path, "GGUF file", seen)
    metadata, listed = answer.get("metadata"), answer.get("tensors")
    data, alignment = answer.get("data"), answer.get("alignment")
    if not isinstance(metadata, dict) or not isinstance(listed, list) or not is_count(data) or not is_count(alignment):
        raise CorruptCheckpointError("The reader for the GGUF file returned no usable result", file=path)
    entries = sorted((_entry(path, item, seen) for item in listed), key=lambda entry: (entry.start, entry.stop))
    _require_in_line(path, entries, data, max(alignment, 1))
    tensors = {entry.name: entry for entry in entries}
    if len(tensors) < len(entries):
        names = sorted(entry.name for entry in entries)
        twice = next(name for name, following in pairwise(names) if name == following)
        raise broken(path, twice, "Two tensors have the same name")
    pieces = metadata.get(_COUNT)
    # llama.cpp can split a model so that the first file has the settings and no tensor.
    if not tensors and not (type(pieces) is int and pieces > 1):
        raise CorruptCheckpointError(
            "The file contains no tensors",
            file=path,
            found="perhaps only a vocabulary",
            advice="Choose the file with the model's weights",
        )
    beyond = seen.size - max((entry.stop for entry in entries), default=seen.size)
    if beyond < alignment:  # the last tensor may be padded like the others
        return Content(tensors, metadata)
    note = f"Bytes left unread after the last tensor of {printable(path.name, 80)}: {beyond}."
    return Content(tensors, metadata, (note,))


def _require_plausible(path: Path, start: bytes, size: int) -> None:
    """The checks of the first bytes, before a process is started for the rest."""
    if not start.startswith(b"GGUF"):
        raise another_format(path, start, "GGUF")
    if size < _HEAD.size:
        raise broken(
            path, None, "The file is too short to be a GGUF file", f"at least {_HEAD.size} bytes", f"{size} bytes"
        )
    _, version, tensors, settings = _HEAD.unpack_from(start)
    if version not in (2, 3):
        # A version is a small number. If its low bytes are zero, it was written in the other byte order.
        swapped = version & 0xFFFF == 0 and version != 0
        raise UnsupportedCheckpointError(
            "The file was written for a big-endian machine" if swapped else "This version of GGUF is not supported",
            file=path,
            expected="version 2 or 3, little-endian",
            found=f"version {int.from_bytes(start[4:8], 'big') if swapped else version}",
            advice="Convert the model again with a current version of llama.cpp, without the big-endian option"
            if swapped
            else "Convert the model again with a current version of llama.cpp",
        )
    for what, count, most in (("tensors", tensors, MAX_TENSORS), ("settings", settings, MAX_SETTINGS)):
        if count > most:
            problem = f"The header claims more {what} than any real model has"
            raise broken(path, None, problem, f"at most {most}", f"{count} in a file of {size} bytes")


def _entry(path: Path, item: Any, seen: FileState) -> TensorEntry:
    """One tensor's entry from the child's answer, checked alone; consistency between entries is checked afterwards."""
    name, number, shape, start = item if isinstance(item, list) and len(item) == 4 else (None, None, None, None)
    if not isinstance(name, str) or not is_count(number) or not is_count(start) or not isinstance(shape, list):
        raise CorruptCheckpointError("The reader for the GGUF file returned no usable result for a tensor", file=path)
    corrupt = partial(broken, path, name)
    require_unicode(path, name)
    try:
        dtype, block, block_bytes = stored_as(number)
    except UnsupportedCheckpointError as error:
        raise UnsupportedCheckpointError(
            error.problem, file=path, tensor=name, expected=error.expected, found=error.found, advice=error.advice
        ) from error
    count = 1
    for n in shape:
        if not is_count(n) or n == 0:
            raise corrupt("The shape is not a list of whole numbers from 1 to 2^63 - 1", found=shape)
        count *= n
        if count > MAX_COUNT:
            raise corrupt("The shape is too large for 64-bit sizes", found=shape)
    if block > 1 and (not shape or shape[-1] % block):
        raise corrupt(
            "The length of a row is not a multiple of the block size", f"a multiple of {block} for {dtype}", shape
        )
    if dtype in BLOCK_FORMATS and len(shape) < 2:
        # Its rows would be single numbers, which blocks cannot store; GGML stores norms and biases as plain numbers.
        raise corrupt(f"A vector is stored in blocks of {dtype}", "a matrix or plain numbers", shape)
    nbytes = count // block * block_bytes
    if start + nbytes > seen.size:
        raise corrupt("The tensor extends beyond the end of the file", f"{start + nbytes} bytes", f"{seen.size} bytes")
    return TensorEntry(name, dtype, tuple(shape), path, start, start + nbytes, seen)


def _require_in_line(path: Path, entries: list[TensorEntry], data: int, alignment: int) -> None:
    """Each tensor must begin at the first multiple of the alignment after the one before; GGML requires this.

    `entries` are sorted by range, `data` is the expected position of the first one. Bytes after the last tensor belong
    to no tensor; GGML ignores them.
    """
    reached = data
    for entry in entries:
        expected = data + -(-(reached - data) // alignment) * alignment
        if entry.start != expected:
            problem = (
                "Two tensors overlap" if entry.start < reached else "A tensor does not directly follow the previous one"
            )
            raise broken(path, entry.name, problem, f"the tensor's first byte at {expected}", f"at {entry.start}")
        reached = entry.stop


def require_one_split(files: Sequence[Path], contents: Sequence[Content]) -> None:
    """Rejects files that are not the pieces of one model, split by llama.cpp's gguf-split, in their order.

    The first file has the model's settings. Each states its number, the number of pieces, and the total number of
    tensors. The names in a folder state the same, but prove nothing. A single file always passes.

    Raises:
        CorruptCheckpointError: a piece has other settings, or the total number of tensors differs.
    """
    if len(files) < 2:
        return
    architecture = contents[0].metadata.get(_ARCHITECTURE)
    total = sum(len(content.tensors) for content in contents)
    for number, (file, content) in enumerate(zip(files, contents, strict=True)):
        said = content.metadata
        stated = ((_NUMBER, number), (_COUNT, len(files)), (_TENSORS, total), (_ARCHITECTURE, architecture))
        for key, expected in stated:
            # Later pieces do not have to repeat the architecture.
            if said.get(key) != expected and not (key == _ARCHITECTURE and number and key not in said):
                raise _misfit(file, key, expected, said.get(key))


def _misfit(file: Path, key: str, expected: Any, found: Any) -> CorruptCheckpointError:
    return CorruptCheckpointError(
        "The files are not parts of the same split model",
        file=file,
        expected=f"{key} {expected}",
        found="no such setting" if found is None else str(found)[:80],
        advice="Download all parts again from one source, or use the path of the file that you want to open",
    )
