"""The search for the cheapest explanation that converts a suspect's rows to the original's coordinates.

Ways of pairing rows, from the cheapest: the tokenizers' strings, the same id, the rows' own content. Ways of relating
coordinates: columns reordered, flipped and shifted; rotated. Every attempt is scored on rows that were not used for its
fit, and in directions that were not used to pair them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray

from irwm.alignment.columns import LEAST_UNIQUENESS, Columns, by_cosine
from irwm.alignment.least_squares import LeastSquares, least_squares
from irwm.alignment.places import Places, settle
from irwm.alignment.result import ALIGNED_COSINE, MINOR_COSINE, Alignment
from irwm.alignment.rotation import (
    FEWEST_ROWS_PER_COORDINATE,
    ROWS_PER_COORDINATE,
    best_rotation,
    by_procrustes,
    leading_count,
    turned_alike,
)
from irwm.alignment.rows import SAMPLE_ROWS, OriginalRows, Rows
from irwm.alignment.rows_by_content import candidates
from irwm.alignment.rows_by_name import by_tokenizer
from irwm.alignment.sample import Sample, sample_pairs
from irwm.alignment.steps import BY_CONTENT, BY_EMBEDDING, BY_ID, BY_TOKENIZER, EMBEDDING, EXTREME_ROWS, steps_of
from irwm.checkpoint import Checkpoint

# With fewer rows, no attempt is made.
FEWEST_ROWS = 16
# If more than this share of the sampled rows resemble no row, rows were moved and not only changed.
MOVED_SHARE = 0.02
# With fewer compared rows, a lack of similarity is not meaningful.
TELLING_ROWS = 256
# An embedding with a greater share of zeros was pruned so much that the model hardly works.
MOST_ZEROS = 0.5
# Below this median cosine of held-out rows in the leading components, where it is larger than in the minor ones, no
# rotation is fitted to rows that are paired only by id. Unrelated rows stay within 0.02 of 0.
LEAST_TURNED_ALIKE = 0.1
# Rows with this cosine nearly equal the original's: unrelated rows of 64 coordinates or more never come near it.
NEARLY_EQUAL = 0.9


@dataclass(frozen=True, slots=True, eq=False)
class Attempt:
    """One way of pairing rows with one way of relating coordinates.

    Attributes:
        alignment: how well it fits; the position of every row and the steps are not known yet.
        sample: the rows used for the fit.
        way: how rows were paired.
        turn: the scored rotation, if it need not be fitted again.
    """

    alignment: Alignment
    sample: Sample
    way: str
    turn: torch.Tensor | None = None

    @property
    def telling(self) -> bool:
        """Whether a lack of similarity is meaningful: the rows' names are known and enough rows are usable."""
        theirs = self.sample.theirs
        full = len(theirs) >= TELLING_ROWS and float((theirs == 0).double().mean()) <= MOST_ZEROS
        return full and self.way == BY_TOKENIZER

    @property
    def nearly_equal(self) -> float:
        """Share of the compared rows that nearly equal the original's."""
        cosines = self.alignment.cosines
        return float((cosines >= NEARLY_EQUAL).mean()) if cosines.size else 0.0

    @property
    def agreement(self) -> float:
        """How well these pairs of rows agree in all components, aligned or not."""
        found = self.alignment.whole, self.alignment.similarity
        return max((value for value in found if np.isfinite(value)), default=-1.0)

    @property
    def order(self) -> tuple[bool, bool, float]:
        """Better attempts compare greater; an attempt with few rows compares lower, however similar they are."""
        alignment = self.alignment
        reached = alignment.similarity / alignment.needed_similarity
        return alignment.aligned, alignment.cosines.size >= TELLING_ROWS, reached if np.isfinite(reached) else -1.0


