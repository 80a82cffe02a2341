"""Plain facts about a checkpoint, for page and report.

Everything in a `Card` comes from headers, the config and the folder's list of files, so the card of a model larger than
memory is available at once. Slower facts are separate: `tokenizer_of` parses the tokenizer's files (a second or two for
a vocabulary of 260 000), `Checkpoint.fingerprint` and `irwm.scheme.row_pool` read the embedding.

Names and notes are untrusted text from the files; they must be escaped where they are shown.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from irwm.checkpoint.dtypes import torch_name
from irwm.checkpoint.formats import GGUF
from irwm.checkpoint.model import Checkpoint, folder_of
from irwm.checkpoint.tensors import Tensor
from irwm.checkpoint.tokens import special_token_ids, token_ids, tokenizer_files, with_tokenizer
from irwm.errors import CheckpointError, shown_path
from irwm.families.family import families, family_of, layer_counts, layer_words
from irwm.families.identification import language_sections
from irwm.families.schema import UNKNOWN_FAMILY, Layout, Norm, TensorRef

_GGUF_LAYERS = ("blk.", "enc.blk.")
# Indices, masks and packed codes are not parameters.
_WHOLE_NUMBERS = re.compile(r"[IU]\d+|BOOL")
# "format" is the framework in every safetensors file; the others are internal numbers of llama.cpp.
_SAYING_NOTHING = frozenset({"format", "general.alignment", "general.file_type", "general.quantization_version"})
_NORMS = {"rms": "RMS norm", "layer": "layer norm"}


@dataclass(frozen=True, slots=True)
class Stored:
    """A role of the scheme and the tensor that fills it.

    Attributes:
        role: "Embedding", "Layer 0, q" and so on.
        name: the tensor's name in the files.
        shape: of the role, in (out, in) orientation.
        dtype: the name of its number format: "bfloat16", "Q4_K", "GPTQ, 4 bits".
        bits: stored bits per number; fractional where scales are included.
        part: which part of a fused tensor it is, and whether it is transposed; "" for a plain tensor.
    """

    role: str
    name: str
    shape: tuple[int, ...]
    dtype: str
    bits: float
    part: str


@dataclass(frozen=True, slots=True)
class NumberFormat:
    """All tensors of one number format: their count, their numbers, their bytes."""

    dtype: str
    tensors: int
    numbers: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Shard:
    """One weight file; `nbytes` is None if it contains no tensor."""

    name: str
    nbytes: int | None


@dataclass(frozen=True, slots=True)
class Tokenizer:
    """Facts about the tokenizer.

    Attributes:
        tokens: ids within the vocabulary whose string is known; 0 means that rows can be matched by content only.
        special: ids that never occur in text: special, added, unused and byte-fallback tokens.
        problem: why its files could not be read; "" if they could.
    """

    tokens: int
    special: int
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Card:
    """A checkpoint's facts.

    Attributes:
        name: of the folder or file.
        family: the family's name, "unknown" where only the embedding is known.
        title: the usual name of its models; "" if unknown.
        recognised: the source of the family, such as "config.json"; "" if unknown.
        format: "safetensors", "PyTorch", "GGUF".
        vocab_size, hidden_size: s and d.
        layers: layers whose tensors are in the files, 0 if their names do not show it.
        stated_layers: the number in the config; None without one.
        parameters: numbers in all tensors; codes and scales count as the weights that they represent; a stored copy of
            a tied head counts again.
        heads, kv_heads, head_dim: of layer 0's attention; 0 if unknown.
        scores: "attention" where they are layer 0's q·k, "embedding" where similarities between embeddings replace
            them, "" if neither is known.
        score: the steps from an embedding to q and k; () where `scores` is not "attention".
        roles: the tensors that the scheme uses.
        fused: q and k are parts of one tensor.
        tied: the embedding is also the output head.
        head_stored: the files hold an output head, separate or a copy.
        formats: every tensor by number format, most bytes first.
        shards: the weight files.
        nbytes: their size.
        tokenizer_files: names of the tokenizer's files next to the weights, or of the GGUF file that contains it.
        said: metadata of the first weight file, as key and text; not checked.
        refusal, advice: why it cannot be marked and what to do; "" if it can.
        notes: sentences for the user.
    """

    name: str
    family: str
    title: str
    recognised: str
    format: str
    vocab_size: int
    hidden_size: int
    layers: int
    stated_layers: int | None
    parameters: int
    heads: int
    kv_heads: int
    head_dim: int
    scores: str
    score: tuple[str, ...]
    roles: tuple[Stored, ...]
    fused: bool
    tied: bool
    head_stored: bool
    formats: tuple[NumberFormat, ...]
    shards: tuple[Shard, ...]
    nbytes: int
    tokenizer_files: tuple[str, ...]
    said: tuple[tuple[str, str], ...]
    refusal: str
    advice: str
    notes: tuple[str, ...]


def card_of(checkpoint: Checkpoint) -> Card:
    """The facts of an opened checkpoint. Reads no weight and raises nothing."""
    layout, tensors = checkpoint.layout, checkpoint.tensors
    refusal, advice = _refusal(checkpoint)
    sizes = {part.file: part.seen.size for tensor in tensors.values() for part in tensor.parts}
    return Card(
        name=shown_path(checkpoint.path.name),
        family=layout.family,
        title=next((family.title for family in families() if family.name == layout.family), ""),
        recognised=_recognised(checkpoint),
        format=checkpoint.format.name,
        vocab_size=layout.vocab_size,
        hidden_size=layout.hidden_size,
        layers=_layers(layout, tensors),
        stated_layers=_stated_layers(checkpoint),
        parameters=sum(math.prod(t.shape) for t in tensors.values() if not _WHOLE_NUMBERS.fullmatch(t.dtype)),
        heads=layout.heads,
        kv_heads=layout.kv_heads,
        head_dim=layout.head_dim,
        scores=layout.scores if layout.names_known or layout.known_alone else "",
        score=_score(layout),
        roles=tuple(_stored(role, ref, tensors[ref.name]) for role, ref in _roles(layout)),
        fused=layout.q is not None and layout.k is not None and layout.q.name == layout.k.name,
        tied=layout.tied,
        head_stored=layout.head is not None,
        formats=_formats(tensors.values()),
        shards=tuple(Shard(shard.name, sizes.get(shard)) for shard in checkpoint.shards),
        nbytes=checkpoint.bytes_total,
        tokenizer_files=_tokenizer_files(checkpoint),
        said=_said(checkpoint),
        refusal=refusal,
        advice=advice,
        notes=checkpoint.notes,
    )


def tokenizer_of(checkpoint: Checkpoint) -> Tokenizer:
    """How many tokens have known strings, and how many never occur in text. Raises nothing."""
    try:
        return Tokenizer(len(set(token_ids(checkpoint).values())), len(special_token_ids(checkpoint)))
    except CheckpointError as error:
        return Tokenizer(0, 0, str(error))


def _recognised(checkpoint: Checkpoint) -> str:
    if checkpoint.family == UNKNOWN_FAMILY:
        return ""
    sections = language_sections(checkpoint.config)
    served = [family_of(section.get("model_type")) for section in sections]
    if any(family is not None and family.name == checkpoint.family for family in served):
        return "the file’s own settings" if checkpoint.format is GGUF else "config.json"
    return "the tensors’ names"


def _tokenizer_files(checkpoint: Checkpoint) -> tuple[str, ...]:
    checkpoint = with_tokenizer(checkpoint)
    if checkpoint.format is GGUF:
        return (checkpoint.shards[0].name,) if "tokenizer.ggml.tokens" in checkpoint.metadata else ()
    return tokenizer_files(folder_of(checkpoint))


def _said(checkpoint: Checkpoint) -> tuple[tuple[str, str], ...]:
    plain = ((key, value) for key, value in checkpoint.metadata.items() if isinstance(value, str | int | float))
    prefix = "general." if checkpoint.format is GGUF else ""
    return tuple(
        (key.removeprefix(prefix), str(value))
        for key, value in plain
        if key.startswith(prefix) and key not in _SAYING_NOTHING
    )


def _refusal(checkpoint: Checkpoint) -> tuple[str, str]:
    try:
        checkpoint.require_markable()
    except CheckpointError as error:
        return error.problem, error.advice or ""
    return "", ""


def _layers(layout: Layout, tensors: Mapping[str, Tensor]) -> int:
    """The number of layers under the path of layer 0's q; if that is unknown, under the path with the most layers."""
    # "model.layers.3.", "transformer.h.3.", "bert.encoder.layer.3.", "blk.3."; five digits are not a layer number.
    numbered = re.compile(rf"(?:^|\.)(?:{'|'.join((*layer_words(), 'blk'))})\.(\d{{1,4}})\.")
    seen: dict[str, set[str]] = {}
    for name in tensors:
        found = numbered.search(name)
        if found:
            seen.setdefault(name[: found.start(1)], set()).add(found[1])
    known = numbered.search(layout.q.name) if layout.q is not None else None
    if layout.q is not None and known:
        # In a GGUF file the names of layer 0 are translated, and those of the other layers are not.
        paths = layout.q.name[: known.start(1)], *_GGUF_LAYERS
        return len(set().union(*(seen.get(path, ()) for path in paths)))
    return max(map(len, seen.values()), default=0)


