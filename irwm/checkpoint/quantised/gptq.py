"""GPTQ: codes of 2, 3, 4 or 8 bits packed along the input, a scale and a zero for each group of inputs and output.

    qweight  (in · bits / 32, out) words     scales  (groups, out)
    qzeros   (groups, out · bits / 32) words g_idx   (in,) the group of each input; in any order after desc_act

The first version of the format stores every zero minus one. A checkpoint states its version in `checkpoint_format`,
AutoRound's in `packing_format`. Everything else follows from the shapes, so the config's number of bits is checked but
not relied on.

Frantar et al., "GPTQ: Accurate Post-Training Quantization for Generative Pre-trained Transformers", 2023.
"""

from __future__ import annotations

import math
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
    require_groups,
    scaled,
    unpacked,
    words,
)
from irwm.checkpoint.quantised.settings import Settings
from irwm.checkpoint.tensors import PackedTensor, TensorEntry, parameters_of

BITS = (2, 3, 4, 8)
# AutoRound's names for packings without the minus one; its "auto_round:auto_gptq" is the first version.
_AUTOROUND_WHOLE = ("auto_round", "auto_round:gptqmodel")


def _of_embedding(name: str) -> bool:
    """Whether a weight has the name of an embedding. Uses no regular expression: an untrusted name may have
    megabytes."""
    last = name.removesuffix(".weight").rpartition(".")[2]
    return name.endswith(".weight") and ("embed" in last or last.endswith("wte"))


def weight(name: str, parts: Parts, settings: Settings) -> Answer:
    """The weight behind `qweight`, `qzeros`, `scales` and perhaps `g_idx`; None if these are packed differently."""
    if not {"qweight", "qzeros", "scales"} <= parts.keys():
        return None
    if any(parts[part].dtype not in WORDS for part in ("qweight", "qzeros")):
        return f"{parts['qweight'].dtype} codes with {parts['qzeros'].dtype} zeros"
    codes, zeros = words(parts["qweight"], "codes"), words(parts["qzeros"], "zeros")
    scales = require(parts["scales"], "scales", FLOATS, matrix=True)
    groups, out = scales.shape
    if codes.shape[1] != out:
        return None
    if _of_embedding(name):
        return "a GPTQ embedding"  # packed along the tokens, so a row cannot be read without all others
    settings = settings.within(name)
    stated, size = settings.bits(), settings.group_size()
    order = parts.get("g_idx")
    fitting = [
        bits
        for bits in BITS
        if zeros.shape[1] == math.ceil(out * bits / 32)
        and (order is None or len(order.shape) != 1 or codes.shape[0] == math.ceil(order.shape[0] * bits / 32))
    ]
    if not fitting:
        expected = f"{out} zeros per row, each with as many bits as a code ({', '.join(map(str, BITS))})"
        raise contradiction(zeros, "The zeros of a quantised weight do not match its codes", expected, str(zeros.shape))
    bits = stated if stated in fitting else fitting[0]
    require(zeros, "zeros", shape=(groups, zeros.shape[1]))
    stored = {"codes": codes, "zeros": zeros, "scales": scales}
    if order is not None:
        require(order, "group numbers", ("I32", "I64"), (math.prod(order.shape),))
        inputs = order.shape[0]
        stored["groups"] = order
    else:
        inputs = codes.shape[0] * 32 // bits
        if groups != math.ceil(inputs / (size or math.ceil(inputs / groups))):
            problem = "The groups of a quantised weight do not match the config's group_size"
            raise contradiction(scales, problem, f"groups of {size} for {inputs} inputs", f"{groups} groups")
    missing = 0 if _zeros_are_whole(settings) else 1
    decode = partial(_decoded, order, bits, (out, inputs), missing, size)
    parameters = parameters_of(bits=bits, missing=missing, size=size)
    return PackedTensor(name, f"GPTQ, {bits} bits", (out, inputs), stored, frozenset(), decode, parameters)


def _zeros_are_whole(settings: Settings) -> bool:
    """Whether zeros are stored as they are: in the second version, and in AutoRound's own packings."""
    if settings.text("checkpoint_format") == "gptq_v2":
        return True
    return "auto-round" in settings.method and settings.text("packing_format") in _AUTOROUND_WHOLE


def _decoded(
    order: TensorEntry | None,
    bits: int,
    shape: tuple[int, int],
    missing: int,
    size: int | None,
    values: Mapping[str, torch.Tensor],
) -> torch.Tensor:
    """(out, in) float32.

    Args:
        order: where the group numbers are stored, for messages; None without them.
        shape: (out, in).
        missing: what has to be added to the stored zeros, 1 or 0.
        size: inputs per group, if there are no group numbers and the config states it.
    """
    out, inputs = shape
    zeros, scales = values["zeros"], values["scales"]
    if missing and 32 % bits == 0:
        # One is added to the words and not to the zeros: a zero of 0 was written with a borrow from its neighbour.
        ones = sum(1 << place for place in range(0, 32, bits))
        zeros = zeros + torch.tensor(ones, dtype=torch.int32)
        missing = 0
    zeros = (unpacked(zeros, bits, out) + missing) & ((1 << bits) - 1)
    if order is not None:
        groups = values["groups"].long()
        require_groups(order, groups, len(scales))
    else:
        groups = torch.arange(inputs) // (size or math.ceil(inputs / len(scales)))
    return scaled(unpacked(values["codes"].T.contiguous(), bits, inputs), scales.T, zeros.T, groups)
