"""A review on the page: what the second examiner concludes, about which report, and the checks."""

from __future__ import annotations

from markupsafe import Markup

from irwm.errors import printable
from irwm.report import schema
from irwm.report.review import CONCLUSIONS, DISAGREES, EXTENTS
from ui.components.icons import icon
from ui.components.markup import table
from ui.components.verdict_card import why_html
from ui.components.verification_card import FAILS, HOLDS, NOT_CHECKED, title_of

_ANSWERS = {True: HOLDS, False: FAILS, None: NOT_CHECKED}


def review_html(document: schema.Review) -> str:
    """The card of a document of `irwm.report.review`."""
    kind = "inconclusive" if document["conclusion"] == DISAGREES else "found"
    about = document["reviewed"]
    rows = (
        Markup('<tr><th scope="row">{}</th><td>{}</td></tr>').format(title_of(check["name"]), _ANSWERS[check["ok"]])
        for check in document["checks"]
    )
    said = [
        f"Reviewer: {document['reviewer']}. Examiner of the report: {about['examiner'] or 'not named'}.",
        f"Report: {about['json']}, made on {about['created_utc']}. Result: {about['result']}",
        EXTENTS[document["extent"]],
    ]
    return str(
        Markup(
            '<section class="verdict verdict-{kind}" aria-label="Review of a report">'
            '<header class="verdict-head"><span class="verdict-word">{icon}<span>{word}</span></span></header>'
            '<p class="verdict-sentence">{sentence}</p>{remarks}{table}{why}</section>'
        ).format(
            kind=kind,
            icon=icon(kind),
            word=document["conclusion"].capitalize(),
            sentence=CONCLUSIONS[document["conclusion"]],
            remarks=Markup("<p>{}</p>").format(printable(document["remarks"], 2000)) if document["remarks"] else "",
            table=table("Checks of the report", ["Check", "Answer"], rows),
            why=why_html(printable(text, 2000) for text in said),
        )
    )
