"""A suspect in the original's coordinates, one tensor taken for its embedding: what all keys tried on it share."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from irwm.alignment import Alignment, misplaced, settled, with_embedding
from irwm.checkpoint import Checkpoint
from irwm.evidence.attention import attention
from irwm.evidence.lineage import CANNOT_TELL, Lineage, lineage
from irwm.keys.key import Choices
from irwm.scheme.invariant import Added
from irwm.scheme.invariant import invariant as compute_invariant

BORROWED = Lineage(
    CANNOT_TELL, math.nan, math.nan, "an adapter without an embedding of its own shows no descent, whoever made it"
)


@dataclass(frozen=True, eq=False)
class Aligned:
    """A suspect with one of its tensors taken for the embedding, aligned."""

    suspect: Checkpoint
    model: Checkpoint
    alignment: Alignment
    lineage: Lineage
    device: str
    _settling: Lock = field(default_factory=Lock)
    _own: dict[tuple[bytes, bytes], NDArray[np.float64]] = field(default_factory=dict)
    _theirs: dict[tuple[bytes, bytes], tuple[NDArray[np.float64], tuple[str, ...]]] = field(default_factory=dict)

    @classmethod
    def of(cls, suspect: Checkpoint, model: Checkpoint, alignment: Alignment, device: str) -> Aligned:
        suspect = with_embedding(suspect, alignment.embedding)
        if not holds_embedding(suspect):
            return cls(suspect, model, alignment, BORROWED, device)
        agreement = attention(suspect, model, alignment, device) if alignment.aligned else None
        return cls(suspect, model, alignment, lineage(alignment, agreement), device)

    def placed(self, choices: Choices) -> Aligned:
        """The same with all rows looked for, if those that a key reads were moved; the same for any order of keys."""
        tokens = np.concatenate((choices.marked_rows, choices.query_tokens, choices.reference_tokens))
        if not misplaced(self.suspect, self.model, self.alignment, tokens, self.device):
            return self
        with self._settling:  # which takes minutes; several keys may ask at the same time
            return self._settled

    def own_invariant(
        self, query: NDArray[np.int64], reference: NDArray[np.int64], added: Added | None
    ) -> NDArray[np.float64]:
        """A of the original (t, d), once for all keys that ask for the same tokens and add nothing."""
        wanted = (query.tobytes(), reference.tobytes())
        known = self._own.get(wanted) if added is None else None
        if known is None:
            known = compute_invariant(self.model, query, reference, device=self.device, added=added).cpu().numpy()
            if added is None:
                self._own.clear()
                self._own[wanted] = known
        return known

    def suspect_invariant(
        self, query: NDArray[np.int64], reference: NDArray[np.int64], own: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], tuple[str, ...]]:
        """A of the suspect (t, d), likewise; entries of lost tokens are those of `own`, and that is said."""
        where = self.alignment.rows
        if (where[query] < 0).any() or (where[reference] < 0).any():
            return _suspect_invariant(self.suspect, self.alignment, query, reference, own, self.device)
        wanted = (query.tobytes(), reference.tobytes())
        known = self._theirs.get(wanted)
        if known is None:
            known = _suspect_invariant(self.suspect, self.alignment, query, reference, own, self.device)
            self._theirs.clear()
            self._theirs[wanted] = known
        return known

    @cached_property
    def _settled(self) -> Aligned:
        alignment = settled(self.suspect, self.model, self.alignment, self.device)
        return Aligned.of(self.suspect, self.model, alignment, self.device)


def restored_rows(
    suspect: Checkpoint, model: Checkpoint, alignment: Alignment, marked: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """(l, d) rows of the suspect in the original's coordinates, NaN where gone, and the ids that are gone."""
    where = alignment.rows[marked]
    rows = np.full((marked.size, model.hidden_size), np.nan)
    here = where >= 0
    if here.any():
        originals = model.embedding(marked[here]).double().numpy()
        rows[here] = alignment.restore(suspect.embedding(where[here]).double().numpy(), originals)
    return rows, marked[where < 0]


def _suspect_invariant(
    suspect: Checkpoint,
    alignment: Alignment,
    query: NDArray[np.int64],
    reference: NDArray[np.int64],
    own: NDArray[np.float64],
    device: str,
) -> tuple[NDArray[np.float64], tuple[str, ...]]:
    """A of the suspect (t, d); entries of lost tokens are the original's, and that is said."""
    query, reference = alignment.rows[query], alignment.rows[reference]
    q, r = np.flatnonzero(query >= 0), np.flatnonzero(reference >= 0)
    gone = query.size + reference.size - q.size - r.size
    if not gone:
        return compute_invariant(suspect, query, reference, device=device).cpu().numpy(), ()
    said = (f"{gone} of the invariant's tokens are gone; the original's values stand in for them",)
    mixed = own.copy()
    if q.size and r.size > 1:
        part = compute_invariant(suspect, query[q], reference[r], device=device).cpu().numpy()
        kept = own[np.ix_(q, r)]
        mixed[np.ix_(q, r)] = part * kept.std(axis=1, keepdims=True) + kept.mean(axis=1, keepdims=True)
    return mixed, said


def holds_embedding(suspect: Checkpoint) -> bool:
    """Whether the embedding is in the suspect's own files; that of most adapters is its base's, which we gave it."""
    parts = suspect.tensors[suspect.layout.embedding.name].parts
    return {Path(part.file) for part in parts} <= set(suspect.shards)
