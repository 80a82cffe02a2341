"""From a config and the tensors' shapes to a `Layout`; no weight is read.

The config names the family and the shapes must bear it out: a head count that does not fit the matrices would give
a wrong invariant without any error further on, so every tensor of the layout is checked here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch

from irwm.errors import CorruptCheckpointError, UnknownFamilyError
from irwm.families.configvalues import Config, shown
from irwm.families.family import Family, NormRole, Prefix, families
from irwm.families.schema import Layout, Norm, TensorRef

Shapes = Mapping[str, tuple[int, ...]]

# The dtypes whose rounding of Gemma's normaliser can be told from float32's.
_HALF_DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16}


def recognise(config: Mapping[str, Any], shapes: Shapes) -> Layout:
    """The layout of a checkpoint.

    The family comes from `model_type`, or from `text_config`'s in a multimodal model. Where that is missing or
    unknown, layer 0's tensor names decide if they fit exactly one family whose names tell its conventions, and if
    the config gives the head count.

    Args:
        config: config.json's content; {} where there is none.
        shapes: shape of each tensor in the files, in the files' own orientation.

    Raises:
        UnknownFamilyError: no family fits, the head count is unknown, or layer 0's q and k or the embedding are not
            in the files; the message lists the names tried.
        CorruptCheckpointError: a config value cannot be used, a tensor is missing, or a shape contradicts the config.
    """
    family, section, notes = _family_of(config, shapes)
    type_name = section.get("model_type")
    if not isinstance(type_name, str) or type_name not in family.model_types:
        type_name = next(iter(family.model_types))
    defaults = family.model_types[type_name]
    return _Builder(family, Config(section, config, defaults), shapes, notes).layout()


def _family_of(config: Mapping[str, Any], shapes: Shapes) -> tuple[Family, Mapping[str, Any], list[str]]:
    """The family, the config section it was named in, and notes on how it was found."""
    text = config.get("text_config")
    sections = [config, text] if isinstance(text, Mapping) else [config]
    for section in sections:
        for family in families():
            # Comparing only strings keeps a list or object in this place, which cannot be hashed, harmless.
            if isinstance(section.get("model_type"), str) and section["model_type"] in family.model_types:
                return family, section, []
    section = sections[-1]
    model_type = section.get("model_type", config.get("model_type"))
    fitting = [f for f in families() if _names_fit(f, shapes)]
    if len(fitting) != 1:
        raise _unknown(model_type, config, shapes)
    family = fitting[0]
    if section.get(family.heads) is None:
        raise UnknownFamilyError(
            f"the tensor names fit the {family.name} family, but they do not tell the number of attention heads",
            expected=f"a config.json with {family.heads}",
            found="no config.json" if not config else f"a config.json without {family.heads}",
            advice="Put the model's config.json beside the file",
        )
    told = "no model_type" if model_type is None else f"the unknown model_type {shown(model_type)[:80]}"
    return family, section, [f"The config gives {told}; the family {family.name} was recognised by tensor names."]


def _names_fit(family: Family, shapes: Shapes) -> bool:
    """Whether layer 0 holds exactly the family's tensors under one of its prefixes."""
    for prefix in family.prefixes:
        stem = prefix.body + family.layer
        found = {name[len(stem) :] for name in shapes if name.startswith(stem)}
        # Old Llama-shaped files also store the rotary frequencies, which follow from the config.
        found.discard("self_attn.rotary_emb.inv_freq")
        if found and found == set(family.layer_names) and prefix.body + family.embedding in shapes:
            return True
    return False


def _unknown(model_type: object, config: Mapping[str, Any], shapes: Shapes) -> UnknownFamilyError:
    served = ", ".join(sorted(t for f in families() for t in f.model_types))
    if not config:
        return UnknownFamilyError(
            f"the tensor names alone do not tell the model family; {_tried(families())}",
            expected=f"a config.json with a model_type of {served}",
            found=f"no config.json; {_present(shapes)}",
            advice="Put the model's config.json beside the file",
        )
    return UnknownFamilyError(
        f"this model family is not known; {_tried(families())}",
        expected=f"a model_type of {served}",
        found=f"model_type {'missing' if model_type is None else shown(model_type)[:80]}; {_present(shapes)}",
        advice="Check that the model's own config.json lies beside its files",
    )


def _tried(tried: tuple[Family, ...]) -> str:
    names = dict.fromkeys(name for f in tried for name in (f.embedding, f.projections.q, f.projections.k))
    prefixes = dict.fromkeys(p.body or '""' for f in tried for p in f.prefixes)
    return f"tensor names tried: {', '.join(names)}, under the prefixes {', '.join(prefixes)}"