def _stated_layers(checkpoint: Checkpoint) -> int | None:
    for section in language_sections(checkpoint.config):
        for key in layer_counts():
            if type(section.get(key)) is int:
                return int(section[key])
    return None


def _score(layout: Layout) -> tuple[str, ...]:
    if layout.q is None:
        return ()
    start = "the token’s embedding"
    if layout.embedding_scale != 1.0:
        start += f" × {layout.embedding_scale:.6g}"
    behind = layout.embedding_projection_bias is not None
    if layout.embedding_projection is not None and not behind:
        start = f"a projection of {start}"
    if layout.position is not None:
        start += " + position 0"
    if layout.token_type is not None:
        start += " + token type 0"
    steps = [start]
    if layout.embedding_norm is not None:
        steps.append(_norm(layout.embedding_norm))
    if behind:
        steps.append("a projection with a bias")
    if layout.input_norm is not None:
        steps.append(_norm(layout.input_norm))
    biased = [name for name, bias in (("q", layout.q_bias), ("k", layout.k_bias)) if bias is not None]
    steps.append("q and k" + ("", f" with a bias on {''.join(biased)}", " with biases")[len(biased)])
    normed = [(name, norm) for name, norm in (("q", layout.q_norm), ("k", layout.k_norm)) if norm is not None]
    if normed:
        where = "each head" if normed[0][1].over == "head" else "all heads"
        steps.append(f"{_norm(normed[0][1])} on {where} of {' and '.join(name for name, _ in normed)}")
    if layout.clip is not None:
        steps.append(f"clipping at ±{layout.clip:g}")
    return tuple(steps)


