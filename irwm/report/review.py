"""A second examiner's review of a report as a versioned JSON document, and as a page drawn from that document alone.

ISO 21043-4 and -5 ask that a second competent person reviews an examination, and that the review is recorded. The
document names the reviewed report by the SHA-256 of its JSON.
"""

from __future__ import annotations

import hashlib
import os
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from irwm.errors import IrwmError, holds_controls
from irwm.report import dispute, schema
from irwm.report.answer import word_of
from irwm.report.checks import CONTROLS, EXAMINATION, Verification
from irwm.report.claims import is_plain_name
from irwm.report.document import SCHEMA as REPORT
from irwm.report.document import ReportError, from_json, opening, read_document, schema_of
from irwm.report.html import page
from irwm.report.received import SIGNATURE
from irwm.report.structure import LONGEST_TEXT, plain

SCHEMA, VERSION = "irwm-review", 1
NAME = "review"
AGREES, REMARKS, DISAGREES = "agrees", "agrees with remarks", "disagrees"
READ, RECOMPUTED, EXAMINED = "read", "recomputed", "examined"
CONCLUSIONS: Mapping[str, str] = {
    AGREES: "The reviewer agrees with the result of the report.",
    REMARKS: "The reviewer agrees with the result of the report, with remarks.",
    DISAGREES: "The reviewer does not agree with the result of the report.",
}
EXTENTS: Mapping[str, str] = {
    READ: "The reviewer read the report.",
    RECOMPUTED: "The reviewer read the report and computed its numbers again from the models and the keys.",
    EXAMINED: "The reviewer examined the same items before reading the report.",
}
LIMITATIONS = (
    "A review is the opinion of its signer. It adds no evidence to the report and changes no number in it.",
    "The recorded checks were made with this program. An error in the program can affect the report and its review.",
    "Nothing here shows that the reviewer is competent or independent of the examiner.",
)
# The kinds of report that have a result to agree with.
_REVIEWED = (REPORT, dispute.SCHEMA)
EXAMINER = "Examiner"
# A file's name on all usual systems.
LONGEST_NAME = 255
# Cyrillic and Greek letters that look like Latin ones, as capitals and as small letters.
_CAPITALS = str.maketrans("АВЕЅІЈКМНОРСТУХЗΑΒΕΖΗΙΚΜΝΟΡΤΥΧ", "ABESIJKMHOPCTYX3ABEZHIKMNOPTYX")
_SMALL = str.maketrans("авеѕіјкмнорстухзαεικνορτυχ", "abesijkmhopctyx3aeikvoptux")


def reviewed(json_name: str, data: bytes) -> schema.Reviewed:
    """What a review says about its report.

    Args:
        json_name: name of the report's JSON file.
        data: its bytes.

    Raises:
        ReportError: it is not the report of an examination or of a dispute, or it cannot be read.
    """
    document: schema.Report | schema.Dispute
    if (kind := schema_of(data)) == dispute.SCHEMA:
        document = ruled = dispute.from_json(data)
        result = dispute.headline(ruled)
    elif kind == REPORT:
        document = examined = from_json(data)
        result = word_of(examined)
    else:
        raise ReportError(
            "only the report of an examination or of a dispute can be reviewed",
            file=json_name,
            expected=", ".join(_REVIEWED),
            found=kind or "no schema",
            advice="Verify the report of one suspect, or of a dispute",
        )
    described: schema.Reviewed = plain(
        {
            "json": json_name,
            "sha256": hashlib.sha256(data).hexdigest(),
            "kind": kind,
            "version": document["schema"]["version"],
            "created_utc": document["created_utc"],
            "examiner": document["case"].get(EXAMINER, ""),
            "result": result,
            "identity": document["status"].get("custody", {}).get("identity", ""),
        }
    )
    return described


def review_document(
    about: schema.Reviewed,
    verification: Verification,
    *,
    reviewer: str,
    extent: str,
    conclusion: str,
    remarks: str,
    case: Mapping[str, str],
    created_utc: str,
    tool_versions: Mapping[str, str],
) -> schema.Review:
    """The review, not signed yet.

    Args:
        about: of `reviewed`.
        verification: of the report, with all that the reviewer gave.
        reviewer: name of the second examiner.
        extent, conclusion: one of `EXTENTS`, one of `CONCLUSIONS`.
        remarks: the reasons; "" for none.
        case, created_utc, tool_versions: as for `irwm.report.finding_document`.

    Raises:
        IrwmError: the reviewer is the report's examiner or has no name, or a statement contradicts the checks.
    """
    # A document has no line breaks, so the remarks are one paragraph.
    words = " ".join(remarks.split())
    document: schema.Review = plain(
        {
            **opening((SCHEMA, VERSION), created_utc, case),
            "reviewed": about,
            "reviewer": reviewer.strip(),
            "extent": extent,
            "conclusion": conclusion,
            "remarks": words,
            "checks": [{"name": each.name, "ok": each.ok, "said": each.said} for each in verification.checks],
            "versions": dict(tool_versions),
            "limitations": LIMITATIONS,
        }
    )
    if document["remarks"] != words:
        raise IrwmError(
            "the remarks are too long, or contain characters that cannot be shown",
            expected=f"at most {LONGEST_TEXT} visible characters",
            advice="Shorten them, or type them again",
        )
    if holds_controls(reviewer.strip()):
        problem = "the reviewer’s name contains a line break or an invisible character"
        raise IrwmError(problem, found=reviewer, advice="Type the name again")
    for fault in faults(document):
        raise IrwmError(fault.problem, found=fault.found or None, advice=fault.advice)
    return document


