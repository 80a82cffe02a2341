"""bitsandbytes, as transformers writes it: 8-bit rows, and 4-bit blocks (NF4, FP4) along the flattened weight.

    8 bits: weight  (out, in) int8                      SCB  (out,) the largest magnitude of each row
    4 bits: weight  (in · out / 2, 1), two codes a byte  weight.absmax  one number for each block
            weight.quant_state.bitsandbytes__nf4         a JSON text in bytes: shape, block size, dtype

With double quantisation the blocks' numbers are codes themselves, which are decoded with `weight.nested_quant_map` and
scaled by `weight.nested_absmax`. Like bitsandbytes, this uses the built-in tables of NF4 and FP4 and not the copy in
`weight.quant_map`.

Dettmers et al., "LLM.int8()", 2022, and "QLoRA", 2023.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

import torch

from irwm.checkpoint.files import parse_json
from irwm.checkpoint.quantised.parts import (
    FLOATS,
    Answer,
    Parts,
    contradiction,
    require,
)
from irwm.checkpoint.quantised.settings import Settings
from irwm.checkpoint.rows import read_tensor
from irwm.checkpoint.tensors import PackedTensor, TensorEntry, parameters_of
from irwm.errors import CorruptCheckpointError, UnsupportedCheckpointError
from irwm.families.configvalues import LARGEST_COUNT, shown

# Real ones have about 170 bytes.
MAX_STATE_BYTES = 4096
BLOCKS = (32, 64, 128, 256, 512, 1024, 2048, 4096)
STATE = "bitsandbytes__"
# The note on a tensor that does not hold 4-bit codes although the text stored with it says so.
NO_CODES = "plain numbers that are described as 4-bit codes"
# QLoRA's appendix E: quantiles of the normal distribution with a 0, scaled to [-1, 1].
NF4 = (
    *(-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453),
    *(-0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0),
    *(0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224),
    *(0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0),
)
# A sign, two bits of exponent and one of mantissa, in twelfths of the largest; the denormal is 1/192.
_FP4_POSITIVE = (0.0, 0.0052083334885537624, 2 / 3, 1.0, 1 / 3, 0.5, 1 / 6, 0.25)
FP4 = (*_FP4_POSITIVE, *(-value for value in _FP4_POSITIVE))
_TABLES = {"nf4": NF4, "fp4": FP4}
_DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


def rows(name: str, parts: Parts, settings: Settings) -> Answer:
    """An 8-bit weight, behind `weight` and `SCB`; None if one is missing."""
    if "SCB" not in parts or "weight" not in parts or parts["weight"].dtype != "I8":
        return None
    codes, largest = require(parts["weight"], "codes", matrix=True), require(parts["SCB"], "row maxima", FLOATS)
    if math.prod(largest.shape) != codes.shape[0]:
        require(largest, "row maxima", shape=codes.shape[:1])
    stored = {"codes": codes, "scales": replace(largest, shape=(codes.shape[0], 1))}
    order = parts.get("weight_format")
    if order is not None:
        require(order, "order values", ("U8",))
        if math.prod(order.shape) != 1:
            require(order, "order values", shape=())
        stored["order"] = order
    decode, by_rows = partial(_decoded_rows, order), frozenset({"codes", "scales"})
    return PackedTensor(name, "bitsandbytes, 8 bits", codes.shape, stored, by_rows, decode, parameters_of())


def _decoded_rows(order: TensorEntry | None, values: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """(n, in) float32."""
    if order is not None and int(values["order"]) != 0:
        raise UnsupportedCheckpointError(
            "The 8-bit weight is stored in an order specific to one type of GPU, not row by row",
            file=order.file,
            tensor=order.name,
            expected="0",
            found=str(int(values["order"])),
            advice="Load and save the model once with a current version of bitsandbytes",
        )
    return values["codes"] * values["scales"].float() * (1 / 127)


@dataclass(frozen=True, slots=True)
class _State:
    """The JSON text stored with a 4-bit weight; the `nested` fields are 0 without double quantisation."""

    kind: str
    shape: tuple[int, int]
    block: int
    dtype: torch.dtype
    nested_block: int
    nested_offset: float


def blocks(name: str, parts: Parts, settings: Settings) -> Answer:
    """A 4-bit weight, else None; `parts` by the last word of their names, the codes under ""."""
    text = next((part for part in parts if part.startswith(STATE)), None)
    if text is None or "" not in parts or "absmax" not in parts:
        return None
    if not _is_column_of_codes(parts[""], settings):
        return NO_CODES
    state = _state(parts[text], text.removeprefix(STATE))
    count = math.prod(state.shape)
    packed, largest = parts[""], parts["absmax"]
    if packed.nbytes != (count + 1) // 2:
        problem = "The codes of a quantised weight do not match its stated shape"
        raise contradiction(packed, problem, f"{(count + 1) // 2} bytes", f"{packed.nbytes} bytes")
    number = math.ceil(count / state.block)
    # The dtype may be different (sharded training needs floats), but they are bytes.
    stored = {"codes": replace(packed, dtype="U8", shape=(packed.nbytes,)), "scales": largest, "state": parts[text]}
    if "quant_map" in parts:
        stored["table"] = parts["quant_map"]
    if state.nested_block:
        require(largest, "block maxima", ("U8",))
        for role, part, shape in (
            ("nested_scales", "nested_absmax", (math.ceil(number / state.nested_block),)),
            ("nested_codes", "nested_quant_map", (256,)),
        ):
            if part not in parts:
                raise contradiction(largest, f"The {part} of a doubly quantised weight is missing", part, "none")
            stored[role] = require(parts[part], part, ("F32",), shape)
    else:
        require(largest, "block maxima", ("F32",))
    require(largest, "block maxima", shape=(number,))
    kind, decode = f"bitsandbytes, {state.kind.upper()}", partial(_decoded_blocks, state)
    return PackedTensor(name, kind, state.shape, stored, frozenset(), decode, parameters_of(dtype=str(state.dtype)))


def _is_column_of_codes(entry: TensorEntry, settings: Settings) -> bool:
    """Whether a tensor can be 4-bit codes: one column of bytes.

    Sharded training needs the bytes declared as floats; then only the config distinguishes them from plain numbers.
    transformers reads a plain weight with this text next to it as a plain weight.
    """
    column = len(entry.shape) == 2 and entry.shape[1] == 1
    return column and (entry.dtype == "U8" or (entry.dtype in FLOATS and settings.method == "bitsandbytes"))


def _decoded_blocks(state: _State, values: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """(out, in) float32, rounded to the format that the weight had before."""
    largest = values["scales"]
    if state.nested_block:
        largest = _of_blocks(values["nested_codes"][largest.int()], values["nested_scales"], state.nested_block)
        largest = largest + state.nested_offset
    pairs = values["codes"]
    codes = torch.stack([pairs >> 4, pairs & 15], dim=1).flatten()[: math.prod(state.shape)]
    result = _of_blocks(torch.tensor(_TABLES[state.kind])[codes.int()], largest, state.block)
    return result.view(state.shape).to(state.dtype).float()


def _of_blocks(values: torch.Tensor, scales: torch.Tensor, block: int) -> torch.Tensor:
    """(n,) float32 values, each multiplied by its block's scale."""
    return values * scales.repeat_interleave(block)[: len(values)]


