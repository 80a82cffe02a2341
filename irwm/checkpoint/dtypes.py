"""The number formats of safetensors: their size, and which of them this package reads."""

from __future__ import annotations

import torch

# Bits per element of every format the safetensors library of 2025 writes. A tensor of one we cannot read is no reason
# to refuse the file it is in: the size is all that is needed to step over it.
BITS: dict[str, int] = {
    "F64": 64,
    "F32": 32,
    "F16": 16,
    "BF16": 16,
    "F8_E4M3": 8,
    "F8_E5M2": 8,
    "F8_E4M3FNUZ": 8,
    "F8_E5M2FNUZ": 8,
    "F8_E8M0": 8,
    "F6_E2M3": 6,
    "F6_E3M2": 6,
    "F4": 4,
    "C64": 64,
    "I64": 64,
    "I32": 32,
    "I16": 16,
    "I8": 8,
    "U64": 64,
    "U32": 32,
    "U16": 16,
    "U8": 8,
    "BOOL": 8,
}

# The ones handed out as torch tensors, bit for bit.
TORCH: dict[str, torch.dtype] = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}

# Follows the format's name where a tensor is stored in another order than its rows'.
VIEW = ", strided"


def torch_name(dtype: str) -> str:
    """The name torch gives a format that is in `TORCH`, such as "bfloat16" for "BF16"."""
    return str(TORCH[dtype]).removeprefix("torch.")
