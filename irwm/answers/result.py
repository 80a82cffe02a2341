"""The result of a detection in answers."""

from __future__ import annotations

import math
from dataclasses import dataclass

from irwm.evidence.finding import Evidence


@dataclass(frozen=True, slots=True)
class AnswersFinding:
    """The outcome of a detection in answers.

    Attributes:
        verdict: "found" or "inconclusive". Answers never show that a copy had no part in them.
        reason: one sentence for the user.
        evidence: the fingerprint in each place, read by each weighting of the tokens in each try that was made,
            strongest first. `by` names the weighting and the fit, as in "log-probabilities, soft prompt".
        tokens: generated tokens that were scored.
        keys_tried: the number of keys that the verdict is corrected for.
        places, weightings, tries: in how many places, by how many weightings, and under how many fits (none is one of
            them) the fingerprint is searched for; all are part of the correction, whether they were needed or not.
        commitment: hex SHA-256 commitment of the key; never the key.
    """

    verdict: str
    reason: str
    evidence: tuple[Evidence, ...]
    tokens: int
    keys_tried: int
    places: int
    weightings: int
    tries: int
    commitment: str

    @property
    def comparisons(self) -> int:
        """How many comparisons were made; p is multiplied by it."""
        return self.keys_tried * self.places * self.weightings * self.tries

    @property
    def z(self) -> float:
        """That of the strongest evidence; NaN without any."""
        return self.evidence[0].z if self.evidence else math.nan

    @property
    def log10_p(self) -> float:
        """That of the strongest evidence, not corrected; 0 without any."""
        return self.evidence[0].log10_p if self.evidence else 0.0

    @property
    def log10_risk(self) -> float:
        """log10 of a bound on the odds that answers without this copy show as much, corrected."""
        return min(0.0, self.log10_p + math.log10(self.comparisons))
