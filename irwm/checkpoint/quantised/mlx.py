"""MLX: codes of 1 to 8 bits packed along a row, a scale and an offset for each group of a row; embeddings too.

    weight  (out, in · bits / 32) words     scales, biases  (out, in / group size)

A number is scale · code + bias. The shapes show only the product of the bits and the group size;
the config states both, for all layers or for one by its name. MLX's other modes are read in `microscaled`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import torch

from irwm.checkpoint.quantised.parts import (
    FLOATS,
    WORDS,
    Answer,
    Parts,
    contradiction,
    require,
    unpacked,
    words,
)
from irwm.checkpoint.quantised.settings import Settings
from irwm.checkpoint.tensors import PackedTensor, parameters_of

BITS = (1, 2, 3, 4, 5, 6, 8)


def weight(name: str, parts: Parts, settings: Settings) -> Answer:
    """The weight behind `weight`, `scales` and `biases`; None if these are not MLX's."""
    offsets = parts.get("biases", parts.get("qbiases"))  # the second is transformers' name for them
    if "weight" not in parts or "scales" not in parts or offsets is None or parts["weight"].dtype not in WORDS:
        return None
    codes = words(parts["weight"], "codes")
    scales = require(parts["scales"], "scales", FLOATS, matrix=True)
    require(offsets, "biases", (scales.dtype,), scales.shape)
    require(scales, "scales", shape=(codes.shape[0], scales.shape[1]))
    settings = settings.within(name)
    size, stated = settings.group_size(), settings.bits()
    if size is None:
        return "MLX codes without a group size in the config"
    # Layers that the config does not name may have other bits than those stated for all.
    width = 32 * codes.shape[1]
    bits = width // (size * scales.shape[1])
    if width % (size * scales.shape[1]) or bits not in BITS:
        problem = "The scales of a quantised weight do not match its codes"
        expected = f"groups of {size} columns with {stated or 'a few'} bits each"
        raise contradiction(scales, problem, expected, f"{scales.shape[1]} groups in {codes.shape[1]} words")
    shape = (codes.shape[0], size * scales.shape[1])
    stored = {"codes": codes, "scales": scales, "biases": offsets}
    decode = partial(_decoded, bits, shape[1])
    return PackedTensor(name, f"MLX, {bits} bits", shape, stored, frozenset(stored), decode, parameters_of(bits=bits))


def _decoded(bits: int, columns: int, values: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """(n, in) float32, each step rounded to the scales' own format, as MLX computes it."""
    scales, biases = values["scales"], values["biases"]
    result = unpacked(values["codes"], bits, columns).to(scales.dtype)
    blocks = result.view(len(result), scales.shape[1], columns // scales.shape[1])
    blocks.mul_(scales[..., None]).add_(biases[..., None])
    return result.float()
