"""Model data for all peers: matrices with Llama's names, the config, and the rows of shared tokens."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

from benchmarks.peers.score import CannotRun

EMBEDDING = "model.embed_tokens.weight"
SPECIAL = frozenset({"<unk>", "<s>", "</s>", "<pad>"})


@dataclass(frozen=True, slots=True, eq=False)
class Weights:
    """A model folder whose tensors have Llama's names.

    Attributes:
        folder: folder of the model.
        config: config.json.
        files: tensor name to the file that holds it.
    """

    folder: Path
    config: dict[str, Any]
    files: dict[str, Path]

    @property
    def layers(self) -> int:
        return int(self.config["num_hidden_layers"])

    def __getitem__(self, name: str) -> torch.Tensor:
        """Return a tensor as float32, in its stored (out, in) orientation."""
        if name not in self.files:
            raise CannotRun(f"{self.folder.name} has no tensor {name}")
        with safe_open(self.files[name], "pt") as file:
            tensor: torch.Tensor = file.get_tensor(name).float()
            return tensor

    def projection(self, layer: int, name: str) -> torch.Tensor:
        """Return a layer's matrix `name`, such as "self_attn.q_proj" or "mlp.up_proj", (out, in) float32."""
        return self[f"model.layers.{layer}.{name}.weight"]

    def repeated(self, layer: int, name: str) -> torch.Tensor:
        """Return a k or v projection with every head repeated for its query heads: (heads * head_dim, in)."""
        heads = int(self.config["num_attention_heads"])
        kv_heads = int(self.config.get("num_key_value_heads") or heads)
        matrix = self.projection(layer, name)
        return matrix.reshape(kv_heads, -1, matrix.shape[1]).repeat_interleave(heads // kv_heads, 0).flatten(0, 1)

    def vocabulary(self) -> dict[str, int] | None:
        """Return token strings and ids from tokenizer.json, or None if there is no such file or table."""
        path = self.folder / "tokenizer.json"
        if not path.exists():
            return None
        vocabulary = json.loads(path.read_text(encoding="utf-8")).get("model", {}).get("vocab")
        return vocabulary if isinstance(vocabulary, dict) else None


def load(folder: Path) -> Weights:
    """Open a model folder without reading any weights."""
    files: dict[str, Path] = {}
    for path in sorted(Path(folder).glob("*.safetensors")):
        with safe_open(path, "pt") as file:
            files |= dict.fromkeys(file.keys(), path)
    if not files:
        raise CannotRun(f"{folder} has no safetensors file")
    return Weights(Path(folder), json.loads((Path(folder) / "config.json").read_text(encoding="utf-8")), files)


def shared_tokens(first: Weights, second: Weights) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the rows of shared tokens in the two embeddings, (n,) each, in the first model's order of ids.

    Tokens are matched by string if both folders have a tokenizer, else by equal id over the shorter vocabulary. Special
    tokens are left out. Of the papers only AWM matches strings; all peers get it here, since it can only help.
    """
    sizes = [w[EMBEDDING].shape[0] for w in (first, second)]
    one, two = first.vocabulary(), second.vocabulary()
    if one is None or two is None:
        ids = torch.arange(min(sizes))
        return ids, ids
    pairs = sorted((i, two[t]) for t, i in one.items() if t in two and t not in SPECIAL)
    pairs = [(i, j) for i, j in pairs if i < sizes[0] and j < sizes[1]]
    if not pairs:
        raise CannotRun("the two tokenizers share no token")
    return torch.tensor([i for i, _ in pairs]), torch.tensor([j for _, j in pairs])
