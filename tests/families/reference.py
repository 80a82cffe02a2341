"""Tiny models of every family, made and run by transformers: the yardstick for what the files' layout computes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import CONFIG_MAPPING, MODEL_FOR_CAUSAL_LM_MAPPING, AutoModel, BertConfig, BertForMaskedLM

VOCABULARY = 199

# Sizes that keep every convention visible: grouped heads, heads * head_dim apart from the hidden size, a hidden size
# whose square root is no whole number, and an eps large enough to show in the scores.
_DECODER = {
    "vocab_size": VOCABULARY,
    "hidden_size": 72,
    "intermediate_size": 40,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 32,
    "rms_norm_eps": 1e-2,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_OWN_HEAD_DIM = {**_DECODER, "head_dim": 20}

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", _DECODER),
    "llama, biases and own head_dim": ("llama", {**_OWN_HEAD_DIM, "attention_bias": True}),
    "llama, tied": ("llama", {**_DECODER, "tie_word_embeddings": True}),
    "llama, every head its own key": ("llama", {**_DECODER, "num_key_value_heads": 6}),
    "mistral, one key head": ("mistral", {**_DECODER, "num_key_value_heads": 1}),
    "qwen2": ("qwen2", _DECODER),
    "qwen3": ("qwen3", _OWN_HEAD_DIM),
    "qwen3, biases": ("qwen3", {**_OWN_HEAD_DIM, "attention_bias": True}),
    "phi3": ("phi3", {**_DECODER}),
    "gemma": ("gemma", _OWN_HEAD_DIM),
    "gemma2": ("gemma2", _OWN_HEAD_DIM),
    "bert": (
        "bert",
        {
            "vocab_size": VOCABULARY,
            "hidden_size": 72,
            "intermediate_size": 40,
            "num_hidden_layers": 2,
            "num_attention_heads": 6,
            "max_position_embeddings": 32,
            "layer_norm_eps": 1e-2,
        },
    ),
}


def tiny_model(case: str, seed: int = 0) -> torch.nn.Module:
    """The case's model, float32, every parameter random: fresh norms are ones and biases zeros, which hide mistakes."""
    model_type, settings = CASES[case]
    torch.manual_seed(seed)
    if model_type == "bert":
        model = BertForMaskedLM(BertConfig(**settings))
    else:
        config = CONFIG_MAPPING[model_type](**settings)
        model = MODEL_FOR_CAUSAL_LM_MAPPING[type(config)](config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name.lower() and name.endswith("weight"):
                parameter.copy_(0.3 + torch.rand_like(parameter))
            elif name.endswith("bias"):
                parameter.copy_(0.5 * torch.randn_like(parameter))
            else:
                parameter.copy_(0.1 * torch.randn_like(parameter))
    return model.eval()


def save(case: str, folder: Path, dtype: torch.dtype) -> Path:
    tiny_model(case).to(dtype).save_pretrained(folder)
    return folder


def load_as_float32(folder: Path) -> torch.nn.Module:
    """The saved model in float32, computing with the constants of the dtype it was saved for."""
    model = AutoModel.from_pretrained(folder, dtype=torch.float32, local_files_only=True).eval()
    embedding = model.get_input_embeddings()
    if hasattr(embedding, "embed_scale"):
        saved_for = AutoModel.from_pretrained(folder, local_files_only=True).dtype
        embedding.embed_scale = embedding.embed_scale.to(saved_for).float()
    return model


def model_scores(model: torch.nn.Module, queries: list[int], references: list[int]) -> torch.Tensor:
    """A as the running model computes it, (t, d) float64: q and k caught on their way to the rotary embedding."""
    (q, _), (_, k) = _queries_and_keys(model, queries), _queries_and_keys(model, references)
    k = k.repeat_interleave(q.shape[1] // k.shape[1], dim=1)
    return torch.einsum("ihe,khe->ik", q.double(), k.double())


def _queries_and_keys(model: torch.nn.Module, tokens: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    """q (n, heads, head_dim) and k (n, kv heads, head_dim), each token a sequence of its own, hence at position 0."""
    config = model.config
    caught: dict[str, torch.Tensor] = {}
    if config.model_type == "bert":
        attention = model.encoder.layer[0].attention.self
        modules = {"q": attention.query, "k": attention.key}
    else:
        attention = model.layers[0].self_attn
        if config.model_type == "phi3":
            modules = {"qkv": attention.qkv_proj}
        elif config.model_type == "qwen3":
            modules = {"q": attention.q_norm, "k": attention.k_norm}
        else:
            modules = {"q": attention.q_proj, "k": attention.k_proj}

    def catch(name: str) -> Any:
        return lambda module, inputs, output: caught.__setitem__(name, output)

    hooks = [module.register_forward_hook(catch(name)) for name, module in modules.items()]
    with torch.no_grad():
        model(input_ids=torch.tensor(tokens)[:, None])
    for hook in hooks:
        hook.remove()
    heads = config.num_attention_heads
    kv_heads = getattr(config, "num_key_value_heads", heads)
    if "qkv" in caught:
        size = caught["qkv"].shape[-1] // (heads + 2 * kv_heads)
        caught["q"], caught["k"], _ = caught["qkv"].split([heads * size, kv_heads * size, kv_heads * size], dim=-1)
    n = len(tokens)
    return caught["q"].reshape(n, heads, -1), caught["k"].reshape(n, kv_heads, -1)


def shapes_of(case: str) -> dict[str, tuple[int, ...]]:
    """Names and shapes as the case's files hold them: a tied head is not stored."""
    model = tiny_model(case)
    tied = set(model.all_tied_weights_keys)
    return {name: tuple(tensor.shape) for name, tensor in model.state_dict().items() if name not in tied}


def config_of(case: str) -> dict[str, Any]:
    model_type, settings = CASES[case]
    return {"model_type": model_type, **settings}
