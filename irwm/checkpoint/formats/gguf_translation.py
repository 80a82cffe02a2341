"""Converts GGUF's names and settings to those of transformers, and undoes llama.cpp's rearrangements.

GGUF has one name for each role of a tensor, for all families: "blk.0.attn_norm.weight". A family's data file here gives
the role's name in the family's own checkpoints, and the arrangement of q and k there. Only what the layout needs is
translated: the embedding and layer 0. Everything else keeps its GGUF name. gguf's own get_tensor_name_map cannot be
used here: it maps all spellings of a role to GGUF's name, but not back. Writing GGUF files uses it
(`irwm.attacks.quantisers.converter`).

llama.cpp's converter also does this to the weights:

* in some architectures it pairs a head's rows of q and k (`families.family.Architecture`);
* it stores a fused q, k and v as all of q, all of k, all of v, and transposes a transposed matrix back;
* for a norm whose gain is one plus the stored value (Gemma, Nemotron), it adds this one to the stored value.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch

from irwm.checkpoint.dtypes import BLOCK_FORMATS
from irwm.checkpoint.formats.content import Metadata
from irwm.checkpoint.tensors import PackedTensor, Tensor, TensorEntry, parameters_of
from irwm.errors import CorruptCheckpointError, UnsupportedCheckpointError, printable
from irwm.families.configvalues import ConfigJson
from irwm.families.family import Architecture, Family, NormRole, Projections, Sign, families

# By `general.type`: files that belong to a model but are not models themselves.
_COMPANIONS = {
    "adapter": (
        "an adapter",
        "Merge the adapter into its base model with llama.cpp's export-lora, and open the result",
    ),
    "mmproj": ("the vision or audio part of a multimodal model", "Choose the language model's file"),
    "imatrix": ("an importance matrix for quantisation", "Choose the model's file"),
}
# The ids of special tokens, which transformers keeps in the config and GGUF with the vocabulary.
_SPECIAL = ("bos", "eos", "padding", "unknown", "separator", "mask", "cls")
_SPELT = {"padding": "pad", "unknown": "unk", "separator": "sep"}
_PAIRS = "the pairing of q and k rows for the rotary embedding"
_ORDER = "the reordering of q, k and v"
# Rows of q, k and v together; the largest real models have about 50 000.
_MAX_ROWS = 1 << 22
_TURNED = "the transposition of the fused q, k and v matrix"


def translated(tensors: Mapping[str, Tensor], metadata: Metadata) -> tuple[dict[str, Tensor], ConfigJson, list[str]]:
    """Tensors under transformers' names, a config as transformers would write it, and notes for the user.

    Args:
        tensors: a GGUF file's tensors by their names in it.
        metadata: its settings.

    Raises:
        UnsupportedCheckpointError: the file is not a model but belongs to one.
        CorruptCheckpointError: its settings and tensors contradict each other.
    """
    stored = {name: entry for name, entry in tensors.items() if isinstance(entry, TensorEntry)}
    _require_model(stored, metadata)
    settings = Settings.of(metadata, stored)
    found = _family(settings)
    if found is None:
        architecture = printable(settings.architecture, 40)
        return _unknown(
            settings,
            f"Its architecture, {architecture}, is unknown." if architecture else "It does not name an architecture.",
        )
    family, stored_as = found
    if family.projections is not None and settings.heads is None:
        return _unknown(
            settings,
            f"It does not state the number of attention heads ({settings.architecture}.attention.head_count).",
        )
    switches = settings.switches(family, stored_as.model_type)
    variant = family.under(switches)
    config = {**settings.config(variant, stored_as.model_type, tied=_tied(settings, stored_as)), **switches}
    done = _Translation(variant, settings, paired=stored_as.paired)
    return done.tensors(), config, done.notes()


def _require_model(stored: Mapping[str, TensorEntry], metadata: Metadata) -> None:
    kind = metadata.get("general.type")
    if isinstance(kind, str) and kind in _COMPANIONS:
        what, advice = _COMPANIONS[kind]
        file = next((entry.file for entry in stored.values()), None)
        raise UnsupportedCheckpointError(
            f"The file is not a model but {what}",
            file=file,
            expected="general.type model",
            found=f"general.type {kind}",
            advice=advice,
        )


def _family(settings: Settings) -> tuple[Family, Architecture] | None:
    """The family of a file and how it is stored. If families share an architecture, one with a matching sign is
    preferred."""
    fitting = [
        (family, row)
        for family in families()
        if (row := family.gguf.architectures.get(settings.architecture)) is not None
        and (row.counts is None or (settings.count(row.counts) or 0) > 0)
        and (row.lacks is None or row.lacks not in settings.stored)
    ]
    return min(fitting, key=lambda each: each[1].counts is None and each[1].lacks is None, default=None)


def _tied(settings: Settings, stored_as: Architecture) -> bool | None:
    """Whether the output head is the embedding; None means the model type's default."""
    if "output.weight" not in settings.stored:
        return True
    return None if stored_as.doubled else False


