"""Reads the header of one safetensors file with our own strict parser.

The format is eight bytes with the header's length N as a little-endian integer, N bytes of JSON that map each tensor's
name to dtype, shape and byte range, and the tensors' bytes back to back. The reader does not trust it: lengths are
capped before anything is allocated, and the ranges must cover the data exactly once.

Why not `safetensors.safe_open(backend="pread")`: it does not give the position of a tensor's bytes, and these are
hashed, cloned and patched here. Version 0.8.0 also accepts a duplicate name, unknown fields, a shape whose strides
overflow, a file without tensors, and a million tensors (in 5 s and 0.4 GB).

The file's author chose the tensors' names. They are used only as dictionary keys.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from irwm.checkpoint.dtypes import BITS
from irwm.checkpoint.files import FileState, open_regular, parse_json, read_into
from irwm.checkpoint.formats.content import (
    MAX_COUNT,
    MAX_DIMENSIONS,
    MAX_TENSORS,
    Content,
    another_format,
    broken,
    is_count,
    require_unicode,
)
from irwm.checkpoint.formats.read_budget import ReadBudget
from irwm.checkpoint.magic import DOWNLOAD_AGAIN, MAGIC_BYTES, recognise_magic
from irwm.checkpoint.tensors import TensorEntry
from irwm.errors import CorruptCheckpointError, NotACheckpointError, UnsupportedCheckpointError, printable

# The largest real headers are a few MB.
MAX_HEADER_BYTES = 32 * 1024 * 1024
_LENGTH_BYTES = 8
_ENTRY_FIELDS = {"dtype", "shape", "data_offsets"}


def read_safetensors(path: Path, budget: ReadBudget | None = None) -> Content:
    """Locates each tensor in the file, in the order of their bytes, and reads the header's metadata. No tensor is read.

    Raises:
        NotACheckpointError: missing, unreadable, not a regular file, or a different kind of file.
        UnsupportedCheckpointError: another model format, or a number format unknown to us.
        CorruptCheckpointError: the file breaks the format's rules.
        CheckpointChangedError: it shrank while it was read.
    """
    fields, seen, data_start = _header(path, budget or ReadBudget())
    metadata = _metadata(path, fields.pop("__metadata__", {}))
    if len(fields) > MAX_TENSORS:
        raise _too_many(path, f"{len(fields)}")
    entries = [_entry(path, name, value, data_start, seen) for name, value in fields.items()]
    entries.sort(key=lambda entry: (entry.start, entry.stop))
    _require_full_cover(path, entries, data_start, seen.size)
    return Content({entry.name: entry for entry in entries}, metadata)


def read_metadata(path: Path) -> dict[str, str]:
    """Only the header's metadata, even if the file's tensors are truncated; raises the errors of `read_safetensors`."""
    fields, _, _ = _header(path, ReadBudget())
    return _metadata(path, fields.get("__metadata__", {}))


def _header(path: Path, budget: ReadBudget) -> tuple[dict[str, object], FileState, int]:
    """The header's JSON object, the file's state, and where the tensors' bytes begin."""
    with open_regular(path, budget.folder) as (descriptor, seen):
        start = bytearray(min(seen.size, MAGIC_BYTES))
        read_into(descriptor, path, 0, memoryview(start))
        length = _header_length(path, seen.size, bytes(start))
        budget.take_header(path, length)
        raw = bytearray(length)
        read_into(descriptor, path, _LENGTH_BYTES, memoryview(raw))
    return _parse(path, bytes(raw)), seen, _LENGTH_BYTES + length


def _header_length(path: Path, size: int, start: bytes) -> int:
    """The header's length after all checks that must precede its allocation; `start` is the file's beginning."""
    length = int.from_bytes(start[:_LENGTH_BYTES], "little")
    fits = size > _LENGTH_BYTES and length <= min(MAX_HEADER_BYTES, size - _LENGTH_BYTES)
    # A valid header is never mistaken for another format, although its length may happen to match a magic number.
    if fits and start[_LENGTH_BYTES : _LENGTH_BYTES + 1] == b"{":
        return length
    if size == 0 or recognise_magic(start) is not None:
        raise another_format(path, start, "safetensors")
    if size <= _LENGTH_BYTES:
        raise NotACheckpointError(
            "The file is too short to be a safetensors file",
            file=path,
            expected=f"at least {_LENGTH_BYTES + 2} bytes",
            found=f"{size} bytes",
            advice=DOWNLOAD_AGAIN,
        )
    if length > MAX_HEADER_BYTES:
        problem = "The header states an implausibly large size for itself"
        raise broken(
            path, None, problem, f"at most {MAX_HEADER_BYTES} bytes", f"{length} bytes in a file of {size} bytes"
        )
    if length > size - _LENGTH_BYTES:
        problem = "The header extends beyond the end of the file"
        raise broken(path, None, problem, f"a header of at most {size - _LENGTH_BYTES} bytes", f"{length} bytes")
    problem = "The header does not begin with a JSON object"
    raise broken(path, None, problem, "{", f"bytes {start[_LENGTH_BYTES : _LENGTH_BYTES + 4].hex(' ') or 'none'}")


