"""The recognised and undone changes, step by step, and the finding on lineage next to them."""

from __future__ import annotations

from markupsafe import Markup

from irwm.evidence.lineage import CANNOT_TELL, DERIVED, NOT_DERIVED
from irwm.report import recognition_words, schema
from ui.components.icons import icon
from ui.components.markup import each, facts, paragraphs

# The answers on lineage, each with the verdict whose icon it shares.
_SHAPES = {DERIVED: "found", NOT_DERIVED: "not found", CANNOT_TELL: "inconclusive"}


def recognition_html(document: schema.Report) -> str:
    """Both findings of a document of `irwm.report` as HTML; the classes are in style.css."""
    return str(
        Markup(
            '<section class="undoing" aria-label="Changes recognised and undone">'
            "<div><h2>Changes recognised and undone</h2>{facts}{undone}</div>"
            "{lineage}</section>"
        ).format(
            facts=facts(recognition_words.recognised(document)),
            undone=_unaligned(document) or _undone(document),
            lineage=_lineage(document),
        )
    )


def _undone(document: schema.Report) -> Markup:
    steps = recognition_words.undone(document)
    if not steps:
        return Markup('<div class="undone-nothing">{}<div><h3>{}</h3><p>{}</p></div></div>').format(
            icon("done"), recognition_words.NOTHING_UNDONE, recognition_words.in_place(document)
        )
    items = each(
        '<li><div><p>{}</p><p class="undone-measure">{}</p></div>'
        '<p class="undone-sure"><span class="unseen">Confidence </span>{}</p></li>',
        ((step.said, step.measure, step.confidence) for step in steps),
    )
    return Markup(
        '<div class="undone-head"><h3>Undone before the mark was read</h3><span aria-hidden="true">Confidence</span>'
        '</div><ol class="undone">{}</ol>'
    ).format(items)


def _unaligned(document: schema.Report) -> Markup:
    said = recognition_words.unaligned(document)
    if not said:
        return Markup("")
    return Markup('<div class="undone-nothing">{}<div><h3>{}</h3>{}</div></div>').format(
        icon("inconclusive"), recognition_words.CANNOT_ALIGN, paragraphs(said)
    )


def _lineage(document: schema.Report) -> Markup:
    lineage = document["lineage"]
    said, rows = recognition_words.descent(document)
    shape, word = (
        _SHAPES.get(lineage["status"], "inconclusive"),
        recognition_words.origin(lineage["status"]).capitalize(),
    )
    return Markup(
        '<aside class="lineage" aria-label="Origin: {word}"><h2>Origin (lineage)</h2>'
        '<p class="lineage-word">{icon}<span>{word}</span></p><p>{said}</p>{facts}'
        '<p class="lineage-own">{own}</p></aside>'
    ).format(
        word=word,
        icon=icon(shape),
        said=said,
        facts=facts(rows),
        own=recognition_words.caveat(document),
    )
