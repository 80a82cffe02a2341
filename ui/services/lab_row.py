"""One trial of the Lab as a row of its document (`irwm.report.lab`)."""

from __future__ import annotations

import numpy as np

from irwm.attacks.attack import Attack
from irwm.attacks.trial import Trial
from irwm.evidence.finding import FOUND, Finding
from irwm.evidence.verdict import log10_risk
from irwm.report import schema
from irwm.report.lab_rows import TOP
from irwm.report.structure import plain
from irwm.report.tracing import MARK, TRACING
from irwm.tracing import Tracing


def row_of(trial: Trial, attack: Attack, role: str, seconds: float) -> schema.LabRow:
    """All numbers of one attack at one strength."""
    ways = [
        {"statistic": statistic, "invariant": invariant} | _read(finding)
        for (statistic, invariant), finding in trial.findings.items()
    ]
    rested = trial.finding if trial.ran else None
    # As in an investigation (`irwm.report.tracing.verdict`): a recipient named by the noise had this copy.
    named = rested is not None and not rested.faults and trial.traced is not None and bool(trial.traced.named)
    row: schema.LabRow = plain(
        {
            "role": role,
            "attack": attack.name,
            "value": trial.value,
            "label": attack.label,
            "strength": attack.label_of(trial.value),
            "group": attack.group,
            "symbol": attack.symbol,
            "keeps_function": attack.keeps_function,
            "verdict": (FOUND if named else rested.verdict) if rested else None,
            "rests_on": TRACING if named and rested and rested.verdict != FOUND else MARK,
            "log10_risk": log10_risk(rested.reading, rested.comparisons) if rested else None,
            "ways": ways,
            "traced": None if trial.traced is None else _traced(trial.traced),
            "utility": trial.utility and trial.utility.to_dict(),
            "proof": trial.proof and trial.proof.to_dict(),
            "reason": trial.reason,
            "seconds": round(seconds, 2),
        }
    )
    return row


def _read(finding: Finding) -> dict[str, object]:
    reading = finding.reading
    return {
        "verdict": finding.verdict,
        "count": reading.count,
        "present": reading.present,
        "share": reading.count / reading.present if reading.present else None,
        "top": [int(np.sum(reading.ranks < level)) for level in TOP],  # a missing row has no rank
        "log10_p": reading.log10_p,
        "log10_p_count": reading.log10_p_count,
        "log10_risk": log10_risk(reading, finding.comparisons),
        "rule_met": reading.passes,
        "tensors_read": finding.tensors_read,
        "places": finding.places,
    }


def _traced(tracing: Tracing) -> dict[str, object]:
    """The tracing of the copy's own recipient, and the number of comparisons that its odds are corrected for."""
    (trace,) = tracing.traces
    places = {"tensors_read": tracing.tensors_read, "places": tracing.places}
    return {"z": trace.z, "named": trace.named, **places}
