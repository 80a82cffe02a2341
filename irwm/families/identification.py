"""Finds the family of a checkpoint; `building` then finds its tensors.

The config names the family. Layer 0's tensor names decide only if the config names none, and only for families whose
names determine how they compute. If the names are unknown, since an attacker may rename tensors, `unnamed` finds at
least the embedding.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from irwm.errors import CheckpointError, UnknownFamilyError, printable
from irwm.families.building import MOST_ROWS, build, present, tried
from irwm.families.configvalues import Config, ConfigJson, shown
from irwm.families.family import Family, embedding_names, families, family_of, head_names, inner_type
from irwm.families.schema import UNKNOWN_FAMILY, Layout, Shapes, TensorRef

# The section for the language model in a multimodal model's config, in transformers and in the repositories of InternVL
# and DeepSeek-VL. Omni models have a section for the model that reads text, which contains that section.
_SECTIONS = ("text_config", "llm_config", "language_config")
_READERS = ("thinker_config",)
# Buffers that old files store in layer 0 and that follow from the config: rotary frequencies and the causal mask.
_BUFFERS = {
    "self_attn.rotary_emb.inv_freq",
    "attention.rotary_emb.inv_freq",
    "attention.bias",
    "attention.masked_bias",
    "attn.bias",
    "attn.masked_bias",
}
# In every model published so far, the vocabulary has more entries than the model has hidden coordinates.
LEAST_TALLNESS = 1.5
# Long enough for one family's names and prefixes; those of all families take thousands of characters.
LONGEST_REASON = 500


def language_sections(config: ConfigJson) -> tuple[ConfigJson, ...]:
    """The parts of a config that may describe the language model: the whole, then a multimodal model's section."""
    readers = [config, *(config[key] for key in _READERS if isinstance(config.get(key), Mapping))]
    return (*readers, *(part[key] for part in readers for key in _SECTIONS if isinstance(part.get(key), Mapping)))


def recognise(config: ConfigJson, shapes: Shapes) -> Layout:
    """The layout of a checkpoint.

    The family comes from `model_type`; in a multimodal model, from the language model's section. If it is missing or
    unknown, layer 0's tensor names decide, if they fit exactly one family whose names determine its conventions, and if
    the config gives the head count.

    Args:
        config: config.json's content; {} without one.
        shapes: shape of each tensor in the files, in the files' own orientation.

    Raises:
        UnknownFamilyError: no family fits, the head count is unknown, or layer 0's q and k or the embedding are not
            in the files; the message lists the names tried.
        CorruptCheckpointError: a config value cannot be used, a tensor is missing, or a shape contradicts the config.
    """
    sections = language_sections(config)
    for section in sections:
        model_type = section.get("model_type")
        if isinstance(model_type, str) and (family := family_of(model_type)) is not None:
            values = Config(section, config, family.model_types[model_type], family.spellings)
            return build(family, values, shapes, ())
    for section in sections:
        # Old configs keep the language model's keys next to the vision model's, or do not name its type.
        inner = inner_type(section.get("model_type"))
        if inner is not None and (family := family_of(inner)) is not None:
            values = Config(sections[-1], config, family.model_types[inner], family.spellings)
            return build(family, values, shapes, ())
    return _by_names(config, sections[-1], shapes)


def names_an_embedding(name: str, *, or_a_piece: bool = False) -> bool:
    """Whether a tensor is an embedding by its name; with `or_a_piece`, also one of several pieces of an embedding, such
    as "embed_tokens.weight_scale"."""
    endings = embedding_names()
    return name.endswith(endings) or (or_a_piece and any(ending in name for ending in endings))


def unnamed(shapes: Shapes, refusal: CheckpointError, config: ConfigJson = MappingProxyType({})) -> Layout:
    """A layout in which only the embedding is known, and perhaps the output head, by its name.

    An embedding is among the largest matrices of a model, and the verdict's own reading needs only this. Shapes alone
    do not show the first layer and the purpose of its matrices, so layer 0's q and k stay unknown. An untied output
    head has the embedding's shape, and an attacker may add larger matrices, so there may be several candidates;
    alignment with an original decides between them.

    A model of an unknown family can be an original too, if its config gives the sizes and only one tensor has the name
    of an embedding and these sizes. Then A is made of the embedding's rows.

    Args:
        shapes: shape of each tensor of plain numbers.
        refusal: why the names are not sufficient; becomes a note.
        config: config.json's content; {} without one.

    Raises:
        CheckpointError: `refusal`, if no matrix can be the embedding.
    """
    tall = {
        name: shape
        for name, shape in shapes.items()
        if len(shape) == 2 and shape[1] >= 2 and LEAST_TALLNESS * shape[1] <= shape[0] <= MOST_ROWS
    }
    endings = embedding_names()
    # Embedding names first, then the largest. Alignment, which knows the original, chooses among all of them.
    candidates = sorted(tall, key=lambda name: (not name.endswith(endings), -math.prod(tall[name]), name))
    if not candidates:
        raise refusal
    if (own := _new_family(config, tall, candidates)) is not None:
        return _of_new_family(config, tall, own, candidates)
    vocab_size, hidden_size = tall[candidates[0]]
    by = "name" if candidates[0].endswith(endings) else "shape"
    known = f"The embedding was recognised by its {by} ({vocab_size} × {hidden_size})"
    choice = f"; other candidates: {len(candidates) - 1}" if len(candidates) > 1 else ""
    # The list of tried names is useful for one family, not for all of them.
    why = refusal.problem if len(refusal.problem) <= LONGEST_REASON else refusal.problem.split(";")[0]
    about = "" if refusal.tensor is None else f" ({printable(refusal.tensor, 80)})"
    return Layout(
        family=UNKNOWN_FAMILY,
        vocab_size=vocab_size,
        hidden_size=hidden_size,
        embedding=TensorRef(candidates[0]),
        notes=(f"{known}{choice}. Layer 0's q and k were not recognised: {why}{about}.",),
        alternatives=tuple(TensorRef(name) for name in candidates[1:]),
    )


