"""Detection (Algorithm 3): rank the statistic at the key among random permutations, position by position."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from irwm.alignment import Alignment, alignments, begin
from irwm.checkpoint import Checkpoint
from irwm.errors import CheckpointError, ParameterError
from irwm.evidence.aligned import Aligned, holds_embedding, restored_rows
from irwm.evidence.devices import NOT_ENOUGH, on_device
from irwm.evidence.finding import FOUND, Finding, Reading
from irwm.evidence.parallel import in_order
from irwm.evidence.verdict import judge, log10_risk
from irwm.keys.check_original import check_derivation, check_fingerprint, check_geometry, check_layer0, check_rows
from irwm.keys.key import Choices, Key
from irwm.scheme import statistic as stat
from irwm.scheme.basis import Basis
from irwm.scheme.condition import permute_rows
from irwm.scheme.invariant import InvariantError
from irwm.scheme.keystream import null_permutations
from irwm.scheme.odds import LN10, binomial_tail_log, fisher_log10
from irwm.scheme.parameters import Parameters, chance_of_counting

INVARIANTS = ("original", "suspect")
# The verdict's way first, the paper's second.
WAYS = (("joint", "original"), ("sum", "suspect"), ("sum", "original"), ("joint", "suspect"))
NO_EMBEDDING = "it is an adapter without an embedding of its own, and what was read is the original's"


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
        device: where the alignment, the invariant and the null are computed; where a GPU has not the memory for it, on
            the processor, which the finding's warnings say.
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
    tasks_on = lru_cache(maxsize=2)(lambda place: _tasks(suspect, model, keys, place, seed, tried))
    _, place = on_device(tasks_on, device)

    def found(key: Key) -> Finding:
        def read(on: str) -> Finding:
            return max((task.finding(statistic, invariant) for task in tasks_on(on)(key)), key=_strength)

        finding, used = on_device(read, place)
        return finding if used == device else replace(finding, warnings=(*finding.warnings, NOT_ENOUGH))

    # The first with all cores: what it makes, all further keys share.
    yield from map(found, keys[:1])
    yield from in_order(found, keys[1:], place)


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
    tasks = _tasks(suspect, model, [key], device, seed, keys_tried)(key)
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
) -> Callable[[Key], tuple[_Task, ...]]:
    """What gives for each of the keys a task for each tensor that may be the suspect's embedding."""
    if tried < 1:
        raise ParameterError("keys_tried counts this key too", expected="at least 1", found=str(tried))
    for key in keys:
        check_geometry(key, model)
    with ThreadPoolExecutor(2, "irwm-sha256") as hasher:
        # Hashing a large original takes seconds, and the alignment needs no digest. But with another original than the
        # keys', which is known as soon as their rows are hashed, it could take minutes; only its beginning goes ahead.
        checking = [hasher.submit(check, keys, model) for check in (_check_rows, _check_layer0)]

        def hashed() -> str:
            for check in checking:
                check.result()  # with another original nothing more is hashed
            return model.fingerprint

        hashing = hasher.submit(hashed)
        try:
            begin(suspect, model, device)
        finally:
            for check in checking:
                check.result()
        readings = [Aligned.of(suspect, model, each, device) for each in alignments(suspect, model, device=device)]
        hashing.result()
    for key in keys:
        check_fingerprint(key, model)
    null = lru_cache(maxsize=1)(lambda count: null_permutations(seed, count, model.hidden_size))

    def tasks(key: Key) -> tuple[_Task, ...]:
        choices = key.choices()  # not of all keys at once: of a thousand keys of a large model they take gigabytes
        placed = [each.placed(choices) for each in readings]
        orders = null(key.parameters.permutations)
        return tuple(_Task(each, model, key, choices, orders, device, seed, tried, len(readings)) for each in placed)

    return tasks


def _check_rows(keys: Sequence[Key], model: Checkpoint) -> None:
    for key in keys:
        check_rows(key, model)


def _check_layer0(keys: Sequence[Key], model: Checkpoint) -> None:
    for key in keys:
        check_layer0(key, model)


def _strength(finding: Finding) -> tuple[bool, float]:
    return finding.verdict == FOUND, -log10_risk(finding.reading)


@dataclass(frozen=True, slots=True, eq=False)
class _Task:
    """One key on one aligned suspect."""

    aligned: Aligned
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
        own = self.aligned.own_invariant(*tokens, noise.added(self.model))
        check_derivation(self.key, self.choices, own, self.model)
        theirs = None
        try:
            theirs, stood_in = self.aligned.suspect_invariant(*tokens, own)
            warnings += stood_in
        except InvariantError as error:
            if "not finite" in error.problem and "constant" not in error.problem:
                faults += (f"its layer-0 scores are not finite ({error.problem})",)
            else:
                warnings += (f"the paper's own reading is not possible: {error.problem}",)
        except CheckpointError as error:
            warnings += (f"the paper's own reading needs the suspect's layer-0 q and k: {error.problem}",)
        a_m = {"original": own} | ({"suspect": theirs} if theirs is not None else {})
        ways = [way for way in dict.fromkeys((("sum", "suspect"), (statistic, invariant))) if way[1] in a_m]
        readings = self._read(ways, a_m, rows, noise.basis)
        reading = readings.get((statistic, invariant)) or self._unread(statistic, invariant)
        return self._conclude(reading, readings.get(("sum", "suspect")), faults, warnings)

    def _read(
        self,
        ways: Sequence[tuple[str, str]],
        a_m: Mapping[str, NDArray[np.float64]],
        rows: NDArray[np.float64],
        basis: Basis,
    ) -> dict[tuple[str, str], Reading]:
        """A reading for each pair of statistic and invariant; what is linear in the rows shares one null."""
        order, marked, scale = self.choices.row_permutations, self.choices.marked_rows, self.key.scale
        rows = basis.into(rows, marked)
        values: dict[tuple[str, str], tuple[NDArray[np.float64], NDArray[np.float64]]] = {}
        maps = {}
        for statistic, invariant in ways:
            permuted = permute_rows(a_m[invariant], self.choices.constraint_permutations)
            if statistic == "difference":
                originals = basis.into(self.model.embedding(marked).double().numpy(), marked)
                found = stat.difference(rows, originals, permuted, order, scale, self.null, self.device)
                values[statistic, invariant] = found
            else:
                make = stat.joint_map if statistic == "joint" else stat.sum_map
                maps[statistic, invariant] = make(permuted, scale)
        if maps:
            shuffled = stat.normalised(np.take_along_axis(rows, order, axis=1))
            nulls = stat.null_lengths_of(list(maps.values()), shuffled, self.null, self.device)
            for (way, weights), null in zip(maps.items(), nulls, strict=True):
                observed = stat.lengths(weights, shuffled)
                null[~np.isfinite(observed)] = np.nan
                values[way] = observed, null
        return {way: reading_of(*way, *values[way], self.key.parameters) for way in ways}

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


def _broken_rows(alignment: Alignment) -> tuple[str, ...]:
    if not alignment.broken_rows.size:
        return ()
    first = ", ".join(map(str, alignment.broken_rows[:5].tolist()))
    more = ", …" if alignment.broken_rows.size > 5 else ""
    return (f"NaN or Inf in {alignment.broken_rows.size} of the embedding rows read (rows {first}{more})",)