def _present(shapes: Shapes) -> str:
    """What is there instead: layer 0's attention names if any, since a quantised or adapter file shows there."""
    layer = [name for name in shapes if ".0." in name and "att" in name.lower()]
    some = (layer or list(shapes))[:4]
    return f"{len(shapes)} tensors, such as {', '.join(some)}" if some else "no tensors"


class _Builder:
    """Collects one layout; an object only so that family, config, shapes and prefix need not be passed around."""

    def __init__(self, family: Family, config: Config, shapes: Shapes, notes: list[str]) -> None:
        self.family = family
        self.config = config
        self.shapes = shapes
        self.notes = notes
        self.prefix = self._prefix()

    def layout(self) -> Layout:
        family, config = self.family, self.config
        embedding, head, tied = self._embedding_and_head()
        vocab_size, hidden_size = self.shapes[embedding.name]
        heads, kv_heads, head_dim = self._heads(hidden_size)
        q, k, q_bias, k_bias = self._projections(heads, kv_heads, head_dim, hidden_size)
        return Layout(
            family=family.name,
            vocab_size=vocab_size,
            hidden_size=hidden_size,
            heads=heads,
            kv_heads=kv_heads,
            head_dim=head_dim,
            embedding=embedding,
            head=head,
            tied=tied,
            position=self._table(family.position, hidden_size),
            token_type=self._table(family.token_type, hidden_size),
            embedding_norm=self._norm(family.embedding_norm, hidden_size),
            input_norm=self._norm(family.input_norm, hidden_size),
            q=q,
            k=k,
            q_bias=q_bias,
            k_bias=k_bias,
            q_norm=self._norm(family.q_norm, head_dim),
            k_norm=self._norm(family.k_norm, head_dim),
            embedding_scale=_embedding_scale(family, hidden_size, config.dtype()),
            notes=tuple(self.notes),
        )

    def _prefix(self) -> Prefix:
        for prefix in self.family.prefixes:
            projections = self.family.projections
            if prefix.body + projections.q in self.shapes and prefix.body + projections.k in self.shapes:
                return prefix
        raise UnknownFamilyError(
            f"layer 0's q and k are not in the files of this {self.family.name} model; {_tried((self.family,))}",
            found=_present(self.shapes),
            advice="An adapter has to be merged into its base model, and a quantised file to be in a format that is"
            " read here; a missing shard has to be fetched",
        )

    def _embedding_and_head(self) -> tuple[TensorRef, TensorRef | None, bool]:
        name = self.prefix.body + self.family.embedding
        head_name = self.prefix.head + self.family.head
        has_head = head_name in self.shapes
        stated = self.config.tie()
        # Left out, the key means the model type's default. Where that is "untied" a missing head says otherwise:
        # a head that is nowhere stored can only be the embedding.
        tied = stated if stated is not None else self.config.switch("tie_word_embeddings") or not has_head
        if name not in self.shapes:
            if not (tied and has_head):
                raise UnknownFamilyError(
                    f"the embedding is not in the files of this {self.family.name} model; {_tried((self.family,))}",
                    found=_present(self.shapes),
                    advice="A missing shard has to be fetched",
                )
            # Savers that store shared memory once may keep either name; transformers loads both ways.
            self.notes.append(f"The embedding is stored under its output head's name, {head_name}.")
            name, has_head = head_name, False
        shape = self.shapes[name]
        if len(shape) != 2 or min(shape) < 1:
            raise _mismatch("the embedding is not a matrix", name, "(vocabulary, hidden size)", shape)
        self._check_sizes(name, *shape)
        head = self._ref(head_name, shape) if has_head else None
        if tied and head is not None:
            self.notes.append(
                "The config ties the output head to the embedding, and the files hold both;"
                " transformers ties them only if their values are equal."
            )
        if not tied and head is None:
            self.notes.append(
                "The config says that the output head is not tied to the embedding, but the files hold no head."
            )
        return TensorRef(name), head, tied

    def _check_sizes(self, embedding: str, vocab_size: int, hidden_size: int) -> None:
        if self.config.count("hidden_size") != hidden_size:
            raise _mismatch(
                "the embedding's width contradicts the config's hidden_size",
                embedding,
                f"(vocabulary, {self.config.count('hidden_size')})",
                (vocab_size, hidden_size),
            )
        stated = self.config.count("vocab_size")
        if stated is not None and stated != vocab_size:
            self.notes.append(f"The config gives a vocabulary of {stated}; the embedding has {vocab_size} rows.")

    def _heads(self, hidden_size: int) -> tuple[int, int, int]:
        family, config = self.family, self.config
        heads = config.count(family.heads)
        if heads is None:  # No family's defaults leave it out; said for the reader and the type checker.
            raise CorruptCheckpointError(f"the config has no {family.heads}", file="config.json")
        kv_heads = (config.count(family.kv_heads) if family.kv_heads else None) or heads
        if heads % kv_heads:
            raise CorruptCheckpointError(
                "the config's query heads do not divide into its key heads",
                file="config.json",
                expected=f"a number of key heads that divides {heads}",
                found=str(kv_heads),
            )
        head_dim = config.count(family.head_dim) if family.head_dim else None
        if head_dim is None:
            if hidden_size % heads:
                raise CorruptCheckpointError(
                    "the hidden size does not divide into the config's heads",
                    file="config.json",
                    expected=f"a number of heads that divides {hidden_size}",
                    found=str(heads),
                )
            head_dim = hidden_size // heads
        return heads, kv_heads, head_dim

    def _projections(
        self, heads: int, kv_heads: int, head_dim: int, hidden_size: int
    ) -> tuple[TensorRef, TensorRef, TensorRef | None, TensorRef | None]:
        spec = self.family.projections
        rows = {"q": heads * head_dim, "k": kv_heads * head_dim, "v": kv_heads * head_dim}
        if spec.fused:
            total = sum(rows[part] for part in spec.fused)
            starts = {part: sum(rows[p] for p in spec.fused[:i]) for i, part in enumerate(spec.fused)}
            q, k = (
                TensorRef(self._ref(self.prefix.body + name, (total, hidden_size)).name, (start, start + rows[part]))
                for name, part, start in ((spec.q, "q", starts["q"]), (spec.k, "k", starts["k"]))
            )
        else:
            q = self._ref(self.prefix.body + spec.q, (rows["q"], hidden_size))
            k = self._ref(self.prefix.body + spec.k, (rows["k"], hidden_size))
        if spec.q_bias is None or spec.k_bias is None:
            return q, k, None, None
        q_bias, k_bias = self.prefix.body + spec.q_bias, self.prefix.body + spec.k_bias
        if spec.bias_key is not None and not self.config.switch(spec.bias_key):
            if q_bias in self.shapes or k_bias in self.shapes:
                self.notes.append(
                    f"The files hold biases of q and k that the config's {spec.bias_key} switches off; not used."
                )
            return q, k, None, None
        return q, k, self._ref(q_bias, (rows["q"],)), self._ref(k_bias, (rows["k"],))

    def _table(self, name: str | None, hidden_size: int) -> TensorRef | None:
        if name is None:
            return None
        name = self.prefix.body + name
        shape = self.shapes.get(name)
        if shape is None or len(shape) != 2 or shape[0] < 1 or shape[1] != hidden_size:
            raise _mismatch("an embedding table does not fit", name, f"(at least 1, {hidden_size})", shape)
        return TensorRef(name)

    def _norm(self, role: NormRole | None, size: int) -> Norm | None:
        if role is None:
            return None
        return Norm(
            kind=role.kind,
            weight=self._first(role.weight, size),
            bias=self._first(role.bias, size) if role.bias else None,
            eps=self.config.eps(role.eps),
            offset=role.offset,
        )

    def _first(self, names: tuple[str, ...], size: int) -> TensorRef:
        present = [n for n in names if self.prefix.body + n in self.shapes]
        return self._ref(self.prefix.body + (present or list(names))[0], (size,))

    def _ref(self, name: str, expected: tuple[int, ...]) -> TensorRef:
        """A tensor that must be there in exactly this shape."""
        found = self.shapes.get(name)
        if found is None:
            raise _mismatch("a tensor is missing", name, str(expected), None)
        if tuple(found) != expected:
            raise _mismatch("a tensor's shape contradicts the config", name, str(expected), found)
        return TensorRef(name)


def _mismatch(problem: str, name: str, expected: str, found: tuple[int, ...] | None) -> CorruptCheckpointError:
    return CorruptCheckpointError(
        problem,
        tensor=name,
        expected=expected,
        found="no such tensor" if found is None else str(tuple(found)),
        advice="Check that config.json belongs to these files and that no shard is missing",
    )


def _embedding_scale(family: Family, hidden_size: int, dtype: str | None) -> float:
    """The factor on the embedding. Gemma keeps sqrt(hidden size) in float32 and rounds it to the weights' dtype
    before it multiplies, so that a bfloat16 model of width 3072 uses 55.5 and not 55.4256."""
    if family.embedding_scale == "one":
        return 1.0
    root = torch.tensor(math.sqrt(hidden_size), dtype=torch.float32)
    name = (dtype or "").removeprefix("torch.")
    return float(root.to(_HALF_DTYPES.get(name, torch.float32)))
