"""A dispute on the page: the outcome in one sentence, the reasons, and the results of every key on every model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from markupsafe import Markup

from irwm.errors import printable
from irwm.report.dispute import DECIDED, cells, headline, models, rulings, word
from irwm.report.numbers import power_text
from ui.components.icons import icon

_SIGNS = {"found": "found", "not found": "not found", "inconclusive": "inconclusive", "refused": "fault"}


def dispute_html(document: Mapping[str, Any]) -> str:
    """The card of a document of `irwm.report.dispute`."""
    outcome, decided = document["outcome"], word(document) == DECIDED
    ruled = rulings(document)
    said = [each["sentence"] for each in ruled]
    said += [each["would_decide"] for each in ruled if each["would_decide"]] + outcome["remarks"]
    why = Markup("").join(Markup("<p>{}</p>").format(printable(text, 2000)) for text in said)
    names = [claim["claimant"] for claim in document["claims"]]
    heads = Markup("").join(Markup('<th scope="col">Key of {}</th>').format(printable(name, 80)) for name in names)
    columns = cells(document)
    rows = Markup("").join(
        Markup('<tr><th scope="row">{}</th>{}</tr>').format(
            printable(model, 120), Markup("").join(_cell(tests[at]) for _, tests in columns)
        )
        for at, model in enumerate(models(document))
    )
    return str(
        Markup(
            '<section class="verdict verdict-{kind}" aria-label="Outcome of the dispute">'
            '<header class="verdict-head"><span class="verdict-word">{icon}<span>{word}</span></span></header>'
            '<p class="verdict-sentence">{sentence}</p>'
            '<table class="case-table" aria-label="Every key on every model">'
            '<thead><tr><th scope="col">Model</th>{heads}</tr></thead><tbody>{rows}</tbody></table>'
            '<div class="verdict-why"><h3>Why</h3>{why}</div></section>'
        ).format(
            kind="found" if decided else "inconclusive",
            icon=icon("found" if decided else "inconclusive"),
            word="Decided" if decided else "Undecided",
            sentence=headline(document),
            heads=heads,
            rows=rows,
            why=why,
        )
    )


def _cell(test: Mapping[str, Any] | None) -> Markup:
    if test is None:
        return Markup("<td>–</td>")
    verdict = test["verdict"]
    sign = Markup('<span class="word-with-icon">{}{}</span>').format(
        icon(_SIGNS.get(verdict, "fault")), verdict[:1].upper() + verdict[1:]
    )
    numbers = ""
    if test["count"] is not None:
        numbers = f"{test['count']} of {test['present']}, odds {power_text(test['log10_risk'])}"
    return Markup('<td>{}<span class="beneath">{}</span></td>').format(sign, numbers)
