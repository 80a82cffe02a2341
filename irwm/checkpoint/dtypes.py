"""The number formats of tensors: those of safetensors, and GGML's blocks of codes and scales.

For safetensors: the size of each format, and whether this package reads it. For GGML: the size of each format's blocks,
and the conversion of blocks to numbers with the gguf package.
"""

from __future__ import annotations

import math

import numpy as np
import torch

from irwm.errors import CorruptCheckpointError, UnsupportedCheckpointError

# Bits per element of every format that the safetensors library of 2025 writes. A file may hold tensors in unsupported
# formats; their sizes are enough to skip them.
BITS: dict[str, int] = {
    **dict.fromkeys(("F64", "C64", "I64", "U64"), 64),
    **dict.fromkeys(("F32", "I32", "U32"), 32),
    **dict.fromkeys(("F16", "BF16", "I16", "U16"), 16),
    **dict.fromkeys(("F8_E4M3", "F8_E5M2", "F8_E4M3FNUZ", "F8_E5M2FNUZ", "F8_E8M0", "I8", "U8", "BOOL"), 8),
    **dict.fromkeys(("F6_E2M3", "F6_E3M2"), 6),
    "F4": 4,
}

# The formats that are read as torch tensors, bit for bit.
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

# Appended to the format's name if a tensor is not stored row by row.
VIEW = ", strided"

# GGML's formats of blocks of codes and scales that the gguf package can convert. Listed here, so that a model without
# them does not load the package.
BLOCK_FORMATS = frozenset(
    {
        *("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"),
        *("Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K"),
        *("IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S", "IQ4_NL", "IQ4_XS"),
        *("TQ1_0", "TQ2_0", "MXFP4", "NVFP4"),
    }
)
# Numbers that are computed at a time: half a megabyte, so that the package's intermediate results stay in the CPU's
# cache. One long row is 4 to 20 times as fast as "rows" of one block each.
_AT_ONCE = 1 << 17
_LATEST = "Quantise the model again with a current version of llama.cpp, for instance as F16 or Q8_0"


def torch_name(dtype: str) -> str:
    """Torch's name of a format in `TORCH`, such as "bfloat16" for "BF16"; the format's own name for the others."""
    return str(TORCH[dtype]).removeprefix("torch.") if dtype in TORCH else dtype


def stored_as(number: int) -> tuple[str, int, int]:
    """The name of a GGML type number, the count of numbers in a block, and the bytes of a block.

    Raises:
        UnsupportedCheckpointError: the type does not exist, or GGML removed it.
    """
    from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

    try:
        kind = GGMLQuantizationType(number)
        return kind.name, *GGML_QUANT_SIZES[kind]
    except (ValueError, KeyError) as error:
        raise UnsupportedCheckpointError(
            "A tensor is in a number format that GGML never supported or no longer supports",
            expected=", ".join(kind.name for kind in GGML_QUANT_SIZES),
            found=f"type {number}",
            advice=_LATEST,
        ) from error


def dequantised(content: torch.Tensor, dtype: str, shape: tuple[int, ...]) -> torch.Tensor:
    """float32 of `shape` from the bytes of whole rows.

    Args:
        content: uint8, one dimension: consecutive rows, each a whole number of blocks.
        dtype: the format, one of `BLOCK_FORMATS`.
        shape: of the result, its last dimension along the blocks.

    Raises:
        CorruptCheckpointError: the number of bytes does not match the shape.
    """
    from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
    from gguf.quants import dequantize

    kind = GGMLQuantizationType[dtype]
    block, block_bytes = GGML_QUANT_SIZES[kind]
    count = math.prod(shape)
    if count % block or count // block * block_bytes != content.numel():
        raise CorruptCheckpointError(
            "The blocks do not match the tensor's rows",
            expected=f"{count / block:g} blocks of {block_bytes} bytes for {dtype} {tuple(shape)}",
            found=f"{content.numel()} bytes",
        )
    result = torch.empty(shape, dtype=torch.float32)
    blocks, values = content.numpy().reshape(-1, block_bytes), result.numpy().reshape(-1, block)
    step = _AT_ONCE // block
    with np.errstate(all="ignore"):  # scales may be NaN or infinite: then the numbers are too, as in llama.cpp
        for begin in range(0, len(blocks), step):
            values[begin : begin + step] = dequantize(blocks[begin : begin + step].reshape(1, -1), kind).reshape(
                -1, block
            )
    return result
