"""Recipients named beyond Algorithm 6: all are scored, and one is named only if chance is ruled out.

Algorithm 6 itself, which ranks every user's mark, is `irwm.evidence.detection.detect_each`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, as_completed
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from irwm.alignment import Alignment
from irwm.checkpoint import Checkpoint
from irwm.errors import ParameterError
from irwm.evidence.detection import ENOUGH_LOG10_RISK
from irwm.evidence.examination import Aligned, Examination
from irwm.evidence.finding import FORMS, MAPS
from irwm.evidence.fingerprint import Group, differences_of, first_pass_spans, task_of
from irwm.evidence.neuron_reading import AlignedNeurons, NeuronReading
from irwm.evidence.parallel import in_order
from irwm.evidence.sign_sums import Sums, Task, by_rows, score
from irwm.keys.check_original import check_geometry, check_original
from irwm.keys.key import Key
from irwm.scheme.probabilities import rademacher_tail_log10
from irwm.tracing.result import Trace, Tracing

Progress = Callable[[int, int, str], None]

RISK = 1e-6
DECOYS = 200
# With more noise coordinates to read, about half a minute, a first pass over some rows rules out most recipients.
MOST_PLACES = 2_000_000_000
# Recipients scored on all rows after it. An involved recipient ranks far above this among 100 000.
FINALISTS = 1000
# Recipients in one task: long enough to outweigh sending it, short enough to show progress.
_RECIPIENTS_PER_TASK = 5000
NOBODY = "No recipient is recognised: the suspect"
_NO_EMBEDDING = "No recipient can be traced: the suspect is an adapter without its own embedding."
_NO_NOISE = "These keys carry no noise, so they cannot be used for tracing; a search for their marks is still possible."


def trace(
    suspect: Checkpoint,
    model: Checkpoint,
    keys: Sequence[Key],
    risk: float = RISK,
    device: str = "cpu",
    executor: Executor | None = None,
) -> list[Trace]:
    """Which of these recipients' copies are in the suspect; one `Trace` per key, in order. See `trace_each`."""
    return list(trace_each(Examination(suspect, model, device), keys, risk, executor, decoys=0).traces)


def trace_each(
    examination: Examination,
    keys: Sequence[Key],
    risk: float = RISK,
    executor: Executor | None = None,
    decoys: int = DECOYS,
    progress: Progress | None = None,
    maps: Sequence[str] = MAPS,
    keys_tried: int | None = None,
    place: str | None = None,
) -> Tracing:
    """Score every recipient's noise in the suspect, and the noise of decoys.

    Args:
        examination: the suspect against the unmarked original.
        keys: keys with noise (`noise_coordinates` above 0); a key without noise gets no z.
        risk: accepted odds of naming any uninvolved recipient, over all keys together.
        executor: runs the scoring; None runs it in this process. Tasks contain the recipients' noise keys.
        decoys: how many recipients without a copy are scored as well.
        progress: called with tasks done, the total of tasks and a description of the step.
        maps: the maps under which the rows are read, one after the other until one recipient's noise is clear enough
            (`ENOUGH_LOG10_RISK`); of a close suspect only the first. The odds are corrected for all of `MAPS`. For a
            suspect known only by its answers the least-squares map comes first.
        keys_tried: how many keys were tried on this suspect, also those without noise; None for the number of `keys`.
        place: the only place to read; None for each in which a key has a mark. The odds are corrected for all of these.
            A key without a mark in `place` gets no z.

    Raises:
        ParameterError: a risk outside (0, 1), no key, or a place that is not one of `examination.places`.
        KeyMismatchError: a key of another geometry or another original.
        CheckpointError: a file cannot be read.
    """
    if not 0.0 < risk < 1.0 or decoys < 0:
        raise ParameterError("the risk is out of range", expected="a number between 0 and 1", found=str(risk))
    if not keys:
        raise ParameterError("there is no key to trace", expected="at least one key")
    tried = len(keys) if keys_tried is None else keys_tried
    if tried < len(keys):
        raise ParameterError("keys_tried must include these keys", expected=f"at least {len(keys)}", found=str(tried))
    for key in keys:
        check_geometry(key, examination.original)
    for key in {key.model_fingerprint: key for key in keys}.values():  # all keys of a fingerprint share an original
        check_original(key, examination.original)
    places = [each for each in examination.places if any(key.fingerprint_at(each) is not None for key in keys)]
    if place is not None and place not in examination.places:
        raise ParameterError(
            "this part of the suspect is not compared", expected=", ".join(examination.places), found=place
        )
    chosen = places if place is None else [place]
    if examination.suspect.head_alone:
        # Rows from answers are stretched as well as rotated, which only the second map undoes: under the first the
        # noise is found, but its share is wrong.
        maps = [by for by in reversed(MAPS) if by in maps]
    found: list[Tracing] = []
    for where in chosen:
        readings = [each.checked_by_content for each in examination.readings(where)]
        search = _Search(keys, risk, decoys, tried, where, len(places), len(readings), executor, progress)
        for by in maps:
            found += [search.traced(each, by) for each in readings if by == maps[0] or search.needs(each, by)]
            if any(_is_clear(tracing) or tracing.nothing_differs for tracing in found):
                break
        if any(map(_is_clear, found)):
            break
    return max(found, key=_strength)


