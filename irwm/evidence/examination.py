"""One suspect against one original: both are read and aligned once for all questions.

An `Examination` owns the rows, the maps from the suspect's coordinates to the original's, and A of both. Detection,
tracing, decoys and lineage use it; no other object keeps any of these.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from irwm.alignment import Alignment, with_embedding
from irwm.alignment.least_squares import COMPARED_ROWS, LeastSquares
from irwm.alignment.pipeline import MOST_ROWS_SHARE, Candidate, Searches, best, searches
from irwm.alignment.places import Places
from irwm.alignment.rows import PUBLIC, OriginalRows, draw
from irwm.alignment.search import Search
from irwm.checkpoint import Checkpoint
from irwm.checkpoint.mlps import MLPs
from irwm.errors import ParameterError
from irwm.evidence.attention import Attention, attention
from irwm.evidence.circuits import Circuits, circuits
from irwm.evidence.finding import ALIGNED, LEAST_SQUARES, MAPS
from irwm.evidence.lineage import CANNOT_TELL, Lineage, lineage
from irwm.evidence.neuron_reading import AlignedNeurons
from irwm.evidence.neurons import Compared, NeuronMatch, compare_neurons
from irwm.evidence.unrelated import kept_models
from irwm.keys.check_original import check_fingerprint, check_geometry, check_layer0, check_rows
from irwm.keys.key import Choices, Key
from irwm.keys.neurons import FingerprintKey
from irwm.scheme.invariant import Added, InvariantError, Layer0
from irwm.scheme.parameters import EMBEDDING, HEAD, NEURONS, PLACES

BORROWED = Lineage(
    CANNOT_TELL,
    math.nan,
    math.nan,
    "an adapter without its own embedding shows nothing about its origin, no matter who made it",
)
# How many rows of a key may seem misplaced before every row is searched for by its content.
FEW_MISPLACED = 1

# An aligned row is close if it differs from the original's by at most this share of its distance from the mean row. If
# at least that share of rows is close, no fitted map is needed: mark and fingerprint are read from far worse rows.
CLOSE_DISTANCE, CLOSE_SHARE = 0.2, 0.9
# Rows of a sample that are compared at once: in float64, all of them take hundreds of megabytes.
_ROWS_AT_ONCE = 256


class Examination:
    """A suspect against an original.

    Args:
        suspect: the checkpoint under examination.
        original: the unmarked original.
        device: where rows are aligned and invariants are computed.
        layer0: the original's layer 0 on this device, if the caller examines many suspects.
    """

    def __init__(
        self, suspect: Checkpoint, original: Checkpoint, device: str = "cpu", layer0: Layer0 | None = None
    ) -> None:
        self.suspect, self.original, self.device = suspect, original, device
        self._side = _Original(original, Layer0.of(original.body, device, layer0), device)
        # By the checkpoint it belongs to: a suspect's embedding and its output head have the same one.
        self._layer0s: dict[Checkpoint, Layer0] = {}
        self._elsewhere: dict[str, Examination] = {}
        self._beside: NDArray[np.int64] | None = None
        self._head: Examination | None = None
        self._side_of_head: _Original | None = None
        self._opening, self._comparing = Lock(), Lock()
        self._bodies: dict[Checkpoint, _Bodies] = {}
        self._reads_neurons = True

    def with_suspect(self, suspect: Checkpoint, *, neurons: bool = True) -> Examination:
        """The examination of another suspect, which reuses the results for the original.

        Args:
            neurons: whether a fingerprint is looked for in its neurons. Without them, no key with a fingerprint there
                is dismissed.
        """
        other = Examination(suspect, self.original, self.device)
        other._reads_neurons = neurons
        other._side = self._side
        other._side_of_head = self._side_of_head if self._head is None else self._head._side
        return other

    @property
    def places(self) -> tuple[str, ...]:
        """The places of `irwm.scheme.parameters.FINGERPRINT_PLACES` in which the two can be compared. If the original's
        output head is its embedding, a suspect's head is compared with the embedding."""
        of_matrices = (EMBEDDING,) if self.original.output_head is None else PLACES
        if self.suspect.head_alone:
            return of_matrices[-1:]
        return (*of_matrices, NEURONS) if MLPs(self.original).every else of_matrices

    def at(self, place: str) -> Examination:
        """The examination of one of the `PLACES` of marks: this one, or that of the suspect's output head against the
        original's."""
        if place == EMBEDDING:
            return self
        with self._opening:  # several keys may ask at the same time
            if self._head is None:
                head = self.original.output_head
                if head is None:
                    raise ParameterError("the original has no separate output head", expected=EMBEDDING, found=place)
                self._head = Examination(self.suspect.likeliest_head, head, self.device, self._side.layer0)
                self._head._side, self._head._layer0s = self._side_of_head or self._head._side, self._layer0s
                self._head._bodies = self._bodies
                if EMBEDDING in self.places and (fits := self.aligned[0].alignment).aligned and fits.settled:
                    self._head._beside = fits.rows
            self._head.aligned  # noqa: B018  a cached property
            return self._head

    def readings(self, place: str) -> Sequence[Aligned | AlignedNeurons]:
        """What fingerprints are read from in one of `places`: the suspect's tensors that may be the embedding or the
        output head, or its MLPs."""
        return (self._neurons,) if place == NEURONS else self.at(place).aligned

    def neurons_failed(self, key: Key) -> bool:
        """Whether a key has a fingerprint in neurons, and those of the suspect could not be compared."""
        part = key.fingerprint_at(NEURONS) if NEURONS in self.places else None
        return part is not None and self._neurons.failed(part.derivation.sample_key())

    def neurons_unread(self, key: Key) -> bool:
        """Whether a key has a fingerprint in neurons, and nothing was read from those of the suspect."""
        part = key.fingerprint_at(NEURONS) if NEURONS in self.places else None
        return part is not None and not self._neurons.readable(ALIGNED, part.derivation.sample_key())

    @cached_property
    def _neurons(self) -> AlignedNeurons:
        body, model = self.suspect.body, self.original.body
        compare = (lambda: self._bodies_of(body).neurons) if self._reads_neurons else None
        return AlignedNeurons(body, model, compare)

    def _bodies_of(self, body: Checkpoint) -> _Bodies:
        """The comparison of a suspect's layers with the original's, which all its tensors share."""
        with self._comparing:
            if body not in self._bodies:
                self._bodies[body] = _Bodies(body, self.original.body)
            return self._bodies[body]

    def on(self, device: str) -> Examination:
        """The same examination on another device."""
        if device == self.device:
            return self
        if device not in self._elsewhere:
            self._elsewhere[device] = Examination(self.suspect, self.original, device)
            self._elsewhere[device]._reads_neurons = self._reads_neurons
        return self._elsewhere[device]

    def check(self, keys: Sequence[Key], first: Sequence[Key] | None = None) -> None:
        """Verify that the keys belong to this original.

        Hashing a large original takes seconds, and the alignment needs no digest, so both start at the same time. The
        long part waits until the keys' rows are hashed: with a wrong original it could waste minutes.

        Args:
            keys: the keys.
            first: the keys whose rows are hashed now, perhaps none, if the caller checks the others when it reads
                them; None for all.

        Raises:
            KeyMismatchError: it is another original.
            CheckpointError: a file cannot be read.
        """
        for key in keys:
            check_geometry(key, self.original)
        if first is not None and not first and "aligned" in vars(self):  # nothing is left that takes time
            self._check_each(check_layer0, keys)
            self._check_each(check_fingerprint, keys)
            return
        with ThreadPoolExecutor(2, "irwm-sha256") as hasher:
            rows = hasher.submit(self._check_each, check_rows, keys if first is None else first)
            checking = [rows, hasher.submit(self._check_each, check_layer0, keys)]

            def hashed() -> None:
                for check in checking:
                    check.result()  # with a wrong original hashing stops here
                self._check_each(check_fingerprint, keys)

            hashing = hasher.submit(hashed)
            try:
                self._searches.chosen[0].likeliest  # noqa: B018  a cached property
            finally:
                for check in checking:
                    check.result()
            self.aligned  # noqa: B018  a cached property
            hashing.result()

    @cached_property
    def aligned(self) -> tuple[Aligned, ...]:
        """The suspect in the original's coordinates, once for every tensor that may be its embedding and fits, best
        first; if none fits, once, not aligned.

        Raises:
            CheckpointError: an embedding, or the original's tokenizer file, cannot be read.
        """
        return tuple(map(self._aligned, best(self._searches.chosen)))

    def _aligned(self, found: Candidate) -> Aligned:
        body, own = found.search.suspect.body, self.original.body.layout
        if body not in self._layer0s:
            self._layer0s[body] = Layer0(body, self.device, MOST_ROWS_SHARE * own.heads * own.head_dim)
        return Aligned(found, self._side, self._layer0s[body], self._bodies_of(body))

    @property
    def passed_over(self) -> int:
        """How many tensors that may be the embedding were not read, since their rows are less like the original's."""
        return self._searches.passed_over

    def aligned_as(self, alignment: Alignment) -> Aligned:
        """The suspect as it was aligned for a finding."""
        for each in self.aligned:
            if each.alignment is alignment:
                return each
        suspect = with_embedding(self.suspect, alignment.embedding)
        return self._aligned(Candidate(Search(suspect, self._side.rows), alignment))

    @cached_property
    def _searches(self) -> Searches:
        return searches(self.suspect, self._side.rows, self._beside)

    def own_invariant(
        self, query: NDArray[np.int64], reference: NDArray[np.int64], added: Added | None = None
    ) -> NDArray[np.float64]:
        """A of the original (t, d), see `Layer0.invariant`."""
        return self._side.layer0.invariant(query, reference, added).numpy()

    def _check_each(self, check: Callable[[Key, Checkpoint], None], keys: Sequence[Key]) -> None:
        for key in keys:
            check(key, self.original)


