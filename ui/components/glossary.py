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
        "number of positions: l",
        "One row of the model’s embedding, the table with one row of numbers for each token. The key determines which "
        "rows carry the mark, and only someone who has the key knows which ones they are.",
    ),
    Term(
        "Rank",
        "",
        "The share of random orders of a row’s numbers that fit the key’s equations at least as closely as the row "
        "itself. A rank of 0.001 means that one order in a thousand does. A marked row has a low rank; any other row "
        "has a rank anywhere between 0 and 1.",
    ),
    Term(
        "Null",
        "",
        "The values expected without a mark. They are computed from the same row with its numbers in random order. "
        "They are grey in every figure, and the observed values are shown next to them in colour.",
    ),
    Term(
        "Attention scores",
        "A",
        "Numbers that the model’s first layer computes for pairs of tokens. An attacker cannot change them without "
        "changing what the model does, so the key’s equations are built from them.",
    ),
    Term(
        "Rank threshold",
        "β",
        "A position counts when its rank is below this number. With β = 0.2, one unmarked row in five counts by "
        "chance.",
    ),
    Term(
        "Required positions",
        "ρ",
        "The number of positions that must count before the paper’s own rule reports the mark. The verdict here uses "
        "all ranks together instead of that rule.",
    ),
    Term(
        "Probability by chance",
        "p",
        "How often a model without the mark would look the same by chance. This is not the probability that someone is "
        "innocent.",
    ),
    Term(
        "Recipient’s z",
        "z",
        "How strongly the faint noise of this recipient’s copy shows up in the suspect. If that copy was not used, z "
        "stays near 0. A recipient is named only if z is far above what chance can produce.",
    ),
    Term(
        "Origin (lineage)",
        "",
        "Whether two models come from the same training run, whether or not they carry a mark. “Same origin” does not "
        "show which of them came first.",
    ),
    Term(
        "Decoy",
        "",
        "A key or a recipient invented for comparison. It was never used, so its result is due to chance alone.",
    ),
    Term(
        "Commitment",
        "",
        "A key’s public fingerprint. A timestamp on it shows that the key existed before a suspect did, without "
        "revealing the key.",
    ),
)


def glossary_html() -> str:
    """The list as HTML; the classes are in style.css."""
    lines = (
        (Markup("{} <span>({})</span>").format(term.word, term.symbol) if term.symbol else term.word, term.meaning)
        for term in TERMS
    )
    return str(facts(lines, "glossary"))
