"""The sentences of a document, written again from its numbers by the same functions, and the verdict of the numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from irwm import Finding
from irwm.evidence.detection import NOT_ALL_MATCHED, NOT_ALL_OPENED, NOT_ALL_READ, not_all_read
from irwm.evidence.finding import NOT_FOUND
from irwm.evidence.verdict import judge, judge_both
from irwm.ownership.key_search import Standing
from irwm.report import schema, tracing, wording
from irwm.report.claims import Claim, each, must
from irwm.report.items import after_controls
from irwm.report.recorded import controls_of, finding_of, item_of


def status(document: schema.Framed) -> Iterator[Claim]:
    """Claims about the report's own signature; `irwm.report.verify` compares them with the signature."""
    found, signed = document["status"], document["status"]["signed"]
    yield "status.signed", signed, signed
    yield "status.court_ready", found["court_ready"], False
    yield "status.note", found["note"], wording.SIGNED if signed else wording.STATUS
    names = {"signed", "court_ready", "note"} | ({"custody"} if signed else set())
    yield from must(set(found) == names, "status", sorted(found), ", ".join(sorted(names)))


def frame(
    document: schema.Dispute | schema.Lab | schema.Review, name: str, version: int, limits: Sequence[str]
) -> Iterator[Claim]:
    """Claims about the schema, the signature and the limitations of a document."""
    yield from each("schema", document["schema"], {"name": name, "version": version})
    yield from status(document)
    yield from each("limitations", document["limitations"], limits)


def verdict(document: schema.Report) -> Iterator[Claim]:
    """The mark's word and reason by the rules of a verdict, then as changed by tracing and controls."""
    recorded, finding = document["verdict"], finding_of(document)
    said = judged(finding, document["verdict"]["mark_reason"])
    yield "verdict.mark", recorded["mark"], said.verdict
    yield "verdict.mark_reason", recorded["mark_reason"], said.reason
    made = after_controls(tracing.verdict(said, document["tracing"]), document["self_tests"])
    for name in ("word", "reason", "rests_on"):
        yield f"verdict.{name}", recorded[name], made[name]
    # Other warnings are about the models; those of the tracing come last.
    last = list(made["warnings"])
    before = len(recorded["warnings"]) - len(last)
    yield from must(
        before >= 0,
        "verdict.warnings",
        recorded["warnings"],
        f"a list that ends with the tracing warnings ({len(last)})",
    )
    for i, (one, other) in enumerate(zip(recorded["warnings"][max(before, 0) :], last, strict=False), before):
        yield f"verdict.warnings[{i}]", one, other


def judged(finding: Finding, reason: str) -> Finding:
    """The finding with the verdict that its numbers give.

    Args:
        reason: as recorded. Only the reason tells that not everything was read, and then no key is dismissed.
    """
    word, said = judge(
        finding.reading, finding.parameters, finding.alignment, finding.faults, finding.comparisons, finding.place
    )
    if word == NOT_FOUND and reason.startswith(NOT_ALL_READ):
        word, said = not_all_read(said)
    judged_finding = judge_both(replace(finding, verdict=word, reason=said))
    why = next((why for why in (NOT_ALL_OPENED, NOT_ALL_MATCHED) if reason.startswith(why)), None)
    if judged_finding.verdict != NOT_FOUND or why is None:
        return judged_finding
    word, said = not_all_read(judged_finding.reason, why)
    return replace(judged_finding, verdict=word, reason=said)


def others(document: schema.Report) -> Iterator[Claim]:
    """The two propositions, the limitations, how to run it again, and how strong the claim is against a search."""
    key, finding, found = document["key"], finding_of(document), document["tracing"]
    said = wording.propositions(document, key["commitment"], key["recipient"])
    yield from each("propositions", document["propositions"], said)
    suspect, original = item_of(document["items"]["suspect"]), item_of(document["items"]["original"])
    limits = wording.limitations(
        finding,
        (suspect, original),
        controls_of(document),
        document["rows_disclosed"],
        found,
        document["error_rates"] is not None,
    )
    yield from each("limitations", document["limitations"], limits)
    yield from each("reproduce", document["reproduce"], wording.reproduction(finding, suspect, original, found))
    recorded = document["standing"]
    dates = recorded["committed_utc"], recorded["suspect_seen_utc"]
    standing = Standing(recorded["status"], recorded["evidence_bits"], recorded["search_bits"], *dates)
    sentence = wording.standing_sentence(standing, recorded["authority"], document["verdict"]["word"])
    yield "standing.sentence", recorded["sentence"], sentence
