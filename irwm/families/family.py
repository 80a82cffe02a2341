"""A model family as data: everything that the program knows about it is in one JSON file in `data/`.

To add a family, add a file, and a case to tests/families/cases.py. Code changes are needed only for behaviour that no
other family has. Opening a checkpoint uses the roles of layer 0, GGUF files in both directions use `gguf`, and the
attacks that change whole models use `anatomy`. Values come from transformers' own model and configuration sources,
which define the meaning of a missing key; for families outside transformers, from their published configuration; for
GGUF, from llama.cpp's converter (its folder `conversion`, November 2026).

A file may be `"like"` another family, and then states only the fields that differ; `model_types`, `title`, `about`,
`wrappers`, `layer_names` and `gguf` are never inherited. A variant's `projections` state only the differing fields, and
so does an `anatomy`, which is inherited only if the file states one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import Any, Literal

ConfigValue = int | float | bool | str | None
Condition = bool | Literal["stated"]
# How a GGUF file shows the value of a switch in the config; `checkpoint.formats.gguf_translation` reads them.
Sign = Literal["norm on q", "one key head", "two norms or grouped key heads", "experts other than 128"]


@dataclass(frozen=True, slots=True)
class Prefix:
    """One spelling of the path to the language model in files.

    Attributes:
        body: in front of the embedding's and the layers' names.
        head: in front of the output head's name, which is often one level further out.
    """

    body: str
    head: str


@dataclass(frozen=True, slots=True)
class Table:
    """A table of positions whose first rows belong to no position.

    Attributes:
        name: the tensor's name.
        skipped: rows before the first token's.
        skipped_key: the config key for more of these rows, None if there is none.
    """

    name: str
    skipped: int = 0
    skipped_key: str | None = None


@dataclass(frozen=True, slots=True)
class NormRole:
    """A norm: `schema.Norm` before the checkpoint's names and numbers are known.

    Attributes:
        kind: "rms" or "layer".
        weight, bias: possible names, the first found is used; none if the norm has no gain, or no bias.
        eps: the config key of eps, or the number in the family's code.
        offset: added to the stored gain.
        over: of a norm on q or k: "head" or "projection", see `schema.Norm`.
        gain: of a norm on each head: "shared" by all heads; "per head", (heads, head_dim) in one tensor; "a tensor
            per head", with {head} in the name replaced by the head's number.
    """

    kind: Literal["rms", "layer"]
    weight: tuple[str, ...]
    bias: tuple[str, ...] = ()
    eps: str | float = "rms_norm_eps"
    offset: float = 0.0
    over: Literal["head", "projection"] = "head"
    gain: Literal["shared", "per head", "a tensor per head"] = "shared"


@dataclass(frozen=True, slots=True)
class Projections:
    """The attention's matrices in layer 0.

    Attributes:
        q, k: tensor names; the same name twice if they are fused.
        o: name of the output's tensor, which writes the stream.
        v: name of the values' tensor; None if q, k and v are fused.
        fused: order of the blocks of rows in a fused tensor, () if q and k are separate tensors.
        groups: how often that order repeats: 1 if all of q precedes all of k, "kv_heads" if each key head
            has its own block with the query heads that read it, or a number, each block holding an equal share.
        transposed: the files store (in, out).
        kv_heads: the number of key heads if the layout fixes it, None if `Family.kv_heads` applies.
        q_bias, k_bias: tensor names, None if the family has no biases.
        bias_key: the config key that enables the biases, None if they always exist.
    """

    q: str
    k: str
    o: str
    v: str | None = None
    fused: tuple[Literal["q", "k", "v"], ...] = ()
    groups: int | Literal["kv_heads"] = 1
    transposed: bool = False
    kv_heads: int | None = None
    q_bias: str | None = None
    k_bias: str | None = None
    bias_key: str | None = None


@dataclass(frozen=True, slots=True)
class Variant:
    """Differences that depend on the config.

    Attributes:
        when: config keys with the values they must have; transformers' defaults apply to missing keys;
            "stated" for a key that must have any value but null.
        changes: fields of `Family` with their values under that condition.
    """

    when: Mapping[str, Condition]
    changes: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Architecture:
    """How llama.cpp stores models of a family under one of its architectures (gguf.MODEL_ARCH_NAMES).

    Attributes:
        model_type: transformers' name for the content of these files.
        paired: a head's rows i and i + head_dim / 2 of q and k are adjacent, since llama.cpp's rotary
            embedding rotates adjacent coordinates and transformers' rotates those half a head apart.
        doubled: older converters wrote a tied embedding a second time, as the head.
        counts: a setting that is above 0 only in this family's files, among the families of the architecture.
        lacks: a tensor that only this family's files lack, among the families of the architecture.
    """

    model_type: str
    paired: bool = False
    doubled: bool = False
    counts: str | None = None
    lacks: str | None = None


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting of a GGUF file: the first stated, non-zero value of some config keys, else a default.

    The setting has the default's type.
    """

    keys: tuple[str, ...]
    default: int | float | bool


