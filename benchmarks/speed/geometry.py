"""Synthetic checkpoints with the geometry of Llama-3-8B: 128 256 × 4 096, 32 query and 8 key heads, in shards.

The embedding is heavy-tailed with a variance that falls off over the columns, as in trained models. Layers after
layer 0 matter to the product only by their size, so all of them share one draw of numbers.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import save_file

from benchmarks.alignment_scale import BLOCK, synthetic


@dataclass(frozen=True, slots=True)
class Geometry:
    """Sizes of a synthetic Llama. `layers` decides how many bytes there are besides the embedding."""

    rows: int = 128_256
    columns: int = 4096
    inner: int = 14_336
    heads: int = 32
    key_heads: int = 8
    layers: int = 8

    @classmethod
    def of_columns(cls, columns: int, rows: int, layers: int = 1) -> Geometry:
        heads = max(1, columns // 128)
        return cls(rows, columns, 7 * columns // 2, heads, max(1, heads // 4), layers)


LLAMA_8B = Geometry()


def write(folder: Path, geometry: Geometry, table: torch.Tensor | None = None, seed: int = 0) -> Path:
    """Write config and shards: the embedding in the first shard, each layer in one shard, the head in the last."""
    folder.mkdir(parents=True)
    d, g = geometry.columns, geometry
    table = synthetic(g.rows, d) if table is None else table
    generator = torch.Generator().manual_seed(1 + seed)

    def noise(*shape: int) -> torch.Tensor:
        return (0.02 * torch.randn(*shape, generator=generator)).bfloat16()

    head = d // g.heads
    layer = {
        "self_attn.q_proj": noise(d, d),
        "self_attn.k_proj": noise(g.key_heads * head, d),
        "self_attn.v_proj": noise(g.key_heads * head, d),
        "self_attn.o_proj": noise(d, d),
        "mlp.gate_proj": noise(g.inner, d),
        "mlp.up_proj": noise(g.inner, d),
        "mlp.down_proj": noise(d, g.inner),
        "input_layernorm": torch.ones(d, dtype=torch.bfloat16),
        "post_attention_layernorm": torch.ones(d, dtype=torch.bfloat16),
    }
    shards = [{"model.embed_tokens.weight": table}]
    shards += [
        {f"model.layers.{number}.{name}.weight": tensor for name, tensor in layer.items()} for number in range(g.layers)
    ]
    shards.append({"model.norm.weight": torch.ones(d, dtype=torch.bfloat16), "lm_head.weight": noise(g.rows, d)})
    where: dict[str, str] = {}
    for number, tensors in enumerate(shards, 1):
        name = f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        save_file(tensors, folder / name, metadata={"format": "pt"})
        where |= dict.fromkeys(tensors, name)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": where}))
    config = {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "vocab_size": g.rows,
        "hidden_size": d,
        "intermediate_size": g.inner,
        "num_hidden_layers": g.layers,
        "num_attention_heads": g.heads,
        "num_key_value_heads": g.key_heads,
        "rms_norm_eps": 1e-5,
        "rope_theta": 500000.0,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
    }
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def rotated_and_reordered(table: torch.Tensor, seed: int = 2) -> torch.Tensor:
    """Apply the strongest disguise to an embedding: reorder the rows, rotate and scale the stream."""
    generator = torch.Generator().manual_seed(seed)
    rows, columns = table.shape
    turn = torch.linalg.qr(torch.randn(columns, columns, generator=generator)).Q
    order = torch.randperm(rows, generator=generator)
    made = torch.empty_like(table)
    for start in range(0, rows, BLOCK):
        made[start : start + BLOCK] = (1.7 * table[order[start : start + BLOCK]].float() @ turn).bfloat16()
    return made
