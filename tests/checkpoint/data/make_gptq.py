"""Writes gptq.json with gptqmodel 7.7.0, from its source folder: PYTHONPATH=gptqmodel-7.7.0:. python make_gptq.py

Layers packed by the library, in both versions of the format, and the numbers that the library's layer computes.
"""

from __future__ import annotations

import torch
from gptqmodel.nn_modules.qlinear.torch import TorchLinear
from gptqmodel.quantization.config import QuantizeConfig
from gptqmodel.utils.model import convert_gptq_v2_to_v1_format_module
from vectors import save, written

OUT, IN, GROUP = 32, 64, 32


def tensor(value: torch.Tensor) -> dict:
    value = value.detach().contiguous()
    name = str(value.dtype).removeprefix("torch.")
    return written(name, tuple(value.shape), value.view(torch.uint8).numpy().tobytes())


def case(bits: int, by_activation: bool) -> dict:
    drawn = torch.Generator().manual_seed(bits)
    linear = torch.nn.Linear(IN, OUT, bias=False)
    weight = linear.weight.data = torch.randn(OUT, IN, generator=drawn) * 0.05
    groups = (torch.arange(IN) // GROUP).int()
    if by_activation:
        groups = groups[torch.randperm(IN, generator=drawn)]
    most = 2**bits - 1
    scales, zeros = torch.empty(OUT, IN // GROUP), torch.empty(OUT, IN // GROUP)
    for group in range(IN // GROUP):
        columns = weight[:, groups == group]
        low, high = columns.min(1).values, columns.max(1).values
        scales[:, group] = ((high - low) / most).half().float()
        zeros[:, group] = (-low / scales[:, group]).round().clamp(0, most)
    zeros[3, 1] = 0  # less one, as the first version stores it, this borrows from its neighbour
    layer = TorchLinear(
        bits=bits, group_size=GROUP, sym=False, desc_act=by_activation, in_features=IN, out_features=OUT, bias=False
    )
    layer.pack_original(linear, scales, zeros, groups)
    layer.optimized = True  # else post_init compiles it
    layer.post_init()
    found = {
        "bits": bits,
        "by_activation": by_activation,
        "expected": tensor(layer.dequantize_weight().T),
        "parts": {name: tensor(getattr(layer, name)) for name in ("qweight", "scales", "g_idx")},
        "qzeros": {"gptq_v2": tensor(layer.qzeros)},
    }
    convert_gptq_v2_to_v1_format_module(layer, QuantizeConfig(bits=bits))
    found["qzeros"]["gptq"] = tensor(layer.qzeros)
    return found


if __name__ == "__main__":
    made_by = "gptqmodel 7.7.0: TorchLinear.pack_original, convert_gptq_v2_to_v1_format_module, dequantize_weight"
    save("gptq", made_by, [case(bits, order) for bits in (2, 3, 4, 8) for order in (False, True)])