@dataclass(frozen=True, slots=True)
class Fault:
    """A value of a review that contradicts the rest of it.

    Attributes:
        place, found: the value.
        problem, advice: why it contradicts, and the next step.
    """

    place: str
    found: str
    problem: str
    advice: str


def faults(document: schema.Review) -> Iterator[Fault]:
    """The values that contradict the rest of a review."""
    checks = together((check["name"], check["ok"]) for check in document["checks"])
    name, reviewer = document["reviewed"]["json"], document["reviewer"]
    failed = [check for check, ok in checks.items() if ok is False]
    if not is_report_name(name):
        yield Fault("reviewed.json", name, "this is not the name of a report’s JSON file", "Rename the report’s files")
    if not reviewer:
        yield Fault("reviewer", "", "the reviewer’s name is missing", "Enter the name of the second examiner")
    elif _letters(reviewer) == _letters(document["reviewed"]["examiner"]):
        problem = "the reviewer is the examiner who made the report"
        yield Fault("reviewer", reviewer, problem, "Another person must review it")
    if document["extent"] == RECOMPUTED and not (checks.get(EXAMINATION) and checks.get(CONTROLS, True)):
        problem = "the numbers of the report were not computed again"
        advice = "Verify the report with the models and the keys first, or choose otherwise"
        yield Fault("extent", document["extent"], problem, advice)
    if document["conclusion"] != DISAGREES and failed:
        problem = f"the reviewer agrees, but these checks of the report failed: {', '.join(failed)}"
        yield Fault("conclusion", document["conclusion"], problem, "Choose that the reviewer does not agree")
    if document["conclusion"] != AGREES and not document["remarks"]:
        advice = "Write the remarks, or the reasons for not agreeing"
        yield Fault("remarks", "", "the remarks are missing", advice)


def together(checks: Iterable[tuple[str, bool | None]]) -> dict[str, bool | None]:
    """One answer for each name: a failure if any check of that name failed, and else None if any was not made."""
    answers: dict[str, bool | None] = {}
    for name, ok in checks:
        answers[name] = ok if name not in answers else min(answers[name], ok, key=(False, None, True).index)
    return answers


def is_report_name(name: str) -> bool:
    """Whether this is the plain name of a JSON file that is not a signature, and a document shows it unchanged."""
    plain_name = (
        is_plain_name(name) and "/" not in name and len(os.fsencode(name)) <= LONGEST_NAME and plain(name) == name
    )
    return plain_name and name.endswith(".json") and not name.endswith(SIGNATURE)


def _letters(name: str) -> list[str]:
    """The words of a name in any order, without case, accents and signs; letters that look alike are the same."""
    plain_letters = (c for c in unicodedata.normalize("NFKD", name) if not unicodedata.combining(c))
    words = "".join(c if c.isalnum() else " " for c in plain_letters).translate(_CAPITALS)
    return sorted(words.casefold().translate(_SMALL).split())


def read_review(data: bytes) -> schema.Review:
    """The document that `to_json` wrote.

    Raises:
        ReportError: not a review, of another version, or of another structure.
    """
    return read_document(
        data,
        (SCHEMA, VERSION),
        schema.Review,
        "this is not a review’s JSON file",
        "the review has a different schema",
    )


def same_signer(document: schema.Review) -> bool:
    """Whether the review was signed with the key that signed the report."""
    custody = document["status"].get("custody")
    return custody is not None and custody["identity"] == document["reviewed"]["identity"]


def review_html(document: schema.Review, json_name: str = "") -> str:
    """The document as one self-contained file without scripts.

    Args:
        json_name: name of its JSON file, printed with its SHA-256.
    """
    return page(
        "review.html.j2",
        document,
        json_name,
        sentence=CONCLUSIONS[document["conclusion"]],
        extent=EXTENTS[document["extent"]],
        agrees=document["conclusion"] != DISAGREES,
        same_signer=same_signer(document),
    )