def _norm(norm: Norm) -> str:
    name = _NORMS[norm.kind]
    return f"{name} with gain {norm.offset:g} + weight" if norm.offset else name


def _roles(layout: Layout) -> Iterator[tuple[str, TensorRef]]:
    """Each tensor that the scheme uses, in the order of the computation."""
    one: list[tuple[str, TensorRef | None]] = [
        ("Embedding", layout.embedding),
        *(("Copy of the embedding", copy) for copy in layout.copies),
        ("Copy of the output head" if layout.tied else "Output head", layout.head),
        ("Embedding projection", layout.embedding_projection),
        ("Projection bias", layout.embedding_projection_bias),
        ("Position table", layout.position),
        ("Token type table", layout.token_type),
        *_weights("Embedding norm", layout.embedding_norm),
        *_weights("Layer 0, norm", layout.input_norm),
        ("Layer 0, q", layout.q),
        ("Layer 0, k", layout.k),
        ("Layer 0, q bias", layout.q_bias),
        ("Layer 0, k bias", layout.k_bias),
        *_weights("Layer 0, q norm", layout.q_norm),
        *_weights("Layer 0, k norm", layout.k_norm),
    ]
    return ((role, ref) for role, ref in one if ref is not None)


def _weights(role: str, norm: Norm | None) -> list[tuple[str, TensorRef]]:
    """A norm's gain; with one gain per head, which are all alike, the first."""
    weights = norm.weights if norm is not None else ()
    return [(role if len(weights) == 1 else f"{role} (1 of {len(weights)})", ref) for ref in weights[:1]]


def _stored(role: str, ref: TensorRef, tensor: Tensor) -> Stored:
    shape = tensor.shape[::-1] if ref.transposed else tensor.shape
    part = []
    if ref.rows is not None:
        first, last = ref.rows
        repeats = shape[0] // ref.every if ref.every is not None else 1
        part.append(f"rows {first} to {last - 1} of {shape[0] if ref.every is None else f'every {ref.every}'}")
        shape = (repeats * (last - first), *shape[1:])
    if ref.transposed:
        part.append("transposed")
    return Stored(
        role,
        tensor.name,
        shape,
        torch_name(tensor.dtype),
        8 * tensor.nbytes / max(math.prod(tensor.shape), 1),
        ", ".join(part),
    )


def _formats(tensors: Iterable[Tensor]) -> tuple[NumberFormat, ...]:
    of: defaultdict[str, list[Tensor]] = defaultdict(list)
    for tensor in tensors:
        of[torch_name(tensor.dtype)].append(tensor)
    found = (
        NumberFormat(name, len(some), sum(math.prod(t.shape) for t in some), sum(t.nbytes for t in some))
        for name, some in of.items()
    )
    return tuple(sorted(found, key=lambda one: (-one.nbytes, one.dtype)))
