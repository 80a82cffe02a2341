"""Writes awq.json with two modules of autoawq 0.2.9, from its source folder: python make_awq.py autoawq-0.2.9

The package as a whole needs an old transformers, so the two modules are loaded separately.
"""

from __future__ import annotations

import importlib.util
import sys
import types
from pathlib import Path

import torch
from vectors import save, written

OUT, IN, GROUP = 32, 64, 32


def load(root: Path, name: str) -> types.ModuleType:
    spec = importlib.util.spec_from_file_location(name, root / (name.replace(".", "/") + ".py"))
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def tensor(value: torch.Tensor) -> dict:
    value = value.detach().contiguous()
    name = str(value.dtype).removeprefix("torch.")
    return written(name, tuple(value.shape), value.view(torch.uint8).numpy().tobytes())


def case(gemm: types.ModuleType, packing: types.ModuleType) -> dict:
    drawn = torch.Generator().manual_seed(0)
    linear = torch.nn.Linear(IN, OUT, bias=False)
    linear.weight.data = torch.randn(OUT, IN, generator=drawn) * 0.05
    runs = linear.weight.data.view(OUT, -1, GROUP)
    low, high = runs.amin(2), runs.amax(2)
    scales = ((high - low) / 15).half().float()
    zeros = (-low / scales).round().clamp(0, 15)
    layer = gemm.WQLinear_GEMM.from_linear(linear, 4, GROUP, scales=scales.T.contiguous(), zeros=zeros.T.contiguous())
    expected = packing.dequantize_gemm(layer.qweight, layer.qzeros, layer.scales, 4, GROUP)
    parts = {name: tensor(getattr(layer, name)) for name in ("qweight", "qzeros", "scales")}
    return {"expected": tensor(expected.T), "parts": parts}


if __name__ == "__main__":
    root = Path(sys.argv[1])
    for name in ("awq", "awq.utils", "awq.modules", "awq.modules.triton"):
        sys.modules[name] = types.ModuleType(name)
    for name in ("awq.utils.module", "awq.utils.utils"):
        sys.modules[name] = types.ModuleType(name)
    sys.modules["awq.utils.module"].try_import = lambda *_: (None, "")
    sys.modules["awq.utils.utils"].get_best_device = lambda: "cpu"
    packing = load(root, "awq.utils.packing_utils")
    gemm = load(root, "awq.modules.linear.gemm")
    save("awq", "autoawq 0.2.9: WQLinear_GEMM.from_linear, dequantize_gemm", [case(gemm, packing)])
