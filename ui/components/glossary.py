"""The terms of figures and verdicts, each in plain language, with the paper's symbol."""

from __future__ import annotations

from dataclasses import dataclass

from markupsafe import Markup

from ui.components.markup import facts

TITLE = "Glossary"


@dataclass(frozen=True, slots=True)
class Term:
    """One word.

    Attributes:
        word: as pages write it.
        symbol: the paper's, "" if it has none.
        meaning: one or two sentences that use no other word of this list, or only earlier ones.
    """

    word: str
    symbol: str
    meaning: str


TERMS = (
    Term(
        "Position",
        "l of them",
        "One row of the model’s embedding, the table with one row of numbers for each token. A key says which rows "
        "carry the mark, and only the key knows them.",
    ),
    Term(
        "Rank",
        "",
        "How rarely a row fits the key’s equations equally well when its numbers are put in "
        "random orders: 0.001 means that one order in a thousand fits as well. A marked row ranks low; any other "
        "row has a rank anywhere between 0 and 1.",
    ),
    Term(
        "Null",
        "",
        "The result without a mark: the same row in random orders. It is grey in every figure, and the observed "
        "values are shown next to it in colour.",
    ),
    Term(
        "Attention scores",
        "A",
        "Numbers that the model’s first layer computes for pairs of tokens. An attacker cannot change them without "
        "changing what the model does, so the key’s equations are made from them.",
    ),
    Term(
        "Rank threshold",
        "β",
        "A position counts when its rank is below this number. With β = 0.2 one unmarked row in five counts by chance.",
    ),
    Term(
        "Required positions",
        "ρ",
        "Minimum number of positions that must count before the paper’s own rule says that the mark is there. The "
        "verdict here uses all ranks together, not that rule.",
    ),
    Term(
        "Odds",
        "p",
        "How often a model without the mark would look the same by chance. It is not the chance that someone is "
        "innocent.",
    ),
    Term(
        "z of a recipient",
        "z",
        "How strongly the faint noise of one recipient’s copy shows in the suspect. Without that copy it stays near 0; "
        "a recipient is named only if it is far above what chance can give.",
    ),
    Term(
        "Origin (lineage)",
        "",
        "Whether two models come from the same training at all, with or without a mark. “Same origin” does not say "
        "which of them came first.",
    ),
    Term(
        "Decoy",
        "",
        "A key or a recipient that was made up for the comparison. It was never used, so its result is pure chance.",
    ),
    Term(
        "Commitment",
        "",
        "A key’s public fingerprint. A time-stamp on it shows that the key existed before a suspect did, without "
        "giving the key away.",
    ),
)


def glossary_html() -> str:
    """The list as HTML; the classes are in style.css."""
    lines = (
        (Markup("{} <span>({})</span>").format(term.word, term.symbol) if term.symbol else term.word, term.meaning)
        for term in TERMS
    )
    return str(facts(lines, "glossary"))
