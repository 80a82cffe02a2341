"""Random adapters saved by peft, and ways of corrupting one."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from irwm.checkpoint import Checkpoint, open_checkpoint

WEIGHTS, CONFIG = "adapter_model.safetensors", "adapter_config.json"


def made(
    base: Path, out: Path, resize: int = 0, load: Callable[..., Any] | None = None, **settings: Any
) -> dict[str, torch.Tensor]:
    """An adapter of random numbers for the model in `base`, saved by peft; returns the merged model's weights."""
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    with warnings.catch_warnings(), torch.random.fork_rng():
        warnings.simplefilter("ignore")  # peft warns about what it saves in addition to A and B
        torch.manual_seed(0)
        model = (load or AutoModelForCausalLM.from_pretrained)(base, dtype=torch.float32)
        if resize:
            model.resize_token_embeddings(resize)
        adapter = get_peft_model(model, LoraConfig(r=4, **settings))
        with torch.no_grad():
            for name, value in adapter.named_parameters():
                if "magnitude" in name:
                    value.mul_(1 + 0.2 * torch.rand(value.shape))
                elif "lora_" in name or "trainable_tokens_delta" in name or "modules_to_save" in name:
                    value.copy_(0.05 * torch.randn(value.shape))
        adapter.save_pretrained(out)
        return {name: value.detach().clone() for name, value in adapter.merge_and_unload().state_dict().items()}


def change_weights(folder: Path, tensors: Mapping[str, torch.Tensor | None]) -> None:
    """Replaces tensors by the end of their names; None removes one."""
    held = load_file(folder / WEIGHTS)
    for end, value in tensors.items():
        (name,) = [name for name in held if name.endswith(end)]
        del held[name]
        if value is not None:
            held[name] = value.contiguous()
    save_file(held, folder / WEIGHTS)


@pytest.fixture(scope="module")
def base(tiny_path: Path) -> Checkpoint:
    return open_checkpoint(tiny_path)


@pytest.fixture(scope="module")
def sound(base: Checkpoint, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An adapter of the tiny model's q, k and embedding."""
    folder = tmp_path_factory.mktemp("adapter") / "a"
    made(base.path, folder, target_modules=["q_proj", "k_proj", "embed_tokens"])
    return folder


@pytest.fixture
def copy(sound: Path, tmp_path: Path) -> Path:
    """A copy of `sound` that the test may corrupt."""
    return Path(shutil.copytree(sound, tmp_path / "adapter"))
