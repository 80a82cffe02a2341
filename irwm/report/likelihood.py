"""The weight of a document's evidence: the likelihood ratio, and the claim against a search for a fitting key."""

from __future__ import annotations

from dataclasses import asdict

from irwm import Finding
from irwm.evidence.likelihood_ratio import likelihood_ratio_log10, per_comparison_log10, verbal_step
from irwm.evidence.verdict import log10_risk
from irwm.ownership.key_search import Standing, evidence_bits
from irwm.ownership.key_search import standing as standing_of
from irwm.report import schema, tracing, wording


def likelihood(finding: Finding) -> schema.Likelihood:
    """The likelihood ratio and its step; None if the suspect cannot be judged, because its rows then mean nothing."""
    bits = evidence_bits(log10_risk(finding.reading, finding.comparisons))
    if not finding.judgeable:
        return {"log10_lr": None, "log10_lr_per_comparison": None, "verbal": None, "evidence_bits": bits}
    ratio = likelihood_ratio_log10(finding.reading.ranks)
    each = per_comparison_log10(ratio, finding.comparisons)
    return {
        "log10_lr": ratio,
        "log10_lr_per_comparison": each,
        "verbal": verbal_step(each),
        "evidence_bits": bits,
    }


def claimed_log10_risk(computed: schema.Examination) -> float:
    """log10 of the corrected odds that a document's verdict rests on: tracing, or the stronger form of evidence.

    Args:
        computed: a document, or what `examination` returned.
    """
    found = computed["tracing"]
    by_noise = computed["verdict"]["rests_on"] == tracing.TRACING
    if by_noise and found is not None and found["log10_risk"] is not None:
        return found["log10_risk"]
    return min(each["log10_risk"] for each in computed["evidence"])


def standing_section(
    standing: Standing | None, time_stamp: schema.TimeStamp | None, computed: schema.Examination
) -> dict[str, object]:
    """The section "standing": how strong the claim is against a search for a key.

    Args:
        standing: None if there is no dated commitment.
        time_stamp: the timestamp of the commitment; None if there is none.
        computed: what `examination` returned.
    """
    found = standing or standing_of(claimed_log10_risk(computed))
    authority = "" if time_stamp is None else time_stamp["authority"]
    return {
        **asdict(found),
        "margin_bits": found.margin_bits,
        "authority": authority,
        "sentence": wording.standing_sentence(found, authority, computed["verdict"]["word"]),
    }