def _too_many(path: Path, found: str) -> CorruptCheckpointError:
    return CorruptCheckpointError(
        "The header lists more tensors than any real model has",
        file=path,
        expected=f"at most {MAX_TENSORS}",
        found=found,
    )


def _parse(path: Path, raw: bytes) -> dict[str, object]:
    """The header's JSON object, with its size limited before Python objects are created.

    32 MB of empty lists would become a gigabyte of objects. An entry has one brace and two brackets, the header and
    its metadata one brace each. Names may contain some as well, but no real model comes near the limit.
    """
    if raw.count(b"{") > MAX_TENSORS + 2 or raw.count(b"[") > 2 * MAX_TENSORS:
        raise _too_many(path, f"{raw.count(b'{')} opening braces, {raw.count(b'[')} opening brackets")
    value = parse_json(raw, path, "safetensors header", strict=True)
    if not isinstance(value, dict):
        raise CorruptCheckpointError("The safetensors header is not a JSON object", file=path, expected="an object")
    return value


def _metadata(path: Path, value: Any) -> dict[str, str]:
    if value is None:  # some writers use null for none, and safetensors 0.8 opens it
        return {}
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        wrong = next((k for k, v in value.items() if not isinstance(v, str)), "") if isinstance(value, dict) else ""
        raise CorruptCheckpointError(
            "The header's __metadata__ does not map strings to strings",
            file=path,
            expected="only strings",
            found=f"{wrong}: {type(value[wrong]).__name__}" if isinstance(value, dict) else type(value).__name__,
        )
    return value


def _entry(path: Path, name: str, value: Any, data_start: int, seen: FileState) -> TensorEntry:
    """One tensor's entry, checked alone; consistency between entries is checked afterwards."""
    corrupt = partial(broken, path, name)
    require_unicode(path, name)
    if not isinstance(value, dict) or set(value) != _ENTRY_FIELDS:
        found = sorted(value) if isinstance(value, dict) else type(value).__name__
        raise corrupt("The tensor's header entry has the wrong fields", "dtype, shape, data_offsets", found)
    dtype, shape, offsets = value["dtype"], value["shape"], value["data_offsets"]
    if not isinstance(dtype, str) or dtype not in BITS:
        raise UnsupportedCheckpointError(
            f"The number format {printable(str(dtype), 40)} is unknown",
            file=path,
            tensor=name,
            expected=", ".join(BITS),
            found=printable(str(dtype), 80),
            advice="Save the model as float32, float16 or bfloat16, or update IRWM Studio",
        )
    if not isinstance(shape, list) or not all(map(is_count, shape)) or len(shape) > MAX_DIMENSIONS:
        raise corrupt("The shape is not a list of whole numbers from 0 to 2^63 - 1", found=shape)
    bits, magnitude = BITS[dtype], BITS[dtype]
    for n in shape:
        bits *= n
        # Zeros are left out: [0, 2^62, 2^62] has no elements, yet its strides overflow.
        magnitude *= max(n, 1)
        if magnitude > 8 * MAX_COUNT:
            raise corrupt("The shape is too large for 64-bit sizes", found=shape)
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(map(is_count, offsets)):
        raise corrupt("data_offsets is not a pair of whole numbers", found=offsets)
    begin, end = offsets
    if begin > end or bits != 8 * (end - begin):
        raise corrupt(
            "The byte range does not match the shape and the dtype",
            f"{bits / 8:.0f} bytes for {dtype} {shape}"
            if bits % 8 == 0
            else f"a whole number of bytes, not {bits} bits",
            f"{end - begin} bytes",
        )
    return TensorEntry(name, dtype, tuple(shape), path, data_start + begin, data_start + end, seen)


def _require_full_cover(path: Path, entries: list[TensorEntry], data_start: int, size: int) -> None:
    """Every byte of the data must belong to exactly one tensor; `entries` are sorted by range."""
    if not entries:
        raise broken(path, None, "The file contains no tensors")
    reached = data_start
    for entry in entries:
        if entry.start != reached:
            problem = "Two tensors overlap" if entry.start < reached else "There is a gap between two tensors"
            raise broken(path, entry.name, problem, f"the tensor's first byte at {reached}", f"at {entry.start}")
        reached = entry.stop
    if reached > size:
        raise broken(path, None, "The file is truncated", f"{reached} bytes", f"{size} bytes")
    if reached < size:
        problem = (
            "The bytes after the last tensor do not belong to any tensor; an archive or other data may be hidden there"
        )
        raise broken(path, None, problem, f"{reached} bytes", f"{size} bytes")