def _unknown(settings: Settings, said: str) -> tuple[dict[str, Tensor], ConfigJson, list[str]]:
    """Keeps all names except the embedding's, which every architecture has."""
    tensors: dict[str, Tensor] = dict(settings.stored)
    name = "embed_tokens.weight"
    if "token_embd.weight" in tensors and name not in tensors:
        tensors[name] = tensors.pop("token_embd.weight")
    architecture = settings.architecture
    return tensors, {"model_type": architecture} if architecture else {}, [f"The file is in GGUF format. {said}"]


class _Translation:
    """Collects the translated tensors of one file."""

    def __init__(self, family: Family, settings: Settings, *, paired: bool) -> None:
        self.family = family
        self.settings = settings
        self.paired = paired
        self.left = dict(settings.stored)
        self.named: dict[str, Tensor] = {}
        self.undone: dict[str, None] = {}
        self.body, self.outer = family.prefixes[0].body, family.prefixes[0].head

    def notes(self) -> list[str]:
        undone = "; ".join(self.undone)
        tail = f" The following changes made for GGUF were undone: {undone}." if undone else ""
        architecture = printable(self.settings.architecture, 40)
        return [f"The file is in GGUF format with the architecture {architecture}.{tail}"]

    def tensors(self) -> dict[str, Tensor]:
        family, layer = self.family, self.settings.layer
        self._move("token_embd.weight", self.body + family.embedding[0])
        if family.head:
            self._move("output.weight", self.outer + family.head[0])
        if family.position is not None:
            self._move("position_embd.weight", self.body + family.position.name)
        if family.token_type is not None:
            self._move("token_types.weight", self.body + family.token_type)
        self._norm(family.embedding_norm, "token_embd_norm")
        # Falcon's two norms: in GGUF, the norm before the attention is the second.
        both = f"{layer}attn_norm_2.weight" in self.left
        self._norm(family.input_norm, f"{layer}attn_norm_2" if both else f"{layer}attn_norm", first=both)
        self._norm(family.q_norm, f"{layer}attn_q_norm")
        self._norm(family.k_norm, f"{layer}attn_k_norm")
        if family.projections is not None:
            for target, tensor, undone in projections(self.settings, family.projections, paired=self.paired):
                self._put(self.body + target, tensor)
                self.undone.update(dict.fromkeys(undone))
                for part in tensor.parts:
                    self.left.pop(part.name, None)
        for name, entry in self.left.items():
            self._put(name, entry)
        return self.named

    def _put(self, name: str, tensor: Tensor) -> None:
        if name in self.named:
            raise CorruptCheckpointError(
                "Two tensors in the file have the same role",
                file=tensor.file,
                tensor=name,
                expected="only the GGUF name for the role",
                found="both the GGUF name and the transformers name",
            )
        self.named[name] = tensor

    def _move(self, name: str, target: str) -> None:
        entry = self.left.pop(name, None)
        if entry is None:
            return
        if name == "token_types.weight" and len(entry.shape) == 1:  # older converters removed a dimension
            entry = replace(entry, shape=(1, *entry.shape))
        self._put(target, entry)

    def _norm(self, role: NormRole | None, name: str, *, first: bool = True) -> None:
        """Moves a norm; `first` takes the first of the role's names, else the last."""
        if role is None:
            return
        for kind, targets in (("weight", role.weight), ("bias", role.bias)):
            entry = self.left.get(f"{name}.{kind}")
            if entry is None or not targets:
                continue
            del self.left[f"{name}.{kind}"]
            target = self.body + targets[0 if first else -1]
            stacked = len(entry.shape) == 2 and entry.shape[0] in (self.settings.heads, self.settings.kv_heads)
            plain = entry.dtype not in BLOCK_FORMATS
            if role.gain == "a tensor per head" and kind == "weight" and stacked and plain:
                self._put_heads(target, entry)
            elif role.offset and kind == "weight":
                self._put(target, less(role.offset, entry, target))
                self.undone[f"the addition of {role.offset:g} to the norm gains"] = None
            else:
                self._put(target, entry)

    def _put_heads(self, target: str, entry: TensorEntry) -> None:
        """One stacked tensor of gains as one tensor per head."""
        row = entry.nbytes // entry.shape[0]
        for head in range(entry.shape[0]):
            start = entry.start + head * row
            self._put(
                target.replace("{head}", str(head)),
                replace(entry, shape=entry.shape[1:], start=start, stop=start + row),
            )
        self.undone["the stacking of the per-head norms"] = None