def _new_family(config: ConfigJson, tall: Mapping[str, tuple[int, ...]], candidates: Sequence[str]) -> str | None:
    """The tensor that is the embedding of a model of an unknown type; None if names do not show it."""
    sections = language_sections(config)
    types = [kind for section in sections if isinstance(kind := section.get("model_type"), str)]
    if not types or any(family_of(kind) is not None or inner_type(kind) is not None for kind in types):
        return None  # a known family with wrong tensors is not an unknown family
    named = [name for name in candidates if _ends(name, embedding_names())]
    if len(named) != 1:
        return None
    rows, width = tall[named[0]]
    size, columns = (sections[-1].get(key, config.get(key)) for key in ("vocab_size", "hidden_size"))
    # type(), since JSON's true is an int to Python.
    fits = columns in (None, width) and (size is None or (type(size) is int and 0 < size <= rows))
    return named[0] if fits else None


def _ends(name: str, endings: Sequence[str]) -> bool:
    return any(name == ending or name.endswith(f".{ending}") for ending in endings)


def _of_new_family(
    config: ConfigJson, tall: Mapping[str, tuple[int, ...]], own: str, candidates: Sequence[str]
) -> Layout:
    section = language_sections(config)[-1]
    vocab_size, hidden_size = tall[own]
    heads = [name for name in tall if name != own and _ends(name, head_names()) and tall[name] == tall[own]]
    head = heads[0] if len(heads) == 1 else None
    tied = head is None or True in (part.get("tie_word_embeddings") for part in (section, config))
    kind = shown(section.get("model_type", config.get("model_type")))[:80]
    where = "embedding" if tied else "embedding and the output head"
    note = f"The model type {kind} is unknown. The mark is in the {where}, and A is computed from the embedding's rows."
    return Layout(
        family=UNKNOWN_FAMILY,
        vocab_size=vocab_size,
        hidden_size=hidden_size,
        embedding=TensorRef(own),
        head=None if head is None else TensorRef(head),
        tied=tied,
        scores="embedding",
        notes=(note,),
        alternatives=tuple(TensorRef(name) for name in candidates if name != own),
    )


def _by_names(config: ConfigJson, section: ConfigJson, shapes: Shapes) -> Layout:
    """The layout if no model type is known."""
    model_type = section.get("model_type", config.get("model_type"))
    fitting = [family for family in families() if _names_fit(family, shapes)]
    if len(fitting) != 1:
        raise _unknown(model_type, config, shapes)
    (family,) = fitting
    # transformers' default size may differ from this model's, so it is not assumed.
    assumed = next(iter(family.model_types.values()))
    defaults = {key: value for key, value in assumed.items() if key != family.hidden_size}
    values = Config(section, config, defaults, family.spellings)
    if family.heads and values.stated(family.heads) is None:
        raise UnknownFamilyError(
            f"the tensor names match the {family.name} family, but they do not show the number of attention heads",
            expected=f"a config.json with {family.heads}",
            found="no config.json" if not config else f"a config.json without {family.heads}",
            advice="Put the model's config.json in the same folder as the file",
        )
    told = "no model_type" if model_type is None else f"the unknown model_type {shown(model_type)[:80]}"
    note = f"The config contains {told}. The family {family.name} was recognised from the tensor names."
    return build(family, values, shapes, (note,))


def _names_fit(family: Family, shapes: Shapes) -> bool:
    """Whether layer 0 has exactly the family's tensors under one of its prefixes."""
    for prefix in family.prefixes:
        stem = prefix.body + family.layer
        found = {name[len(stem) :] for name in shapes if name.startswith(stem)} - _BUFFERS
        if found and found == set(family.layer_names) and any(prefix.body + e in shapes for e in family.embedding):
            return True
    return False


def _unknown(model_type: object, config: ConfigJson, shapes: Shapes) -> UnknownFamilyError:
    served = ", ".join(sorted(t for f in families() for t in f.model_types))
    if not config:
        return UnknownFamilyError(
            f"the tensor names alone do not identify the model family; {tried(families())}",
            expected="a config.json with a known model_type",
            found=f"no config.json; {present(shapes)}",
            advice="Put the model's config.json in the same folder as the file",
        )
    return UnknownFamilyError(
        f"this model family is unknown; supported model types: {served}; {tried(families())}",
        expected="a known model_type",
        found=f"model_type {'missing' if model_type is None else shown(model_type)[:80]}; {present(shapes)}",
        advice="Check that the model's own config.json is in the same folder",
    )
