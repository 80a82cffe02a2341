"""GGUF files as llama.cpp's converter writes them, and headers written byte by byte.

The converter's conventions are implemented here a second time, in the reverse direction and independently of the
reader; `test_gguf_translation.py` compares them with transformers' own GGUF loader if that knows the architecture.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from safetensors.torch import load_file

F32, F16, BF16 = (gguf.GGMLQuantizationType[name] for name in ("F32", "F16", "BF16"))
# transformers' model types and GGUF's architectures.
ARCHITECTURES = {
    "apertus": "APERTUS", "arcee": "ARCEE", "baichuan": "BAICHUAN", "bert": "BERT", "bloom": "BLOOM",
    "camembert": "BERT", "cohere": "COMMAND_R", "cohere2": "COHERE2", "distilbert": "BERT", "ernie4_5": "ERNIE4_5",
    "exaone4": "EXAONE4", "falcon": "FALCON", "gemma": "GEMMA", "gemma2": "GEMMA2", "gemma3_text": "GEMMA3",
    "glm": "CHATGLM", "glm4": "GLM4", "gpt2": "GPT2", "gpt_bigcode": "STARCODER", "gpt_neox": "GPTNEOX",
    "gpt_oss": "GPT_OSS", "granite": "GRANITE", "granitemoe": "GRANITE_MOE", "internlm2": "INTERNLM2",
    "internlm3": "LLAMA", "llama": "LLAMA", "llama4_text": "LLAMA4", "ministral3": "MISTRAL3", "mistral": "LLAMA",
    "mixtral": "LLAMA", "mpt": "MPT", "nemotron": "NEMOTRON", "olmo": "OLMO", "olmo2": "OLMO2", "olmo3": "OLMO2",
    "olmoe": "OLMOE", "phi": "PHI2", "phi3": "PHI3", "phimoe": "PHIMOE", "qwen2": "QWEN2", "qwen2_moe": "QWEN2MOE",
    "qwen3": "QWEN3", "qwen3_moe": "QWEN3MOE", "roberta": "BERT", "seed_oss": "SEED_OSS", "smollm3": "SMOLLM3",
    "stablelm": "STABLELM", "starcoder2": "STARCODER2", "t5": "T5", "xlm-roberta": "BERT",
}  # fmt: skip
# Architectures whose q and k llama.cpp rearranges for its rotary embedding, and those whose norms' gains it adds one
# to.
_PAIRED = {
    *("arcee", "granite", "granitemoe", "internlm3", "llama", "ministral3", "mistral", "mixtral", "olmo", "smollm3")
}
_ONE_ADDED = {"gemma", "gemma2", "gemma3_text", "nemotron"}
# Prefixes that the converter removes before it looks up a name.
_PREFIXES = {
    "bert": "bert.", "bloom": "transformer.", "camembert": "roberta.", "distilbert": "distilbert.",
    "roberta": "roberta.", "xlm-roberta": "roberta.",
}  # fmt: skip
# Tensors that the converter omits, and those that these tests do not need: experts, routers, heads of encoders.
_LEFT_OUT = re.compile(
    r"cls\.|pooler|lm_head\.(dense|layer_norm|decoder|bias)|vocab_|expert|router|\.gate\.|block_sparse|feed_forward\.w"
    r"|mlp\.(act_fn|gate_up)|act_fn|position_ids|sinks|rotary|masked_bias|\.attn\.bias$|relative_attention"
)


def convert(
    folder: Path,
    path: Path,
    kind: gguf.GGMLQuantizationType = F32,
    *,
    tokens: Sequence[str] = (),
    types: Sequence[int] = (),
    spelling: str = "gpt2",
    **arrangement: Any,
) -> Path:
    """Writes a model folder as a GGUF file, its matrices in the format `kind`; llama.cpp needs the others in float32.

    `tokens` and `types` are the vocabulary, `spelling` is GGUF's name for the kind of tokenizer, and `arrangement` goes
    to GGUFWriter, which can write several files.
    """
    config = json.loads((folder / "config.json").read_text())
    arch = gguf.MODEL_ARCH[ARCHITECTURES[config["model_type"]]]
    writer = gguf.GGUFWriter(path, gguf.MODEL_ARCH_NAMES[arch], **arrangement)
    tensors = converted(folder)
    _write_settings(writer, config)
    if tokens:
        writer.add_tokenizer_model(spelling)
        writer.add_token_list(list(tokens))
        writer.add_token_types(list(types) or [1] * len(tokens))
    for name, value in tensors.items():
        plain = value.ndim < 2 or name.endswith(("_norm.weight", "_norm.bias"))
        add_tensor(writer, name, value, F32 if plain else kind)
    return finished(writer)


def add_tensor(writer: gguf.GGUFWriter, name: str, value: np.ndarray, kind: gguf.GGMLQuantizationType) -> None:
    content = gguf.quants.quantize(value.astype(np.float32), kind)
    writer.add_tensor(name, content, raw_dtype=kind)


def finished(writer: gguf.GGUFWriter) -> Path:
    path = writer.path
    assert isinstance(path, Path)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def converted(folder: Path) -> dict[str, np.ndarray]:
    """The folder's tensors under GGUF's names and in llama.cpp's order, float32."""
    config = json.loads((folder / "config.json").read_text())
    arch = gguf.MODEL_ARCH[ARCHITECTURES[config["model_type"]]]
    layers = _first(config, "num_hidden_layers", "n_layer", "n_layers", "num_layers")
    names = gguf.get_tensor_name_map(arch, layers)
    found = {}
    stored = load_file(folder / "model.safetensors")
    for name, tensor in stored.items():
        if _LEFT_OUT.search(name):
            continue
        bare = name.partition(".")[2] if name.startswith(_PREFIXES.get(config["model_type"], "none")) else name
        for new, value in _rearranged(config, bare, tensor.float(), stored):
            known = names.get_name(new, try_suffixes=(".weight", ".bias")) or (new if new.startswith("blk.") else None)
            assert known is not None, name
            found[known] = value.contiguous().numpy()
    return found