def _is_clear(tracing: Tracing) -> bool:
    """Whether no further reading is needed: the evidence is clear, and the accepted risk allows a name."""
    enough = min(ENOUGH_LOG10_RISK, math.log10(tracing.risk))
    return min(trace.log10_risk for trace in tracing.traces) <= enough


def _strength(tracing: Tracing) -> tuple[int, float, float]:
    """The odds come before z: a place with many tensors may have the larger z and still show less."""
    lowest = min(trace.log10_risk for trace in tracing.traces)
    largest = max((trace.z for trace in tracing.traces if trace.z == trace.z), default=-math.inf)
    return len(tracing.named), -lowest, largest


@dataclass(frozen=True, slots=True, eq=False)
class _Scored:
    z: NDArray[np.float64]
    share: NDArray[np.float64]
    rows: NDArray[np.int64]
    first_rows: int
    looks: int  # how often one recipient is scored: on some rows and then on all; the risk is multiplied by it


@dataclass(frozen=True, slots=True, eq=False)
class _Search:
    """A search for the recipients' noise in one place.

    Attributes:
        keys, risk, decoys, keys_tried, executor, progress: as for `trace_each`.
        place, places: the place, and the number of places.
        tensors: the number of the suspect's tensors that may be in this place.
    """

    keys: Sequence[Key]
    risk: float
    decoys: int
    keys_tried: int
    place: str
    places: int
    tensors: int
    executor: Executor | None
    progress: Progress | None

    def needs(self, suspect: Aligned | AlignedNeurons, by: str) -> bool:
        """Whether a tensor has to be read under this map too, for any of the keys."""
        groups = Group.all_of(self.keys, self.place)
        return any(by in suspect.maps(group.derivation.sample_key()) for group in groups)

    def traced(self, suspect: Aligned | AlignedNeurons, by: str) -> Tracing:
        """The outcome for one tensor, read under one map of `MAPS`."""
        keys = self.keys
        z, share = np.full(len(keys), np.nan), np.full(len(keys), np.nan)
        rows = np.zeros(len(keys), dtype=np.int64)
        decoy_z: list[NDArray[np.float64]] = []
        first_rows, looks = 0, 1
        groups = Group.all_of(keys, self.place) if suspect.holds_embedding else []
        for index, group in enumerate(groups):
            if not suspect.readable(by, group.derivation.sample_key()):
                continue
            # Each group gets its share of the decoys, drawn from its own secret.
            count = self.decoys // len(groups) + (index < self.decoys % len(groups))
            extra = tuple(group.derivation.decoy_noise_key(number) for number in range(1, count + 1))
            scored = self._scored(suspect.of(group.part), by, group, extra)
            here = len(group.numbers)
            z[group.numbers], share[group.numbers] = scored.z[:here], scored.share[:here]
            rows[group.numbers] = scored.rows[:here]
            decoy_z.append(scored.z[here:])
            first_rows = max(first_rows, scored.first_rows)
            looks = max(looks, scored.looks)
        log10_p = rademacher_tail_log10(z)
        comparisons = self.keys_tried * self.tensors * len(MAPS) * FORMS * self.places * looks
        log10_risk = np.minimum(0.0, log10_p + math.log10(comparisons))
        traces = tuple(
            Trace(
                recipient=key.recipient,
                owner=key.owner,
                z=float(z[i]),
                log10_p=float(log10_p[i]),
                log10_risk=float(log10_risk[i]),
                named=bool(log10_risk[i] <= math.log10(self.risk)),
                share=float(share[i]),
                rows=int(rows[i]),
            )
            for i, key in enumerate(keys)
        )
        noisy = any(key.parameters.noise_coordinates for key in keys)
        return Tracing(
            traces=traces,
            decoys=np.concatenate(decoy_z) if decoy_z else np.empty(0),
            keys_tried=self.keys_tried,
            risk=self.risk,
            alignment=suspect.alignment,
            tensors_read=self.tensors,
            maps=len(MAPS),
            places=self.places,
            place=self.place,
            by=by,
            looks=looks,
            rows=int(rows.max(initial=0)),
            first_pass_rows=first_rows,
            reason=_reason(traces, suspect.alignment, noisy, suspect.holds_embedding),
        )

    def _scored(self, suspect: Aligned | NeuronReading, by: str, group: Group, decoys: tuple[bytes, ...]) -> _Scored:
        """z, share and rows of a group's recipients and then of its decoys."""
        everyone = (*group.stream_keys, *decoys)
        model = suspect.model
        some = first_pass_spans(model.vocab_size, group.derivation.basis_key())
        whole = task_of(differences_of(suspect, by, group.derivation), everyone, group.parameters)
        if len(everyone) * model.vocab_size * whole.coordinates <= MOST_PLACES:
            sums = self._sum(by_rows(whole), "Comparing recipients' noise")
            return _Scored(sums.z, sums.share, np.full(len(everyone), sums.rows), sums.rows, looks=1)
        parts = list(_by_recipients(replace(whole, spans=some)))
        passes = self._results(parts, f"First pass over {len(everyone)} recipients")
        z = np.concatenate([each.z for each in passes])
        share = np.concatenate([each.share for each in passes])
        rows = np.full(len(everyone), passes[0].rows)
        # All decoys are scored on all rows, so that they can be shown next to the likeliest recipients.
        likeliest = np.argsort(-np.nan_to_num(z[: len(group.stream_keys)], nan=-np.inf), kind="stable")[:FINALISTS]
        finalists = np.concatenate([likeliest, np.arange(len(group.stream_keys), len(everyone))])
        last = replace(whole, stream_keys=tuple(everyone[i] for i in finalists))
        sums = self._sum(by_rows(last), f"Comparing all rows for the {len(finalists)} likeliest recipients")
        z[finalists], share[finalists], rows[finalists] = sums.z, sums.share, sums.rows
        return _Scored(z, share, rows, passes[0].rows, looks=2)

    def _sum(self, tasks: Iterable[Task], what: str) -> Sums:
        total, *others = self._results(list(tasks), what)
        for sums in others:
            total = total + sums
        return total

    def _results(self, tasks: Sequence[Task], what: str) -> list[Sums]:
        """The sums of all tasks, in order."""
        say = self.progress or (lambda _done, _total, _what: None)
        say(0, len(tasks), what)
        if self.executor is None:
            results = []
            for sums in in_order(score, tasks, "cpu", fewest=2):
                results.append(sums)
                say(len(results), len(tasks), what)
            return results
        futures = [self.executor.submit(score, task) for task in tasks]
        for done, _ in enumerate(as_completed(futures), start=1):
            say(done, len(tasks), what)
        return [future.result() for future in futures]


