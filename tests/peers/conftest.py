"""Models that every peer is tried on: the demo, disguised and damaged copies of it, and an unrelated one."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

Tensors = dict[str, torch.Tensor]


def permuted(tensors: Tensors) -> Tensors:
    """The residual coordinates in another order and with other signs; the model computes the same."""
    generator = torch.Generator().manual_seed(3)
    columns = tensors["model.norm.weight"].numel()
    order = torch.randperm(columns, generator=generator)
    signs = torch.where(torch.rand(columns, generator=generator) < 0.5, -1.0, 1.0)

    def change(name: str, x: torch.Tensor) -> torch.Tensor:
        if "o_proj" in name or "down_proj" in name:
            return x[order] * signs[:, None]
        return x[:, order] * signs if x.ndim == 2 else x[order]

    return {name: change(name, x) for name, x in tensors.items()}


def noisy(tensors: Tensors) -> Tensors:
    """Noise of 0.3 deviations on every matrix, in the order of the names."""
    generator = torch.Generator().manual_seed(4)

    def change(x: torch.Tensor) -> torch.Tensor:
        return x + 0.3 * x.std() * torch.randn(x.shape, generator=generator) if x.ndim == 2 else x

    return {name: change(tensors[name]) for name in sorted(tensors)}


def write_variants(original: Path, folder: Path) -> dict[str, Path]:
    """The demo under `permuted`, `noisy` and both, in float32."""
    tensors = {name: x.float() for name, x in load_file(original / "model.safetensors").items()}
    changed = {"permuted": permuted(tensors), "noisy": noisy(tensors), "both": permuted(noisy(tensors))}
    for name, content in changed.items():
        shutil.copytree(original, folder / name)
        contiguous = {key: x.contiguous() for key, x in content.items()}
        save_file(contiguous, folder / name / "model.safetensors", metadata={"format": "pt"})
    return {name: folder / name for name in changed}


@pytest.fixture(scope="session")
def variants(demo_path: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return write_variants(demo_path, tmp_path_factory.mktemp("variants"))


@pytest.fixture(scope="session")
def unrelated(demo_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Random weights, the demo's config and tokenizer."""
    from transformers import AutoConfig, AutoModelForCausalLM

    folder = tmp_path_factory.mktemp("unrelated")
    with torch.random.fork_rng():
        torch.manual_seed(1)
        AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(demo_path)).save_pretrained(folder)
    shutil.copyfile(demo_path / "tokenizer.json", folder / "tokenizer.json")
    return folder


@pytest.fixture(scope="session")
def trimmed(demo_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo's first 3 000 rows and no tokenizer."""
    folder = tmp_path_factory.mktemp("trimmed") / "model"
    shutil.copytree(demo_path, folder)
    (folder / "tokenizer.json").unlink()
    tensors = load_file(folder / "model.safetensors")
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        tensors[name] = tensors[name][:3000].contiguous()
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    config = (folder / "config.json").read_text(encoding="utf-8")
    (folder / "config.json").write_text(config.replace('"vocab_size": 4096', '"vocab_size": 3000'), encoding="utf-8")
    return folder
