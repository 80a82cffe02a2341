"""The stored pieces of one quantised weight, checked before anything is computed from them.

Names and shapes in a file are untrusted: every piece's number format and shape is compared with the others' here, so
that the arithmetic gets only input that it supports.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

import torch

from irwm.checkpoint.tensors import PackedTensor, TensorEntry
from irwm.errors import CorruptCheckpointError

FLOATS = ("F32", "F16", "BF16")
WORDS = ("I32", "U32")
# Parts of one weight by the last word of their names: "qweight", "scales".
Parts = Mapping[str, TensorEntry]
# A scheme's result: the weight; the name of a packing that it recognises but does not support; None for other weights.
Answer = PackedTensor | str | None
_ADVICE = "Download or copy the model again, or quantise it again"


def contradiction(entry: TensorEntry, problem: str, expected: str, found: str) -> CorruptCheckpointError:
    """The error for a piece that does not fit the others."""
    return CorruptCheckpointError(
        problem, file=entry.file, tensor=entry.name, expected=expected, found=found, advice=_ADVICE
    )


def require(
    entry: TensorEntry,
    role: str,
    dtypes: Collection[str] | None = None,
    shape: tuple[int, ...] | None = None,
    *,
    matrix: bool = False,
) -> TensorEntry:
    """The piece itself, checked.

    Args:
        role: of the piece, for messages: "scales".
        dtypes: the valid number formats of the role; None for any.
        shape: the only one that fits the weight's other pieces; None for any.
        matrix: it must have two dimensions and numbers.

    Raises:
        CorruptCheckpointError: it is another tensor.
    """
    subject = f"The {role} of a quantised weight"
    if dtypes is not None and entry.dtype not in dtypes:
        raise contradiction(entry, f"{subject} have an invalid number format", ", ".join(dtypes), entry.dtype)
    if matrix and (len(entry.shape) != 2 or min(entry.shape) < 1):
        raise contradiction(entry, f"{subject} do not form a matrix", "two dimensions", str(entry.shape))
    if shape is not None and entry.shape != shape:
        raise contradiction(entry, f"{subject} do not match its other parts", str(shape), str(entry.shape))
    return entry


def require_groups(entry: TensorEntry, numbers: torch.Tensor, groups: int) -> None:
    """CorruptCheckpointError if one of the columns' group numbers is not from 0 to `groups` - 1."""
    low, high = int(numbers.min()), int(numbers.max())
    if low < 0 or high >= groups:
        problem = "A group number in a quantised weight is out of range"
        raise contradiction(entry, problem, f"0 to {groups - 1}", str(low if low < 0 else high))


def words(entry: TensorEntry, role: str) -> TensorEntry:
    """A matrix of 32-bit words with packed codes, viewed as int32, which torch can shift; CorruptCheckpointError if it
    is a different tensor."""
    return replace(require(entry, role, WORDS, matrix=True), dtype="I32")


def unpacked(packed: torch.Tensor, bits: int, count: int) -> torch.Tensor:
    """The codes in rows of words, lowest bits first and without a gap between words.

    Args:
        packed: (n, w) int32.
        bits: of a code, 1 to 8.
        count: codes per row, at most 32 w / bits.

    Returns:
        (n, count) uint8.
    """
    mask = (1 << bits) - 1
    if 32 % bits == 0:
        shifts = torch.arange(0, 32, bits, dtype=torch.int32)
        return ((packed[..., None] >> shifts) & mask).to(torch.uint8).flatten(1)[:, :count]
    # A code may span two words, so each is taken from the 64 bits that begin with its first word.
    low = packed.long() & 0xFFFFFFFF
    both = low | torch.cat([low[:, 1:], low.new_zeros(len(low), 1)], dim=1) << 32
    begins = torch.arange(count) * bits
    return ((both[:, begins // 32] >> begins % 32) & mask).to(torch.uint8)


def scaled(
    codes: torch.Tensor, scales: torch.Tensor, zeros: torch.Tensor | None = None, groups: torch.Tensor | None = None
) -> torch.Tensor:
    """(code − zero) · scale for every number, rounded to the scales' own format, as the tools compute it.

    Args:
        codes: (out, in), of any number format.
        scales, zeros: (out, g), a number for each of a row's groups.
        groups: (in,) int64, the group of each column; None if the groups are g runs of equal length.

    Returns:
        (out, in) float32.
    """
    result = codes.to(torch.float32, copy=True)
    runs = scales.shape[1]
    blocks = result.view(len(result), runs, result.shape[1] // runs) if groups is None else result
    for values, apply in ((zeros, torch.Tensor.sub_), (scales, torch.Tensor.mul_)):
        if values is not None:
            apply(blocks, values.float()[..., None] if groups is None else values.float()[:, groups])
    return result if scales.dtype == torch.float32 else result.to(scales.dtype).float()