@dataclass(frozen=True, slots=True)
class Settings:
    """Metadata in the file.

    Attributes:
        architecture: llama.cpp's name for the kind of model, "" without one; most names of settings begin with it.
        metadata: all settings.
        stored: all tensors, by their names in the file.
        layer: the beginning of the names of layer 0's tensors; the encoder's, if there is one.
    """

    architecture: str
    metadata: Metadata
    stored: Mapping[str, TensorEntry]
    layer: str

    @classmethod
    def of(cls, metadata: Metadata, stored: Mapping[str, TensorEntry]) -> Settings:
        architecture = metadata.get("general.architecture")
        layer = "enc.blk.0." if any(name.startswith("enc.blk.0.") for name in stored) else "blk.0."
        return cls(architecture if isinstance(architecture, str) else "", metadata, stored, layer)

    def value(self, key: str) -> Any:
        """The architecture's setting; the first layer's if there is one per layer. None if it is missing."""
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
        """Key heads; by default as many as query heads, as in llama.cpp."""
        return self.count("attention.head_count_kv") or self.heads

    @property
    def head_dim(self) -> int | None:
        """Entries per head; by default an equal share of the width, as in llama.cpp."""
        width, heads = self.count("embedding_length"), self.heads
        share = width // heads if width and heads and width % heads == 0 else None
        return self.count("attention.key_length") or share

    def switches(self, family: Family, model_type: str) -> dict[str, bool]:
        """The switches of the family's variants, derived from the file's tensors and counts."""
        defaults, signs = family.model_types[model_type], family.gguf.switches
        asked = (item for variant in family.variants for item in variant.when.items())
        keys = sorted({key for key, value in asked if isinstance(value, bool)})
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

    def config(self, family: Family, model_type: str, *, tied: bool | None) -> ConfigJson:
        """The settings for recognition, and little more. Settings that the file lacks are left out, which means the
        default.

        Args:
            family: with its switches applied.
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

    def _of_family(self, family: Family) -> ConfigJson:
        """The settings whose names depend on the family."""
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

    def _special_tokens(self) -> dict[str, int]:
        """The ids, such as eos_token_id."""
        ids = {_SPELT.get(name, name): self.metadata.get(f"tokenizer.ggml.{name}_token_id") for name in _SPECIAL}
        return {f"{name}_token_id": i for name, i in ids.items() if type(i) is int}


def _set(config: dict[str, Any], key: str, value: Any) -> None:
    """Sets an entry; a dot in the key leads into a section, "attn_config.clip_qkv"."""
    *sections, last = key.split(".")
    for section in sections:
        config = config.setdefault(section, {})
    config[last] = value


def less(offset: float, entry: TensorEntry, name: str) -> PackedTensor:
    """The gain of a norm to which the converter added `offset`."""
    decode, parameters = partial(_less, offset=offset), parameters_of(offset=offset)
    return PackedTensor(name, entry.dtype, entry.shape, {"gain": entry}, frozenset({"gain"}), decode, parameters)


def _less(values: Mapping[str, torch.Tensor], *, offset: float) -> torch.Tensor:
    return values["gain"].to(torch.float32) - offset


def projections(
    settings: Settings, spec: Projections, *, paired: bool
) -> Iterator[tuple[str, Tensor, tuple[str, ...]]]:
    """Yields name, tensor and undone rearrangements of each of the family's tensors that hold q and k, with biases.

    Args:
        spec: how the family stores them.
        paired: whether llama.cpp stores each head's rows i and i + head_dim / 2 of q and k next to each other.

    Raises:
        CorruptCheckpointError: the number of rows does not fit the number of heads.
    """
    for kind, q, k in (("weight", spec.q, spec.k), ("bias", spec.q_bias, spec.k_bias)):
        stored = _stored(settings, kind)
        if not stored or q is None or k is None:
            continue
        rows = _Rows.of(settings, stored)
        if spec.fused:
            yield _fused(stored, rows, spec, q, paired=paired, matrix=kind == "weight")
        else:
            yield _single(stored, rows, "q", q, paired=paired)
            yield _single(stored, rows, "k", k, paired=paired)


def _stored(settings: Settings, kind: str) -> dict[str, TensorEntry]:
    """q, k and v, or the one tensor they are fused in as "qkv"; {} if one is missing."""
    found = {part: settings.stored.get(f"{settings.layer}attn_{part}.{kind}") for part in ("q", "k", "v", "qkv")}
    entries = {part: entry for part, entry in found.items() if entry is not None and entry.shape}
    if "qkv" in entries and "q" not in entries:
        return {"qkv": entries["qkv"]}
    entries.pop("qkv", None)
    return entries if {"q", "k"} <= entries.keys() else {}


class _Rows:
    """The numbers of rows of q, k and v, and the order in which a family expects them."""

    def __init__(self, heads: int, kv_heads: int, head_dim: int) -> None:
        self.heads = {"q": heads, "k": kv_heads, "v": kv_heads}
        self.head_dim = head_dim

    @classmethod
    def of(cls, settings: Settings, stored: Mapping[str, TensorEntry]) -> _Rows:
        heads, kv_heads = settings.heads or 0, settings.kv_heads or 0
        first = next(iter(stored.values()))
        if heads < 1 or kv_heads < 1:
            raise _misfit(first, "at least one head", f"{heads} query and {kv_heads} key heads")
        if sum(entry.shape[0] for entry in stored.values()) > _MAX_ROWS:
            raise _misfit(first, f"at most {_MAX_ROWS} rows", f"{first.shape[0]} rows")
        every = heads + 2 * kv_heads if "qkv" in stored else heads
        found = cls(heads, kv_heads, first.shape[0] // every)
        for part, entry in stored.items():
            expected = (every if part == "qkv" else found.heads[part]) * found.head_dim
            if entry.shape[0] != expected or found.head_dim < 1:
                raise _misfit(entry, f"{heads} query and {kv_heads} key heads of equal size", f"{entry.shape[0]} rows")
        return found

    def count(self, part: str) -> int:
        return self.heads[part] * self.head_dim

    def start(self, part: str) -> int:
        """The part's first row if q, k and v are stored one after the other."""
        return sum(self.count(before) for before in "qkv"[: "qkv".index(part)])

    def order(self, part: str, *, paired: bool) -> torch.Tensor:
        """(count,) int64: the stored row, counted within the part, of each of the part's own rows."""
        rows = torch.arange(self.count(part))
        if not paired or part == "v":
            return rows
        return rows.view(self.heads[part], -1, 2).transpose(1, 2).reshape(-1)


