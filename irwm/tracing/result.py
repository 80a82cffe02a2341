"""The results of a tracing, which pages, reports and tests read."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from irwm.alignment import Alignment
from irwm.evidence.finding import FORMS
from irwm.scheme.parameters import EMBEDDING

# Why no further fit of the original was made.
TRIES_ENDED = NAMED, ALL_MADE, NOT_REQUESTED, TOO_FEW, UNSUPPORTED, NO_MEMORY = (
    "named", "all made", "not requested", "too few answers", "not supported", "too little memory",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Trace:
    """How much of one recipient's noise a suspect holds.

    Attributes:
        recipient, owner: those of the copy with this noise.
        z: sum of the recipient's signs over the suspect's difference from the original, in units of its deviation
            under random signs; NaN if no rows could be compared.
        log10_p: log10 of a bound on the odds of this z or more for a recipient whose copy is not in the suspect. It
            holds for any suspect, without assumptions about its numbers.
        log10_risk: the same, corrected for all of `Tracing.comparisons`.
        named: whether that is at most the accepted risk.
        share: estimated weight of this recipient's copy in the suspect; 1 for the copy itself, 1 / c in a mean of c.
        rows: rows compared; fewer than all if a first pass over very many recipients ruled this one out.
    """

    recipient: str
    owner: str
    z: float
    log10_p: float
    log10_risk: float
    named: bool
    share: float
    rows: int


@dataclass(frozen=True, slots=True, eq=False)
class Tracing:
    """The outcome for all recipients of an original.

    Attributes:
        traces: one per key, in the order of the keys.
        decoys: (n,) z of recipients without a copy, scored like all others.
        keys_tried: the number of keys that are tried on this suspect, with noise or without; part of the correction.
        risk: the accepted odds of naming any uninvolved recipient, over all keys tried.
        alignment: how the suspect's coordinates were restored.
        tensors_read: how many of the suspect's tensors were read as its embedding; part of the correction.
        maps: under how many maps the suspect's rows are read, needed or not; part of the correction.
        by: the map that these z were read under, one of `irwm.evidence.finding.MAPS`.
        places: in how many places noise is searched for, needed or not; part of the correction.
        place: where these z were read, "embedding", "head" or "neurons".
        looks: 2 if a first pass came before the comparison of all rows, else 1; part of the correction.
        rows: rows compared for the likeliest recipients.
        first_pass_rows: rows compared for all recipients, if they were too many for all rows; else equal to `rows`.
        reason: the outcome in one sentence.
        tries: under how many fits of the original (none is one of them) generated text is read, needed or not; part of
            the correction. It is 1 for weights.
        tries_made: how many of them were made. z is the largest over these.
        tries_ended: one of `TRIES_ENDED`.
        growth: of generated text, numbers of tokens and the z of the likeliest recipient from the first ones; the last
            is that of all. Empty for weights.
    """

    traces: tuple[Trace, ...]
    decoys: NDArray[np.float64]
    keys_tried: int
    risk: float
    alignment: Alignment
    tensors_read: int
    maps: int
    by: str
    looks: int
    rows: int
    first_pass_rows: int
    reason: str
    places: int = 1
    place: str = EMBEDDING
    tries: int = 1
    tries_made: int = 1
    tries_ended: str = ALL_MADE
    growth: tuple[tuple[int, float], ...] = ()

    @property
    def comparisons(self) -> int:
        """How many comparisons were made, those of the marks included; every p is multiplied by it."""
        return self.keys_tried * self.tensors_read * self.maps * FORMS * self.looks * self.places * self.tries

    @property
    def nothing_differs(self) -> bool:
        """Whether no map gives any difference, for example because the suspect's rows equal the original's."""
        return self.alignment.aligned and all(trace.z != trace.z for trace in self.traces)

    @property
    def ranked(self) -> tuple[Trace, ...]:
        """The traces, strongest first; those without a z last."""
        return tuple(sorted(self.traces, key=lambda trace: (trace.z != trace.z, -trace.z)))

    @property
    def named(self) -> tuple[Trace, ...]:
        """The recipients named, strongest first: at least these were involved."""
        return tuple(trace for trace in self.ranked if trace.named)

    @property
    def colluders(self) -> float:
        """Estimated number of copies that were mixed in equal parts; NaN if no recipient is named.

        It is one over the mean share of the named recipients. Copies of other recipients count as well, since they make
        these shares smaller.
        """
        named = self.named
        return len(named) / sum(trace.share for trace in named) if named else float("nan")
