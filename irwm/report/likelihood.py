"""The weight of a document's evidence: the likelihood ratio, and the claim against a search for a fitting key."""

from __future__ import annotations

from dataclasses import asdict

from irwm import Finding
from irwm.evidence.likelihood_ratio import likelihood_ratio_log10, per_comparison_log10, verbal_step
from irwm.evidence.verdict import log10_risk
from irwm.ownership.key_search import evidence_bits, standing
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
    time_stamp: schema.TimeStamp | None, seen_utc: str | None, computed: schema.Examination
) -> dict[str, object]:
    """The section "standing": how strong the claim is against a search for a key.

    Args:
        time_stamp: the timestamp of the commitment; None if there is none.
        seen_utc: since when the suspect is known to exist; None if that is unknown.
        computed: what `examination` returned.
    """
    dated, authority = (time_stamp["time_utc"], time_stamp["authority"]) if time_stamp is not None else (None, "")
    found = standing(claimed_log10_risk(computed), dated, seen_utc)
    return {
        **asdict(found),
        "margin_bits": found.margin_bits,
        "authority": authority,
        "sentence": wording.standing_sentence(found, authority, computed["verdict"]["word"]),
    }