@dataclass(frozen=True, slots=True)
class Writing:
    """Data for writing a whole model of a family as a GGUF file, in addition to names, head counts and rotary
    embedding.

    Attributes:
        settings: by their names in the file, with "{arch}" for the architecture.
        word_cuts: by model type, llama.cpp's name for the splitting of text into words before tokens are merged.
        prefix: removed from a tensor's name before gguf looks it up.
        left_out: a pattern; tensors whose name, without the prefix, matches it do not exist in GGUF files.
        first_token: the token that every text begins with, for configs without its id.
    """

    settings: Mapping[str, Setting] = field(default_factory=dict)
    word_cuts: Mapping[str, str] = field(default_factory=dict)
    prefix: str = ""
    left_out: str = r"rotary_emb\.inv_freq$"
    first_token: str | None = None


@dataclass(frozen=True, slots=True)
class Gguf:
    """Properties of a family's GGUF files.

    Attributes:
        architectures: llama.cpp's names for the family's models; none if llama.cpp does not know the family.
        switches: for each config key that a variant depends on, how a file shows its value.
        writing: data for the attack that writes GGUF files, None if it does not support the family.
    """

    architectures: Mapping[str, Architecture] = field(default_factory=dict)
    switches: Mapping[str, Sign] = field(default_factory=dict)
    writing: Writing | None = None

    def stored_as(self, model_type: str) -> tuple[str, Architecture]:
        """The architecture of a model type, or the family's first if the type has none, like Mistral."""
        rows = self.architectures.items()
        return next((each for each in rows if each[1].model_type == model_type), next(iter(rows)))


@dataclass(frozen=True, slots=True)
class Anatomy:
    """The effect of all tensors of a family's models on the residual stream, in addition to layer 0 in `Family`.

    Names are modules, in a layer unless noted otherwise; their tensors are the module's name plus ".weight" and,
    if the file has it, ".bias".

    Attributes:
        model_types: the family's model types with this structure.
        gate, up: the MLP's input; the same name twice if they are fused, gate first; gate None for a plain MLP.
        down: the MLP's output, which writes the stream.
        norms: in the order they run, with the modules that read each output. In post-norm families (BERT) the norms are
            on the stream itself, so their output is also the stream of the next step.
        outer_norm: the norm after the last layer, or a post-norm family's before the first; after `Prefix.body`.
        rotary: the part of a head that is rotated; "partial" follows the config's partial_rotary_factor.
        post_norms: norms on a sublayer's output before it is added to the stream (Gemma 2).
        head_behind: a module that every model with an output head has, None if every model has a head. Found by the
            end of its name, like all that follow.
        final_readers: modules besides the head that read the end of the stream.
        head_biases: biases over the vocabulary.
        inert: tensors that transforms do not need to change.
        encoder: the models do not generate text.
        window_switch: the config key that enables a sliding window, None if a stated window always applies.
        own_rotary_kinds: every rotary embedding except the default has settings specific to this family.
        activations: for a wrong `hidden_act` in the first releases, the correct one.
        neuron_count: the config key of the number of an MLP's hidden units.
    """

    model_types: tuple[str, ...]
    gate: str | None
    up: str
    down: str
    norms: Mapping[str, Literal["attention", "mlp"]]
    outer_norm: str
    rotary: Literal["full", "partial", "none"]
    post_norms: tuple[str, ...] = ()
    head_behind: str | None = None
    final_readers: tuple[str, ...] = ()
    head_biases: tuple[str, ...] = ()
    inert: tuple[str, ...] = ()
    encoder: bool = False
    window_switch: str | None = None
    own_rotary_kinds: bool = False
    activations: Mapping[str, str] = field(default_factory=dict)
    neuron_count: str = "intermediate_size"


