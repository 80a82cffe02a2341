"""The fingerprint of a key in a suspect: a separate form of evidence, in addition to the mark's ranks.

Both depend only on the key, and one can survive without the other: a mark is in a few rows, the noise of Algorithm 4 in
all rows. `irwm.tracing` determines which of many recipients were involved.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from irwm.evidence.differences import Differences
from irwm.evidence.examination import Aligned, Examination
from irwm.evidence.finding import ALIGNED, FINGERPRINT, LEAST_SQUARES, MAPS, Evidence
from irwm.evidence.neuron_reading import AlignedNeurons, NeuronReading
from irwm.evidence.parallel import in_order
from irwm.evidence.sign_sums import Source, Span, Task, by_rows, score
from irwm.keys.key import Key
from irwm.keys.neurons import FingerprintKey
from irwm.scheme.basis import Basis
from irwm.scheme.derivation import Derivation
from irwm.scheme.keystream import derive, words
from irwm.scheme.noise import embedding_deviation
from irwm.scheme.parameters import Parameters
from irwm.scheme.probabilities import rademacher_tail_log10

# The first pass: this many runs of this many rows, because consecutive rows of a keystream are read fastest.
FIRST_PASS_RUNS, FIRST_PASS_RUN = 8, 256
# Runs that are enough for a copy that was just written.
SAMPLED_RUNS = 2


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """Recipients of one release: one basis, one number of noise coordinates.

    Attributes:
        numbers: (r,) their places among the keys.
        stream_keys: their noise keys.
        part: that of any of them; basis, decoys and parameters are the same for all.
    """

    numbers: NDArray[np.int64]
    stream_keys: tuple[bytes, ...]
    part: FingerprintKey

    @property
    def derivation(self) -> Derivation:
        return self.part.derivation

    @property
    def parameters(self) -> Parameters:
        return self.part.parameters

    @classmethod
    def all_of(cls, keys: Sequence[Key], place: str) -> list[Group]:
        members: dict[bytes, list[tuple[int, FingerprintKey]]] = {}
        for number, key in enumerate(keys):
            part = key.fingerprint_at(place)
            if part is not None and part.parameters.noise_coordinates:
                members.setdefault(part.derivation.basis_key(), []).append((number, part))
        return [
            cls(
                numbers=np.array([number for number, _ in group]),
                stream_keys=tuple(part.derivation.noise_key() for _, part in group),
                part=group[0][1],
            )
            # In an order independent of the keys' own order: it decides which group gets the last decoys.
            for _, group in sorted(members.items(), key=lambda each: each[0])
        ]


class Fingerprints:
    """The evidence for the noise of each of many keys in a suspect, whose rows are converted once for all keys of a
    release.

    Args:
        keys: all keys; those without noise have no evidence.
    """

    def __init__(self, keys: Sequence[Key]) -> None:
        self._keys = keys
        # By device, place, tensor and map: z and the rows compared, by noise key.
        self._read: dict[tuple[str, str, int, str], dict[bytes, tuple[float, int]]] = {}
        self._reading = Lock()  # several keys are read at the same time

    def of(self, examination: Examination, key: Key, enough: float) -> Evidence | None:
        """The evidence for one of the keys; None if no row can be read.

        The best over all places, all tensors that may be in each place, and all maps that are needed, until its p for
        all tensors of its place is low enough. The caller corrects for these tensors, and for all places and maps.

        Args:
            examination: the suspect; the same for every call, on any device.
            enough: the `Evidence.log10_p_of_all` at which the search stops.

        Raises:
            CheckpointError: a file cannot be read.
        """
        best: Evidence | None = None
        for place in examination.places:
            part = key.fingerprint_at(place)
            if part is None:
                continue
            found = self._in_place(examination, part, enough, place)
            # The best of two places is chosen after each is corrected for its own tensors: a place with many tensors
            # may have the larger z and still show less.
            if found is not None and (best is None or _strength(found) > _strength(best)):
                best = found
            if best is not None and best.log10_p_of_all <= enough:
                break
        return best

    def _in_place(self, examination: Examination, part: FingerprintKey, enough: float, place: str) -> Evidence | None:
        best: Evidence | None = None
        stream_key, aligned = part.derivation.noise_key(), examination.readings(place)
        for by in MAPS:
            for number, each in enumerate(aligned):
                if by not in each.checked_by_content.maps(part.derivation.sample_key()):
                    continue
                z, rows = self._of_tensor(examination, place, number, by).get(stream_key, (math.nan, 0))
                if z == z and (best is None or z > best.z):
                    log10_p = float(rademacher_tail_log10(z))
                    best = Evidence(FINGERPRINT, place, log10_p, by, len(aligned), z, rows)
            if best is not None and best.log10_p_of_all <= enough:
                break
        return best

    def _of_tensor(self, examination: Examination, place: str, number: int, by: str) -> dict[bytes, tuple[float, int]]:
        """z and the rows compared of all keys, by noise key."""
        which = examination.device, place, number, by
        with self._reading:
            if which not in self._read:
                suspect = examination.readings(place)[number].checked_by_content
                self._read[which] = self._sums(suspect, place, by) if suspect.holds_embedding else {}
            return self._read[which]

    def _sums(self, suspect: Aligned | AlignedNeurons, place: str, by: str) -> dict[bytes, tuple[float, int]]:
        found: dict[bytes, tuple[float, int]] = {}
        for group in Group.all_of(self._keys, place):
            if not suspect.readable(by, group.derivation.sample_key()):
                continue
            differences = differences_of(suspect.of(group.part), by, group.derivation)
            task = task_of(differences, group.stream_keys, group.parameters)
            sums = reduce(add, in_order(score, list(by_rows(task)), "cpu", fewest=2))
            found |= {key: (z, sums.rows) for key, z in zip(group.stream_keys, sums.z.tolist(), strict=True)}
        return found


def sampled_log10_p(suspect: Aligned | NeuronReading, key: FingerprintKey, *, whole: bool = False) -> float:
    """log10 of the p-value of the noise of `key` in some rows, as they are; 0 if none differs.

    Args:
        whole: sum over all rows, and not only over two runs of the first pass: in a copy that was just written, some
            hundred rows show its noise as clearly as all of them.
    """
    secret, model = key.derivation.basis_key(), suspect.model
    spans = None if whole else first_pass_spans(model.vocab_size, secret)[:SAMPLED_RUNS]
    differences = differences_of(suspect, ALIGNED, key.derivation, spans)
    task = task_of(differences, [key.derivation.noise_key()], key.parameters)
    parts = list(by_rows(task if spans is None else replace(task, spans=spans)))
    (z,) = reduce(add, in_order(score, parts, "cpu", fewest=2)).z.tolist()
    return float(rademacher_tail_log10(z)) if z == z else 0.0


def _strength(evidence: Evidence) -> tuple[float, float]:
    return -evidence.log10_p_of_all, evidence.z


def differences_of(
    suspect: Aligned | NeuronReading, by: str, derivation: Derivation, spans: Sequence[Span] | None = None
) -> Differences:
    """The suspect's differences from the original in the bases of a release, read under a map of `MAPS`.

    Args:
        spans: the rows that centre and usual variance come from; None for those of the first pass.
    """
    model = suspect.model
    secret = derivation.basis_key()
    sample = np.concatenate([np.arange(*span) for span in spans or first_pass_spans(model.vocab_size, secret)])
    fitted = suspect.least_squares(derivation.sample_key()) if by == LEAST_SQUARES else None
    basis = Basis.derive(secret, model.hidden_size)
    return Differences.between(suspect.suspect, model, suspect.alignment, basis, sample, fitted)


def task_of(differences: Source, stream_keys: Sequence[bytes], params: Parameters) -> Task:
    """The sums of these noise keys over the whole vocabulary."""
    model, size = differences.model, params.noise_size
    deviation = embedding_deviation(model) if size == "global" else None
    spans = ((0, model.vocab_size),)
    return Task(differences, spans, tuple(stream_keys), params.noise_coordinates, size, deviation)


def first_pass_spans(s: int, secret: bytes) -> tuple[Span, ...]:
    """Runs of rows, one in each part of a vocabulary of `s` rows; the whole vocabulary if it is small.

    Their places follow from the release's secret: an attacker who knew them could corrupt just these few rows, and with
    them the first pass and the centre of the differences.
    """
    part = s // FIRST_PASS_RUNS
    if part <= FIRST_PASS_RUN:
        return ((0, s),)
    drawn = words(derive(secret, b"irwm", b"irwm/v3/first-pass"), FIRST_PASS_RUNS).tolist()
    starts = [number * part + word % (part - FIRST_PASS_RUN + 1) for number, word in enumerate(drawn)]
    return tuple((start, start + FIRST_PASS_RUN) for start in starts)
