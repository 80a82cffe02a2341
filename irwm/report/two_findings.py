"""What a document says of recognition, alignment and descent, in plain words for the page and the report alike.

Every text is `Markup`: numbers are ours, whatever came from a file is escaped here and its control and direction
characters are spelled out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from irwm.errors import printable
from irwm.evidence.examination import LEAST_SQUARES
from irwm.evidence.lineage import NOT_DERIVED
from irwm.report.numbers import decimal, number, sure

_LONGEST_TEXT = 2000
NOTHING_UNDONE = Markup("Nothing had to be undone")
IN_PLACE = Markup("The suspect’s rows and columns stand where the original has them.")
CANNOT_ALIGN = Markup("Cannot be aligned")
NOT_ACQUITTED = Markup(
    "“Cannot be aligned” is not “not ours”. The key is read all the same, under every map that can be made, and a mark "
    "that shows counts; that none shows means nothing. Whether the suspect descends from the original is the finding "
    "on lineage."
)
TRIED = Markup(
    "Tokens were paired by id and by their rows’ content, and by name where both models have a tokenizer; columns were "
    "reordered, flipped, shifted and rotated, and a map of all of them was fitted by least squares."
)
TELLING = Markup(
    "{} The tokenizers say which row is which token, so that a descendant that kept the embedding would have shown "
    "itself. One whose embedding was replaced or trained anew would not."
).format(TRIED)
NOT_TELLING = Markup(
    "{} Not enough is known of this suspect for the failure to mean anything: no tokenizer tells its rows’ names, its "
    "tensors’ names are unknown, or too few rows hold enough to compare."
).format(TRIED)
OWN_FINDING = Markup(
    "This is a finding of its own. A copy without the mark, or with another key’s, shares its origin just as well. "
    "Likeness has no direction: the suspect may descend from the original, both from a third model, or the original "
    "from the suspect."
)
EMBEDDING_ALONE = Markup(
    "This is about the embedding alone. A model whose embedding was replaced, or that was distilled from the original, "
    "reads the same."
)


@dataclass(frozen=True, slots=True)
class Undone:
    """One disguise that was undone.

    Attributes:
        said: one sentence.
        confidence: as a percentage.
        exact: the confidence as a number in [0, 1].
        measure: what the confidence is.
    """

    said: Markup
    confidence: Markup
    exact: float
    measure: Markup


def undone(document: Mapping[str, Any]) -> list[Undone]:
    """The disguises that were undone, in order."""
    return [
        Undone(sentence(step["said"]), Markup(sure(step["confidence"])), step["confidence"], _text(step["measure"]))
        for step in document["alignment"]["steps"]
    ]


def recognised(document: Mapping[str, Any]) -> list[tuple[Markup, Markup]]:
    """What the suspect was recognised as, and what of the original is lost in it: label and text."""
    item, alignment = document["items"]["suspect"], document["alignment"]
    embedding = _say(
        "{} tokens × {} coordinates, {}, in {}",
        number(item["vocab_size"]),
        number(item["hidden_size"]),
        item["dtype"],
        Markup("<code>{}</code>").format(_text(alignment["embedding_tensor"])),
    )
    facts = [(Markup("Model"), _model(item, alignment)), (Markup("Embedding"), embedding)]
    if not alignment["aligned"]:
        return [*facts, (Markup("Lost"), Markup("cannot be counted without an alignment"))]
    lost, tokens = alignment["rows_of_original_gone"], alignment["rows_of_original"]
    marked, positions = alignment["marked_rows_gone"], document["verdict"]["positions"]
    facts.append((Markup("Lost tokens"), _lost(lost, tokens, "of the original’s")))
    facts.append((Markup("Lost marked rows"), _lost(marked, positions, "of this key’s")))
    return facts


def unaligned(document: Mapping[str, Any]) -> list[Markup]:
    """Why the suspect cannot be aligned and what that means; empty where it is aligned."""
    alignment = document["alignment"]
    if alignment["aligned"]:
        return []
    tried = TELLING if alignment["exhausted"] else NOT_TELLING
    return [sentence(f"The suspect {alignment['reason']}"), tried, NOT_ACQUITTED]


def read_under(by: str, aligned: bool) -> str:
    """Under which map rows were read, of `irwm.evidence.examination.MAPS`, in words."""
    if by == LEAST_SQUARES:
        return "through an affine map fitted by least squares, never to the rows that it reads"
    return "as the alignment explains them" if aligned else "as the best alignment tried explains them; none holds"


def descent(document: Mapping[str, Any]) -> tuple[Markup, list[tuple[Markup, Markup]]]:
    """The finding on lineage as a sentence, and the numbers behind it: label and text."""
    alignment, lineage = document["alignment"], document["lineage"]
    if lineage["similarity"] is None:
        return sentence(lineage["reason"]), [(Markup("Attention"), attention(document))]
    where = ", in minor components" if alignment["minor_components"] else ""
    similarity, needed = decimal(lineage["similarity"], 3), f"{alignment['needed_median_cosine']:g}"
    facts = [
        (Markup("Matched rows"), _say("{}{}", similarity, where)),
        (Markup("Needed to align"), _say("{}", needed)),
        (Markup("Wrong rows"), _say("{}", decimal(lineage["decoy_similarity"], 3))),
        (Markup("Attention"), attention(document)),
    ]
    if lineage["attention"] is not None:
        facts.append((Markup("Wrong tokens"), _say("{} at most", decimal(lineage["attention_decoy"], 3))))
    return sentence(clause(lineage["reason"])), facts


def clause(reason: str) -> str:
    """A lineage's reason without the rows' numbers that it ends with and that stand beside it."""
    return reason.partition(": the median row has cosine")[0]


def caveat(document: Mapping[str, Any]) -> Markup:
    """What the finding on lineage must not be mistaken for."""
    return EMBEDDING_ALONE if document["lineage"]["status"] == NOT_DERIVED else OWN_FINDING


def attention(document: Mapping[str, Any]) -> Markup:
    """How far layer 0's attention agrees, or why that is not known."""
    if document["lineage"]["attention"] is not None:
        return _say("{} in layer 0", decimal(document["lineage"]["attention"], 3))
    if not document["alignment"]["aligned"]:
        return Markup("not compared, because tokens could not be matched")
    return Markup("could not be compared in this suspect")


