"""Detection (Algorithm 3): rank the statistic at the key among random permutations, position by position."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from irwm import statistic as stat
from irwm.alignment import Alignment, alignments, misplaced, settled, with_embedding
from irwm.attention import attention
from irwm.basis import Basis
from irwm.checkpoint import Checkpoint
from irwm.condition import permute_rows
from irwm.errors import CheckpointError, ParameterError
from irwm.finding import FOUND, Finding, Reading
from irwm.invariant import InvariantError
from irwm.invariant import invariant as compute_invariant
from irwm.keys import Choices, Key, check_derivation, check_fingerprint, check_geometry, check_rows
from irwm.keystream import null_permutations
from irwm.lineage import CANNOT_TELL, Lineage, lineage
from irwm.parameters import Parameters, chance_of_counting
from irwm.probability import LN10, binomial_tail_log, fisher_log10
from irwm.verdict import judge, log10_risk

INVARIANTS = ("original", "suspect")
# The verdict's way first, the paper's second.
WAYS = (("joint", "original"), ("sum", "suspect"), ("sum", "original"), ("joint", "suspect"))
NO_EMBEDDING = "it is an adapter without an embedding of its own, and what was read is the original's"
BORROWED = Lineage(
    CANNOT_TELL, math.nan, math.nan, "an adapter without an embedding of its own shows no descent, whoever made it"
)


def detect(
    suspect: Checkpoint,
    model: Checkpoint,
    key: Key,
    device: str = "cpu",
    seed: int = 0,
    statistic: str = "joint",
    invariant: str = "original",
    keys_tried: int = 1,
) -> Finding:
    """Look for `key`'s mark in `suspect` (Algorithm 3).

    Args:
        suspect: the checkpoint under examination.
        model: the unmarked original that the key was generated from.
        key: the key; its parameters decide beta, rho and the number of permutations.
        device: where the invariant and the null are computed.
        seed: seed of the public permutations; the same seed gives the same ranks on every machine.
        statistic: "joint" (default), "sum" (the paper's) or "difference".
        invariant: whose A is used, "original" (default) or "suspect" (the paper's).
        keys_tried: how many keys were tried on this suspect; the verdict pays for each.

    Returns:
        The finding. A faulty suspect (not finite, another geometry, too few rows) is "inconclusive" with its reason.

    Raises:
        ParameterError: an unknown statistic or invariant.
        KeyMismatchError: `model` is not the original of `key`.
        CheckpointError: a file cannot be read.
    """
    return next(detect_each(suspect, model, [key], device, seed, statistic, invariant, keys_tried))


def detect_each(
    suspect: Checkpoint,
    model: Checkpoint,
    keys: Sequence[Key],
    device: str = "cpu",
    seed: int = 0,
    statistic: str = "joint",
    invariant: str = "original",
    keys_tried: int | None = None,
) -> Iterator[Finding]:
    """`detect` for many keys of one original on one suspect, which is aligned once; a finding per key, in order.

    `keys_tried` is the number of keys unless more were tried elsewhere. Arguments and errors as `detect`.
    """
    _check_way(statistic, invariant)
    tried = len(keys) if keys_tried is None else keys_tried
    for tasks in _tasks(suspect, model, keys, device, seed, tried):
        yield max((task.finding(statistic, invariant) for task in tasks), key=_strength)


def detect_ways(
    suspect: Checkpoint,
    model: Checkpoint,
    key: Key,
    ways: Sequence[tuple[str, str]] = WAYS,
    device: str = "cpu",
    seed: int = 0,
    keys_tried: int = 1,
) -> dict[tuple[str, str], Finding]:
    """`detect` by several pairs of statistic and invariant on one suspect, which is aligned once.

    To compare the ways, not to choose among them: only the default one's verdict is calibrated for one reading.
    """
    for statistic, invariant in ways:
        _check_way(statistic, invariant)
    (tasks,) = _tasks(suspect, model, [key], device, seed, keys_tried)
    return {way: max((task.finding(*way) for task in tasks), key=_strength) for way in ways}


def _check_way(statistic: str, invariant: str) -> None:
    if statistic not in stat.STATISTICS or invariant not in INVARIANTS:
        raise ParameterError(
            "unknown statistic or invariant",
            expected=f"statistic in {stat.STATISTICS}, invariant in {INVARIANTS}",
            found=f"{statistic!r}, {invariant!r}",
        )


def _tasks(
    suspect: Checkpoint, model: Checkpoint, keys: Sequence[Key], device: str, seed: int, tried: int
) -> Iterator[tuple[_Task, ...]]:
    """For each key, a task for each tensor that may be the suspect's embedding."""
    if tried < 1:
        raise ParameterError("keys_tried counts this key too", expected="at least 1", found=str(tried))
    for key in keys:
        check_geometry(key, model)
    for key in keys:
        check_rows(key, key.choices(), model)
    # Hashing a large original takes seconds, and the alignment needs no digest.
    with ThreadPoolExecutor(1, "irwm-sha256") as hasher:
        hashing = hasher.submit(getattr, model, "fingerprint")
        readings = [_Aligned.of(suspect, model, each, device) for each in alignments(suspect, model, device=device)]
        hashing.result()
    for key in keys:
        check_fingerprint(key, model)
    null: NDArray[np.int64] = np.empty((0, 0), dtype=np.int64)
    for key in keys:
        choices = key.choices()  # again: those of a thousand keys of a large model would take gigabytes
        if len(null) != key.parameters.permutations:
            null = null_permutations(seed, key.parameters.permutations, model.hidden_size)
        placed = [each.placed(choices) for each in readings]
        yield tuple(_Task(each, model, key, choices, null, device, seed, tried, len(readings)) for each in placed)


def _strength(finding: Finding) -> tuple[bool, float]:
    return finding.verdict == FOUND, -log10_risk(finding.reading)


@dataclass(frozen=True, eq=False)
class _Aligned:
    """A suspect with one of its tensors taken for the embedding, aligned."""

    suspect: Checkpoint
    model: Checkpoint
    alignment: Alignment
    lineage: Lineage
    device: str

    @classmethod
    def of(cls, suspect: Checkpoint, model: Checkpoint, alignment: Alignment, device: str) -> _Aligned:
        suspect = with_embedding(suspect, alignment.embedding)
        if not holds_embedding(suspect):
            return cls(suspect, model, alignment, BORROWED, device)
        agreement = attention(suspect, model, alignment, device) if alignment.aligned else None
        return cls(suspect, model, alignment, lineage(alignment, agreement), device)

    def placed(self, choices: Choices) -> _Aligned:
        """The same with all rows looked for, if those that a key reads were moved; the same for any order of keys."""
        tokens = np.concatenate((choices.marked_rows, choices.query_tokens, choices.reference_tokens))
        return self._settled if misplaced(self.suspect, self.model, self.alignment, tokens, self.device) else self

    @cached_property
    def _settled(self) -> _Aligned:
        alignment = settled(self.suspect, self.model, self.alignment, self.device)
        return _Aligned.of(self.suspect, self.model, alignment, self.device)


@dataclass(frozen=True, slots=True, eq=False)
class _Task:
    """One key on one aligned suspect."""

    aligned: _Aligned
    model: Checkpoint
    key: Key
    choices: Choices
    null: NDArray[np.int64]
    device: str
    seed: int
    keys_tried: int
    tensors_read: int

    @property
    def suspect(self) -> Checkpoint:
        return self.aligned.suspect

    @property
    def alignment(self) -> Alignment:
        return self.aligned.alignment

    def finding(self, statistic: str, invariant: str) -> Finding:
        if self.suspect.hidden_size != self.model.hidden_size and self.alignment.rotation is None:
            return self._conclude(self._unread(statistic, invariant), None, (), self._several_tensors())
        faults: tuple[str, ...] = _broken_rows(self.alignment)
        if not holds_embedding(self.suspect):
            faults += (NO_EMBEDDING,)
        warnings = self._several_tensors()
        rows, lost = restored_rows(self.suspect, self.model, self.alignment, self.choices.marked_rows)
        spoiled = int((~np.isfinite(rows).all(axis=1)).sum()) - lost.size
        if spoiled:
            faults += (f"NaN or Inf in {spoiled} of the marked rows",)
        if lost.size:
            warnings += (f"{lost.size} of {self.choices.marked_rows.size} marked rows are gone from the suspect",)
        tokens = self.choices.query_tokens, self.choices.reference_tokens
        noise = self.key.noise(self.model, self.choices)
        own = compute_invariant(self.model, *tokens, device=self.device, added=noise.added(self.model)).cpu().numpy()
        check_derivation(self.key, self.choices, own, self.model)
        theirs = None
        try:
            theirs, stood_in = _suspect_invariant(self.suspect, self.alignment, self.choices, own, self.device)
            warnings += stood_in
        except InvariantError as error:
            if "not finite" in error.problem and "constant" not in error.problem:
                faults += (f"its layer-0 scores are not finite ({error.problem})",)
            else:
                warnings += (f"the paper's own reading is not possible: {error.problem}",)
        except CheckpointError as error:
            warnings += (f"the paper's own reading needs the suspect's layer-0 q and k: {error.problem}",)
        paper = self._read("sum", "suspect", rows, theirs, noise.basis) if theirs is not None else None
        if (statistic, invariant) == ("sum", "suspect") and paper is not None:
            reading = paper
        elif invariant == "original":
            reading = self._read(statistic, invariant, rows, own, noise.basis)
        elif theirs is not None:
            reading = self._read(statistic, invariant, rows, theirs, noise.basis)
        else:
            reading = self._unread(statistic, invariant)
        return self._conclude(reading, paper, faults, warnings)

    def _read(
        self, statistic: str, invariant: str, rows: NDArray[np.float64], a_m: NDArray[np.float64], basis: Basis
    ) -> Reading:
        permuted = permute_rows(a_m, self.choices.constraint_permutations)
        order, scale = self.choices.row_permutations, self.key.scale
        marked = self.choices.marked_rows
        rows = basis.into(rows, marked)
        if statistic == "difference":
            originals = basis.into(self.model.embedding(marked).double().numpy(), marked)
            observed, null = stat.difference(rows, originals, permuted, order, scale, self.null, self.device)
        else:
            weights = stat.joint_map(permuted, scale) if statistic == "joint" else stat.sum_map(permuted, scale)
            shuffled = stat.normalised(np.take_along_axis(rows, order, axis=1))
            observed = stat.lengths(weights, shuffled)
            null = stat.null_lengths(weights, shuffled, self.null, self.device)
            null[~np.isfinite(observed)] = np.nan
        return reading_of(statistic, invariant, observed, null, self.key.parameters)

    def _unread(self, statistic: str, invariant: str) -> Reading:
        """A reading of nothing, where the suspect gives nothing to read."""
        params = self.key.parameters
        nothing = np.full((params.positions, 1 + params.permutations), np.nan)
        return reading_of(statistic, invariant, nothing[:, 0], nothing[:, 1:], params)

    def _several_tensors(self) -> tuple[str, ...]:
        if self.tensors_read == 1:
            return ()
        return (f"{self.tensors_read} tensors fit the embedding; each was read, the likeliest to be marked is shown",)

    def _conclude(
        self, reading: Reading, paper: Reading | None, faults: tuple[str, ...], warnings: tuple[str, ...]
    ) -> Finding:
        comparisons = self.keys_tried * self.tensors_read
        verdict, reason = judge(reading, self.key.parameters, self.alignment, faults, comparisons)
        return Finding(
            verdict=verdict,
            reason=reason,
            reading=reading,
            paper=paper,
            alignment=self.alignment,
            lineage=self.aligned.lineage,
            parameters=self.key.parameters,
            commitment=self.key.commitment,
            marked_rows=self.choices.marked_rows,
            seed=self.seed,
            keys_tried=self.keys_tried,
            tensors_read=self.tensors_read,
            faults=faults,
            warnings=warnings,
        )


def reading_of(
    statistic: str, invariant: str, observed: NDArray[np.float64], null: NDArray[np.float64], params: Parameters
) -> Reading:
    """Ranks, count and combined p-values of one statistic (Algorithm 3, lines 32 to 47; success is count >= rho)."""
    ranks = stat.ranks(observed, null)
    usable = ranks[np.isfinite(ranks)]
    count = int((usable < params.rank_threshold).sum())
    return Reading(
        statistic=statistic,
        invariant=invariant,
        observed=observed,
        null=null,
        ranks=ranks,
        count=count,
        present=int(usable.size),
        passes=count >= params.required_positions,
        log10_p_count=binomial_tail_log(count, int(usable.size), chance_of_counting(params)) / LN10,
        log10_p=fisher_log10(usable),
    )


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
    suspect: Checkpoint, alignment: Alignment, choices: Choices, own: NDArray[np.float64], device: str
) -> tuple[NDArray[np.float64], tuple[str, ...]]:
    """A of the suspect (t, d); entries of lost tokens are the original's, and that is said."""
    query, reference = alignment.rows[choices.query_tokens], alignment.rows[choices.reference_tokens]
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


def _broken_rows(alignment: Alignment) -> tuple[str, ...]:
    if not alignment.broken_rows.size:
        return ()
    first = ", ".join(map(str, alignment.broken_rows[:5].tolist()))
    more = ", …" if alignment.broken_rows.size > 5 else ""
    return (f"NaN or Inf in {alignment.broken_rows.size} of the embedding rows read (rows {first}{more})",)
