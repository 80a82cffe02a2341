"""The section "error_rates" of a document: the readings of wrong keys and neutral models, for comparison."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from irwm import Finding
from irwm.evidence.decoys import Decoys, share_below
from irwm.evidence.verdict import FOUND_LOG10_RISK, log10_risk
from irwm.report import schema, wording
from irwm.report.plots.summaries import risk_counts
from irwm.report.structure import plain

# Chances at which the share of decoys is given: the powers of ten down to that of the verdict "found".
LEVELS = tuple(range(-1, int(FOUND_LOG10_RISK) - 1, -1))


def neutral_section(name: str, rows: int, finding: Finding) -> schema.Neutral:
    """A model that has nothing of the original, examined like the suspect.

    Args:
        name: what it is, in words.
        rows: rows of its embedding.
        finding: if it is not aligned, its risk means nothing.
    """
    alignment = finding.alignment
    section: schema.Neutral = plain(
        {
            "name": name,
            "rows": rows,
            "verdict": finding.verdict,
            "reason": finding.reason,
            "aligned": alignment.aligned,
            "similarity": alignment.similarity,
            "needed_similarity": alignment.needed_similarity,
            "log10_risk": log10_risk(finding.reading, finding.comparisons),
        }
    )
    return section


@dataclass(frozen=True, slots=True, eq=False)
class ErrorRates:
    """Decoys and neutral models that were run with an examination to measure how often it errs.

    Attributes:
        decoys: wrong keys on the aligned suspect; None if no key can be judged on it.
        neutral: models that have nothing of the original.
    """

    decoys: Decoys | None
    neutral: Sequence[schema.Neutral] = ()


def section(rates: ErrorRates, finding: Finding) -> dict[str, object]:
    """The section of a document."""
    return {
        "decoys": None if rates.decoys is None else decoy_section(rates.decoys, finding),
        "neutral": list(rates.neutral),
        "method": _method(rates.decoys, finding),
    }


def _method(decoys: Decoys | None, finding: Finding) -> str:
    return wording.measured(None if decoys is None else (decoys.positions, decoys.permutations), finding.parameters)


def decoy_section(decoys: Decoys, finding: Finding) -> dict[str, object]:
    """The part about wrong keys, with the suspect's own reading computed in the same way: as one key on one tensor."""
    risks, own = decoys.log10_risk, log10_risk(finding.reading)
    edges, counts = risk_counts(risks)
    return {
        "number": int(risks.size),
        "seed": decoys.seed,
        "maps": decoys.maps,
        "bank_rows": decoys.bank_rows,
        "positions": decoys.positions,
        "permutations": decoys.permutations,
        "histogram": {"edges": edges, "counts": counts},
        "shares": [share_below(risks, level) for level in LEVELS],
        "smallest_log10_risk": float(risks.min()),
        "mean_count": float(decoys.counts.mean()),
        "largest_count": int(decoys.counts.max()),
        "suspect_log10_risk": own,
        "as_low_as_suspect": int((risks <= own).sum()),
    }