def _state(entry: TensorEntry, kind: str) -> _State:
    """The text stored with a 4-bit weight; `kind` is the end of its name.

    Raises:
        CorruptCheckpointError: it is not a valid description of a state.
    """
    require(entry, "state bytes", ("U8",))
    if entry.nbytes > MAX_STATE_BYTES or kind not in _TABLES:
        problem = "The state of a quantised weight is not in bitsandbytes' format"
        raise contradiction(
            entry, problem, f"an nf4 or fp4 state of at most {MAX_STATE_BYTES} bytes", f"{entry.nbytes} bytes"
        )
    found = parse_json(read_tensor(entry).numpy().tobytes(), entry.file, "state of a quantised weight", strict=False)
    if not isinstance(found, dict):
        raise contradiction(entry, "The state of a quantised weight is not a JSON object", "an object", shown(found))

    def refused(key: str, expected: str) -> CorruptCheckpointError:
        problem = f"The stated {key} of a quantised weight cannot be used"
        return contradiction(entry, problem, expected, shown(found.get(key)))

    shape = found.get("shape")
    if not isinstance(shape, list) or len(shape) != 2 or not all(_is_size(size) for size in shape):
        raise refused("shape", "two whole numbers above 0")
    if found.get("quant_type", kind) != kind:
        raise refused("quant_type", kind)
    if type(found.get("blocksize")) is not int or found["blocksize"] not in BLOCKS:
        raise refused("blocksize", f"one of {', '.join(map(str, BLOCKS))}")
    if not isinstance(found.get("dtype"), str) or found["dtype"] not in _DTYPES:
        raise refused("dtype", f"one of {', '.join(_DTYPES)}")
    nested, offset = found.get("nested_blocksize", 0), found.get("nested_offset", 0.0)
    if nested != 0 and (type(nested) is not int or nested not in BLOCKS):
        raise refused("nested_blocksize", f"one of {', '.join(map(str, BLOCKS))}")
    if type(offset) not in (int, float) or not abs(offset) <= torch.finfo(torch.float32).max:
        raise refused("nested_offset", "a finite number")
    return _State(kind, (shape[0], shape[1]), found["blocksize"], _DTYPES[found["dtype"]], nested, float(offset))


def _is_size(value: object) -> bool:
    return type(value) is int and 1 <= value <= LARGEST_COUNT
