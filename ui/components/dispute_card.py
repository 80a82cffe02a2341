"""A dispute on the page: the outcome in one sentence, the reasons, and the results of every key on every model."""

from __future__ import annotations

from markupsafe import Markup

from irwm.errors import printable
from irwm.report import schema
from irwm.report.dispute import DECIDED, cells, headline, models, rulings, word
from irwm.report.numbers import power_html, why_capped
from ui.components.icons import icon
from ui.components.markup import beneath, own, table, verdict_word
from ui.components.verdict_card import why_html


def dispute_html(document: schema.Dispute) -> str:
    """The card of a document of `irwm.report.dispute`."""
    outcome, decided = document["outcome"], word(document) == DECIDED
    ruled = rulings(document)
    said = [each["sentence"] for each in ruled]
    said += [each["would_decide"] for each in ruled if each["would_decide"]] + outcome["remarks"]
    names = ["Model", *(f"Key of “{printable(claim['claimant'], 80)}”" for claim in document["claims"])]
    columns = cells(document)
    rows = (
        Markup('<tr><th scope="row">{}</th>{}</tr>').format(
            own(model, 120), Markup("").join(_cell(tests[at]) for _, tests in columns)
        )
        for at, model in enumerate(models(document))
    )
    results = table("Results for every key on every model", names, rows)
    said += filter(None, [why_capped(results, *said)])
    return str(
        Markup(
            '<section class="verdict verdict-{kind}" aria-label="Outcome of the dispute">'
            '<header class="verdict-head"><span class="verdict-word">{icon}<span>{word}</span></span></header>'
            '<p class="verdict-sentence">{sentence}</p>{table}{why}</section>'
        ).format(
            kind="found" if decided else "inconclusive",
            icon=icon("found" if decided else "inconclusive"),
            word="Decided" if decided else "Undecided",
            sentence=headline(document),
            table=results,
            why=why_html(printable(text, 2000) for text in said),
        )
    )


def _cell(test: schema.Test | None) -> Markup:
    if test is None:
        return Markup("<td>–</td>")
    numbers = Markup("")
    if test["count"] is not None:
        risk = power_html(test["log10_risk"])
        numbers = Markup("{} of {} positions, probability {}").format(test["count"], test["present"], risk)
    return Markup("<td>{}{}</td>").format(verdict_word(test["verdict"]), beneath(numbers))
