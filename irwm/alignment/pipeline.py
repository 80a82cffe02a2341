"""From two checkpoints to an `Alignment`: the cheapest explanation that holds.

Ways of pairing rows, from the cheapest: the tokenizers' strings, the same id, the rows' own content. Ways of relating
coordinates: columns reordered, flipped and shifted; rotated. Every way is scored on rows that its fit has not seen and
in directions that did not pair them.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from irwm.alignment.places import Places
from irwm.alignment.result import Alignment, Step
from irwm.alignment.search import Attempt, Search, unaligned
from irwm.alignment.wording import EMBEDDING, EXTREME_ROWS
from irwm.checkpoint import Checkpoint
from irwm.checkpoint.tensors import same_bytes
from irwm.errors import UnsupportedCheckpointError
from irwm.families import TensorRef

# Where several tensors may be the embedding, one with fewer rows than this share of the original's is a layer's matrix.
LEAST_ROWS_SHARE = 0.25
# An embedding, an output head, copies and what a thief may add; each costs an alignment.
MOST_CHOICES = 8
# Rows of a key that may look out of place before all rows are looked for.
FEW_MISPLACED = 1
# A suspect is traced, read with its key, with decoys and by other statistics, each of which asks for its alignment: the
# answers for the newest ones are kept. A `Checkpoint` is one object for files that do not change while it is in use.
_KEPT = 4


def align(suspect: Checkpoint, model: Checkpoint, device: str = "cpu") -> Alignment:
    """Align `suspect` to the original `model`.

    Reads a sample of rows of each; all rows only where neither ids nor a tokenizer tell which row is which.

    Raises:
        CheckpointError: an embedding, or the original's tokenizer file, cannot be read; or the suspect holds more
            tensors that may be its embedding than can be read one after the other.
    """
    return alignments(suspect, model, device)[0]


@lru_cache(maxsize=_KEPT)
def alignments(suspect: Checkpoint, model: Checkpoint, device: str = "cpu") -> tuple[Alignment, ...]:
    """An alignment for every tensor of the suspect that may be its embedding and fits, best first; else the best one.

    Where names do not tell which tensor it is, a thief may have planted a damaged copy beside the real one; both fit,
    and only the key can tell which carries the mark.
    """
    choices = _choices(suspect, model)
    found = [_aligned(choice, model, device, len(choices)) for choice in choices]
    fitting = [alignment for alignment in found if alignment.aligned]
    return tuple(sorted(fitting or found, key=lambda each: -_similarity(each)))[: len(fitting) or 1]


def begin(suspect: Checkpoint, model: Checkpoint, device: str = "cpu") -> None:
    """What every alignment of the two begins with, a second at most, for whoever waits for something else meanwhile."""
    _search(_choices(suspect, model)[0], model, device).likeliest  # noqa: B018  a cached property


@lru_cache(maxsize=1)
def _search(suspect: Checkpoint, model: Checkpoint, device: str) -> Search:
    return Search(suspect, model, device)


def misplaced(
    suspect: Checkpoint, model: Checkpoint, alignment: Alignment, tokens: NDArray[np.int64], device: str = "cpu"
) -> bool:
    """Whether some of these tokens' rows do not stand where the alignment says.

    A sample of rows does not show that a few were exchanged, and those few may be a key's.

    Args:
        tokens: the rows of the original that a key reads.
    """
    if not alignment.aligned or alignment.settled:
        return False
    return _places(suspect, model, alignment, device).misplaced(tokens) > FEW_MISPLACED


@lru_cache(maxsize=_KEPT)
def _places(suspect: Checkpoint, model: Checkpoint, alignment: Alignment, device: str) -> Places:
    return Search(suspect, model, device).places(alignment)


@lru_cache(maxsize=_KEPT)
def borne_out(suspect: Checkpoint, model: Checkpoint, alignment: Alignment, device: str = "cpu") -> Alignment:
    """The alignment, with every row where its content says if a name puts any of them anywhere but at its own id.

    For evidence that is spread over all rows: whoever shows the original could write into its tokenizer which of them
    are "gone", and so leave those alone that speak for his accusation.
    """
    if not alignment.aligned or alignment.settled:
        return alignment
    suspect = with_embedding(suspect, alignment.embedding)
    by_id = Search(suspect, model, device).by_id
    return alignment if np.array_equal(alignment.rows, by_id) else settled(suspect, model, alignment, device)


@lru_cache(maxsize=_KEPT)
def settled(suspect: Checkpoint, model: Checkpoint, alignment: Alignment, device: str = "cpu") -> Alignment:
    """The alignment with every row where its content says, whatever its id and name."""
    again = Search(suspect, model, device).settled(alignment)
    recognised = tuple(step for step in alignment.steps if step.name == EMBEDDING)
    left_out = tuple(step for step in alignment.steps if step.name == EXTREME_ROWS)
    return replace(again, steps=(*recognised, *again.steps, *left_out))


def with_embedding(suspect: Checkpoint, ref: TensorRef) -> Checkpoint:
    """The same checkpoint with another of its tensors taken for the embedding."""
    if ref == suspect.layout.embedding:
        return suspect
    other = next((layout for layout in suspect.layout.elsewhere if layout.embedding == ref), None)
    if other is not None:  # a whole model under another path, with a layer 0 of its own
        return replace(suspect, layout=other)
    vocab_size, hidden_size = suspect.tensors[ref.name].shape
    layout = replace(suspect.layout, embedding=ref, vocab_size=vocab_size, hidden_size=hidden_size)
    return replace(suspect, layout=layout)


@lru_cache(maxsize=_KEPT)  # whether a copy is one takes reading both
def _choices(suspect: Checkpoint, model: Checkpoint) -> tuple[Checkpoint, ...]:
    """The suspect with each tensor that may be its embedding, the model's body left out by its size.

    Raises:
        UnsupportedCheckpointError: more tensors bear the embedding's name than can be read one after the other.
    """
    layout = suspect.layout
    refs = [*layout.alternatives, *(copy for copy in layout.copies if not _same(suspect, copy))]
    choices = [suspect, *(with_embedding(suspect, ref) for ref in refs)]
    for fits in (_of_width, _of_size):
        choices = [each for each in choices if fits(each, model)] or choices
    if len(choices) > MOST_CHOICES:
        if layout.names_known:
            raise UnsupportedCheckpointError(
                "More tensors bear the embedding's name than can be told apart",
                file=suspect.path,
                expected=f"at most {MOST_CHOICES}",
                found=f"{len(choices)}",
                advice="Give a file that holds one model",
            )
        # Of names that are nobody's, those with the original's own rows are the likeliest.
        choices = sorted(choices, key=lambda each: each.vocab_size != model.vocab_size)[:MOST_CHOICES]
    return tuple(choices)


def _same(suspect: Checkpoint, copy: TensorRef) -> bool:
    """Whether a tensor that should hold the embedding once more does; if not, either may be what the model uses."""
    return same_bytes(suspect.tensors[suspect.layout.embedding.name], suspect.tensors[copy.name])


def _of_width(suspect: Checkpoint, model: Checkpoint) -> bool:
    return suspect.hidden_size == model.hidden_size


def _of_size(suspect: Checkpoint, model: Checkpoint) -> bool:
    return suspect.vocab_size >= LEAST_ROWS_SHARE * model.vocab_size


def _aligned(suspect: Checkpoint, model: Checkpoint, device: str, tensors: int) -> Alignment:
    search = _search(suspect, model, device)
    best: Attempt | None = None
    telling, nearly_equal = False, 0.0
    for way in (search.same_coordinates, search.rotated, search.moved_rows):
        for attempt in way():
            if best is None or attempt.order > best.order:
                best = attempt
            if attempt.alignment.aligned:
                found = search.finished(attempt)
                return replace(found, steps=(*_recognised(found, tensors), *found.steps))
            telling |= attempt.telling and attempt.alignment.rotation is not None
            nearly_equal = max(nearly_equal, attempt.nearly_equal)
    if best is None or suspect.hidden_size != model.hidden_size:
        why = f"the suspect's rows have {suspect.hidden_size} coordinates, the original's have {model.hidden_size}"
        return unaligned(suspect.layout.embedding, search.by_id, model.hidden_size, why)
    exhausted = telling and suspect.layout.names_known
    return replace(search.fitted(best), rows=search.by_id, exhausted=exhausted, nearly_equal=nearly_equal)


def _similarity(alignment: Alignment) -> float:
    return alignment.similarity / alignment.needed_similarity if alignment.cosines.size else -1.0


def _recognised(alignment: Alignment, tensors: int) -> tuple[Step, ...]:
    if tensors == 1:
        return ()
    said = f"the embedding was recognised among {tensors} tensors by what it holds"
    return (Step(EMBEDDING, said, min(1.0, max(0.0, alignment.similarity)), "median similarity of its rows"),)
