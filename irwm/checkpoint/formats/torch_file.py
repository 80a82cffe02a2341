"""PyTorch's .bin, .pt and .pth files: locates each tensor in the archive.

No object is unpickled here and no file is mapped into memory: `torch_parser` unpickles in a child process, and bytes
are read by position as in every other format. The child's answer is checked like untrusted input.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch

from irwm.checkpoint.dtypes import BITS, VIEW
from irwm.checkpoint.files import FileState
from irwm.checkpoint.formats.content import (
    MAX_COUNT,
    MAX_DIMENSIONS,
    MAX_TENSORS,
    Content,
    another_format,
    broken,
    first_bytes,
    is_count,
    require_unicode,
)
from irwm.checkpoint.formats.read_budget import ReadBudget
from irwm.checkpoint.formats.safetensors_file import MAX_HEADER_BYTES
from irwm.checkpoint.magic import DOWNLOAD_AGAIN, recognise_magic
from irwm.checkpoint.tensors import PackedTensor, Tensor, TensorEntry, parameters_of
from irwm.errors import (
    CheckpointError,
    CorruptCheckpointError,
    NotACheckpointError,
    UnsupportedCheckpointError,
    printable,
)

_ARCHIVE = b"PK\x03\x04"


def read_torch(path: Path, budget: ReadBudget | None = None) -> Content:
    """Locates each tensor in a file from torch.save; reads no weight and runs no code.

    A tensor saved as a view, such as a transposed one, is a `PackedTensor` of the part of the file that contains it.

    Raises:
        NotACheckpointError: missing, unreadable, not a regular file, or a different kind of file.
        UnsupportedCheckpointError: written before torch 1.6, TorchScript, or objects other than tensors.
        CorruptCheckpointError: the file breaks the format's rules.
        CheckpointChangedError: it changed while it was read.
    """
    budget = budget or ReadBudget()
    start, seen = first_bytes(path, budget.folder)
    if not start.startswith(_ARCHIVE):
        raise _no_archive(path, start)
    answer = budget.parsed("torch_parser", path, "PyTorch file", seen)
    found, under, ignored = answer.get("tensors"), answer.get("under"), answer.get("ignored")
    if not isinstance(found, list) or not isinstance(under, str | None) or not isinstance(ignored, int):
        raise CorruptCheckpointError("The reader for the PyTorch file returned no usable result", file=path)
    if len(found) > MAX_TENSORS:
        raise CorruptCheckpointError(
            "The file contains more tensors than any real model has",
            file=path,
            expected=f"at most {MAX_TENSORS}",
            found=str(len(found)),
        )
    tensors = {tensor.name: tensor for tensor in (_tensor(path, item, seen) for item in found)}
    if not tensors or len(tensors) < len(found):
        raise broken(path, None, "The file contains no tensors, or it contains a duplicate name")
    return Content(tensors, {}, tuple(_notes(under, ignored)))


def _notes(under: str | None, ignored: int) -> Iterator[str]:
    if under is not None:
        yield f'The weights are stored under "{printable(under, 40)}" in the PyTorch file.'
    if ignored:
        yield "The PyTorch file also contains other data, such as a trainer's state. This data was not read."


def _no_archive(path: Path, start: bytes) -> CheckpointError:
    """The error for a file that is not an archive of torch.save, by its first bytes."""
    if not start:
        return another_format(path, start, "PyTorch")
    foreign = recognise_magic(start)
    is_model, name, advice = False, "an unknown format", DOWNLOAD_AGAIN
    if start[8:9] == b"{" and int.from_bytes(start[:8], "little") <= MAX_HEADER_BYTES:
        is_model, name = True, "a safetensors file with the wrong extension"
        advice = "Rename the file so that its name ends in .safetensors"
    elif foreign is not None:
        is_model, name, advice = foreign.is_model, foreign.name, foreign.advice
    return (UnsupportedCheckpointError if is_model else NotACheckpointError)(
        f"The file was not written by torch.save; it is {name}",
        file=path,
        expected="a ZIP archive written by torch.save in PyTorch 1.6 or later",
        found=f"first bytes {start[:8].hex(' ')}",
        advice=advice,
    )


def _tensor(path: Path, item: Any, seen: FileState) -> Tensor:
    """One tensor from the child's answer, checked against the file and for consistency."""
    name = item[0] if isinstance(item, list) and len(item) == 7 and isinstance(item[0], str) else None
    if name is None:
        raise CorruptCheckpointError("The reader for the PyTorch file returned no usable result", file=path)
    _, dtype, shape, strides, first, start, stop = item
    corrupt = partial(broken, path, name)
    require_unicode(path, name)
    if not isinstance(dtype, str) or dtype not in BITS or BITS[dtype] % 8:
        raise corrupt("The tensor's number format is unknown", ", ".join(BITS), dtype)
    sizes = (shape, strides, [first, start, stop])
    if not all(isinstance(numbers, list) and all(map(is_count, numbers)) for numbers in sizes):
        problem = "The tensor's shape or position contains values other than whole numbers from 0 to 2^63 - 1"
        raise corrupt(problem, found=item[2:])
    if len(shape) != len(strides) or len(shape) > MAX_DIMENSIONS:
        raise corrupt("The tensor's dimensions and strides do not match", found=item[2:4])
    width = BITS[dtype] // 8
    if math.prod(max(n, 1) for n in shape) * width > MAX_COUNT:
        raise corrupt("The shape is too large for 64-bit sizes", found=shape)
    count = math.prod(shape)
    # Elements from the tensor's first to its last in the file, inclusive.
    span = 1 + sum((n - 1) * stride for n, stride in zip(shape, strides, strict=True)) if count else 0
    begin = start + first * width
    if not start <= stop <= seen.size or begin + span * width > stop:
        raise corrupt(
            "The tensor extends beyond its storage or beyond the file",
            f"{span * width} bytes, starting at byte {begin}",
            f"the storage ends at byte {stop}, and the file ends at byte {seen.size}",
        )
    if span < count:
        raise UnsupportedCheckpointError(
            "Elements of the tensor share storage in the file, as after a call to expand()",
            file=path,
            tensor=name,
            expected=f"{count} numbers",
            found=f"{span} numbers",
            advice="Call contiguous() on the tensor before saving it",
        )
    if _is_contiguous(shape, strides):
        return TensorEntry(name, dtype, tuple(shape), path, begin, begin + count * width, seen)
    elements = TensorEntry(name, dtype, (span,), path, begin, begin + span * width, seen)
    return _strided(elements, tuple(shape), tuple(strides))


def _is_contiguous(shape: list[int], strides: list[int]) -> bool:
    """Whether the elements are in the order of the indices, without gaps."""
    expected = 1
    for n, stride in zip(reversed(shape), reversed(strides), strict=True):
        if n != 1 and stride != expected:
            return not all(shape)  # without elements any order is correct
        expected *= n
    return True


def _strided(elements: TensorEntry, shape: tuple[int, ...], strides: tuple[int, ...]) -> PackedTensor:
    """A tensor saved as a view, such as a transposed one: its elements are selected from the part of the file that
    contains them."""

    def decode(values: Mapping[str, torch.Tensor]) -> torch.Tensor:
        return values["elements"].as_strided(shape, strides).to(torch.float32).contiguous()

    kind = elements.dtype + VIEW
    parameters = parameters_of(strides=strides)
    return PackedTensor(elements.name, kind, shape, {"elements": elements}, frozenset(), decode, parameters)