def _single(
    stored: Mapping[str, TensorEntry], rows: _Rows, part: str, name: str, *, paired: bool
) -> tuple[str, Tensor, tuple[str, ...]]:
    """q or k as a separate tensor, or extracted from a fused one."""
    entry = stored[part] if part in stored else _cut(stored["qkv"], rows.start(part), rows.count(part))
    if not paired:
        return name, entry, () if part in stored else (_ORDER,)
    if rows.head_dim % 2:
        raise _misfit(entry, "an even number of rows per head", f"{rows.head_dim}")
    decode = partial(_rearranged, order=rows.order(part, paired=True), turned=False)
    parameters = parameters_of(heads=rows.heads, head_dim=rows.head_dim, part=part)
    return name, PackedTensor(name, entry.dtype, entry.shape, {part: entry}, frozenset(), decode, parameters), (_PAIRS,)


def _fused(
    stored: Mapping[str, TensorEntry], rows: _Rows, spec: Projections, name: str, *, paired: bool, matrix: bool
) -> tuple[str, Tensor, tuple[str, ...]]:
    """q, k and v in one tensor, group by group."""
    groups = rows.heads["k"] if spec.groups == "kv_heads" else spec.groups
    entries = {part: stored[part] for part in ("qkv", "q", "k", "v") if part in stored}
    one = next(iter(entries.values()))
    if paired and rows.head_dim % 2:
        raise _misfit(one, "an even number of rows per head", f"{rows.head_dim}")
    if "qkv" not in entries and "v" not in entries:
        raise _misfit(one, "q, k and v", "only q and k")
    if any(count % groups for count in rows.heads.values()):
        raise _misfit(one, f"head counts that are multiples of {groups}", f"{rows.heads['q']} and {rows.heads['k']}")
    blocks = [(rows.start(part) + rows.order(part, paired=paired)).view(groups, -1) for part in spec.fused]
    order = torch.cat(blocks, dim=1).reshape(-1)
    turned = spec.transposed and matrix
    moved = not torch.equal(order, torch.arange(order.numel()))
    undone = ((_PAIRS,) if paired else ()) + ((_ORDER,) if moved or len(entries) > 1 else ())
    undone += (_TURNED,) if turned else ()
    if not undone:
        return name, one, ()
    shape = (order.numel(), *one.shape[1:])
    dtype = " and ".join(dict.fromkeys(entry.dtype for entry in entries.values()))
    decode = partial(_rearranged, order=order, turned=turned)
    shape = shape[::-1] if turned else shape
    parameters = parameters_of(
        heads=rows.heads, head_dim=rows.head_dim, fused=spec.fused, groups=groups, paired=paired, turned=turned
    )
    return name, PackedTensor(name, dtype, shape, entries, frozenset(), decode, parameters), undone


def _rearranged(values: Mapping[str, torch.Tensor], *, order: torch.Tensor, turned: bool) -> torch.Tensor:
    """The stored rows, q before k before v, in the given order, float32."""
    parts = [values[part] for part in ("qkv", "q", "k", "v") if part in values]
    whole = torch.cat([part.to(torch.float32) for part in parts])[order]
    return whole.T.contiguous() if turned else whole


def _cut(entry: TensorEntry, first: int, count: int) -> TensorEntry:
    """Some consecutive rows of a stored tensor."""
    row = entry.nbytes // entry.shape[0]
    start = entry.start + first * row
    return replace(entry, shape=(count, *entry.shape[1:]), start=start, stop=start + count * row)


def _misfit(entry: TensorEntry, expected: str, found: str) -> CorruptCheckpointError:
    return CorruptCheckpointError(
        "Layer 0's q and k do not match the head counts in the file's settings",
        file=entry.file,
        tensor=entry.name,
        expected=expected,
        found=found,
        advice="Compare the file with the published model",
    )
