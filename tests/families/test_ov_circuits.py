"""The tensors of every layer's OV circuit, against what attention adds to the stream in the running model."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import irwm
from irwm.families.ov_circuits import ov_circuits
from tests.families.cases import CASES
from tests.families.reference import FOREIGN, running_model, save

# Attention with one more step between values and output: a norm, a limit, a sink that takes a share of the weights, or
# layers whose heads differ. Their tensors are found too, but v and o alone are not what attention adds.
MORE_STEPS = {
    *("bitnet", "gemma4", "gemma4_unified", "embedding_gemma2", "gpt_oss", "mimo_v2_flash", "dbrx"),
    *("olmo, clipped", "olmoe, clipped", "mpt, clipped"),
}
# The running model has other names than the files, or loads only inside a multimodal one.
OTHER_NAMES = {case for case, (kind, _) in CASES.items() if kind in FOREIGN} | {"mllama", "qwen3_omni_moe", "step3"}
QUICK = pytest.mark.quick("separate, fused, grouped, transposed and interleaved values")
SOME = ("llama", "phi3", "gpt2", "gpt_neox", "falcon", "bert", "codegen", "t5")


@pytest.mark.slow
@pytest.mark.parametrize("case", [pytest.param(case, marks=QUICK if case in SOME else ()) for case in CASES])
def test_circuits_are_what_attention_adds_for_a_single_token(case: str, tmp_path: Path) -> None:
    """With one token per sequence every head attends to it alone, so the output is W_o W_v x plus biases."""
    checkpoint = irwm.open_checkpoint(save(case, tmp_path / "model", torch.float32))
    layout = checkpoint.layout
    circuits = ov_circuits(layout, checkpoint.tensors)
    assert circuits
    if case in MORE_STEPS | OTHER_NAMES:
        return
    model = running_model(case, tmp_path / "model", torch.float32)
    model = getattr(model, "encoder", model) if hasattr(model, "decoder") and hasattr(model, "encoder") else model
    assert len(circuits) == len({circuit.o.name for circuit in circuits})
    for circuit in circuits:
        seen: dict[str, torch.Tensor] = {}
        hooks = [
            _module(model, circuit.v.name).register_forward_pre_hook(lambda _, x, s=seen: s.update(x=x[0])),
            _module(model, circuit.o.name).register_forward_hook(lambda _, __, y, s=seen: s.update(y=y)),
        ]
        with torch.no_grad():
            getattr(model, "language_model", model)(input_ids=torch.tensor([[3], [17], [44], [101]]))
        for hook in hooks:
            hook.remove()
        x, y = (seen[side].reshape(4, -1).double() for side in "xy")
        v, o = checkpoint.read(circuit.v).double(), checkpoint.read(circuit.o).double()
        size = o.shape[1] // layout.heads
        values = (x @ v.T).unflatten(1, (-1, size)).repeat_interleave(layout.heads * size // len(v), 1).flatten(1)
        added = values @ o.T
        assert torch.allclose(added[1:] - added[0], y[1:] - y[0], rtol=1e-3, atol=1e-4)


def _module(model: torch.nn.Module, tensor: str) -> torch.nn.Module:
    """The module of a tensor in the files, whose name may have a longer path."""
    stem = tensor.removesuffix(".weight")
    return next(module for name, module in model.named_modules() if name and f".{stem}".endswith(f".{name}"))


def test_layers_without_attention_are_left_out(tmp_path: Path) -> None:
    checkpoint = irwm.open_checkpoint(save("llama", tmp_path / "model", torch.float32))
    whole = ov_circuits(checkpoint.layout, checkpoint.tensors)
    some = [name for name in checkpoint.tensors if name != whole[0].o.name]
    assert ov_circuits(checkpoint.layout, some) == whole[1:]
    assert ov_circuits(checkpoint.layout, [name for name in some if name != whole[1].v.name]) == whole[2:]