class _Original:
    """The results for an original that all its suspects share."""

    def __init__(self, model: Checkpoint, layer0: Layer0, device: str) -> None:
        self.model, self.layer0, self.device = model, layer0, device
        self.rows = OriginalRows(model, device)
        self.kept = kept_models()


class _Bodies:
    """The layers of a suspect against the original's, without their embeddings."""

    def __init__(self, suspect: Checkpoint, model: Checkpoint) -> None:
        self._suspect, self._model, self._comparing = suspect, model, Lock()

    @cached_property
    def circuits(self) -> Circuits | None:
        return circuits(self._suspect, self._model)

    @property
    def neurons(self) -> Compared | None:
        with self._comparing:  # it takes seconds, and several keys may need it at the same time
            return self._compared

    @cached_property
    def _compared(self) -> Compared | None:
        return compare_neurons(self._suspect, self._model)


class Aligned:
    """A suspect in the original's coordinates, with one of its tensors used as the embedding."""

    def __init__(self, found: Candidate, original: _Original, layer0: Layer0, bodies: _Bodies) -> None:
        self.suspect, self.model, self.alignment = found.search.suspect, original.model, found.alignment
        self._search, self._original, self._layer0, self._bodies = found.search, original, layer0, bodies
        self._settling = Lock()
        self._fit: tuple[bytes, LeastSquares | None] | None = None
        self._close: tuple[bytes, bool] | None = None

    def lineage(self, secret: bytes = PUBLIC) -> Lineage:
        """Whether the suspect descends from the original, with or without a mark. "Not derived" also requires
        `least_squares` of this secret."""
        if not self.holds_embedding:
            return BORROWED

        def fitted() -> float:
            fit = self.least_squares(secret)
            return math.nan if fit is None else fit.agreement

        def neurons() -> NeuronMatch | None:
            compared = self._bodies.neurons
            return None if compared is None else compared.match

        later = lambda: self._bodies.circuits, neurons
        found = lineage(self.alignment, self._attention, fitted, self._original.kept, *later)
        # The kept models were compared by their embeddings, so they are no reference for output heads.
        return found if self.model.whole is None else replace(found, among=None, place=HEAD)

    @cached_property
    def _attention(self) -> Attention | None:
        if not self.alignment.aligned:
            return None
        return attention(self.suspect, self.model, self.alignment, (self._layer0, self._original.layer0))

    @property
    def holds_embedding(self) -> bool:
        """Whether the embedding is in the suspect's own files; most adapters use that of their base, the original."""
        parts = self.suspect.tensors[self.suspect.layout.embedding.name].parts
        return {Path(part.file) for part in parts} <= set(self.suspect.shards)

    def placed(self, choices: Choices) -> Aligned:
        """The same with every row searched for by its content, if rows that a key reads were moved; the order of keys
        does not matter. A sample of rows does not show that a few were exchanged, and a key may use those few.
        """
        if not self.alignment.aligned or self.alignment.settled or self.suspect.tokens is not None:
            return self
        tokens = np.concatenate((choices.marked_rows, choices.query_tokens, choices.reference_tokens))
        return self.settled if self._places.misplaced(tokens) > FEW_MISPLACED else self

    @property
    def checked_by_content(self) -> Aligned:
        """The same with every row placed by its content, if a name places any row at another id than its own.

        This is for evidence that is spread over all rows: the person who provides the original could edit its tokenizer
        so that rows count as "gone", and keep only those that support the accusation.
        """
        return self if self._in_place else self.settled

    @cached_property
    def _in_place(self) -> bool:
        """Whether content need not place the rows. The object itself is not cached: a reference to itself would keep
        its rows in memory, hundreds of megabytes, until Python searches for cycles."""
        alignment = self.alignment
        return not alignment.aligned or alignment.settled or np.array_equal(alignment.rows, self._search.by_id)

    @property
    def settled(self) -> Aligned:
        """The same with every row placed by its content, independent of its id and name."""
        with self._settling:  # it takes minutes, and several keys may need it at the same time
            return self._settled

    @cached_property
    def _settled(self) -> Aligned:
        found = Candidate(self._search, self._search.settled(self.alignment))
        return Aligned(found, self._original, self._layer0, self._bodies)

    def of(self, _part: FingerprintKey) -> Aligned:
        """The rows in which a key's fingerprint may be: all of them."""
        return self

    @cached_property
    def _places(self) -> Places:
        return self._search.places(self.alignment)

    def rows(
        self, tokens: NDArray[np.int64], by: str = ALIGNED, secret: bytes = PUBLIC
    ) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """(n, d) rows of these tokens in the original's coordinates, NaN where gone, and the ids that are gone.

        Args:
            by: one of `MAPS`. Under a map that cannot be made for this suspect all rows are NaN.
            secret: as for `least_squares`.
        """
        fitted = self.least_squares(secret) if by == LEAST_SQUARES else None
        where = (self.alignment if fitted is None else fitted).rows[tokens]
        here = np.flatnonzero(where >= 0)
        restored = np.full((tokens.size, self.model.hidden_size), np.nan)
        if here.size and (fitted is not None or (by == ALIGNED and self.readable(by))):
            theirs = self.suspect.embedding(where[here]).double().numpy()
            # A constant row is not valid, and no map may turn it into a valid one.
            theirs[np.ptp(theirs, axis=1) == 0] = np.nan
            if by == ALIGNED:
                originals = self.model.embedding(tokens[here]).double().numpy()
                restored[here] = self.alignment.restore(theirs, originals)
            elif fitted is not None:
                restored[here] = fitted.restore(theirs, tokens[here])
        return restored, tokens[where < 0]

    def maps(self, secret: bytes) -> tuple[str, ...]:
        """The maps of `MAPS` that are needed for this suspect; every correction is for all of `MAPS`.

        If nearly all aligned rows are close to the original's, a fitted map gives nearly the same rows. The rows
        compared follow from `secret`: of public ones, an attacker could leave just these unchanged.
        """
        with self._settling:
            if self._close is None or self._close[0] != secret:
                self._close = secret, self._close_share(secret) >= CLOSE_SHARE
            return MAPS[:1] if self._close[1] else MAPS

    def _close_share(self, secret: bytes) -> float:
        """The share of a sample of the original's rows that are close in the suspect; 0 if none can be compared."""
        tokens = draw(self.model.vocab_size, COMPARED_ROWS, secret)
        originals = self.model.embedding(tokens).numpy()
        mean, close = originals.mean(axis=0, dtype=np.float64), 0
        for first in range(0, tokens.size, _ROWS_AT_ONCE):
            some = slice(first, first + _ROWS_AT_ONCE)
            rows, ours = self.rows(tokens[some])[0], originals[some].astype(np.float64)
            with np.errstate(over="ignore", invalid="ignore"):  # a row that is gone or broken is not close
                apart = np.linalg.norm(rows / self.alignment.scale - ours, axis=1)
            close += int((apart <= CLOSE_DISTANCE * np.linalg.norm(ours - mean, axis=1)).sum())
        return close / tokens.size

    def readable(self, by: str, secret: bytes = PUBLIC) -> bool:
        """Whether rows can be read under this map, one of `MAPS`."""
        if by == LEAST_SQUARES:
            return self.least_squares(secret) is not None
        return self.suspect.hidden_size == self.model.hidden_size or self.alignment.rotation is not None

    def least_squares(self, secret: bytes = PUBLIC) -> LeastSquares | None:
        """The affine map of `irwm.alignment.least_squares`, fitted to samples that follow from `secret`, and cached
        until another secret is used; None if too few rows are left."""
        with self._settling:
            if self._fit is None or self._fit[0] != secret:
                self._fit = secret, self._search.least_squares(self.alignment.rows, secret)
            return self._fit[1]

    def invariant(
        self, query: NDArray[np.int64], reference: NDArray[np.int64], own: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], tuple[str, ...]]:
        """A of the suspect (t, d) and warnings. Entries of lost tokens are those of the original's A `own`, with a
        warning."""
        if self.suspect.body.layout.scores != self.model.body.layout.scores:
            raise InvariantError("layer 0's q and k are not known for this model")
        query, reference = self.alignment.rows[query], self.alignment.rows[reference]
        q, r = np.flatnonzero(query >= 0), np.flatnonzero(reference >= 0)
        gone = query.size + reference.size - q.size - r.size
        if not gone:
            return self._layer0.invariant(query, reference).numpy(), ()
        said = (f"tokens of the invariant missing from the suspect: {gone}; the original's values were used instead",)
        mixed = own.copy()
        if q.size and r.size > 1:
            part = self._layer0.invariant(query[q], reference[r]).numpy()
            kept = own[np.ix_(q, r)]
            mixed[np.ix_(q, r)] = part * kept.std(axis=1, keepdims=True) + kept.mean(axis=1, keepdims=True)
        return mixed, said