def _rearranged(
    config: dict[str, Any], name: str, value: torch.Tensor, stored: dict[str, torch.Tensor]
) -> Iterator[tuple[str, torch.Tensor]]:
    """The conversion of one tensor, under transformers' names or already under GGUF's."""
    model_type = config["model_type"]
    heads, kv_heads, _ = sizes(config)
    layer = re.search(r"\.(\d+)\.", name)
    block = f"blk.{layer[1]}." if layer else ""
    kind = name.rpartition(".")[2]
    if model_type in _ONE_ADDED and name.endswith("norm.weight"):
        yield name, value + 1
    elif model_type == "gpt2" and re.search(r"(c_attn|c_proj|c_fc)\.weight", name):
        yield name, value.T
    elif "query_key_value" in name:
        # Groups of query heads with their key and value, to all queries, all keys, all values.
        parts = value.view(kv_heads, heads // kv_heads + 2, -1, *value.shape[1:])
        order = (parts[:, :-2], parts[:, -2], parts[:, -1])
        yield name, torch.cat([part.reshape(-1, *value.shape[1:]) for part in order])
    elif "W_pack" in name:
        for part, rows in zip("qkv", value.chunk(3), strict=True):
            yield f"{block}attn_{part}.{kind}", rows if part == "v" else paired(rows, heads)
    elif "wqkv" in name:
        parts = value.view(kv_heads, heads // kv_heads + 2, -1, *value.shape[1:])
        q, k, v = (p.reshape(-1, *value.shape[1:]) for p in (parts[:, :-2], parts[:, -2], parts[:, -1]))
        yield f"{block}attn_q.{kind}", paired(q, heads)
        yield f"{block}attn_k.{kind}", paired(k, kv_heads)
        yield f"{block}attn_v.{kind}", v
    elif model_type in _PAIRED and re.search(r"[qk]_proj\.(weight|bias)$", name):
        yield name, paired(value, heads if "q_proj" in name else kv_heads)
    elif (stacked := re.search(r"(.*_layernorm)\.norms\.(\d+)\.weight", name)) is not None:
        if stacked[2] == "0":
            rows = sum(other.startswith(f"{stacked[1]}.norms.") for other in stored)
            gains = [stored[f"{stacked[1]}.norms.{head}.weight"].float() for head in range(rows)]
            yield f"{stacked[1]}.weight", torch.stack(gains)
    elif model_type in ("roberta", "xlm-roberta", "camembert") and "position_embeddings" in name:
        yield name, value[config["pad_token_id"] + 1 :]
    else:
        yield name, value


def paired(value: torch.Tensor, heads: int) -> torch.Tensor:
    """Interleaves rows i and i + half of each head."""
    first, second = value.reshape(heads, 2, -1, *value.shape[1:]).unbind(1)
    return torch.stack((first, second), dim=2).reshape(value.shape)


def _first(config: dict[str, Any], *keys: str) -> Any:
    return next((config[key] for key in keys if config.get(key) is not None), None)


def sizes(config: dict[str, Any]) -> tuple[int, int, int]:
    """Query heads, key heads, width."""
    heads = _first(config, "num_attention_heads", "n_head", "n_heads", "num_heads")
    width = _first(config, "hidden_size", "n_embd", "d_model", "dim")
    model_type = config["model_type"]
    if model_type == "falcon" and not config.get("new_decoder_architecture"):
        kv_heads = 1 if config.get("multi_query", True) else heads
    elif model_type == "gpt_bigcode":
        kv_heads = 1
    else:
        kv_heads = _first(config, "num_kv_heads", "num_key_value_heads") or heads
    return heads, kv_heads, width


def _write_settings(writer: gguf.GGUFWriter, config: dict[str, Any]) -> None:
    heads, kv_heads, width = sizes(config)
    writer.add_block_count(_first(config, "num_hidden_layers", "n_layer", "n_layers", "num_layers"))
    writer.add_context_length(32)
    writer.add_embedding_length(width)
    writer.add_feed_forward_length(_first(config, "intermediate_size", "ffn_hidden_size", "d_ff") or 4 * width)
    writer.add_head_count(heads)
    if config["model_type"] not in ("gpt2", "gpt_neox"):  # for which the converter omits it
        writer.add_head_count_kv(kv_heads)
    writer.add_vocab_size(config["vocab_size"])
    writer.add_rope_dimension_count(_first(config, "head_dim") or width // heads)
    if (head_dim := _first(config, "head_dim", "d_kv")) is not None:
        writer.add_key_length(head_dim)
        writer.add_value_length(head_dim)
    if (eps := _first(config, "rms_norm_eps")) is not None:
        writer.add_layer_norm_rms_eps(eps)
    if (eps := _first(config, "layer_norm_eps", "layer_norm_epsilon", "norm_epsilon", "norm_eps")) is not None:
        (writer.add_layer_norm_rms_eps if config["model_type"] == "t5" else writer.add_layer_norm_eps)(eps)
    if (scale := config.get("embedding_multiplier")) is not None:
        writer.add_embedding_scale(scale)
    if (experts := _first(config, "num_experts", "num_local_experts")) is not None:
        writer.add_expert_count(experts)
    clip = _first(config, "clip_qkv") or _first(config.get("attn_config") or {}, "clip_qkv")
    if clip is not None:
        writer.add_clamp_kqv(clip)
    for name, i in config.items():
        if name in ("bos_token_id", "eos_token_id") and i is not None:
            writer.add_uint32(f"tokenizer.ggml.{name}", i)


# --- byte by byte


def text(value: str | bytes) -> bytes:
    content = value if isinstance(value, bytes) else value.encode()
    return struct.pack("<Q", len(content)) + content


def setting(name: str | bytes, kind: int, value: bytes) -> bytes:
    return text(name) + struct.pack("<I", kind) + value


def tensor(name: str | bytes, shape: Sequence[int], kind: int, offset: int) -> bytes:
    """A tensor's entry; `shape` with its fastest dimension first, as in the file."""
    return text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset)


def header(
    settings: Sequence[bytes],
    tensors: Sequence[bytes],
    *,
    magic: bytes = b"GGUF",
    version: int = 3,
    tensor_count: int | None = None,
    setting_count: int | None = None,
) -> bytes:
    counts = (
        len(tensors) if tensor_count is None else tensor_count,
        len(settings) if setting_count is None else setting_count,
    )
    return magic + struct.pack("<IQQ", version, *counts) + b"".join(settings) + b"".join(tensors)


def raw(path: Path, head: bytes, data: bytes = b"", alignment: int = 32) -> Path:
    path.write_bytes(head + bytes(-len(head) % alignment) + data)
    return path
