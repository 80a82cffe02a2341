"""Detection (Algorithm 3): rank the statistic at the key among random permutations, position by position."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from irwm import statistic as stat
from irwm.alignment import Alignment, align
from irwm.checkpoint import Checkpoint
from irwm.condition import permute_rows
from irwm.errors import CheckpointError, ParameterError
from irwm.finding import Finding, Reading
from irwm.invariant import InvariantError
from irwm.invariant import invariant as compute_invariant
from irwm.keys import Choices, Key, check_derivation, check_geometry, check_original
from irwm.keystream import null_permutations
from irwm.lineage import lineage
from irwm.parameters import Parameters, chance_of_counting
from irwm.probability import LN10, binomial_tail_log, fisher_log10
from irwm.verdict import judge

INVARIANTS = ("original", "suspect")


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
    if statistic not in stat.STATISTICS or invariant not in INVARIANTS:
        raise ParameterError(
            "unknown statistic or invariant",
            expected=f"statistic in {stat.STATISTICS}, invariant in {INVARIANTS}",
            found=f"{statistic!r}, {invariant!r}",
        )
    tried = len(keys) if keys_tried is None else keys_tried
    if tried < 1:
        raise ParameterError("keys_tried counts this key too", expected="at least 1", found=str(tried))
    for key in keys:
        check_geometry(key, model)
    chosen = [(key, key.choices()) for key in keys]
    for key, choices in chosen:
        check_original(key, choices, model)
    alignment = align(suspect, model, device=device)
    null: NDArray[np.int64] = np.empty((0, 0), dtype=np.int64)
    for key, choices in chosen:
        if len(null) != key.parameters.permutations:
            null = null_permutations(seed, key.parameters.permutations, model.hidden_size)
        task = _Task(suspect, model, key, choices, alignment, null, device, seed, tried)
        yield task.finding(statistic, invariant)


@dataclass(frozen=True, slots=True, eq=False)
class _Task:
    """One key on one aligned suspect."""

    suspect: Checkpoint
    model: Checkpoint
    key: Key
    choices: Choices
    alignment: Alignment
    null: NDArray[np.int64]
    device: str
    seed: int
    keys_tried: int

    def finding(self, statistic: str, invariant: str) -> Finding:
        if self.suspect.hidden_size != self.model.hidden_size:
            return self._conclude(self._unread(statistic, invariant), None, (), ())
        faults: tuple[str, ...] = _broken_rows(self.alignment)
        warnings: tuple[str, ...] = ()
        rows, lost = _suspect_rows(self.suspect, self.alignment, self.choices.marked_rows)
        spoiled = int((~np.isfinite(rows).all(axis=1)).sum()) - lost.size
        if spoiled:
            faults += (f"NaN or Inf in {spoiled} of the marked rows",)
        if lost.size:
            warnings += (f"{lost.size} of {self.choices.marked_rows.size} marked rows are gone from the suspect",)
        tokens = self.choices.query_tokens, self.choices.reference_tokens
        own = compute_invariant(self.model, *tokens, device=self.device).cpu().numpy()
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
        paper = self._read("sum", "suspect", rows, theirs) if theirs is not None else None
        if (statistic, invariant) == ("sum", "suspect") and paper is not None:
            reading = paper
        elif invariant == "original":
            reading = self._read(statistic, invariant, rows, own)
        elif theirs is not None:
            reading = self._read(statistic, invariant, rows, theirs)
        else:
            reading = self._unread(statistic, invariant)
        return self._conclude(reading, paper, faults, warnings)

    def _read(self, statistic: str, invariant: str, rows: NDArray[np.float64], a_m: NDArray[np.float64]) -> Reading:
        permuted = permute_rows(a_m, self.choices.constraint_permutations)
        order, scale = self.choices.row_permutations, self.key.scale
        if statistic == "difference":
            originals = self.model.embedding(self.choices.marked_rows).double().numpy()
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

    def _conclude(
        self, reading: Reading, paper: Reading | None, faults: tuple[str, ...], warnings: tuple[str, ...]
    ) -> Finding:
        verdict, reason = judge(reading, self.key.parameters, self.alignment, faults, self.keys_tried)
        return Finding(
            verdict=verdict,
            reason=reason,
            reading=reading,
            paper=paper,
            alignment=self.alignment,
            lineage=lineage(self.alignment),
            parameters=self.key.parameters,
            commitment=self.key.commitment,
            marked_rows=self.choices.marked_rows,
            seed=self.seed,
            keys_tried=self.keys_tried,
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


def _suspect_rows(
    suspect: Checkpoint, alignment: Alignment, marked: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """(l, d) rows of the suspect in the original's columns, NaN where gone, and the ids that are gone."""
    where = alignment.rows[marked]
    rows = np.full((marked.size, suspect.hidden_size), np.nan)
    if (where >= 0).any():
        rows[where >= 0] = alignment.restore(suspect.embedding(where[where >= 0]).double().numpy())
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


def _broken_rows(alignment: Alignment) -> tuple[str, ...]:
    if not alignment.broken_rows.size:
        return ()
    first = ", ".join(map(str, alignment.broken_rows[:5].tolist()))
    more = ", …" if alignment.broken_rows.size > 5 else ""
    return (f"NaN or Inf in {alignment.broken_rows.size} of the embedding rows read (rows {first}{more})",)
