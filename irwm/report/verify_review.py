"""Checks a review: whether its statements agree with one another, and with the report that it names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from irwm.canonical import MOST_JSON_BYTES
from irwm.checkpoint.files import read_small
from irwm.errors import printable
from irwm.report import schema, verify_sentences
from irwm.report.checks import REVIEWED, Check, Verification, listed, of_document
from irwm.report.claims import (
    CASE,
    CUSTODY,
    SHOWN_OF_SIGNATURE,
    SIGNER,
    VERSIONS,
    Claim,
    contradicted,
    digest,
    is_plain_name,
    must,
)
from irwm.report.reader_inputs import Brought
from irwm.report.reproduction import Difference, should_be
from irwm.report.review import LIMITATIONS, SCHEMA, VERSION, faults, reviewed
from irwm.report.value_states import Stated

# The inputs of a review; all other values follow from them.
STATED = (
    CASE,
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
        "there is only the reviewer’s word for this",
        ("reviewer", "extent", "conclusion", "remarks"),
    ),
)
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
    name = document["reviewed"]["json"]
    yield from must(is_plain_name(name) and "/" not in name, "reviewed.json", name, "the name of a file")
    for field, problem, _ in faults(document):
        yield field, document[field], f"another value, because {problem}"  # type: ignore[literal-required]


def check_reviewed(
    document: schema.Review, folder: Path, brought: Brought, verify: Callable[[Path, Brought], Verification]
) -> Check:
    """Whether the report next to the review is the one that it names, and its checks give the recorded answers.

    Args:
        folder: where the review is.
        brought: what the reader brings for the report.
        verify: verifies a report.
    """
    about = document["reviewed"]
    path = folder / Path(about["json"]).name
    if not path.is_file():
        what = f"{printable(path.name)} is not in the review’s folder, so the reviewed report was not checked"
        return Check(REVIEWED, None, what)

    def compared() -> Check:
        found = reviewed(path.name, read_small(path, MOST_JSON_BYTES, "report"))
        wrong = [
            Difference(f"reviewed.{name}", about[name], value)  # type: ignore[literal-required]
            for name, value in found.items()
            if about[name] != value  # type: ignore[literal-required]
        ]
        if wrong:
            return Check(REVIEWED, False, f"the report is not the one that was reviewed: {should_be(wrong)}")
        # The log that the reader gave is that of the reviewer.
        own = replace(brought, identity=about["identity"] or None, audit_log=None)
        now = _together((check.name, check.ok) for check in verify(path, own).checks)
        return _compared(document, now)

    return of_document(REVIEWED, compared)


def _together(checks: Iterable[tuple[str, bool | None]]) -> dict[str, bool | None]:
    """One answer for each name: a failure if any check of that name failed, and else None if any was not made."""
    answers: dict[str, bool | None] = {}
    for name, ok in checks:
        answers[name] = ok if name not in answers else min(answers[name], ok, key=(False, None, True).index)
    return answers


def _compared(document: schema.Review, now: Mapping[str, bool | None]) -> Check:
    """The recorded answers and those of now. A check that was not made on one side cannot be compared."""
    then = _together((check["name"], check["ok"]) for check in document["checks"])
    both = [name for name, ok in then.items() if ok is not None and now.get(name) is not None]
    differ = [name for name in both if then[name] != now[name]]
    if differ:
        return Check(REVIEWED, False, f"checks of the reviewed report now give another answer: {listed(differ)}")
    open_checks = [name for name, ok in then.items() if ok is not None and name not in both]
    if open_checks:
        what = f"these checks of the reviewed report need what the reviewer gave: {listed(open_checks)}"
        return Check(REVIEWED, None, what)
    return Check(
        REVIEWED, True, f"{document['reviewed']['json']} is the reviewed report; its checks ({len(both)}) agree"
    )