@dataclass(frozen=True, slots=True)
class Family:
    """Everything known about a family; the roles have the names of `schema.Layout`.

    Attributes:
        name: the family's name, also its file's.
        title: the usual name of the models.
        about: a sentence about its peculiarities, "" without any.
        model_types: for each supported `model_type`, transformers' values for keys that are missing in the config.
        wrappers: for the `model_type` of a multimodal model, that of its language model, which may be missing in its
            config.
        prefixes: tried in order.
        embedding: tensor names after `Prefix.body`, the first found is used; any other is a copy.
        head: tensor names after `Prefix.head`, the first found is used.
        heads, kv_heads, head_dim, hidden_size: config keys; None (heads: "") if the family has no such setting. A
            null value means "as many as heads" for kv_heads and "hidden size / heads" for head_dim.
        embedding_width: the config key of the embedding's width if it may differ from hidden_size, else None.
        spellings: for a config key, all names that files use for it; the first stated one is used.
        position: the table of positions, None if the family has none.
        token_type, embedding_projection: tensor names, None if the family has no such table or matrix; the
            projection exists only if the embedding's width differs from hidden_size.
        embedding_projection_bias: its bias; with a bias, the projection follows the embedding's norm; None without one.
        embedding_norm, input_norm, q_norm, k_norm: None if the family has no such norm.
        projections: q and k, None in a family whose scores come from the embedding alone.
        embedding_only: why layer 0 has no scores of the form q·k for A, as the beginning of a sentence; "" if it has
            them.
        embedding_scale: the factor on the embedding: "one", "sqrt(hidden_size)", or the config key of it.
        clip: the config key for the limit on q and k, None if the family has none.
        decoder_head: whether the output head is the embedding of a decoder, to which the config ties it, and not this
            embedding.
        headless_rows: the number of last rows of the embedding that have no word, and that the output head lacks.
        layer: the path of layer 0, after `Prefix.body`.
        layer_count: the config key of the number of layers.
        layer_names: every tensor of layer 0, after `layer`, if this set identifies the family's conventions; else ().
            Llama and Gemma have the same set, and so do BERT and RoBERTa, although they compute differently, so
            those families are never recognised by names.
        variants: the changes of every variant whose condition holds are applied, in order.
        gguf: how llama.cpp stores the family.
        anatomy: the whole model, None if only layer 0 is known.
    """

    name: str
    title: str
    about: str
    model_types: Mapping[str, Mapping[str, ConfigValue]]
    prefixes: tuple[Prefix, ...]
    embedding: tuple[str, ...]
    head: tuple[str, ...]
    layer: str
    wrappers: Mapping[str, str] = field(default_factory=dict)
    projections: Projections | None = None
    embedding_only: str = ""
    layer_count: str = "num_hidden_layers"
    heads: str = ""
    kv_heads: str | None = None
    head_dim: str | None = None
    hidden_size: str = "hidden_size"
    embedding_width: str | None = None
    spellings: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    position: Table | None = None
    token_type: str | None = None
    embedding_projection: str | None = None
    embedding_projection_bias: str | None = None
    embedding_norm: NormRole | None = None
    input_norm: NormRole | None = None
    q_norm: NormRole | None = None
    k_norm: NormRole | None = None
    embedding_scale: str = "one"
    clip: str | None = None
    decoder_head: bool = False
    headless_rows: int = 0
    layer_names: tuple[str, ...] = ()
    variants: tuple[Variant, ...] = ()
    gguf: Gguf = field(default_factory=Gguf)
    anatomy: Anatomy | None = None

    def module(self, name: str) -> str:
        """A tensor of layer 0 as a module of any layer."""
        return name.removeprefix(self.layer).removesuffix(".weight")

    def under(self, fits: Mapping[str, Condition]) -> Family:
        """The family with the variants whose conditions `fits` meets; `fits` gives the value of every switch.

        Args:
            fits: true or false for a switch; for a key that has to be stated, "stated" or false. One
                that is left out is false.
        """
        family = self
        for variant in self.variants:
            if all(fits.get(key, False) == value for key, value in variant.when.items()):
                family = replace(family, **variant.changes)
        return family


# Cached, like the three below: they depend on the package's own files alone, and some are asked for with every tensor's
# name.
@cache
def families() -> tuple[Family, ...]:
    """All families, sorted by name; the files are read on the first call, not on import."""
    folder = resources.files("irwm.families") / "data"
    files = sorted((f for f in folder.iterdir() if f.name.endswith(".json")), key=lambda f: f.name)
    read = {f.name.removesuffix(".json"): json.loads(f.read_text(encoding="utf-8")) for f in files}
    return tuple(_family(name, _whole(data, read)) for name, data in read.items())


