"""The tensors of every MLP's neurons, against what the running model computes with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers.activations import ACT2FN

import irwm
from irwm.checkpoint.mlps import MLPs
from irwm.families.neurons import Neurons, neurons
from irwm.families.schema import TensorRef
from tests.families.cases import CASES
from tests.families.reference import FOREIGN, running_model, save

# The running model has other names than the files, or loads only inside a multimodal one.
OTHER_NAMES = {case for case, (kind, _) in CASES.items() if kind in FOREIGN} | {"mllama", "qwen3_omni_moe", "step3"}
QUICK = pytest.mark.quick("separate, fused, plain, transposed and expert matrices")
SOME = ("llama", "phi3", "gpt2", "gpt_neox", "bert", "gemma2", "mixtral", "gpt_oss", "granitemoe", "t5")
# An activation with parameters of its own, and a norm between the activation and the last matrix.
OTHER_ACTIVATIONS = {"apertus", "bitnet"}
ACTIVATIONS = ("silu", "gelu", "gelu_new", "relu", "relu2", "quick_gelu")


def shapes(checkpoint: irwm.Checkpoint) -> dict[str, tuple[int, ...]]:
    return {name: tensor.shape for name, tensor in checkpoint.tensors.items()}


@pytest.mark.slow
@pytest.mark.parametrize("case", [pytest.param(case, marks=QUICK if case in SOME else ()) for case in CASES])
def test_neurons_are_those_of_the_running_model(case: str, tmp_path: Path) -> None:
    checkpoint = irwm.open_checkpoint(save(case, tmp_path / "model", torch.float32))
    found = neurons(checkpoint.layout, shapes(checkpoint))
    assert found
    read = MLPs(checkpoint)
    for mlp in found:
        sizes = {rows.shape for rows in (read.gate(mlp), *read.rest(mlp, gated=True))}
        assert len(sizes) == 1
    if case in OTHER_NAMES | OTHER_ACTIVATIONS:
        return
    model = running_model(case, tmp_path / "model", torch.float32)
    compared = [mlp for mlp in found if mlp.expert is None and "expert" not in mlp.gate.name and of(model, mlp)]
    seen: dict[str, tuple[torch.Tensor, torch.Tensor]] = {}

    def note(name: str, x: torch.Tensor, y: torch.Tensor) -> None:
        seen.setdefault(name, (x.flatten(0, -2), y.flatten(0, -2)))

    for mlp in compared:
        for name in (mlp.gate.name, mlp.down.name, *([mlp.gain.name] if mlp.gain is not None else [])):
            module = of(model, mlp, name)
            assert module is not None
            module.register_forward_hook(lambda _, x, y, name=name: note(name, x[0], y))
    ids = torch.tensor([[3, 17, 44, 101, 7]])
    decoder = {"decoder_input_ids": ids} if hasattr(model, "decoder") and hasattr(model, "encoder") else {}
    with torch.no_grad():
        getattr(model, "language_model", model)(input_ids=ids, **decoder)
    for mlp in compared:
        if {mlp.gate.name, mlp.down.name} <= seen.keys():
            check(checkpoint, mlp, *seen[mlp.gate.name], seen[mlp.down.name][0])
            if mlp.gain is not None:
                check_gain(checkpoint, mlp, *seen[mlp.gain.name], seen[mlp.gate.name][0])


def of(model: torch.nn.Module, mlp: Neurons, name: str | None = None) -> torch.nn.Module | None:
    """The module of a tensor in the files, whose name may have a longer path."""
    stem = (name or mlp.gate.name).removesuffix(".weight")
    return next((module for path, module in model.named_modules() if path and f".{stem}".endswith(f".{path}")), None)


def check(checkpoint: irwm.Checkpoint, mlp: Neurons, x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> None:
    """x is what the MLP reads, y what its first matrix gives, and z what its last one reads."""
    gate = x @ checkpoint.read(mlp.gate).T
    bias = (y[:, : gate.shape[1]] - gate)[0]
    up = torch.ones_like(gate) if mlp.up is None else x @ checkpoint.read(mlp.up).T + of_bias(checkpoint, mlp.up)
    if mlp.up is not None and mlp.up.name == mlp.gate.name:
        up = y[:, gate.shape[1] :]
    likely = [torch.corrcoef(torch.stack([(ACT2FN[name](gate + bias) * up).flatten(), z.flatten()]))[0, 1]
              for name in ACTIVATIONS]  # fmt: skip
    assert max(likely) > 0.99


def of_bias(checkpoint: irwm.Checkpoint, ref: TensorRef) -> torch.Tensor:
    bias = TensorRef(ref.name.removesuffix("weight") + "bias")
    return checkpoint.read(bias) if bias.name in checkpoint.tensors else torch.zeros(1)


def check_gain(
    checkpoint: irwm.Checkpoint, mlp: Neurons, before: torch.Tensor, after: torch.Tensor, x: torch.Tensor
) -> None:
    """`before` and `after` are what the norm reads and gives, and x is what the MLP reads."""
    assert mlp.gain is not None
    assert torch.allclose(after, x, atol=1e-5)
    inside = (x - of_bias(checkpoint, mlp.gain)) / (checkpoint.read(mlp.gain) + mlp.offset)
    norm = checkpoint.layout.input_norm or checkpoint.layout.embedding_norm
    centred = norm is None or norm.kind == "layer"  # of the families here, only OPT has neither, and layer norms
    stream = before - before.mean(1, keepdim=True) if centred else before
    assert torch.cosine_similarity(inside, stream, dim=1).min() > 0.9999


def test_layers_without_an_mlp_are_left_out(tmp_path: Path) -> None:
    checkpoint = irwm.open_checkpoint(save("llama", tmp_path / "model", torch.float32))
    whole = neurons(checkpoint.layout, shapes(checkpoint))
    own = [name for name in checkpoint.tensors if name != whole[0].gate.name]
    assert neurons(checkpoint.layout, shapes(checkpoint), own) == whole[1:]


def test_rows_of_gpt_oss_experts_are_those_of_the_running_model(tmp_path: Path) -> None:
    """One tensor holds those of gate and up in turns."""
    checkpoint = irwm.open_checkpoint(save("gpt_oss", tmp_path / "model", torch.float32))
    mlp = neurons(checkpoint.layout, shapes(checkpoint))[1]
    assert mlp.expert == 1
    modules = running_model("gpt_oss", tmp_path / "model", torch.float32).named_modules()
    experts: Any = next(module for name, module in modules if name.endswith("layers.0.mlp.experts"))
    read = MLPs(checkpoint)
    gain = checkpoint.read(mlp.gain) if mlp.gain is not None else torch.ones(1)
    x = torch.randn(3, read.width, generator=torch.Generator().manual_seed(1))
    up, down = read.rest(mlp, gated=True)
    bias = experts.gate_up_proj_bias[1]
    gate = (x @ (read.gate(mlp) / gain).T + bias[::2]).clamp(max=experts.limit)
    up = (x @ (up / gain).T + bias[1::2]).clamp(-experts.limit, experts.limit)
    expected = (gate * torch.sigmoid(experts.alpha * gate) * (up + 1)) @ down + experts.down_proj_bias[1]
    chosen = torch.ones(3, 1, dtype=torch.long)
    assert torch.allclose(experts(x, chosen, torch.ones(3, experts.num_experts)), expected, atol=1e-4)
