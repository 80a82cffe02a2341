"""compressed-tensors' packed whole numbers ("pack-quantized"): 1 to 8 bits along a row, without a gap between words.

    weight_packed  (out, in · bits / 32) words    weight_shape       the two numbers (out, in)
    weight_scale   a number for the whole weight, each row, or each group of a row
    weight_zero_point, weight_g_idx               if the scheme has them

Half their range is added to the codes. Bits and group size follow from each layer's shapes, so the config's groups of
layers are not needed. Zero points are packed down the columns: each word holds the zero points of several rows. The
library's own reader loads all of transformers for this; the tests compare with it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial

import torch

from irwm.checkpoint.quantised.grids import grid
from irwm.checkpoint.quantised.parts import (
    FLOATS,
    Answer,
    Parts,
    contradiction,
    require,
    require_groups,
    scaled,
    unpacked,
    words,
)
from irwm.checkpoint.quantised.settings import MOST_BITS, Settings
from irwm.checkpoint.rows import read_tensor
from irwm.checkpoint.tensors import PackedTensor, TensorEntry, parameters_of


def weight(name: str, parts: Parts, settings: Settings) -> Answer:
    """The weight behind `weight_packed`, `weight_shape` and `weight_scale`; None if one is missing."""
    if not {"weight_packed", "weight_shape", "weight_scale"} <= parts.keys():
        return None
    packed = parts["weight_packed"]
    if len(packed.shape) != 2:
        return "compressed-tensors with several matrices in one tensor"
    codes = words(packed, "codes")
    out, inputs = _shape(parts["weight_shape"], codes)
    fitting = [bits for bits in range(1, MOST_BITS + 1) if math.ceil(inputs * bits / 32) == codes.shape[1]]
    if not fitting:
        return "compressed-tensors in an early packing format"  # it left gaps so that no code spans two words
    bits = fitting[0]
    scales = grid(require(parts["weight_scale"], "scales", FLOATS), (out, inputs))
    if scales.shape != (1, 1):
        require(scales, "scales", shape=(out, scales.shape[1]))
    stored = {"codes": codes, "scales": scales, "shape": parts["weight_shape"]}
    own = scales.shape[0] == out  # each row has its own scales, or all have the same
    by_rows = {"codes", "scales"} if own else {"codes"}
    zeros, order = parts.get("weight_zero_point"), parts.get("weight_g_idx")
    if zeros is not None and zeros.dtype == "I8":
        stored["zeros"] = grid(zeros, (out, inputs))
        require(stored["zeros"], "zeros", shape=scales.shape)
        by_rows |= {"zeros"} if own else set()
    elif zeros is not None:
        stored["zeros"] = words(zeros, "zeros")
        require(zeros, "zeros", shape=(math.ceil(scales.shape[0] * bits / 32), scales.shape[1]))
        by_rows = set()
    if order is not None:
        stored["groups"] = require(order, "group numbers", ("I32", "I64"), (inputs,))
    elif inputs % scales.shape[1]:
        problem = "The groups of a quantised weight do not match its codes"
        raise contradiction(
            scales, problem, f"a number of groups that evenly divides {inputs}", f"{scales.shape[1]} groups"
        )
    decode = partial(_decoded, order, bits, inputs)
    kind, parameters = f"compressed-tensors, {bits} bits", parameters_of(bits=bits)
    return PackedTensor(name, kind, (out, inputs), stored, frozenset(by_rows), decode, parameters)


def _shape(entry: TensorEntry, codes: TensorEntry) -> tuple[int, int]:
    """The two numbers stored as the weight's shape.

    Raises:
        CorruptCheckpointError: not two numbers, or numbers that do not fit the codes.
    """
    require(entry, "shape values", ("I64", "I32"), (2,))
    out, inputs = read_tensor(entry).tolist()
    if out != codes.shape[0] or not codes.shape[1] <= inputs <= 32 * codes.shape[1]:
        problem = "The stated shape of a quantised weight does not match its codes"
        raise contradiction(entry, problem, f"({codes.shape[0]}, 4 to 32 per word)", f"({out}, {inputs})")
    return out, inputs


def _decoded(order: TensorEntry | None, bits: int, inputs: int, values: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """(n, in) float32."""
    scales, zeros, groups = values["scales"], values.get("zeros"), None
    half = 1 << (bits - 1)
    codes = unpacked(values["codes"], bits, inputs).to(torch.int16) - half
    if zeros is not None and zeros.dtype == torch.int32:
        zeros = unpacked(zeros.T.contiguous(), bits, len(scales)).T.to(torch.int16) - half
    if order is not None:
        groups = values["groups"].long()
        if bool((groups == -1).all()):  # written before the order was known, which means the natural order
            groups = torch.arange(inputs) // math.ceil(inputs / scales.shape[1])
        require_groups(order, groups, scales.shape[1])
    return scaled(codes, scales, zeros, groups)
