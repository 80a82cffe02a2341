"""The number format of each tensor of a GGUF file, and the rounding itself.

The choice is llama.cpp's (`llama_tensor_get_type` in its src/llama-quant.cpp, November 2026, without an importance
matrix). The rounding is GGML's: by the package gguf if it supports the format, else by GGML's own C code in the package
libggml-python.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch

from irwm.attacks.quantisers.converter import Place
from irwm.errors import UnsupportedCheckpointError

# llama.cpp's names for whole files, largest first, and their numbers in its enum llama_ftype, which the file states.
FILE_TYPES = {"F16": 1, "Q8_0": 7, "Q4_0": 2, "Q4_K_M": 15}
# Numbers per block, and the format of rows that are not a whole number of blocks.
_BLOCK = {"F16": 1, "Q4_0": 32, "Q5_0": 32, "Q8_0": 32, "Q4_K": 256, "Q6_K": 256}
_INSTEAD = {"Q4_K": "Q5_0", "Q6_K": "Q8_0"}
_GGML_TYPES = {"Q4_K": 12, "Q6_K": 14}
PACKAGE = "libggml-python"
Quantise = Callable[[torch.Tensor], np.ndarray]


def formats(places: Sequence[Place], kind: str) -> list[str]:
    """The format of each tensor: "F32", "F16" or one of blocks.

    Norms, biases, positions and token types stay float32. The head, or the embedding of a model that has no other
    head, gets six or eight bits; so do the values and the last matrix of every third layer, and of the first and last
    eighth, in Q4_K_M.

    Args:
        places: in the order of the file.

    Raises:
        UnsupportedCheckpointError: rows of a length that the kind cannot hold.
    """
    last = "output.weight" if any(place.name == "output.weight" for place in places) else "token_embd.weight"
    # A fused q, k and v counts as values.
    finer = {
        name
        for ends in (("attn_v.weight", "attn_qkv.weight"), ("ffn_down.weight",))
        for name in _more_bits([place.name for place in places if place.name.endswith(ends)])
    }
    return [_format(place, kind, place.name == last, place.name in finer) for place in places]


def _more_bits(names: Sequence[str]) -> list[str]:
    count = len(names)
    return [
        name
        for i, name in enumerate(names)
        if i < count // 8 or i >= 7 * count // 8 or (i - count // 8) % 3 == 2
    ]  # fmt: skip


def _format(place: Place, kind: str, last: bool, finer: bool) -> str:
    name, columns = place.name, place.shape[-1]
    plain = len(place.shape) < 2 or not name.endswith(".weight") or "_norm.weight" in name
    if plain or name in ("position_embd.weight", "token_types.weight"):
        return "F32"
    chosen = kind.removesuffix("_M")
    if last and kind not in ("F16", "Q8_0"):
        chosen = "Q8_0" if columns % _BLOCK[chosen] else "Q6_K"
    elif finer and kind == "Q4_K_M":
        chosen = "Q6_K"
    if columns % _BLOCK[chosen]:
        chosen = _INSTEAD.get(chosen, chosen)
    if columns % _BLOCK[chosen]:
        raise UnsupportedCheckpointError(
            f"{kind} needs rows whose length is a multiple of {_BLOCK[chosen]}, "
            f"but this model has rows of length {columns}",
            tensor=place.source,
        )
    return chosen


def missing(chosen: Sequence[str]) -> str | None:
    """Why this machine cannot round to these formats, in a sentence; None if it can."""
    wanted = sorted(set(chosen) & set(_GGML_TYPES))
    if wanted and _library() is None:
        return f"Rounding to {' and '.join(wanted)} is done by GGML's own code, which needs the package {PACKAGE}."
    return None


def stored_bytes(shape: Sequence[int], chosen: str) -> int:
    """Bytes of a tensor in this format."""
    import gguf

    block, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[chosen]]
    return int(np.prod(shape)) // block * size


def rounded(value: torch.Tensor, chosen: str) -> np.ndarray:
    """The tensor's bytes, or its numbers, in a format.

    Args:
        value: float32, with rows of a whole number of blocks.

    Raises:
        UnsupportedCheckpointError: the package is missing, or a weight is infinite or NaN.
    """
    import gguf

    if not bool(torch.isfinite(value).all()):
        raise UnsupportedCheckpointError("a weight is infinite or NaN, which a quantised block cannot store")
    numbers = np.ascontiguousarray(value.numpy(), dtype=np.float32)
    if chosen not in _GGML_TYPES:
        return gguf.quants.quantize(numbers, gguf.GGMLQuantizationType[chosen])
    library = _library()
    if library is None:
        raise UnsupportedCheckpointError(str(missing([chosen])), advice=f"pip install {PACKAGE}")
    content = np.zeros(stored_bytes(numbers.shape, chosen), np.uint8)
    columns = numbers.shape[-1]
    written = library.ggml_quantize_chunk(
        _GGML_TYPES[chosen], numbers.ctypes.data, content.ctypes.data, 0, numbers.size // columns, columns, None
    )
    assert written == content.size
    return content


@functools.cache  # a process loads a library once
def _library() -> ctypes.CDLL | None:
    """GGML's shared library; None where the package is missing or was built for another system."""
    found = importlib.util.find_spec("libggml")
    if found is None or not found.submodule_search_locations:
        return None
    ending = {"win32": "dll", "darwin": "dylib"}.get(sys.platform, "so")
    root = Path(next(iter(found.submodule_search_locations)))
    for file in sorted(root.glob(f"*/*ggml-base.{ending}")):
        try:
            library = ctypes.CDLL(str(file))
        except OSError:
            continue
        library.ggml_quantize_chunk.restype = ctypes.c_size_t
        library.ggml_quantize_chunk.argtypes = [
            ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64,
            ctypes.c_void_p,
        ]  # fmt: skip
        return library
    return None
