"""Detection (Algorithm 3): rank the statistic at the key among random permutations, position by position.

`detect_each` tests each of many users' keys on one suspect (Algorithm 6): a key with noise is read in the release's
basis, with the noise added to the original from which A is computed, and its fingerprint is searched for too.
`detect_marks` searches only for the marks, if `irwm.tracing` searches for the fingerprints of all users together.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from irwm.alignment import Alignment
from irwm.checkpoint import Checkpoint
from irwm.checkpoint.files import listed
from irwm.errors import CheckpointError, KeyMismatchError, ParameterError
from irwm.evidence.devices import NOT_ENOUGH, on_device
from irwm.evidence.examination import Aligned, Examination
from irwm.evidence.finding import ALIGNED, FORMS, FOUND, INCONCLUSIVE, MAPS, NOT_FOUND, Finding, Reading
from irwm.evidence.fingerprint import Fingerprints
from irwm.evidence.lineage import NOT_DERIVED, with_mark
from irwm.evidence.parallel import in_order
from irwm.evidence.verdict import judge, judge_both, log10_risk, of_both_places, several_tensors
from irwm.keys.check_original import check_derivation, check_digest
from irwm.keys.key import Choices, Key
from irwm.scheme import statistic as stat
from irwm.scheme.condition import permute_rows
from irwm.scheme.invariant import InvariantError
from irwm.scheme.parameters import Parameters, chance_of_counting
from irwm.scheme.permutations import NullOrders
from irwm.scheme.probabilities import LN10, binomial_tail_log, fisher_log10

Float64 = NDArray[np.float64]

INVARIANTS = ("original", "suspect")
# The verdict's way first, the paper's second.
WAYS = (("joint", "original"), ("sum", "suspect"), ("sum", "original"), ("joint", "suspect"))
# Below this value no other map is tried: it could not change the verdict, and would add little to its weight.
ENOUGH_LOG10_RISK = -30.0
# A screening first ranks each reading among few of its orders, and among more only if the p of these, uncorrected, is
# small: its stages' number of orders and log10 of the largest such p. docs/method.md (*Screening*) proves that p stays
# valid.
SCREENING = ((49, -1.0), (499, -2.0))
NOT_ALL_READ = (
    "So many tensors might be the suspect's embedding that not all of them were read, so no key is ruled out."
)
NOT_ALL_OPENED = "Not all weights that came with the suspect could be read, so no key is ruled out."
NOT_ALL_MATCHED = "The suspect's MLP layers could not be matched with the original's, so no key is ruled out."
NOT_READ = "not read: "
NO_NEURONS = "the neurons of the suspect's MLP layers were not compared, so no fingerprint was looked for in them"
OTHER_NEURONS = (
    "the neurons of the suspect's MLP layers do not resemble the original's, so no fingerprint was looked for in them"
)
NO_EMBEDDING = "it is an adapter without its own embedding, and the rows that were read are the original's"


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
    """Search `suspect` for `key`'s mark (Algorithm 3) and, if that is not clear enough, for its fingerprint.

    Args:
        suspect: the checkpoint under examination.
        model: the unmarked original that the key was generated from.
        key: the key; its parameters decide beta, rho and the number of permutations.
        device: where the alignment, the invariant and the null are computed. If a GPU's memory is not enough, the
            processor computes them and the finding has a warning.
        seed: seed of the public permutations; the same seed gives the same ranks on every machine.
        statistic: "joint" (default), "sum" (the paper's) or "difference".
        invariant: the model whose A is used, "original" (default) or "suspect" (the paper's).
        keys_tried: how many keys were tried on this suspect; the verdict's risk is multiplied by it.

    Returns:
        The finding. A faulty suspect (not finite, another geometry, too few rows) is "inconclusive" with its reason.

    Raises:
        ParameterError: an unknown statistic or invariant.
        KeyMismatchError: `model` is not the original of `key`.
        CheckpointError: a file cannot be read.
    """
    (finding,) = detect_each(Examination(suspect, model, device), [key], seed, statistic, invariant, keys_tried)
    return finding


def detect_each(
    examination: Examination,
    keys: Sequence[Key],
    seed: int = 0,
    statistic: str = "joint",
    invariant: str = "original",
    keys_tried: int | None = None,
    *,
    screen: bool = False,
) -> Iterator[Finding]:
    """The findings of `detect` for many keys of one original, in order; the suspect is aligned once.

    Args:
        examination: the suspect and the original.
        keys: the keys.
        keys_tried: how many keys were tried on this suspect; None for the number of `keys`.
        seed, statistic, invariant: as `detect`.
        screen: dismisses a key without a signal after the few orders of `SCREENING`, which takes a fraction of the
            time. Its finding is `Finding.screened`. A reading with a signal is the same as without it.

    Raises:
        ParameterError, KeyMismatchError, CheckpointError: as `detect`. An original whose rows are not those that a key
            reads is detected when that key is reached.
    """
    # A fingerprint is searched for only with the reading that verdicts use. Other readings are for comparison.
    both = (statistic, invariant) == WAYS[0]
    unread = listed(examination.suspect.unread)  # once: it searches the suspect's folder
    way = statistic, invariant
    for finding in detect_marks(examination, keys, seed, *way, keys_tried, fingerprints=both, screen=screen):
        yield judge_opened(finding, unread)


def detect_marks(
    examination: Examination,
    keys: Sequence[Key],
    seed: int = 0,
    statistic: str = "joint",
    invariant: str = "original",
    keys_tried: int | None = None,
    *,
    fingerprints: bool = False,
    screen: bool = False,
) -> Iterator[Finding]:
    """As `detect_each`, but only by the marks, for a caller that reads the fingerprints by `irwm.tracing`.

    The correction is that of `detect_each`: it includes the fingerprints.

    Args:
        fingerprints: also reads the fingerprint of a key whose mark is not clear enough.
        screen: as for `detect_each`.
    """
    way = (statistic, invariant)
    tried = len(keys) if keys_tried is None else keys_tried
    _check(tried, way)
    first, parts = examination.places[0], [key.at(_places(examination, key)[0]) or key for key in keys]
    _, place = on_device(lambda device: examination.on(device).at(first).check(parts, parts[:1]), examination.device)
    orders = _null_orders(examination, keys, seed)
    stages: tuple[NullOrders, ...] = ()
    if screen and keys:
        most = max(orders.values(), key=lambda each: len(each.own))
        stages = tuple(most.first(count) for count, _ in SCREENING)
    question = _Question(seed, orders, tried, stages)
    kept = Fingerprints(keys)

    def found(key: Key) -> Finding:
        def read(device: str) -> Finding:
            here = examination.on(device)
            finding = _read(here, key, question, way)
            if fingerprints:
                finding = _with_fingerprint(here, key, finding, kept)
            return _with_neurons(here, key, finding)

        finding, used = on_device(read, place)
        if used == examination.device:
            return finding
        return replace(finding, warnings=(*finding.warnings, NOT_ENOUGH))

    # The first key alone, on all cores: all further keys reuse its results.
    yield from map(found, keys[:1])
    yield from in_order(found, keys[1:], place)


def _with_fingerprint(examination: Examination, key: Key, finding: Finding, fingerprints: Fingerprints) -> Finding:
    """The finding with the key's fingerprint, if it has one and the mark is not clear enough."""
    if finding.forms == 1 or log10_risk(finding.reading, finding.comparisons) <= ENOUGH_LOG10_RISK:
        return finding
    enough = ENOUGH_LOG10_RISK - math.log10(finding.comparisons_of_a_tensor)
    return judge_both(replace(finding, fingerprint=fingerprints.of(examination, key, enough)))


def _with_neurons(examination: Examination, key: Key, finding: Finding) -> Finding:
    """The finding, which does not dismiss a key with a fingerprint in neurons that could not be compared, nor one in
    neurons that a suspect of common descent should have: an attacker can write them in another way."""
    if finding.verdict != NOT_FOUND:
        return finding
    if examination.neurons_failed(key):
        why, warning = NOT_ALL_OPENED, NO_NEURONS
    elif finding.lineage.status != NOT_DERIVED and examination.neurons_unread(key):
        why, warning = NOT_ALL_MATCHED, OTHER_NEURONS
    else:
        return finding
    verdict, reason = not_all_read(finding.reason, why)
    return replace(finding, verdict=verdict, reason=reason, warnings=(*finding.warnings, warning))


def detect_ways(
    examination: Examination,
    key: Key,
    ways: Sequence[tuple[str, str]] = WAYS,
    seed: int = 0,
    keys_tried: int = 1,
) -> dict[tuple[str, str], Finding]:
    """`detect` by several pairs of statistic and invariant on one suspect, which is aligned once.

    Use it to compare the ways, not to choose among them: only the verdict of the default way, read alone, is
    calibrated.
    """
    _check(keys_tried, *ways)
    examination.check([key])
    question = _Question(seed, _null_orders(examination, [key], seed), keys_tried)
    return {way: _read(examination, key, question, way) for way in ways}


def _places(examination: Examination, key: Key) -> tuple[str, ...]:
    """The places that are searched for this key's mark, in this order."""
    places = tuple(place for place in examination.places if key.at(place) is not None)
    if not places:
        raise KeyMismatchError(
            "this key has no mark in the output head, and no other part of the suspect is known",
            expected="a key whose settings include the places embedding and head",
            found=f"places: {', '.join(key.parameters.places)}",
            advice="Examine the suspect's weights",
        )
    return places


@dataclass(frozen=True, slots=True, eq=False)
class _Question:
    """The settings of the test that every key gets.

    Attributes:
        seed, orders: the public permutations of the null, by their number.
        keys_tried: the number of keys for which every verdict is corrected.
        stages: the first of these permutations for each of `SCREENING`; empty if no key is dismissed early.
    """

    seed: int
    orders: Mapping[int, NullOrders]
    keys_tried: int
    stages: tuple[NullOrders, ...] = ()


def _read(examination: Examination, key: Key, question: _Question, way: tuple[str, str]) -> Finding:
    """The mark of one key, place by place until the evidence is sufficient; corrected for all places."""
    places = _places(examination, key)
    number = sum(key.fingerprint_at(place) is not None for place in examination.places)
    found: Finding | None = None
    for place in places:
        part = key.at(place)
        assert part is not None
        here = examination.at(place)
        if place != examination.places[0]:  # in the first place all keys were checked at once
            here.check([part], ())
        detections = _detections(here, part, question, place, number)
        finding = max((each.finding(*way) for each in detections), key=_strength)
        finding = replace(finding, commitment=key.commitment, parameters=key.parameters)
        found = finding if found is None else of_both_places(found, finding)
        if log10_risk(found.reading, found.comparisons) <= ENOUGH_LOG10_RISK:
            break
    assert found is not None
    return found


def _check(keys_tried: int, *ways: tuple[str, str]) -> None:
    for statistic, invariant in ways:
        if statistic not in stat.STATISTICS or invariant not in INVARIANTS:
            raise ParameterError(
                "unknown statistic or invariant",
                expected=f"statistic in {stat.STATISTICS}, invariant in {INVARIANTS}",
                found=f"{statistic!r}, {invariant!r}",
            )
    if keys_tried < 1:
        raise ParameterError("keys_tried must include this key", expected="at least 1", found=str(keys_tried))


def _null_orders(examination: Examination, keys: Sequence[Key], seed: int) -> dict[int, NullOrders]:
    """The public permutations of the null for every N that one of the keys has."""
    positions: dict[int, int] = {}
    for params in (key.parameters for key in keys):
        positions[params.permutations] = max(positions.get(params.permutations, 0), params.positions)
    d = examination.original.hidden_size
    return {count: NullOrders.of(seed, count, most, d) for count, most in positions.items()}


def _detections(
    examination: Examination, key: Key, question: _Question, place: str, places: int
) -> tuple[_Detection, ...]:
    """A detection for each tensor of the suspect that may be in this place."""
    choices = key.choices()  # one key at a time: for a thousand keys of a large model they take gigabytes
    return tuple(
        _Detection(examination, each.placed(choices), key, choices, question, place, places)
        for each in examination.aligned
    )


def _strength(finding: Finding) -> tuple[int, float]:
    """A tensor that cannot be judged outweighs one without the mark: the model may use it."""
    return (NOT_FOUND, INCONCLUSIVE, FOUND).index(finding.verdict), -log10_risk(finding.reading)


@dataclass(frozen=True, slots=True, eq=False)
class _Detection:
    """One key of one place on one aligned suspect."""

    examination: Examination
    aligned: Aligned
    key: Key
    choices: Choices
    question: _Question
    place: str
    places: int

    @property
    def model(self) -> Checkpoint:
        return self.aligned.model

    @property
    def null(self) -> NullOrders:
        return self.question.orders[self.key.parameters.permutations]

    @property
    def tensors_read(self) -> int:
        return len(self.examination.aligned)

    @property
    def samples(self) -> bytes:
        return self.key.derivation.sample_key()

    def finding(self, statistic: str, invariant: str) -> Finding:
        """Algorithm 3, under the paper's headings."""
        warnings = (*self._several_tensors(), *_broken_rows(self.aligned.alignment))
        faults = () if self.aligned.holds_embedding else (NO_EMBEDDING,)

        # Compute invariants: the original's, and the suspect's as in the paper.
        tokens = self.choices.query_tokens, self.choices.reference_tokens
        check_digest(self.key, self.model, *tokens, self.choices.marked_rows)
        noise = self.key.noise(self.model, self.choices)
        own = self.examination.own_invariant(*tokens, noise.added(self.model))
        check_derivation(self.key, self.choices, own, self.model)
        a_m = {"original": own}
        try:
            a_m["suspect"], stood_in = self.aligned.invariant(*tokens, own)
            warnings += stood_in
        except InvariantError as error:
            warnings += (f"a reading with the published method is not possible: {error.problem}",)
        except CheckpointError as error:
            warnings += (
                f"a reading with the published method requires the suspect's layer-0 q and k: {error.problem}",
            )

        best, paper, gone = self._unread(statistic, invariant), None, 0
        # Changes are detected in the aligned rows: a fitted map changes all rows a little.
        for by in MAPS[:1] if statistic == "difference" else self.aligned.maps(self.samples):
            # Recover the original order of W_e'.
            rows, lost = self.aligned.rows(self.choices.marked_rows, by, self.samples)
            # Sum results, compute the distribution of products, rank and count: the paper's way and the requested one.
            ways = [way for way in dict.fromkeys((("sum", "suspect"), (statistic, invariant))) if way[1] in a_m]
            readings = self._read(ways, a_m, noise.basis.into(rows, self.choices.marked_rows), by)
            reading = readings.get((statistic, invariant))
            if reading is not None and (best.present == 0 or log10_risk(reading) < log10_risk(best)):
                best, paper, gone = reading, readings.get(("sum", "suspect")), lost.size
            if log10_risk(best, self.comparisons) <= ENOUGH_LOG10_RISK:
                break
        unusable = self.choices.marked_rows.size - gone - best.present
        if unusable and best.present and statistic != "difference":
            warnings += (f"marked rows lost because they are constant or contain NaN or Inf: {unusable}",)
        if gone:
            warnings += (f"marked rows missing from the suspect: {gone} of {self.choices.marked_rows.size}",)
        return self._conclude(best, paper, faults, warnings)

    @property
    def forms(self) -> int:
        return FORMS if self.key.parameters.noise_coordinates else 1

    @property
    def comparisons(self) -> int:
        return self.question.keys_tried * self.tensors_read * len(MAPS) * self.forms * self.places

    def _read(
        self, ways: Sequence[tuple[str, str]], a_m: Mapping[str, NDArray[np.float64]], rows: Float64, by: str
    ) -> dict[tuple[str, str], Reading]:
        """A reading for each pair of statistic and invariant, the verdict's last, of rows in the basis; among few
        orders if a screening needs no more."""
        params = self.key.parameters
        for few, (_, least) in zip(self.question.stages, SCREENING, strict=False):
            if params.permutations <= len(few):
                break
            found = self._ranked(ways, a_m, rows, few, single=True)
            coarse = {
                way: replace(reading_of(*way, *values, replace(params, permutations=len(few)), by), screened=True)
                for way, values in found.items()
            }
            if not ways or coarse[ways[-1]].log10_either > least:
                return coarse
        found = self._ranked(ways, a_m, rows, self.null)
        return {way: reading_of(*way, *values, params, by) for way, values in found.items()}

    def _ranked(
        self,
        ways: Sequence[tuple[str, str]],
        a_m: Mapping[str, NDArray[np.float64]],
        rows: Float64,
        orders: NullOrders,
        *,
        single: bool = False,
    ) -> dict[tuple[str, str], tuple[Float64, Float64]]:
        """The observed and null values of each pair; statistics that are linear maps share one null."""
        order, marked, scale = self.choices.row_permutations, self.choices.marked_rows, self.key.scale
        values: dict[tuple[str, str], tuple[Float64, Float64]] = {}
        maps = {}
        for statistic, invariant in ways:
            permuted = permute_rows(a_m[invariant], self.choices.constraint_permutations)
            if statistic == "difference":
                basis = self.key.noise(self.model, self.choices).basis
                originals = basis.into(self.model.embedding(marked).double().numpy(), marked)
                found = stat.difference(rows, originals, permuted, order, scale, orders, self.examination.device)
                values[statistic, invariant] = found
            else:
                make = stat.joint_map if statistic == "joint" else stat.sum_map
                maps[statistic, invariant] = make(permuted, scale)
        if maps:
            shuffled = stat.normalised(np.take_along_axis(rows, order, axis=1))
            device = self.examination.device
            nulls = stat.null_lengths_of(list(maps.values()), shuffled, orders, device, single=single)
            for (way, weights), null in zip(maps.items(), nulls, strict=True):
                observed = stat.lengths(weights, shuffled)
                null[~np.isfinite(observed)] = np.nan
                values[way] = observed, null
        return {way: values[way] for way in ways}

    def _unread(self, statistic: str, invariant: str) -> Reading:
        """The reading of a suspect without readable rows."""
        params = self.key.parameters
        nothing = np.full((params.positions, 1 + params.permutations), np.nan)
        return reading_of(statistic, invariant, nothing[:, 0], nothing[:, 1:], params)

    def _several_tensors(self) -> tuple[str, ...]:
        said = list(several_tensors(self.place, self.tensors_read))
        if over := self.examination.passed_over:
            said.append(
                f"tensors that might be the embedding but were skipped because their rows are less similar: {over}"
            )
        return tuple(said)

    def _conclude(
        self, reading: Reading, paper: Reading | None, faults: tuple[str, ...], warnings: tuple[str, ...]
    ) -> Finding:
        verdict, reason = judge(
            reading, self.key.parameters, self.aligned.alignment, faults, self.comparisons, self.place
        )
        if verdict == NOT_FOUND and self.examination.passed_over:
            verdict, reason = not_all_read(reason)
        lineage = self.aligned.lineage(self.samples)
        return Finding(
            verdict=verdict,
            reason=reason,
            reading=reading,
            paper=paper,
            alignment=self.aligned.alignment,
            lineage=with_mark(lineage) if verdict == FOUND else lineage,
            parameters=self.key.parameters,
            commitment=self.key.commitment,
            marked_rows=self.choices.marked_rows,
            seed=self.question.seed,
            keys_tried=self.question.keys_tried,
            tensors_read=self.tensors_read,
            maps=len(MAPS),
            forms=self.forms,
            places=self.places,
            place=self.place,
            faults=faults,
            warnings=warnings,
        )


def judge_opened(finding: Finding, unread: str) -> Finding:
    """The finding with a verdict on all files that came with the suspect: if some were not read, they are named and no
    key is dismissed.

    Args:
        unread: the files that were not read, in words; "" if all were read.
    """
    if not unread:
        return finding
    finding = replace(finding, warnings=(*finding.warnings, f"{NOT_READ}{unread}"))
    if finding.verdict != NOT_FOUND:
        return finding
    verdict, reason = not_all_read(finding.reason, NOT_ALL_OPENED)
    return replace(finding, verdict=verdict, reason=reason)


def not_all_read(reason: str, why: str = NOT_ALL_READ) -> tuple[str, str]:
    """The verdict and its reason if no mark was found in the parts that were read.

    Args:
        why: `NOT_ALL_READ`, `NOT_ALL_OPENED` or `NOT_ALL_MATCHED`.
    """
    return INCONCLUSIVE, f"{why} Result for those that were read: {reason[:1].lower()}{reason[1:]}"


def reading_of(
    statistic: str,
    invariant: str,
    observed: NDArray[np.float64],
    null: NDArray[np.float64],
    params: Parameters,
    by: str = ALIGNED,
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
        by=by,
    )


def _broken_rows(alignment: Alignment) -> tuple[str, ...]:
    if not alignment.broken_rows.size:
        return ()
    first = ", ".join(map(str, alignment.broken_rows[:5].tolist()))
    more = ", …" if alignment.broken_rows.size > 5 else ""
    return (f"NaN or Inf in {alignment.broken_rows.size} of the embedding rows read (rows {first}{more})",)