def _by_recipients(task: Task) -> Iterator[Task]:
    for start in range(0, len(task.stream_keys), _RECIPIENTS_PER_TASK):
        yield replace(task, stream_keys=task.stream_keys[start : start + _RECIPIENTS_PER_TASK])


def _reason(traces: Sequence[Trace], alignment: Alignment, noisy: bool, own: bool) -> str:
    if not own:
        return _NO_EMBEDDING
    if not noisy and not any(trace.named for trace in traces) and alignment.aligned:
        return _NO_NOISE
    nothing = all(math.isnan(trace.z) for trace in traces)
    named = sum(trace.named for trace in traces)
    return recognised(named, aligned=alignment.aligned, why=alignment.reason, nothing=nothing)[0]


def recognised(named: int, *, aligned: bool, why: str, nothing: bool, text: bool = False) -> tuple[str, ...]:
    """The sentences that an outcome can have, the usual one first.

    Args:
        named: how many recipients are named.
        aligned, why: of the alignment.
        nothing: whether no recipient has a z.
        text: whether they were traced in generated text.
    """
    if text:
        who = "At least one recipient's copy" if named == 1 else f"The copies of at least {named} recipients"
        return (f"{who} contributed to the answers." if named else "No recipient's copy is recognised in the answers.",)
    if named:
        who = "at least one recipient's copy" if named == 1 else f"the copies of at least {named} recipients"
        return (f"The suspect was made from {who}.",)
    # Keys without noise, and adapters without an embedding, cannot be compared either.
    others = (_NO_NOISE, _NO_EMBEDDING) if nothing else ()
    if not aligned:
        return (f"{NOBODY} {why}.", *others)
    if nothing:
        return ("The suspect's embedding is identical to the original's, so it is not a recipient's copy.", *others)
    return ("No recipient's copy is recognised in the suspect.",)
