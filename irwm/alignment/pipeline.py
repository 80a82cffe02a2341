"""From two checkpoints to an `Alignment`: finds the suspect's embedding among its tensors, and runs `search` for
each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from irwm.alignment.result import Alignment, Step
from irwm.alignment.rows import OriginalRows
from irwm.alignment.search import Search
from irwm.alignment.steps import EMBEDDING
from irwm.checkpoint import Checkpoint
from irwm.checkpoint.tensors import same_bytes
from irwm.errors import UnsupportedCheckpointError
from irwm.families import TensorRef

# If several tensors may be the embedding, one with less than this share of the original's rows is a layer's matrix.
LEAST_ROWS_SHARE = 0.25
# The embedding, an output head, copies and tensors that an attacker may add; each costs an alignment. If there are more
# tensors, the likeliest are read, according to the lengths of this many rows.
MOST_CHOICES = 8
COMPARED_ROWS = 1024
# Larger numbers of rows are not compared, since a file of a few bytes can claim millions: ten times the original's,
# because the largest vocabularies in use are eight times the smallest, or as many as fit in 256 MiB.
MOST_ROWS_SHARE = 10
MOST_ENTRIES = 1 << 26


def align(suspect: Checkpoint, model: Checkpoint, device: str = "cpu") -> Alignment:
    """Align `suspect` to the original `model`.

    Reads a sample of rows of each; all rows only if neither ids nor a tokenizer match the rows.

    Raises:
        CheckpointError: an embedding, or the original's tokenizer file, cannot be read.
    """
    return best(searches(suspect, OriginalRows(model, device)).chosen)[0].alignment


@dataclass(frozen=True, slots=True, eq=False)
class Searches:
    """The searches to run for a suspect.

    Attributes:
        chosen: a search for each tensor that may be the embedding, `MOST_CHOICES` at most, the architecture's first.
        passed_over: the number of others; their rows resemble the original's less.
    """

    chosen: tuple[Search, ...]
    passed_over: int


def searches(suspect: Checkpoint, original: OriginalRows, embedding_rows: NDArray[np.int64] | None = None) -> Searches:
    """A search for each tensor of the suspect that may be its embedding; sizes exclude the matrices of layers.

    Args:
        embedding_rows: as for `Search`.
    """
    model = original.model
    choices = [each for each in _choices(suspect, model) if each.vocab_size <= _most_rows(each.hidden_size, model)]
    if not choices:
        raise UnsupportedCheckpointError(
            "The suspect's files claim far more rows than the original has, so its rows were not read",
            file=suspect.path,
            tensor=suspect.layout.embedding.name,
            expected=f"at most {_most_rows(suspect.hidden_size, model)} rows; the original has {model.vocab_size}",
            found=f"{suspect.vocab_size} rows",
            advice="Check that this is the intended model. If so, trim its embedding to the rows "
            "that its tokenizer uses",
        )
    chosen = choices
    if len(choices) > MOST_CHOICES:
        own, *others = choices
        others.sort(key=lambda each: -_likeness(each, model))
        chosen = [own, *others[: MOST_CHOICES - 1]]
    return Searches(tuple(Search(choice, original, embedding_rows) for choice in chosen), len(choices) - len(chosen))


def _most_rows(hidden_size: int, model: Checkpoint) -> int:
    return max(MOST_ROWS_SHARE * model.vocab_size, MOST_ENTRIES // max(hidden_size, 1))


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """One of the suspect's tensors, used as its embedding."""

    search: Search
    alignment: Alignment


def best(searches: Sequence[Search]) -> tuple[Candidate, ...]:
    """The candidates that fit, best first, and the architecture's own; if none fits and names do not decide, the
    best.

    If names do not show which tensor is the embedding, an attacker may have planted a damaged copy next to the real
    one. Both fit, and only the key can show which one carries the mark.
    """
    candidates = [Candidate(search, search.alignment()) for search in searches]
    if len(candidates) > 1:
        candidates = [_recognised(candidate, len(candidates)) for candidate in candidates]
    fitting = [candidate for candidate in candidates if candidate.alignment.aligned]
    in_order = sorted(fitting or candidates, key=lambda each: -_similarity(each.alignment))
    chosen = in_order[: len(fitting) or 1]
    own = candidates[0]  # a mark in it is found with any alignment score
    if own.search.suspect.layout.names_known and own not in chosen:
        chosen.append(own)
    return tuple(chosen)


def with_embedding(suspect: Checkpoint, ref: TensorRef) -> Checkpoint:
    """The same checkpoint with another of its tensors used as the embedding."""
    if ref == suspect.layout.embedding:
        return suspect
    other = next((layout for layout in suspect.layout.elsewhere if layout.embedding == ref), None)
    if other is not None:  # a whole model under another path, with its own layer 0
        return replace(suspect, layout=other)
    vocab_size, hidden_size = suspect.tensors[ref.name].shape
    layout = replace(suspect.layout, embedding=ref, vocab_size=vocab_size, hidden_size=hidden_size)
    return replace(suspect, layout=layout)


def _choices(suspect: Checkpoint, model: Checkpoint) -> list[Checkpoint]:
    """The suspect with each tensor that may be its embedding used as the embedding."""
    layout = suspect.layout
    refs = [*layout.alternatives, *(copy for copy in layout.copies if not _same(suspect, copy))]
    choices = [suspect, *(with_embedding(suspect, ref) for ref in refs)]
    choices = [each for each in choices if each.hidden_size == model.hidden_size] or choices
    return [each for each in choices if each.vocab_size >= LEAST_ROWS_SHARE * model.vocab_size] or choices


def _likeness(choice: Checkpoint, model: Checkpoint) -> float:
    """The rank correlation of the lengths of rows with the same ids, which rotations and factors do not change.

    To have planted tensors read instead of the embedding, an attacker must give them the original's lengths, and cannot
    do so for more than a few without planting one that holds the mark.
    """
    ids = np.unique(np.linspace(0, min(choice.vocab_size, model.vocab_size) - 1, COMPARED_ROWS).astype(np.int64))
    ranks = []
    for each in (choice, model):
        lengths = np.linalg.norm(each.embedding(ids).double().numpy(), axis=1)
        ranks.append(np.argsort(np.argsort(np.nan_to_num(lengths))) - (ids.size - 1) / 2)
    own = float(np.square(ranks[0]).sum())
    return float(ranks[0] @ ranks[1]) / own if own else -1.0


def _same(suspect: Checkpoint, copy: TensorRef) -> bool:
    """Whether a tensor that should be a copy of the embedding is one; if not, the model may use either."""
    return same_bytes(suspect.tensors[suspect.layout.embedding.name], suspect.tensors[copy.name])


def _similarity(alignment: Alignment) -> float:
    return alignment.similarity / alignment.needed_similarity if alignment.cosines.size else -1.0


def _recognised(candidate: Candidate, tensors: int) -> Candidate:
    """The same with the step that the embedding was recognised, if it fits."""
    alignment = candidate.alignment
    if not alignment.aligned:
        return candidate
    said = f"the embedding was identified by its content among {tensors} tensors"
    sure = min(1.0, max(0.0, alignment.similarity))
    step = Step(EMBEDDING, said, sure, "median similarity of its rows")
    return replace(candidate, alignment=replace(alignment, steps=(step, *alignment.steps)))
