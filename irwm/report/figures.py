"""Every figure of a document, the same on the page and in the report."""

from __future__ import annotations

from dataclasses import dataclass

import plotly.graph_objects as go

from irwm import Parameters
from irwm.report import schema, tracing_words
from irwm.report.answer import whose
from irwm.report.document import reading_summary
from irwm.report.plots import detection
from irwm.report.plots.decoys import decoy_risks
from irwm.report.plots.growth import growth
from irwm.report.plots.ranking import ranking
from irwm.report.plots.similarities import similarities
from irwm.report.plots.theme import about, label
from irwm.report.wording import is_generated


@dataclass(frozen=True, slots=True)
class FigureText:
    """The texts around a figure.

    Attributes:
        name: element id.
        tab: a word or two, for a row of tabs; "" if the figure is next to the text that it illustrates.
        caption: what the figure shows, in a sentence or two.
    """

    name: str
    tab: str
    caption: str


FIGURES = (
    FigureText(
        "figure-recipients",
        "",
        "Each recipient’s z by rank (in colour; filled if named), the z of recipients who were never issued a copy, by "
        "their own rank (grey), and the smallest z at which a recipient is named after correction for all of them "
        "(dashed).",
    ),
    FigureText(
        "figure-growth",
        "",
        "The z of the likeliest recipient, from the first eighth, quarter and half of the tokens and from all of them "
        "(in colour), and the smallest z at which a recipient is named (dashed).",
    ),
    FigureText(
        "figure-positions",
        "Each position",
        "The value read at each marked position (in colour), and the values of the same row with its entries in random "
        "orders (grey).",
    ),
    FigureText(
        "figure-ranks",
        "Sorted ranks",
        "The ranks of all positions in ascending order. Without the mark, they follow the grey line. The shaded area "
        "contains the positions that count.",
    ),
    FigureText(
        "figure-paper",
        "Published method",
        "The sorted ranks for the published method’s own statistic, which is computed from the suspect alone.",
    ),
    FigureText(
        "figure-lineage",
        "",
        "The similarity of each compared row of the suspect to the original’s row for the same token (in colour) and "
        "to the row for a non-matching token (grey), after the changes above were undone.",
    ),
    FigureText(
        "figure-decoys",
        "Wrong keys",
        "Keys that were never inserted, read on the suspect in the same way as the key examined and counted by their "
        "corrected probability (grey), and the key examined (in colour). To the left of the dashed line, a reading "
        "counts as found.",
    ),
    FigureText(
        "figure-odds",
        "Probabilities for these settings",
        "The published counting rule with these settings: the probability of finding a mark that is present, and the "
        "probability of an accusation with a key that was never inserted.",
    ),
)


def document_figures(document: schema.Report, *, dark: bool = False) -> dict[str, go.Figure]:
    """The figures of a document by name, in the order of `FIGURES`.

    `figure-recipients` only if recipients were traced, `figure-growth` only in generated text, `figure-paper` only if
    it says more, `figure-decoys` only if decoys were ranked. Figures of one key name it. Generated text shows only
    recipients.
    """
    parameters = Parameters.from_dict(document["parameters"])
    positions = document["reading"]["positions"]
    tokens = [p["token"] for p in positions if p["token"] is not None]
    rows = tokens if document["rows_disclosed"] else None
    texts = {p["token"]: p["text"] for p in positions if p["token"] is not None and p["text"] is not None}
    reading = reading_summary(document["reading"])
    drawn = {}
    if document["tracing"] is not None:
        accuses = tracing_words.accuses(document)
        drawn["figure-recipients"] = ranking(document["tracing"], dark=dark, accuses=accuses)
        if document["tracing"]["growth"]:
            drawn["figure-growth"] = growth(document["tracing"], dark=dark, accuses=accuses)
    if is_generated(document["items"]["suspect"]["answers"]):
        return drawn
    of_key = {
        "figure-positions": detection.position_ranks(reading, parameters, rows, texts, dark=dark),
        "figure-ranks": detection.sorted_ranks(reading, parameters, rows, texts, dark=dark),
    }
    if document["paper"] is not None and not same_reading(document):
        paper = reading_summary(document["paper"])
        of_key["figure-paper"] = detection.sorted_ranks(paper, parameters, rows, texts, dark=dark)
    key = document["key"]
    who = f"Key of “{label(whose(key), 40)}”, {key['commitment'][:8]}."
    drawn |= {name: about(figure, who) for name, figure in of_key.items()}
    drawn["figure-lineage"] = similarities(document["alignment"], dark=dark)
    rates = document["error_rates"]
    if rates is not None and rates["decoys"] is not None:
        found_at = document["evaluation"]["found_at_log10_risk"]
        drawn["figure-decoys"] = about(decoy_risks(rates["decoys"], found_at, dark=dark), who)
    odds = detection.odds(parameters, recipients=document["odds"]["keys"], dark=dark)
    drawn["figure-odds"] = about(odds, who)
    return drawn


def same_reading(document: schema.Report) -> bool:
    """Whether the verdict rests on the paper's own reading, so that it needs no second figure."""
    reading = document["reading"]
    return (reading["statistic"], reading["invariant"]) == ("sum", "suspect")