def family_of(model_type: object) -> Family | None:
    """The family that serves a config's `model_type`, which may be any JSON value."""
    # Comparing only strings makes a list or object here harmless, which cannot be hashed.
    if not isinstance(model_type, str):
        return None
    return next((family for family in families() if model_type in family.model_types), None)


def inner_type(model_type: object) -> str | None:
    """The `model_type` of the language model in a multimodal model of this type, None if no family lists it."""
    if not isinstance(model_type, str):
        return None
    return next((family.wrappers[model_type] for family in families() if model_type in family.wrappers), None)


@cache
def layer_counts() -> tuple[str, ...]:
    """The config keys for the number of layers in any family."""
    return tuple(dict.fromkeys(family.layer_count for family in families()))


@cache
def layer_words() -> tuple[str, ...]:
    """The words before a layer's number in any family: layers, layer, h, blocks, block."""
    return tuple(dict.fromkeys(family.layer.split(".")[-3] for family in families()))


@cache
def embedding_names() -> tuple[str, ...]:
    """The names of embeddings in any family."""
    return tuple(dict.fromkeys(name for family in families() for name in family.embedding))


def head_names() -> tuple[str, ...]:
    """The names of output heads in any family."""
    return tuple(dict.fromkeys(name for family in families() for name in family.head))


def anatomy_of(model_type: object) -> Anatomy | None:
    """The anatomy for a config's `model_type`."""
    anatomy = family.anatomy if (family := family_of(model_type)) is not None else None
    return anatomy if anatomy is not None and model_type in anatomy.model_types else None


def dissected() -> list[str]:
    """The model types whose anatomy is known, sorted."""
    return sorted(t for family in families() if family.anatomy is not None for t in family.anatomy.model_types)


def _whole(data: dict[str, Any], read: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """A file's content with the fields that it inherits from the family it is like."""
    if "like" not in data:
        return data
    inherited = _whole(read[data["like"]], read)
    own = {"title", "about", "model_types", "wrappers", "layer_names", "gguf", "anatomy"}
    taken = {key: value for key, value in inherited.items() if key not in own}
    whole = {**taken, **{key: value for key, value in data.items() if key != "like"}}
    if "anatomy" in data:
        whole["anatomy"] = {**inherited.get("anatomy", {}), **data["anatomy"]}
    return whole


def _family(name: str, data: dict[str, Any]) -> Family:
    """A family from its file's content. A misspelt or missing key is a TypeError of the dataclass: a bug of this
    package."""
    for variant in data.get("variants", ()):
        if "projections" in variant:
            variant["projections"] = {**data["projections"], **variant["projections"]}
    return Family(name=name, **{key: _parsed(key, value) for key, value in {"about": "", **data}.items()})


def _parsed(key: str, value: Any) -> Any:
    """A field's value from its JSON value."""
    if value is None:
        return None
    match key:
        case "model_types":
            return MappingProxyType({t: MappingProxyType(d) for t, d in value.items()})
        case "prefixes":
            return tuple(Prefix(**p) for p in value)
        case "embedding" | "head" | "layer_names":
            return (value,) if isinstance(value, str) else tuple(value)
        case "wrappers":
            return MappingProxyType(value)
        case "spellings":
            return MappingProxyType({k: tuple(v) for k, v in value.items()})
        case "position":
            return Table(**value)
        case "embedding_norm" | "input_norm" | "q_norm" | "k_norm":
            return NormRole(**{**value, **{k: tuple(value[k]) for k in ("weight", "bias") if k in value}})
        case "projections":
            return Projections(**{**value, "fused": tuple(value.get("fused", ()))})
        case "anatomy":
            fields: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in value.items()}
            return Anatomy(**fields)
        case "gguf":
            rows = {name: Architecture(**row) for name, row in value["architectures"].items()}
            return Gguf(**{**value, "architectures": rows, "writing": _writing(value.get("writing"))})
        case "variants":
            return tuple(Variant(v["when"], {k: _parsed(k, x) for k, x in v.items() if k != "when"}) for v in value)
    return value


def _writing(value: dict[str, Any] | None) -> Writing | None:
    if value is None:
        return None
    settings = value.get("settings", {}).items()
    return Writing(**{**value, "settings": {name: Setting(**{**s, "keys": tuple(s["keys"])}) for name, s in settings}})