def sentence(text: str) -> Markup:
    """Text from a finding with a capital at its start and a full stop at its end."""
    text = str(text).strip()
    return _text(text[:1].upper() + text[1:] + ("" if text[-1:] in ".?!…" else "."))


def _model(item: Mapping[str, Any], alignment: Mapping[str, Any]) -> Markup:
    if item["heads"]:
        return _say(
            "{}, by its tensors’ names; {} query and {} key heads of {}",
            item["family"],
            number(item["heads"]),
            number(item["kv_heads"]),
            number(item["head_dim"]),
        )
    by_content = any(step["name"] == "embedding" for step in alignment["steps"])
    how = "what it holds, among several tensors" if by_content else "its shape or name"
    return _say("unknown tensor names; the embedding was recognised by {}, layer 0’s attention was not", how)


def _lost(count: int, total: int, of: str) -> Markup:
    if not count:
        return _say("none {} {}", of, number(total))
    return _say("{} {} {} are gone from the suspect", number(count), of, number(total))


def _say(template: str, *parts: Any) -> Markup:
    """`template` with its parts filled in; a part that is not `Markup` is text."""
    return Markup(template).format(*(part if isinstance(part, Markup) else _safe(part) for part in parts))


def _safe(part: Any) -> Markup:
    # The no-break spaces in our own numbers would be spelled out as well.
    return Markup("\u00a0").join(_text(piece) for piece in str(part).split("\u00a0"))


def _text(text: Any) -> Markup:
    return Markup.escape(re.sub(r"(?<=\w)'", "’", printable(str(text), _LONGEST_TEXT)))