class Search:
    """The attempts on one suspect; shared values are computed once.

    Args:
        embedding_rows: (s,) for an output head, the matching of rows in the embedding of the same suspect, if known by
            content: a token's row has the same position in both.
    """

    def __init__(
        self, suspect: Checkpoint, original: OriginalRows, embedding_rows: NDArray[np.int64] | None = None
    ) -> None:
        constants = _drops_row_constants(suspect, original.model)
        self._suspect, self._model = Rows.of(suspect, constants, original.device), original.rows(constants)
        self._row_constants = constants
        self.by_id = _by_id(suspect, original.model.vocab_size)
        self._embedding_rows = embedding_rows

    @property
    def suspect(self) -> Checkpoint:
        return self._suspect.source

    def alignment(self) -> Alignment:
        """The cheapest explanation that fits; if none does, the best attempt, not aligned."""
        best: Attempt | None = None
        closest: Attempt | None = None
        telling, nearly_equal, whole = False, 0.0, 0.0
        for attempt in self._attempts():
            if best is None or attempt.order > best.order:
                best = attempt
            if self._sworn(attempt) and (closest is None or attempt.agreement > closest.agreement):
                closest = attempt
            if attempt.alignment.aligned:
                return self._finished(attempt)
            telling |= attempt.telling and attempt.alignment.rotation is not None
            nearly_equal = max(nearly_equal, attempt.nearly_equal)
            whole = max(whole, attempt.alignment.whole)
        d, own = self.suspect.hidden_size, self._model.source.hidden_size
        if best is None or d != own:
            why = f"cannot be aligned: the suspect's rows have {d} coordinates, but the original's have {own}"
            return Alignment.unmoved(self.suspect.layout.embedding, why, self._rows_of(closest), own)
        exhausted = telling and self.suspect.layout.names_known
        fitted = self._fitted(best) if self._sworn(best) else self._as_it_stands(best, closest)
        rows = self._rows_of(closest)
        return replace(fitted, rows=rows, exhausted=exhausted, nearly_equal=nearly_equal, whole=whole)

    def _as_it_stands(self, best: Attempt, closest: Attempt | None) -> Alignment:
        """The best attempt's scores without its map, which is based on names: the closest attempt's rotation, or
        none."""
        d = self._model.width
        if best.alignment.rotation is None:
            return replace(best.alignment, columns=np.arange(d), signs=np.ones(d), offsets=np.zeros(d))
        turned = closest is not None and closest.alignment.rotation is not None
        rotation = self._fitted(closest).rotation if closest is not None and turned else np.eye(self._suspect.width, d)
        return replace(best.alignment, rotation=rotation)

    def _sworn(self, attempt: Attempt) -> bool:
        """Whether this attempt's pairs could not have been chosen after a key was made: a key is bound to the
        original's rows and not to the names stored with them. If no attempt aligns, names that differ from the ids are
        not trusted.
        """
        return attempt.way != BY_TOKENIZER or np.array_equal(attempt.alignment.rows, self.by_id)

    def settled(self, alignment: Alignment) -> Alignment:
        """The alignment with every row at the position that its content shows, regardless of its id and name."""
        again = self._placed(alignment)
        recognised = tuple(step for step in alignment.steps if step.name == EMBEDDING)
        left_out = tuple(step for step in alignment.steps if step.name == EXTREME_ROWS)
        return replace(again, steps=(*recognised, *again.steps, *left_out))

    def _rows_of(self, closest: Attempt | None) -> NDArray[np.int64]:
        """(s,) the matching of rows if no attempt aligns: the mark is read there all the same. It does not depend on a
        key."""
        if closest is None:
            return self.by_id
        if closest.way != BY_CONTENT:
            return closest.alignment.rows
        return settle(self._suspect, self._model, self._fitted(closest))

    @cached_property
    def _pairings(self) -> tuple[tuple[str, NDArray[np.int64]], ...]:
        """The pairings of rows that do not require reading the rows, the likelier first."""
        if self.suspect.tokens is not None:  # the answers named the tokens
            return ((BY_ID, self.by_id),)
        named = by_tokenizer(self._suspect.source, self._model.source)
        found = [] if named is None else [(BY_TOKENIZER, named)]
        found += (
            [(BY_ID, self.by_id)]
            if self._embedding_rows is None
            else [(BY_EMBEDDING, self._embedding_rows), (BY_ID, self.by_id)]
        )
        first = [all(not np.array_equal(rows, each) for _, each in found[:at]) for at, (_, rows) in enumerate(found)]
        return tuple(pairing for pairing, new in zip(found, first, strict=True) if new)

    @property
    def _minor(self) -> torch.Tensor:
        return self._model.principal_components[:, leading_count(self._model.width) :]

    @cached_property
    def likeliest(self) -> tuple[Attempt, ...]:
        """The first attempt, which explains nearly every suspect: rows by name or id, no rotation."""
        way, rows = self._pairings[0]
        return tuple(self._by_columns(rows, way))

    def _attempts(self) -> Iterator[Attempt]:
        """Rows by tokenizer or id with columns reordered, flipped and shifted; these rotated; rows by content."""
        yield from self.likeliest
        for way, rows in self._pairings[1:]:
            yield from self._by_columns(rows, way)
        for way, rows in self._pairings:
            # Fitting a large rotation takes seconds, and an id is weak evidence.
            if way != BY_ID or self._turns_alike(rows):
                yield from self._by_rotation(rows, way)
        if self.suspect.tokens is not None:
            return
        for rows in candidates(self._suspect, self._model):
            yield from self._by_columns(rows, BY_CONTENT)
            yield from self._by_rotation(rows, BY_CONTENT)

    def _by_columns(self, rows: NDArray[np.int64], way: str) -> Iterator[Attempt]:
        d = self._model.width
        if self._suspect.width != d:
            return
        sample = sample_pairs(self._suspect, self._model, rows)
        if len(sample.ours) < FEWEST_ROWS:
            why = f"cannot be aligned: only {len(sample.ours)} of the suspect's sampled rows contain usable numbers"
            embedding = self.suspect.layout.embedding
            yield Attempt(Alignment.unmoved(embedding, why, rows, d, sample.broken), sample, way)
            return
        fit = by_cosine(sample, self._row_constants, self._minor if way == BY_CONTENT else None)
        alignment = Alignment(
            aligned=fit.fits,
            embedding=self.suspect.layout.embedding,
            rows=rows,
            columns=fit.columns,
            signs=fit.signs,
            offsets=fit.offsets * self._suspect.length,
            rotation=None,
            scale=self._true_scale(fit.scale),
            uniqueness=fit.uniqueness,
            cosines=fit.cosines,
            decoy_cosines=fit.decoy_cosines,
            broken_rows=sample.broken,
            row_constants=self._row_constants,
            reason=_columns_reason(fit),
        )
        yield Attempt(alignment, sample, way)

    def _by_rotation(self, rows: NDArray[np.int64], way: str) -> Iterator[Attempt]:
        d = self._model.width
        sample = sample_pairs(self._suspect, self._model, rows, self._rows_for_rotation)
        if len(sample.ours) < FEWEST_ROWS_PER_COORDINATE * self._widest:
            return
        fit = by_procrustes(sample, self._minor)
        reason = (
            f"once the rotation is undone, the median sampled row has a cosine of {float(np.median(fit.cosines)):.3f}"
        )
        reason += " with the original's in the minor components"
        if not fit.fits:
            reason = f"cannot be aligned: {reason}, which is below the {MINOR_COSINE} that related models retain"
        embedding = self.suspect.layout.embedding
        alignment = Alignment.unmoved(embedding, reason, rows, d, sample.broken, aligned=fit.fits, uniqueness=1.0)
        alignment = replace(
            alignment,
            rotation=np.eye(sample.theirs.shape[1], d),  # fitted only if it scores well enough, since it takes long
            cosines=fit.cosines,
            decoy_cosines=fit.decoy_cosines,
            whole=fit.whole,
        )
        yield Attempt(alignment, sample, way, fit.turn)

    def _turns_alike(self, rows: NDArray[np.int64]) -> bool:
        """Whether a rotation can make rows paired in this way similar at all, in the leading components: these are the
        first that any two related models, and often unrelated ones, share."""
        sample = sample_pairs(self._suspect, self._model, rows, self._rows_for_rotation)
        if len(sample.ours) < FEWEST_ROWS_PER_COORDINATE * self._widest:
            return False
        return turned_alike(sample, self._model.principal_components) >= LEAST_TURNED_ALIKE

    def _fitted(self, attempt: Attempt) -> Alignment:
        """The attempt's alignment with its rotation fitted to all of its rows. Except for very wide models, the scored
        rotation was fitted to every other row."""
        if attempt.alignment.rotation is None:
            return attempt.alignment
        matrix, scale = best_rotation(attempt.sample, attempt.turn)
        return replace(attempt.alignment, rotation=matrix, scale=self._true_scale(scale))

    def _finished(self, attempt: Attempt) -> Alignment:
        """The alignment of an attempt that fits, with the position of every row and the steps."""
        alignment, way = self._fitted(attempt), attempt.way
        share = float((alignment.cosines >= alignment.least_in_place(alignment.similarity)).mean())
        if way == BY_CONTENT or (share < 1 - MOVED_SHARE and self.suspect.tokens is None):
            return self._placed(alignment, way == BY_CONTENT, attempt.sample.extreme)
        return self._said(alignment, way, share, attempt.sample.extreme)

    def _placed(self, alignment: Alignment, guessed: bool = False, extreme: int = 0) -> Alignment:
        """`settled`, with only its own steps.

        Args:
            guessed: whether the alignment's positions of rows come from a first comparison of their content.
            extreme: rows left out because of their length.
        """
        before = alignment.rows
        settled = settle(self._suspect, self._model, alignment)
        share = float((settled >= 0).sum()) / min(self._model.count, self._suspect.count)
        # Fitted again, so that the map depends only on the positions of the rows, and not on the search.
        alignment = self._refitted(replace(alignment, rows=settled, settled=True, matched=share))
        if guessed:
            return self._said(alignment, BY_CONTENT, share, extreme)
        # Rows that resemble no row stay at their id, unless another row is there or the names contradict it.
        taken = np.isin(before, settled[settled >= 0])
        kept = (settled < 0) & (before >= 0) & (before == self.by_id) & ~taken
        changed = int(kept.sum())
        return self._said(replace(alignment, rows=np.where(kept, before, settled)), BY_CONTENT, share, extreme, changed)

    def _said(self, alignment: Alignment, way: str, share: float, extreme: int, changed: int = 0) -> Alignment:
        constants = np.empty(0)
        if alignment.row_constants:
            constants = _row_constants(sample_pairs(self._suspect, self._model, alignment.rows))
        steps = steps_of(alignment, way, share, self._suspect.count, extreme, changed, constants)
        return replace(alignment, steps=steps, exhausted=True)

    def _refitted(self, alignment: Alignment) -> Alignment:
        """The same fit to more and better pairs than the attempt's; the scores stay those of unseen rows."""
        wanted = None if alignment.rotation is None else self._rows_for_rotation
        sample = sample_pairs(self._suspect, self._model, alignment.rows, wanted)
        if len(sample.ours) < FEWEST_ROWS:
            return alignment
        if alignment.rotation is not None:
            matrix, scale = best_rotation(sample)
            return replace(alignment, rotation=matrix, scale=self._true_scale(scale))
        again = by_cosine(sample, self._row_constants)
        alignment = replace(alignment, columns=again.columns, signs=again.signs, uniqueness=again.uniqueness)
        offsets = again.offsets * self._suspect.length
        return replace(alignment, offsets=offsets, scale=self._true_scale(again.scale))

    def least_squares(self, rows: NDArray[np.int64], secret: bytes) -> LeastSquares | None:
        """The map that does not depend on a score, fitted to samples derived from `secret`, with rows at the
        alignment's positions, `rows` (s,), or at their id."""
        others = [] if np.array_equal(self.by_id, rows) else [self.by_id]
        return least_squares(self._suspect, self._model, [rows, *others], secret)

    def places(self, alignment: Alignment) -> Places:
        """Checks whether rows are at the positions that the alignment gives."""
        return Places(self._suspect, self._model, alignment, self.by_id)

    def _true_scale(self, scale: float) -> float:
        return scale * self._suspect.length / self._model.length

    @property
    def _widest(self) -> int:
        return max(self._suspect.width, self._model.width)

    @property
    def _rows_for_rotation(self) -> int:
        return max(SAMPLE_ROWS, ROWS_PER_COORDINATE * self._widest)


