"""Models for tests and benchmarks: the bundled one with trained weights, and tiny ones written by transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

DEMO = Path(__file__).resolve().parents[1] / "assets" / "demo"


def write_llama(folder: Path, *, dtype: torch.dtype = torch.float32, seed: int = 0, **config: Any) -> Path:
    """Write a small random Llama (GQA) with transformers, large enough for 50 positions and 10 constraints."""
    from transformers import LlamaConfig, LlamaForCausalLM

    settings: dict[str, Any] = {
        "vocab_size": 600,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 1,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 64,
        "tie_word_embeddings": False,
    } | config
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = LlamaForCausalLM(LlamaConfig(**settings)).to(dtype)  # type: ignore[arg-type]  # transformers' stub
        with torch.no_grad():
            for name, value in model.named_parameters():
                if "norm" in name:
                    value.copy_(1 + 0.2 * torch.randn(value.shape))
    model.save_pretrained(folder)
    return folder
