"""A model family as data: the names, roles and conventions that one JSON file in `data/` states.

To add a family, add a file; code changes only where a family computes q and k in a way that no family here does.
Values were read off transformers' own model and configuration sources, which define what a config means when it
leaves a key out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import Any, Literal

ConfigValue = int | float | bool | None


@dataclass(frozen=True, slots=True)
class Prefix:
    """One way in which files spell the path to the language model.

    Attributes:
        body: in front of the embedding's and the layers' names.
        head: in front of the output head's name, which often sits one level further out.
    """

    body: str
    head: str


@dataclass(frozen=True, slots=True)
class NormRole:
    """A norm: `schema.Norm` before the checkpoint's names and numbers are known.

    Attributes:
        kind: "rms" or "layer".
        weight, bias: names to look for, first found wins; an empty `bias` means the norm has none.
        eps: the config key of eps.
        offset: added to the stored gain.
    """

    kind: Literal["rms", "layer"]
    weight: tuple[str, ...]
    bias: tuple[str, ...]
    eps: str
    offset: float


@dataclass(frozen=True, slots=True)
class Projections:
    """Layer 0's q and k.

    Attributes:
        q, k: tensor names; the same name twice where they are fused.
        fused: order of the blocks of rows in a fused tensor, () where q and k are tensors of their own.
        q_bias, k_bias: tensor names, None where the family has no biases.
        bias_key: the config key that switches the biases on, None where they are always there.
    """

    q: str
    k: str
    fused: tuple[Literal["q", "k", "v"], ...]
    q_bias: str | None
    k_bias: str | None
    bias_key: str | None


@dataclass(frozen=True, slots=True)
class Family:
    """Everything `recognise` must know of a family; the roles are those of `schema.Layout`.

    Attributes:
        name: the family's name, also its file's.
        model_types: for each `model_type` served, the values transformers uses for keys the config leaves out.
        prefixes: tried in order.
        heads, kv_heads, head_dim: config keys; None where the family has no such setting. A null value means
            "as many as heads" for kv_heads and "hidden size / heads" for head_dim.
        embedding, head: tensor names, after `Prefix.body` and `Prefix.head`.
        position, token_type: tensor names, None where the family has no such table.
        embedding_norm, input_norm, q_norm, k_norm: None where the family has no such norm.
        projections: q and k.
        embedding_scale: the factor on the embedding.
        layer: the path of layer 0, after `Prefix.body`.
        layer_names: every tensor of layer 0, after `layer`, if that set tells the family's conventions by itself;
            else (). Llama's and Gemma's sets are the same and so are BERT's and RoBERTa's, though they compute
            differently, so those families are never recognised by names.
    """

    name: str
    model_types: Mapping[str, Mapping[str, ConfigValue]]
    prefixes: tuple[Prefix, ...]
    heads: str
    kv_heads: str | None
    head_dim: str | None
    embedding: str
    head: str
    position: str | None
    token_type: str | None
    embedding_norm: NormRole | None
    input_norm: NormRole | None
    projections: Projections
    q_norm: NormRole | None
    k_norm: NormRole | None
    embedding_scale: Literal["one", "sqrt(hidden_size)"]
    layer: str
    layer_names: tuple[str, ...]


@cache
def families() -> tuple[Family, ...]:
    """All families, sorted by name; the files are read on the first call, not on import."""
    folder = resources.files("irwm.families") / "data"
    files = sorted((f for f in folder.iterdir() if f.name.endswith(".json")), key=lambda f: f.name)
    return tuple(_family(f.name.removesuffix(".json"), json.loads(f.read_text(encoding="utf-8"))) for f in files)


def _family(name: str, data: dict[str, Any]) -> Family:
    """A family from its file's content. A misspelt or missing key is a TypeError of the dataclass: our own bug."""
    data = dict(data)
    projections = dict(data.pop("projections"))
    projections["fused"] = tuple(projections["fused"])
    return Family(
        name=name,
        model_types=MappingProxyType({t: MappingProxyType(d) for t, d in data.pop("model_types").items()}),
        prefixes=tuple(Prefix(**p) for p in data.pop("prefixes")),
        projections=Projections(**projections),
        layer_names=tuple(data.pop("layer_names")),
        embedding_norm=_norm(data.pop("embedding_norm")),
        input_norm=_norm(data.pop("input_norm")),
        q_norm=_norm(data.pop("q_norm")),
        k_norm=_norm(data.pop("k_norm")),
        **data,
    )


def _norm(data: dict[str, Any] | None) -> NormRole | None:
    if data is None:
        return None
    return NormRole(**{**data, "weight": tuple(data["weight"]), "bias": tuple(data["bias"])})
