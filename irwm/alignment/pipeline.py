"""From two checkpoints to an `Alignment`: the cheapest explanation that holds.

Ways of pairing rows, from the cheapest: the tokenizers' strings, the same id, the rows' own content. Ways of relating
coordinates: columns reordered, flipped and shifted; rotated. Every way is scored on rows that its fit has not seen and
in directions that did not pair them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from irwm.alignment.result import Alignment, Step
from irwm.alignment.rows import OriginalRows
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


def align(suspect: Checkpoint, model: Checkpoint, device: str = "cpu") -> Alignment:
    """Align `suspect` to the original `model`.

    Reads a sample of rows of each; all rows only where neither ids nor a tokenizer tell which row is which.

    Raises:
        CheckpointError: an embedding, or the original's tokenizer file, cannot be read; or the suspect holds more
            tensors that may be its embedding than can be read one after the other.
    """
    original = OriginalRows(model, device)
    return best([aligned(search) for search in searches(suspect, original)])[0].alignment


def searches(suspect: Checkpoint, original: OriginalRows) -> tuple[Search, ...]:
    """A search for each tensor of the suspect that may be its embedding, the model's body left out by its size.

    Raises:
        UnsupportedCheckpointError: more tensors bear the embedding's name than can be read one after the other.
    """
    return tuple(Search(choice, original) for choice in _choices(suspect, original.model))


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """One of the suspect's tensors, taken for its embedding."""

    search: Search
    alignment: Alignment


def best(candidates: Sequence[Candidate]) -> tuple[Candidate, ...]:
    """All candidates that fit, best first; else the best one.

    Where names do not tell which tensor is the embedding, a thief may have planted a damaged copy beside the real one.
    Both fit, and only the key can tell which carries the mark.
    """
    if len(candidates) > 1:
        candidates = [_recognised(candidate, len(candidates)) for candidate in candidates]
    fitting = [candidate for candidate in candidates if candidate.alignment.aligned]
    in_order = sorted(fitting or candidates, key=lambda each: -_similarity(each.alignment))
    return tuple(in_order[: len(fitting) or 1])


def aligned(search: Search) -> Candidate:
    """The cheapest explanation that holds; where none does, the best attempt, not aligned."""
    best: Attempt | None = None
    telling, nearly_equal = False, 0.0
    for way in (search.same_coordinates, search.rotated, search.moved_rows):
        for attempt in way():
            if best is None or attempt.order > best.order:
                best = attempt
            if attempt.alignment.aligned:
                return Candidate(search, search.finished(attempt))
            telling |= attempt.telling and attempt.alignment.rotation is not None
            nearly_equal = max(nearly_equal, attempt.nearly_equal)
    suspect, model = search.suspect, search.model
    if best is None or suspect.hidden_size != model.hidden_size:
        why = f"the suspect's rows have {suspect.hidden_size} coordinates, the original's have {model.hidden_size}"
        return Candidate(search, unaligned(suspect.layout.embedding, search.by_id, model.hidden_size, why))
    exhausted = telling and suspect.layout.names_known
    fitted = replace(search.fitted(best), rows=search.by_id, exhausted=exhausted, nearly_equal=nearly_equal)
    return Candidate(search, fitted)


def settled(search: Search, alignment: Alignment) -> Alignment:
    """The alignment with every row where its content says, whatever its id and name."""
    again = search.settled(alignment)
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


def _similarity(alignment: Alignment) -> float:
    return alignment.similarity / alignment.needed_similarity if alignment.cosines.size else -1.0


def _recognised(candidate: Candidate, tensors: int) -> Candidate:
    """The same, saying that the embedding had to be recognised; nothing is said of one that does not fit."""
    alignment = candidate.alignment
    if not alignment.aligned:
        return candidate
    said = f"the embedding was recognised among {tensors} tensors by what it holds"
    sure = min(1.0, max(0.0, alignment.similarity))
    step = Step(EMBEDDING, said, sure, "median similarity of its rows")
    return replace(candidate, alignment=replace(alignment, steps=(step, *alignment.steps)))
