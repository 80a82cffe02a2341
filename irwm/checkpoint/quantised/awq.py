"""AWQ in its GEMM packing: codes of 4 bits packed along the output, eight to a word in an interleaved order.

    qweight  (in, out / 8) words     qzeros  (groups, out / 8) words     scales  (groups, out)

Two other packings, GEMV and GEMV-fast, are recognised but not supported.

Lin et al., "AWQ: Activation-aware Weight Quantization for LLM Compression and Acceleration", 2024.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import torch

from irwm.checkpoint.quantised.parts import (
    FLOATS,
    Answer,
    Parts,
    contradiction,
    require,
    scaled,
    unpacked,
    words,
)
from irwm.checkpoint.quantised.settings import Settings
from irwm.checkpoint.tensors import PackedTensor, parameters_of

BITS = 4
PER_WORD = 32 // BITS
# The position within a word, counted from its low end, that holds the first, second, ... of eight outputs.
_PLACES = (0, 4, 1, 5, 2, 6, 3, 7)


def weight(name: str, parts: Parts, settings: Settings) -> Answer:
    """The weight behind `qweight`, `qzeros` and `scales`; None if one is missing."""
    if not {"qweight", "qzeros", "scales"} <= parts.keys():
        return None
    settings = settings.within(name)
    version = settings.text("version")
    if version.startswith("gemv"):
        return f"AWQ with {version.replace('_', '-').upper()} packing"
    codes, zeros = words(parts["qweight"], "codes"), words(parts["qzeros"], "zeros")
    scales = require(parts["scales"], "scales", FLOATS, matrix=True)
    (inputs, across), (groups, out) = codes.shape, scales.shape
    if codes.shape[0] == scales.shape[0] and out != PER_WORD * across:
        return "AWQ with GEMV packing"  # it always has outputs first
    require(scales, "scales", shape=(groups, PER_WORD * across))
    require(zeros, "zeros", shape=(groups, across))
    settings.bits()
    if inputs % groups or (settings.group_size() or inputs // groups) != inputs // groups:
        problem = "The groups of a quantised weight do not match its codes"
        expected = f"groups of {settings.group_size() or 'equal size'} for {inputs} inputs"
        raise contradiction(scales, problem, expected, f"{groups} groups")
    stored = {"codes": codes, "zeros": zeros, "scales": scales}
    decode = partial(_decoded, out)
    return PackedTensor(name, f"AWQ, {BITS} bits", (out, inputs), stored, frozenset(), decode, parameters_of())


def _decoded(out: int, values: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """(out, in) float32."""
    codes, zeros = (_in_order(unpacked(values[role], BITS, out)) for role in ("codes", "zeros"))
    return scaled(codes.T.contiguous(), values["scales"].T, zeros.T)


def _in_order(codes: torch.Tensor) -> torch.Tensor:
    """(n, out) codes in their order in the words → in the order of the outputs."""
    return codes.view(len(codes), -1, PER_WORD)[:, :, list(_PLACES)].flatten(1)
