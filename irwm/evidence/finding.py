"""The results of a detection, which pages, reports and tests read.

A `Reading` is one statistic with one invariant (Algorithm 3). A `Finding` holds the reading that the verdict rests on,
the paper's own reading, and further results: alignment, lineage, lost rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from irwm.alignment import Alignment
from irwm.evidence.lineage import Lineage
from irwm.scheme.parameters import EMBEDDING, HEAD, Parameters

FOUND: Final = "found"
NOT_FOUND: Final = "not found"
INCONCLUSIVE: Final = "inconclusive"
# The smaller of two p-values is used, Fisher's combination and the binomial count, so it is doubled (Bonferroni).
COMBINATIONS = 2
# Forms of evidence. Every p of a key with noise is corrected for both, in every examination, so that one suspect and
# one key have one p.
MARK, FINGERPRINT = "mark", "fingerprint"
FORMS = 2
# The maps under which a suspect's rows are read, in this order, until one shows the mark. Verdicts are corrected for
# all of them. The first is the map of the alignment: the identity, a reordering of columns, or a rotation.
ALIGNED, LEAST_SQUARES = "aligned", "least squares"
MAPS = (ALIGNED, LEAST_SQUARES)


@dataclass(frozen=True, slots=True, eq=False)
class Reading:
    """One statistic ranked against its permutation null at every marked position.

    Attributes:
        statistic: "joint", "sum" (the paper's) or "difference".
        invariant: the model whose A was used, "original" or "suspect" (the paper's).
        by: the map under which the rows were read, one of `MAPS`.
        observed: (l,) float64, the statistic at the key; NaN where the marked row is gone or unusable.
        null: (l, permutations) float64, the statistic under random permutations; NaN for the same rows.
        ranks: (l,) float64 in (0, 1], (1 + #{null <= observed}) / (1 + N); NaN for the same rows.
        count: positions whose rank is below rank_threshold.
        present: positions that could be ranked.
        passes: the paper's rule, count >= required_positions.
        log10_p_count: log10 of the exact binomial tail of `count` among `present` positions.
        log10_p: log10 of Fisher's combination of all ranks; 0 if there are no ranks.
        screened: whether it was ranked among the few orders of a screening only, because these show no signal.
    """

    statistic: str
    invariant: str
    observed: NDArray[np.float64]
    null: NDArray[np.float64]
    ranks: NDArray[np.float64]
    count: int
    present: int
    passes: bool
    log10_p_count: float
    log10_p: float
    by: str = "aligned"
    screened: bool = False

    @property
    def log10_either(self) -> float:
        """log10 of the odds that a model without the mark gives this reading in either of the two ways of combining."""
        return min(0.0, min(self.log10_p, self.log10_p_count) + math.log10(COMBINATIONS))


@dataclass(frozen=True, slots=True)
class Evidence:
    """One form of evidence, on its own.

    Attributes:
        form: "mark", the ranks of the marked rows, or "fingerprint", the noise of all rows.
        place: where in the suspect it was read, "embedding", "head" or, for a fingerprint, "neurons".
        log10_p: log10 of a bound on the odds that a model not made from this key's release shows this much of this form
            there, before the corrections of `Finding.log10_risk_of`.
        by: the map under which it was read, one of `MAPS`.
        tensors_read: how many of the suspect's tensors were read in this place; part of the correction.
        z: of a fingerprint, the sum of its signs in units of its deviation under random ones; NaN for a mark.
        rows: rows that it was read from.
    """

    form: str
    place: str
    log10_p: float
    by: str
    tensors_read: int
    z: float = math.nan
    rows: int = 0

    @property
    def log10_p_of_all(self) -> float:
        """log10 of a bound on the odds that any of `tensors_read` shows as much, corrected for nothing else."""
        return min(0.0, self.log10_p + math.log10(self.tensors_read))


@dataclass(frozen=True, slots=True, eq=False)
class Finding:
    """The outcome of one detection.

    Attributes:
        verdict: "found", "not found" or "inconclusive".
        reason: one sentence for the user.
        reading: the reading behind the verdict.
        paper: the paper's own reading (`sum`, A of the suspect), or None if it cannot be made.
        alignment: how the suspect's coordinates were restored.
        lineage: whether the suspect descends from the original, with or without a mark.
        parameters: the key's parameters.
        commitment: hex SHA-256 commitment of the key; never the key.
        marked_rows: (l,) int64, the token ids of the positions.
        seed: seed of the permutations; the same seed gives the same ranks.
        keys_tried: the number of keys for which the verdict is corrected.
        tensors_read: how many of the suspect's tensors were read in `place`; part of the correction.
        maps: under how many maps they are read, needed or not; part of the correction.
        forms: in how many forms the key can show, searched for or not: 2 with noise, else 1; part of the correction.
        places: in how many places they are searched for, needed or not; part of the correction.
        place: where `reading` was read, "embedding" or "head"; alignment, marked rows and lineage are of that place.
        elsewhere: the reading of the mark in the other place, if that was searched.
        tensors_read_elsewhere: as `tensors_read`, for the other place; 1 if that was not searched.
        fingerprint: the reading of the key's noise, in the place that shows more of it; None if the key has no noise,
            or if the mark was sufficient.
        faults: properties of the suspect itself that prevent judging any key on it.
        warnings: sentences that the user must see (lost tokens, replaced rows, low power).
    """

    verdict: str
    reason: str
    reading: Reading
    paper: Reading | None
    alignment: Alignment
    lineage: Lineage
    parameters: Parameters
    commitment: str
    marked_rows: NDArray[np.int64]
    seed: int
    keys_tried: int
    faults: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    tensors_read: int = 1
    maps: int = 1
    forms: int = 1
    places: int = 1
    place: str = EMBEDDING
    elsewhere: Reading | None = None
    fingerprint: Evidence | None = None
    tensors_read_elsewhere: int = 1

    @property
    def comparisons(self) -> int:
        """The number of tests that `reading` is corrected for: `keys_tried` on each of `tensors_read` under each of
        `maps`, for each of `forms` in each of `places`."""
        return self.tensors_read * self.comparisons_of_a_tensor

    @property
    def comparisons_of_a_tensor(self) -> int:
        """The same for a place in which one tensor was read. Each place has an equal part of the risk, and its own
        tensors share that part, so the number of tensors is different in the two places."""
        return self.keys_tried * self.maps * self.forms * self.places

    @property
    def log10_risk(self) -> float:
        """log10 of the odds that a model not made from this key's release shows as much in any form, corrected."""
        return min(map(self.log10_risk_of, self.evidence))

    def log10_risk_of(self, evidence: Evidence) -> float:
        """log10 of the same odds for one of `evidence`, corrected for the tensors that were read in its place."""
        return min(0.0, evidence.log10_p + math.log10(evidence.tensors_read * self.comparisons_of_a_tensor))

    @property
    def evidence(self) -> tuple[Evidence, ...]:
        """Each form of evidence that was considered, with its own p."""
        marks = [_mark(self.reading, self.place, self.tensors_read)]
        if self.elsewhere is not None:
            marks.append(_mark(self.elsewhere, other_place(self.place), self.tensors_read_elsewhere))
        return (*marks, self.fingerprint) if self.fingerprint is not None else tuple(marks)

    @property
    def screened(self) -> bool:
        """Whether the key was dismissed in a screening, in some place, so that its ranks and p are coarse."""
        return self.reading.screened or (self.elsewhere is not None and self.elsewhere.screened)

    @property
    def judgeable(self) -> bool:
        """Whether this suspect could be judged at all, by this key or any other."""
        if self.verdict == FOUND:
            return True
        return self.alignment.aligned and not self.faults and self.reading.present > 0

    @property
    def ranks(self) -> NDArray[np.float64]:
        return self.reading.ranks

    @property
    def observed(self) -> NDArray[np.float64]:
        return self.reading.observed

    @property
    def null(self) -> NDArray[np.float64]:
        return self.reading.null

    @property
    def statistic(self) -> str:
        return self.reading.statistic

    @property
    def invariant(self) -> str:
        return self.reading.invariant

    @property
    def count(self) -> int:
        return self.reading.count

    @property
    def present(self) -> int:
        return self.reading.present

    @property
    def passes(self) -> bool:
        return self.reading.passes

    @property
    def log10_p(self) -> float:
        return self.reading.log10_p

    @property
    def log10_p_count(self) -> float:
        return self.reading.log10_p_count


def _mark(reading: Reading, place: str, tensors_read: int) -> Evidence:
    return Evidence(MARK, place, reading.log10_either, reading.by, tensors_read, rows=reading.present)


def other_place(place: str) -> str:
    """The other one of the two `PLACES`."""
    return HEAD if place == EMBEDDING else EMBEDDING
