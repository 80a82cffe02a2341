"""Checks a review: whether its statements agree with one another, and with the report that it names."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from irwm.report import schema, verify_sentences
from irwm.report.checks import REVIEWED, SIGNATURE, Check, Verification, listed, of_document
from irwm.report.claims import (
    CUSTODY,
    SHOWN_OF_SIGNATURE,
    SIGNER,
    VERSIONS,
    Claim,
    contradicted,
    digest,
)
from irwm.report.reader_inputs import Brought
from irwm.report.received import Received, report_name
from irwm.report.reproduction import Difference
from irwm.report.review import (
    LIMITATIONS,
    SCHEMA,
    VERSION,
    faults,
    is_report_name,
    reviewed,
    same_signer,
    together,
)
from irwm.report.value_states import Stated

_WORD = "there is only the reviewer’s word for this"
# The inputs of a review; all other values follow from them.
STATED = (
    Stated("the case, and the time of the review", _WORD, ("case*", "created_utc")),
    VERSIONS,
    SIGNER,
    CUSTODY,
    Stated(
        "which report was reviewed, and the results of its checks",
        "only that report can show this",
        ("reviewed*", "checks", "checks[].name", "checks[].ok"),
        (REVIEWED,),
        carries=True,
    ),
    Stated("the words of the checks", "they can contain names on the reviewer’s computer", ("checks[].said",)),
    Stated(
        "the reviewer’s name, opinion and remarks",
        _WORD,
        ("reviewer", "extent", "conclusion", "remarks"),
        carries=True,
    ),
)
# The checks that need only the report's files, and those of them that are made of every document.
_ALWAYS = ("document", "numbers", "rulings")
_OF_FILES = ("files", "document", SIGNATURE, "certificates", "custody", "numbers", "rulings", "page", "pdf")
# Which check computes which values again.
SHOWN: Mapping[str, tuple[str, ...]] = {
    **SHOWN_OF_SIGNATURE,
    REVIEWED: ("reviewed*", "checks", "checks[].name", "checks[].ok"),
}


def contradictions(document: schema.Review, assigned: set[str] | None = None) -> list[Difference]:
    """The values that do not follow from the rest of a review.

    Raises:
        ReportError: a value cannot be computed.
    """
    return contradicted(claims(document), "the statements of the review cannot be compared", assigned)


def claims(document: schema.Review) -> Iterator[Claim]:
    """The values of a review that follow from others, recorded and expected."""
    yield from verify_sentences.frame(document, SCHEMA, VERSION, LIMITATIONS)
    yield from digest("reviewed.sha256", document["reviewed"]["sha256"])
    for fault in faults(document):
        yield fault.place, fault.found or "nothing", f"another value, because {fault.problem}"


def check_reviewed(
    document: schema.Review,
    own: Received,
    brought: Brought,
    verify: Callable[[Received, Brought], Verification],
) -> Check:
    """Whether the report next to the review is the one that it names, and its checks give the recorded answers.

    It never shows that the report is valid: its verification shows that, with what the reader of the report brings.

    Args:
        own: the files of the review.
        brought: what the reader brings.
        verify: verifies a report.
    """

    def compared() -> Check:
        about = document["reviewed"]
        if not is_report_name(about["json"]):  # it could name another file than the one that is verified
            return Check(REVIEWED, False, "the review names no report")
        report = own.next_to(report_name(about["json"]))
        if isinstance(report, Check) or ".json" not in report.parts:
            return Check(REVIEWED, None, f"{about['json']} is not next to the review, so it was not checked")
        found = reviewed(about["json"], report.parts[".json"])
        wrong = [place for place, value in found.items() if about[place] != value]  # type: ignore[literal-required]
        if wrong:
            return Check(REVIEWED, False, f"the report is not the one that was reviewed: {listed(wrong)} differ")
        # The log that the reader gave is that of the reviewer.
        found_now = verify(report, replace(brought, identity=about["identity"] or None, audit_log=None))
        return _compared(document, together((check.name, check.ok) for check in found_now.checks))

    return of_document(REVIEWED, compared)


def _compared(document: schema.Review, now: Mapping[str, bool | None]) -> Check:
    """The recorded answers and those of now. A check that was not made on one side cannot be compared."""
    then = together((check["name"], check["ok"]) for check in document["checks"])
    failing = [name for name, ok in now.items() if ok is False and then.get(name) is not False]
    if failing:
        return Check(REVIEWED, False, f"the review does not say that these checks fail: {listed(failing)}")
    passing = [name for name in _OF_FILES if now.get(name) and then.get(name) is False]
    if passing:
        return Check(REVIEWED, False, f"the review says that these checks fail, but they hold: {listed(passing)}")
    # The reviewer may not have had the page or the PDF.
    missing = [name for name in _ALWAYS if now.get(name) is not None and then.get(name) is None]
    if missing:
        return Check(REVIEWED, False, f"the review does not record these checks of the report: {listed(missing)}")
    unmade = [name for name, ok in then.items() if ok is not None and now.get(name) is not ok]
    if unmade:
        return Check(REVIEWED, None, f"these checks of the report need what the reviewer gave: {listed(unmade)}")
    by = ", and one key signed both" if same_signer(document) else ""
    agreed = f"{document['reviewed']['json']} is the reviewed report, and its checks give the recorded answers"
    return Check(REVIEWED, True, f"{agreed}{by}")
