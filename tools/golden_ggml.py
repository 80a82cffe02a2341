"""Write tests/checkpoint/data/ggml.json: blocks of every GGML format and the numbers that GGML's C code reads from
them.

Run it in a separate environment, since only this script needs ggml-python:

    python -m venv /tmp/ggml && /tmp/ggml/bin/pip install ggml-python==0.0.45
    /tmp/ggml/bin/python -m tools.golden_ggml tests/checkpoint/data/ggml.json
"""

from __future__ import annotations

import ctypes
import json
import sys
from pathlib import Path

import ggml
import numpy as np

FORMATS = (
    *("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K"),
    *("IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S", "IQ4_NL", "IQ4_XS"),
    *("TQ1_0", "TQ2_0", "MXFP4", "NVFP4"),
)
# One block of the largest formats, several of the smaller ones.
NUMBERS = 256
_FLOATS = ctypes.POINTER(ctypes.c_float)


def quantised(kind: int, values: np.ndarray) -> np.ndarray:
    """Quantise the values with llama.cpp's quantiser, with equal importance for every column."""
    content = np.zeros(ggml.ggml_row_size(kind, values.size), np.uint8)
    weights = np.ones_like(values)
    written = ggml.ggml_quantize_chunk(
        kind, values.ctypes.data_as(_FLOATS), content.ctypes.data, 0, 1, values.size, weights.ctypes.data_as(_FLOATS)
    )
    assert written == content.size
    return content


def numbers(kind: int, content: np.ndarray) -> np.ndarray:
    """Return the numbers that GGML reads from these blocks."""
    values = np.zeros(NUMBERS, np.float32)
    to_float = ggml.ggml_get_type_traits(kind).contents.to_float
    to_float(content.ctypes.data, values.ctypes.data_as(_FLOATS), NUMBERS)
    return values


def main(target: Path) -> None:
    rng = np.random.default_rng(0)
    found = []
    for name in FORMATS:
        kind = getattr(ggml, f"GGML_TYPE_{name}")
        weights = rng.normal(0, 0.02, NUMBERS).astype(np.float32)
        real = quantised(kind, weights)
        # Any bytes are valid blocks, but blocks with a NaN scale test little.
        noise = rng.integers(0, 256, real.size, dtype=np.uint8)
        while not np.isfinite(numbers(kind, noise)).mean() > 0.5:
            noise = rng.integers(0, 256, real.size, dtype=np.uint8)
        found += [
            {"format": name, "made": made, "bytes": b.tobytes().hex(), "float32": numbers(kind, b).tobytes().hex()}
            for made, b in (("quantised", real), ("random", noise))
        ]
    target.write_text(json.dumps({"ggml-python": ggml.__version__, "blocks": found}, indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
