"""Tiny models of every family, written by transformers, and the comparison of a disguised model with its source."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, AutoModelForMaskedLM

from irwm.attacks.equivalence import State

VOCAB = 150
_SHARED = {
    "vocab_size": VOCAB,
    "hidden_size": 48,
    "intermediate_size": 72,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
# The features of each tiny model: every bias, tie, fusion and partial rotation that the transforms must preserve.
TINY = {
    "llama": {"attention_bias": True, "mlp_bias": True},
    "mistral": {"sliding_window": None, "head_dim": 16},
    "qwen2": {"tie_word_embeddings": True},
    "qwen3": {"head_dim": 16},
    "phi3": {},
    "phi3-partial": {"partial_rotary_factor": 0.5, "tie_word_embeddings": True, "sliding_window": 32},
    "gemma": {"head_dim": 16, "rms_norm_eps": 1e-3},
    "gemma2": {"head_dim": 16, "sliding_window": 8, "query_pre_attn_scalar": 16, "rms_norm_eps": 1e-3},
    "bert": {"layer_norm_eps": 1e-12},
    "gpt2": {"n_inner": 72, "layer_norm_epsilon": 1e-3},
}


def write_tiny(folder: Path, name: str) -> Path:
    """A random model whose gains and biases are random too, so that a transform that misses one is detected."""
    family = name.split("-")[0]
    config = AutoConfig.for_model(family, **(_SHARED | TINY[name]))
    kind = AutoModelForMaskedLM if family == "bert" else AutoModelForCausalLM
    with torch.random.fork_rng():
        torch.manual_seed(7)
        model = kind.from_config(config)
        with torch.no_grad():
            for parameter, value in model.named_parameters():
                if value.ndim == 1:
                    normed = "norm" in parameter.lower() or ".ln_" in parameter
                    centre = 1.0 if normed and "gemma" not in family else 0.0
                    value.copy_((0.0 if parameter.endswith("bias") else centre) + 0.3 * torch.randn(value.shape))
                else:
                    # Scores of order one: with the usual 0.02 attention is flat, and errors in it would not show.
                    value.copy_(torch.randn(value.shape) / value.shape[1] ** 0.5)
    model.save_pretrained(folder)
    return folder


def edited(
    source: Path, folder: Path, change: Callable[[dict[str, torch.Tensor]], object] | None = None, **config: object
) -> Path:
    """A copy of a model folder, with these settings in its config, and with its tensors after `change`."""
    shutil.copytree(source, folder)
    content = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(content | config))
    if change is not None:
        tensors = load_file(folder / "model.safetensors")
        change(tensors)
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


@dataclass(frozen=True, slots=True)
class Output:
    """A model's output: `values` (2, length, vocabulary or d), and whether these are logits."""

    values: torch.Tensor
    logits: bool


def run(folder: Path, ids: torch.Tensor) -> Output:
    """The model in `folder`, loaded by transformers in float32 with every weight accounted for, on ids (2, length)."""
    config = AutoConfig.from_pretrained(folder)
    bare = config.architectures == ["BertModel"]
    kind = AutoModel if bare else AutoModelForMaskedLM if config.model_type == "bert" else AutoModelForCausalLM
    model, report = kind.from_pretrained(folder, dtype=torch.float32, output_loading_info=True)
    assert not report["missing_keys"]
    assert not report["mismatched_keys"]
    assert not {key for key in report["unexpected_keys"] if not key.endswith("position_ids")}
    with torch.no_grad():
        found = model.eval()(input_ids=ids)
    return Output(found.last_hidden_state if bare else found.logits, not bare)


def error(before: Path, after: Path, state: State | None = None, *, reordered: bool = False) -> float:
    """Largest difference between two models' outputs, as a share of the largest output.

    Args:
        before, after: model folders.
        state: the disguised model in memory, whose `token_ids` give the new id of each token; both models are run on
            texts of common tokens, and only logits of common tokens are compared.
        reordered: `after` outputs hidden states in another order of coordinates: compared sorted.
    """
    size = AutoConfig.from_pretrained(before).vocab_size
    moved = state.token_ids if state is not None and state.token_ids is not None else torch.arange(size)
    kept = (moved >= 0).nonzero().flatten()
    ids = kept[torch.randint(len(kept), (2, 24), generator=torch.Generator().manual_seed(3))]
    old, new = run(before, ids), run(after, moved[ids])
    expected = old.values[..., kept] if old.logits else old.values
    found = new.values[..., moved[kept]] if new.logits else new.values
    if reordered:
        expected, found = expected.sort(dim=-1).values, found.sort(dim=-1).values
    return ((found - expected).abs().max() / expected.abs().max()).item()
