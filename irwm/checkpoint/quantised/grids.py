"""Codes of 8 bits with a scale for the whole weight, for each row, for each group of a row, or for each block.

    weight  (out, in), F8 or I8     weight_scale or weight_scale_inv     weight_zero_point, if the scheme has one

transformers' FP8 and FBGEMM, DeepSeek (blocks of 128 by 128, called "scale_inv" although they are multiplied),
compressed-tensors ("float-quantized", "int-quantized", "naive-quantized", "mxfp8-quantized"), Quark and ModelOpt write
this. All are one case: a grid of scales, where each scale covers a block of numbers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import torch

from irwm.checkpoint.quantised.parts import (
    FLOATS,
    Answer,
    Parts,
    contradiction,
    require,
)
from irwm.checkpoint.quantised.settings import Settings
from irwm.checkpoint.tensors import PackedTensor, TensorEntry, parameters_of

_CODES = {"F8_E4M3": "FP8", "F8_E5M2": "FP8", "I8": "INT8"}
_SCALES = ("weight_scale", "weight_scale_inv")
# Powers of two as a byte of exponent: the format that OCP's microscaling calls E8M0.
EXPONENTS = ("U8", "F8_E8M0")
EXPONENT_BIAS = 127
# The block size of every published model with blocks; the last block may be shorter.
_USUAL_BLOCK = 128


def weight(name: str, parts: Parts, settings: Settings) -> Answer:
    """The weight behind `weight` and its scale. A lone F8 tensor is read as plain numbers.

    None if the codes are of another kind, or the scale's name is unknown.
    """
    codes = parts.get("weight")
    if codes is None or codes.dtype not in _CODES:
        return None
    kind = _CODES[codes.dtype]
    entry = next((parts[part] for part in _SCALES if part in parts), None)
    if entry is None:
        lone = kind == "FP8" and codes.shape and not any("scale" in part for part in parts)
        if not lone:
            return None
        return PackedTensor(name, "FP8", codes.shape, {"codes": codes}, frozenset({"codes"}), _plain, parameters_of())
    if len(codes.shape) != 2:
        return f"{kind} with scales and several matrices in one tensor"
    require(codes, "codes", matrix=True)
    scales = grid(entry, codes.shape)
    require(scales, "scales", (*FLOATS, "U8"))
    rows, columns = settings.block() or (0, 0)
    block = (
        _block(entry, codes.shape[0], scales.shape[0], rows),
        _block(entry, codes.shape[1], scales.shape[1], columns),
    )
    stored = {"codes": codes, "scales": scales}
    if "weight_zero_point" in parts:
        zeros = grid(require(parts["weight_zero_point"], "zeros", ("I8", *FLOATS)), codes.shape)
        stored["zeros"] = require(zeros, "zeros", shape=scales.shape)
    # A row can be read alone if it has its own scales, or all rows have the same; not if a block spans several rows.
    by_rows = {1: {"codes"}, codes.shape[0]: set(stored)}.get(scales.shape[0], set())
    decode = partial(_decoded, block)
    parameters = parameters_of(block=block)
    return PackedTensor(name, f"{kind} with scales", codes.shape, stored, frozenset(by_rows), decode, parameters)


def grid(entry: TensorEntry, shape: tuple[int, ...]) -> TensorEntry:
    """Scales of a weight of `shape` (out, in), viewed as rows and columns of a grid; exponents as bytes.

    Raises:
        CorruptCheckpointError: more scales than the weight has rows or columns.
    """
    if entry.dtype in EXPONENTS:
        entry = replace(entry, dtype="U8")
    if math.prod(entry.shape) == 1:
        return replace(entry, shape=(1, 1))
    if entry.shape == shape[:1]:
        return replace(entry, shape=(shape[0], 1))
    if len(entry.shape) == 2 and all(1 <= cells <= size for cells, size in zip(entry.shape, shape, strict=True)):
        return entry
    problem = "The scales of a quantised weight do not match its codes"
    raise contradiction(entry, problem, f"one scale for all of {shape}, one per row or one per block", str(entry.shape))


def exponentiated(exponents: torch.Tensor) -> torch.Tensor:
    """Powers of two from bytes of exponents, float32."""
    return torch.exp2(exponents.float() - EXPONENT_BIAS)


def _block(entry: TensorEntry, size: int, cells: int, stated: int) -> int:
    """How many of `size` rows or columns each of `cells` scales covers; the config's value if it fits."""
    for block in (stated, size if cells == 1 else 0, _USUAL_BLOCK):
        if block and math.ceil(size / block) == cells:
            return block
    if size % cells == 0:
        return size // cells
    problem = "The scales of a quantised weight do not match its codes"
    raise contradiction(entry, problem, f"a number of blocks that evenly divides {size} rows or columns", str(cells))


def _plain(values: Mapping[str, torch.Tensor]) -> torch.Tensor:
    return values["codes"].float()


def _decoded(block: tuple[int, int], values: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """(n, in) float32, rounded to the scales' own format."""
    result, scales = values["codes"].to(torch.float32, copy=True), values["scales"]
    if scales.dtype == torch.uint8:
        scales = exponentiated(scales)
    if "zeros" in values:
        result -= _spread(values["zeros"].float(), block, result)
    result *= _spread(scales.float(), block, result)
    return result if scales.dtype == torch.float32 else result.to(scales.dtype).float()


def _spread(cells: torch.Tensor, block: tuple[int, int], numbers: torch.Tensor) -> torch.Tensor:
    """A grid's cells, repeated over their blocks if broadcasting does not do that."""
    for axis, size in enumerate(numbers.shape):
        if 1 < cells.shape[axis] < size:
            cells = cells.repeat_interleave(block[axis], dim=axis).narrow(axis, 0, size)
    return cells
