"""Writes mlx.json with mlx 0.32.4, installed with its extra "cpu": python make_mlx.py"""

from __future__ import annotations

import mlx.core as mx
import numpy as np
from vectors import save, written

OUT, IN = 6, 128
CASES = [
    ("affine", 64, 4, "bfloat16"),
    ("affine", 32, 2, "float16"),
    ("affine", 128, 3, "float32"),
    ("affine", 64, 5, "bfloat16"),
    ("affine", 64, 6, "float16"),
    ("affine", 32, 8, "bfloat16"),
    ("mxfp4", 32, 4, "bfloat16"),
    ("mxfp8", 32, 8, "bfloat16"),
    ("nvfp4", 16, 4, "bfloat16"),
]
NAMES = {mx.uint8: "uint8", mx.uint32: "uint32", mx.float16: "float16", mx.bfloat16: "bfloat16", mx.float32: "float32"}


def tensor(value: mx.array) -> dict:
    bare = value.view(mx.uint16) if value.dtype == mx.bfloat16 else value  # which NumPy does not know
    return written(NAMES[value.dtype], tuple(value.shape), np.array(bare).tobytes())


def case(mode: str, group_size: int, bits: int, dtype: str) -> dict:
    weight = (0.05 * np.random.default_rng(bits).standard_normal((OUT, IN))).astype(np.float32)
    pieces = mx.quantize(mx.array(weight).astype(getattr(mx, dtype)), group_size, bits, mode)
    parts = dict(zip(("weight", "scales", "biases"), pieces, strict=False))
    expected = mx.dequantize(parts["weight"], parts["scales"], parts.get("biases"), group_size, bits, mode)
    return {
        "mode": mode,
        "group_size": group_size,
        "bits": bits,
        "expected": tensor(expected),
        "parts": {name: tensor(value) for name, value in parts.items()},
    }


if __name__ == "__main__":
    save("mlx", "mlx 0.32.4 on Linux, CPU: mx.quantize, mx.dequantize", [case(*each) for each in CASES])
