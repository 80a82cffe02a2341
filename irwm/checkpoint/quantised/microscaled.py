"""Floating-point codes of 4 bits, and MLX's of 8, with a scale for each short run of a row: NVFP4, MXFP4, MXFP8.

    compressed-tensors, ModelOpt: weight_packed or weight (out, in / 2) bytes, weight_scale (out, in / run), and for
        NVFP4 weight_global_scale, by which scales are divided, or weight_scale_2, by which they are multiplied
    MLX: weight (out, in · bits / 32) words, scales (out, in / run)

MX scales are powers of two in runs of 32, NVFP4's are F8 in runs of 16. OCP Microscaling Formats (MX), version 1.0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import torch

from irwm.checkpoint.quantised.grids import EXPONENTS, exponentiated
from irwm.checkpoint.quantised.parts import (
    Answer,
    Parts,
    contradiction,
    require,
    scaled,
)
from irwm.checkpoint.quantised.settings import Settings
from irwm.checkpoint.tensors import PackedTensor, TensorEntry, parameters_of

_MAGNITUDES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
_E2M1 = (*_MAGNITUDES, *(-value for value in _MAGNITUDES))
MX_RUN, NV_RUN = 32, 16
_OVERALL = ("weight_global_scale", "weight_scale_2")


def weight(name: str, parts: Parts, settings: Settings) -> Answer:
    """The weight behind bytes of codes and `weight_scale`; None if these are other codes."""
    packed = parts.get("weight_packed", parts.get("weight"))
    if packed is None or packed.dtype != "U8" or "weight_scale" not in parts:
        return None
    if parts["weight_scale"].dtype not in ("F8_E4M3", *EXPONENTS):
        return f"byte codes with {parts['weight_scale'].dtype} scales"
    require(packed, "codes", matrix=True)
    overall = next((part for part in _OVERALL if part in parts), None)
    stored = {"codes": packed, "scales": parts["weight_scale"]}
    if overall is not None:
        stored["overall"] = require(parts[overall], "overall scales", ("F32",))
        if stored["overall"].shape not in ((), (1,)):
            require(stored["overall"], "overall scales", shape=(1,))
    return _weight(name, stored, 4, divide=overall == _OVERALL[0])


def mlx_weight(name: str, parts: Parts, settings: Settings) -> Answer:
    """The weight behind MLX's words of codes and `scales` of a byte each; None if these are other codes."""
    packed, scales = parts.get("weight"), parts.get("scales")
    if packed is None or scales is None or packed.dtype != "U32" or scales.dtype not in ("U8", "F8_E4M3"):
        return None
    require(packed, "codes", matrix=True)
    require(scales, "scales", matrix=True)
    settings = settings.within(name)
    mode = settings.get("mode")
    if mode not in ("mxfp4", "mxfp8", "nvfp4"):
        return "MLX codes without a mode in the config"
    codes = replace(packed, dtype="U8" if mode != "mxfp8" else "F8_E4M3", shape=(packed.shape[0], 4 * packed.shape[1]))
    scales = replace(scales, dtype="F8_E4M3" if mode == "nvfp4" else "U8")
    return _weight(name, {"codes": codes, "scales": scales}, 8 if mode == "mxfp8" else 4, divide=False)


def _weight(name: str, stored: dict[str, TensorEntry], bits: int, *, divide: bool) -> PackedTensor:
    codes, scales = stored["codes"], stored["scales"]
    out, inputs = codes.shape[0], codes.shape[1] * 8 // bits
    mx = scales.dtype in EXPONENTS
    if inputs % (MX_RUN if mx else NV_RUN):
        problem = "The codes of a quantised weight cannot be divided into runs"
        raise contradiction(
            codes, problem, f"a column count that is a multiple of {MX_RUN if mx else NV_RUN}", f"{inputs} columns"
        )
    require(scales, "scales", shape=(out, inputs // (MX_RUN if mx else NV_RUN)))
    stored = {**stored, "scales": replace(scales, dtype="U8") if mx else scales}
    kind = f"{'MX' if mx else 'NV'}FP{bits}"
    decode, parameters = partial(_decoded, divide), parameters_of(divide=divide)
    return PackedTensor(name, kind, (out, inputs), stored, frozenset({"codes", "scales"}), decode, parameters)


def _decoded(divide: bool, values: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """(n, in) float32, rounded to bfloat16 as the tools compute it."""
    codes, scales = values["codes"], values["scales"]
    scales = exponentiated(scales) if scales.dtype == torch.uint8 else scales.float()
    if "overall" in values:
        overall = values["overall"].reshape(())
        scales = scales / overall if divide else scales * overall
    if codes.dtype == torch.uint8:
        codes = torch.tensor(_E2M1)[torch.stack([codes & 15, codes >> 4], dim=2).flatten(1).int()]
    return scaled(codes, scales).bfloat16().float()
