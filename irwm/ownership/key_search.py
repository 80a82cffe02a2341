"""How much of the evidence a search for a key could have forged, in bits.

No part of a key can be chosen freely. So to get a key that "finds" itself in another party's model, a forger has to try
whole keys, about 2^b of them for evidence of b bits. A commitment that a third party dated before the claimant had
access to the suspect ends the search. Only the stated date of the suspect's first appearance is compared here: a
claimant who had the suspect earlier could search earlier, and no date shows whether this was the case.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime

# log2 of the keys that a claimant without an earlier commitment is assumed to have tried. One trial needs at least ten
# thousand operations (a derivation, one row's order, one statistic); 2^80 of them take a machine with 10^18 operations
# a second more than three centuries.
SEARCH_BITS = 80.0

COMMITTED = "committed before"
LATE = "committed too late"
UNDATED = "suspect not dated"
UNCOMMITTED = "not committed"


@dataclass(frozen=True, slots=True)
class Standing:
    """The value of the evidence against a claimant who searched for a key.

    Attributes:
        status: "committed before" the suspect appeared, "committed too late", "suspect not dated" (there is a
            commitment, but no date for the suspect), or "not committed".
        evidence_bits: -log2 of the corrected odds that a model without the mark gives this reading.
        search_bits: log2 of the keys that the claimant could have tried; 0 if committed before, provided that he had no
            access to the suspect until then.
        committed_utc, suspect_seen_utc: the two times compared, ISO 8601, or None.
    """

    status: str
    evidence_bits: float
    search_bits: float
    committed_utc: str | None
    suspect_seen_utc: str | None

    @property
    def margin_bits(self) -> float:
        """The remaining bits; below zero a search alone explains the finding."""
        return self.evidence_bits - self.search_bits

    @property
    def searched_bits(self) -> float:
        """The remaining bits against a claimant who had access to the suspect before committing to the key."""
        return self.evidence_bits - SEARCH_BITS


def evidence_bits(log10_risk: float) -> float:
    """-log2 of odds given as log10; 0 for odds of one."""
    return max(0.0, -log10_risk / math.log10(2.0))


def standing(log10_risk: float, committed_utc: str | None = None, suspect_seen_utc: str | None = None) -> Standing:
    """The standing of a claim whose evidence has these corrected odds.

    Args:
        log10_risk: `irwm.evidence.verdict.log10_risk` of the finding.
        committed_utc: when an independent authority dated the key's commitment, ISO 8601 with its zone; None for never.
        suspect_seen_utc: since when the suspect is known to have existed, in the same format; None if unknown.

    Raises:
        ValueError: a time is not ISO 8601 or has no zone.
    """
    committed, seen = _time(committed_utc), _time(suspect_seen_utc)
    if committed is None:
        status = UNCOMMITTED
    elif seen is None:
        status = UNDATED
    else:
        status = COMMITTED if committed < seen else LATE
    return Standing(
        status=status,
        evidence_bits=evidence_bits(log10_risk),
        search_bits=0.0 if status == COMMITTED else SEARCH_BITS,
        committed_utc=committed_utc,
        suspect_seen_utc=suspect_seen_utc,
    )


def _time(text: str | None) -> datetime | None:
    if text is None:
        return None
    time = datetime.fromisoformat(text)
    if time.tzinfo is None:
        raise ValueError(f"{text!r} has no time zone")
    return time.astimezone(UTC)
