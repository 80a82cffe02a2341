"""A GGUF file's settings as entries of a config.json, under the names that the model's family reads them by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from irwm.checkpoint.tensors import TensorEntry
from irwm.families.family import Family, Sign

# The ids of special tokens, which transformers keeps in the config and GGUF with the vocabulary.
_SPECIAL = ("bos", "eos", "padding", "unknown", "separator", "mask", "cls")
_SPELT = {"padding": "pad", "unknown": "unk", "separator": "sep"}


@dataclass(frozen=True, slots=True)
class Settings:
    """What the file says of itself.

    Attributes:
        architecture: llama.cpp's name for the kind of model, "" where there is none; it stands in front of most
            settings' names.
        metadata: all settings.
        stored: all tensors, by their names in the file.
        layer: what the names of layer 0's tensors begin with; the encoder's, where there is one.
    """

    architecture: str
    metadata: Mapping[str, Any]
    stored: Mapping[str, TensorEntry]
    layer: str

    @classmethod
    def of(cls, metadata: Mapping[str, Any], stored: Mapping[str, TensorEntry]) -> Settings:
        architecture = metadata.get("general.architecture")
        layer = "enc.blk.0." if any(name.startswith("enc.blk.0.") for name in stored) else "blk.0."
        return cls(architecture if isinstance(architecture, str) else "", metadata, stored, layer)

    def value(self, key: str) -> Any:
        """The architecture's setting; of one per layer that of the first. None where there is none."""
        value = self.metadata.get(f"{self.architecture}.{key}")
        return (value[0] if value else None) if isinstance(value, list) else value

    def count(self, key: str) -> int | None:
        value = self.value(key)
        return value if type(value) is int else None

    def has(self, name: str) -> bool:
        """Whether layer 0 has this tensor."""
        return self.layer + name in self.stored

    @property
    def heads(self) -> int | None:
        return self.count("attention.head_count")

    @property
    def kv_heads(self) -> int | None:
        """Key heads; as many as query heads where the file does not say, as in llama.cpp."""
        return self.count("attention.head_count_kv") or self.heads

    @property
    def head_dim(self) -> int | None:
        """Entries per head; an equal share of the width where the file does not say, as in llama.cpp."""
        width, heads = self.count("embedding_length"), self.heads
        share = width // heads if width and heads and width % heads == 0 else None
        return self.count("attention.key_length") or share

    def switches(self, family: Family, model_type: str) -> dict[str, bool]:
        """The switches that the family's variants ask for, as the file's tensors and counts tell them."""
        defaults, signs = family.model_types[model_type], family.gguf.switches
        keys = sorted({key for variant in family.variants for key in variant.when})
        return {key: self._shows(signs[key]) if key in signs else bool(defaults.get(key)) for key in keys}

    def _shows(self, sign: Sign) -> bool:
        match sign:
            case "norm on q":
                return self.has("attn_q_norm.weight")
            case "one key head":
                return self.kv_heads == 1
            case "two norms or grouped key heads":
                return self.has("attn_norm_2.weight") or self.kv_heads not in (1, self.heads)
            case "experts other than 128":  # Llama 4 Scout normalises q and k, Maverick does not
                return self.count("expert_count") != 128

    def config(self, family: Family, model_type: str, *, tied: bool | None) -> dict[str, Any]:
        """What recognition reads, and little more. What the file does not say is left out and means the default.

        Args:
            family: under its switches.
        """
        found: dict[str, Any] = {
            "model_type": model_type,
            "vocab_size": self.count("vocab_size"),
            "num_hidden_layers": self.count("block_count"),
            "tie_word_embeddings": tied,
            family.hidden_size: self.count("embedding_length"),
            family.heads: self.heads,
            **self._special_tokens(),
            **self._of_family(family),
        }
        config: dict[str, Any] = {}
        for key, value in found.items():
            if value is not None and key:
                _set(config, key, value)
        return config

    def _of_family(self, family: Family) -> dict[str, Any]:
        """The settings whose names the family chooses."""
        found: dict[str, Any] = {}
        if family.kv_heads is not None:
            found[family.kv_heads] = self.kv_heads
        if family.head_dim is not None:
            found[family.head_dim] = self.head_dim
        for role in (family.embedding_norm, family.input_norm, family.q_norm, family.k_norm):
            if role is not None and isinstance(role.eps, str):
                # Some families name an RMS norm's eps for their layer norm, and some converters follow the name.
                kinds = ("layer_norm_epsilon", "layer_norm_rms_epsilon")
                first, second = kinds if role.kind == "layer" else kinds[::-1]
                stated = self.value(f"attention.{first}")
                found[role.eps] = stated if stated is not None else self.value(f"attention.{second}")
        if family.embedding_scale not in ("one", "sqrt(hidden_size)"):
            found[family.embedding_scale] = self.value("embedding_scale")
        if family.clip is not None:
            found[family.clip] = self.value("attention.clamp_kqv") or None
        if family.projections is not None and family.projections.bias_key is not None:
            found[family.projections.bias_key] = self.has("attn_q.bias") or self.has("attn_qkv.bias")
        return found

    def _special_tokens(self) -> dict[str, Any]:
        """The ids, such as eos_token_id."""
        ids = {_SPELT.get(name, name): self.metadata.get(f"tokenizer.ggml.{name}_token_id") for name in _SPECIAL}
        return {f"{name}_token_id": i for name, i in ids.items() if type(i) is int}


def _set(config: dict[str, Any], key: str, value: Any) -> None:
    """Sets an entry; a dot in the key leads into a section, "attn_config.clip_qkv"."""
    *sections, last = key.split(".")
    for section in sections:
        config = config.setdefault(section, {})
    config[last] = value