def _by_id(suspect: Checkpoint, count: int) -> NDArray[np.int64]:
    """(count,) the suspect's row of each token, -1 if it has none."""
    if suspect.tokens is None:
        ids = np.arange(count)
        return np.where(ids < suspect.vocab_size, ids, -1)
    rows = np.full(count, -1)
    rows[suspect.tokens] = np.arange(suspect.tokens.size)
    return rows


def _row_constants(sample: Sample) -> NDArray[np.float64]:
    """(n,) how much farther each row's mean moved than the median row's, in units of the rows' deviation."""
    if not len(sample.ours):
        return np.empty(0)
    theirs, ours = sample.theirs, sample.ours
    moved = theirs.mean(dim=1) / theirs.std(dim=1) - ours.mean(dim=1) / ours.std(dim=1)
    return np.asarray((moved - moved.median()).cpu().numpy(), dtype=np.float64)


def _drops_row_constants(suspect: Checkpoint, model: Checkpoint) -> bool:
    """Whether both models' first norm subtracts each row's mean, so that a constant per row changes nothing."""
    known = [each for each in (suspect, model) if each.layout.names_known]
    return bool(known) and all(each.drops_row_constants for each in known)


def _columns_reason(fit: Columns) -> str:
    reason = f"the median sampled row has a cosine of {float(np.median(fit.cosines)):.3f} with the original's"
    if fit.uniqueness < LEAST_UNIQUENESS:
        return f"cannot be aligned: only {100 * fit.uniqueness:.0f}% of its columns have a counterpart in the original"
    if not fit.fits:
        return f"cannot be aligned: {reason}, which is below the {ALIGNED_COSINE} that related models retain"
    return reason
