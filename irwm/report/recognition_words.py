"""The words about recognition, alignment and common origin, for the page and the report.

Every text is `Markup`: text from files is escaped here, and its control and direction characters are spelled out.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from markupsafe import Markup

from irwm.checkpoint.served_source import GENERATED_TOKENS
from irwm.errors import printable
from irwm.evidence.finding import LEAST_SQUARES
from irwm.evidence.lineage import CANNOT_TELL, DERIVED, NOT_DERIVED
from irwm.evidence.verdict import NAMES
from irwm.report import schema
from irwm.report.numbers import decimal, number, rounded_up, size, sure
from irwm.report.structure import LONGEST_TEXT
from irwm.report.wording import as_sentence, is_generated

NOTHING_UNDONE = Markup("No changes had to be undone")
IN_PLACE = Markup("The suspect’s rows and columns are in the same places as the original’s.")
OWN_COORDINATES = Markup(
    "Rows recovered from answers have their own coordinates. These were rotated to fit the original’s, which says "
    "nothing about the suspect."
)
# Steps of an alignment that do this.
_OF_ANSWERS = ("rotation", "scale")
CANNOT_ALIGN = Markup("Cannot be aligned")
NOT_ACQUITTED = Markup(
    "“Cannot be aligned” does not mean “not ours”. The key is still read under every possible map: a mark that is "
    "found counts, but its absence means nothing. The finding on lineage shows whether the two have a common origin."
)
TRIED = Markup(
    "Tokens were paired by ID, by the content of their rows and, where both models have a tokenizer, by name. Columns "
    "were reordered, flipped, shifted and rotated. An affine map between all columns was also fitted by least squares."
)
TELLING = Markup(
    "{} The tokenizers show which row belongs to which token, so a descendant that kept the embedding would have been "
    "recognised by its rows. One with a replaced or retrained embedding would not have been."
).format(TRIED)
NOT_TELLING = Markup(
    "{} Too little is known about this suspect for the failure to mean anything: no tokenizer identifies its rows, "
    "its tensor names are unknown, or too few rows can be compared."
).format(TRIED)
OWN_FINDING = Markup(
    "This is a separate finding. A copy without the mark, or with the mark of another key, also has the same origin. "
    "Similarity has no direction: the suspect may descend from the original, the original from the suspect, or both "
    "from a third model."
)
COMMON = Markup("The suspect and the original have a common origin, whether or not the suspect carries a mark.")
NO_RESEMBLANCE = Markup(
    "The embedding and the layers were compared. A different model into which the original was distilled would give "
    "the same result."
)

SMALL_MODELS = Markup(
    "The independently trained models are small, and share their tokenizer and training text with the bundled models "
    "they were compared with. This probability says nothing about larger models, and on its own it does not show who "
    "copied from whom."
)


# Words for the status of lineage on pages and in reports; the status itself is for programs.
ORIGINS = {DERIVED: "same origin", NOT_DERIVED: "no resemblance", CANNOT_TELL: "cannot tell"}


def origin(status: str) -> str:
    """A lineage's status in the words that people read."""
    return ORIGINS.get(status, status)


@dataclass(frozen=True, slots=True)
class Undone:
    """One disguise that was undone.

    Attributes:
        said: one sentence.
        confidence: as a percentage.
        exact: the confidence as a number in [0, 1].
        measure: the quantity that the confidence gives.
    """

    said: Markup
    confidence: Markup
    exact: float
    measure: Markup


def undone(document: schema.Report) -> list[Undone]:
    """The disguises that were undone, in order. Rotating and scaling the rows of answers is not one of them."""
    own = _OF_ANSWERS if document["items"]["suspect"]["answers"] else ()
    return [
        Undone(sentence(step["said"]), Markup(sure(step["confidence"])), step["confidence"], _text(step["measure"]))
        for step in document["alignment"]["steps"]
        if step["name"] not in own
    ]


def in_place(document: schema.Report) -> Markup:
    """The sentence for a suspect in which no change had to be undone."""
    return OWN_COORDINATES if document["items"]["suspect"]["answers"] else IN_PLACE


def of_answers(heard: schema.Answers) -> Markup:
    """The amount of answers of a suspect that only answers."""
    left = heard["given"] - heard["used"]
    more = f"; further answers, not used because they contain too little information: {number(left)}" if left else ""
    if is_generated(heard):
        told = "each with its log-probability" if heard["form"] == GENERATED_TOKENS else "without log-probabilities"
        return _say("{} answers with {} generated tokens, {}{}", number(heard["used"]), number(heard["tokens"]), told,
                    more)  # fmt: skip
    return _say("{} answers, each with the log-probabilities of {} tokens{}", number(heard["used"]),
                number(heard["tokens"]), more)  # fmt: skip


def parts_read(source: schema.Source) -> Markup:
    """How much of an item's files was read on a server."""
    ranges = [part for file in source["files"] for part in file["ranges"]]
    read = size(sum(part["stop"] - part["start"] for part in ranges))
    of = size(sum(file["bytes"] for file in source["files"]))
    said = "{} of {}, in {} ranges. The JSON file contains the SHA-256 and the time of each range"
    if not all(file["etag"] for file in source["files"]):
        said += (
            ". The server reports no file versions, so a change to a file while it was being read would not be noticed"
        )
    return _say(said, read, of, number(len(ranges)))


def directions(heard: schema.Answers, hidden_size: int) -> Markup:
    """In how many directions its answers vary, compared with the width of the original's head."""
    found, width = heard["directions"], number(hidden_size)
    if found is None:
        return _say("unknown, because the spectrum has no clear drop; the original’s output head has {}", width)
    return _say("{}; the original’s output head has {}", number(found), width)


def recognised(document: schema.Report) -> list[tuple[Markup, Markup]]:
    """The recognised form of the suspect, and the parts of the original that it has lost: label and text."""
    item, alignment = document["items"]["suspect"], document["alignment"]
    if item["answers"]:
        head = _say("{} rows, recovered in {} directions", number(item["vocab_size"]), number(item["hidden_size"]))
        facts = [(Markup("Model"), of_answers(item["answers"]))]
        if is_generated(item["answers"]):
            return facts
        facts.append((Markup("Output head"), head))
    else:
        embedding = _say(
            "{} tokens × {} coordinates, {}, in {}",
            number(item["vocab_size"]),
            number(item["hidden_size"]),
            item["dtype"],
            Markup("<code>{}</code>").format(_text(alignment["embedding_tensor"])),
        )
        facts = [(Markup("Model"), _model(item, alignment)), (place_name(document["place"]).capitalize(), embedding)]
    if not alignment["aligned"]:
        return [*facts, (Markup("Lost"), Markup("cannot be counted without an alignment"))]
    lost, tokens = alignment["rows_of_original_gone"], alignment["rows_of_original"]
    marked, positions = alignment["marked_rows_gone"], document["verdict"]["positions"]
    facts.append((Markup("Lost tokens"), _say("{} of the original’s {}", _many(lost), number(tokens))))
    facts.append((Markup("Lost marked rows"), _say("{} of this key’s {}", _many(marked), number(positions))))
    return facts


def unaligned(document: schema.Report) -> list[Markup]:
    """Why the suspect cannot be aligned and what that means; empty if it is aligned."""
    alignment = document["alignment"]
    if alignment["aligned"]:
        return []
    tried = TELLING if alignment["exhausted"] else NOT_TELLING
    return [sentence(f"The suspect {alignment['reason']}"), tried, NOT_ACQUITTED]


def place_name(place: str) -> Markup:
    """Where rows were read, of `irwm.scheme.parameters.FINGERPRINT_PLACES`, in words."""
    return Markup(NAMES[place])


def read_under(by: str, aligned: bool) -> str:
    """Under which map rows were read, of `irwm.evidence.finding.MAPS`, in words."""
    if by == LEAST_SQUARES:
        return "through an affine map fitted by least squares to rows other than those read through it"
    return "through the alignment" if aligned else "through the best alignment tried, which was not confirmed"


def descent(document: schema.Report) -> tuple[Markup, list[tuple[Markup, Markup]]]:
    """The finding on lineage as a sentence, and its numbers: label and text."""
    alignment, lineage = document["alignment"], document["lineage"]
    if lineage["similarity"] is None:
        facts = [(Markup("Attention"), attention(document)), *_neurons(lineage), *_among(lineage)]
        return sentence(lineage["reason"]), facts
    where = ", in minor components" if alignment["minor_components"] else ""
    wrong = math.nan if lineage["decoy_similarity"] is None else lineage["decoy_similarity"]
    similarity, needed = decimal(lineage["similarity"], 3), f"{alignment['needed_median_cosine']:g}"
    facts = [
        (Markup("Matched rows"), _say("{}{}", similarity, where)),
        (Markup("Required for alignment"), _say("{}", needed)),
        (Markup("Non-matching rows"), _say("{}", decimal(wrong, 3))),
        (Markup("Attention"), attention(document)),
    ]
    if lineage["attention_decoy"] is not None:
        facts.append((Markup("Non-matching tokens"), _say("at most {}", decimal(lineage["attention_decoy"], 3))))
    if lineage["circuits"] is not None:
        facts.append((Markup("OV circuits"), _say("{}", decimal(lineage["circuits"], 3))))
    if lineage["circuits_decoy"] is not None:
        facts.append(
            (Markup("OV circuits in random orders"), _say("at most {}", decimal(lineage["circuits_decoy"], 3)))
        )
    facts += _neurons(lineage)
    said = (
        COMMON if lineage["status"] == DERIVED and lineage["neurons"] is None else sentence(clause(lineage["reason"]))
    )
    return said, [*facts, *_among(lineage)]


def _neurons(lineage: schema.Lineage) -> list[tuple[Markup, Markup]]:
    """The match of the MLP neurons: label and text."""
    match = lineage["neurons"]
    if match is None:
        return []
    if not match["pairs"]:
        return [(Markup("MLP neurons"), Markup("no pairs were found"))]
    similar = _say("{}, and at most {} in random orders", decimal(match["agreement"], 3), decimal(match["decoy"], 3))
    facts = [(Markup("MLP neurons"), similar)]
    if match["layers"]:
        shares = f"{100 * match['ours']:.0f}%", f"{100 * match['theirs']:.0f}%"
        facts.append((Markup("Neurons with a counterpart"), _say("{} of the original’s, {} of the suspect’s", *shares)))
        facts.append((Markup("Matching layers"), layers_of(match)))
    return facts


def layers_of(match: schema.NeuronMatch) -> Markup:
    """Which layers of the suspect have the neurons of which layers of the original."""
    pairs = ", ".join(f"{ours} → {theirs}" for ours, theirs in match["layers"])
    return _say("original → suspect: {}", pairs)


def _among(lineage: schema.Lineage) -> list[tuple[Markup, Markup]]:
    said = chance(lineage)
    return [(Markup("Unrelated models"), sentence(said))] if said else []


def chance(lineage: schema.Lineage) -> str:
    """How many of the kept models agree as closely, or as little, as a sentence without its full stop; "" if the
    suspect was not compared with them."""
    among = lineage["among"]
    if among is None:
        return ""
    unrelated, alike = number(among["unrelated"]), among["as_alike"]
    if alike and alike == among["unrelated"]:
        said = f"all {unrelated} independently trained models agree at least as closely (p = {among['p']:.2g})"
    elif alike:
        verb = "agrees" if alike == 1 else "agree"
        some = f"{number(alike)} of the {unrelated}"
        said = f"{some} independently trained models {verb} at least as closely (p = {among['p']:.2g})"
    else:
        said = f"none of the {unrelated} independently trained models agrees as closely (p ≤ {rounded_up(among['p'])})"
    if lineage["status"] == NOT_DERIVED and among["descendants"]:
        descendants, unlike = number(among["descendants"]), number(among["as_unlike"])
        if among["as_unlike"]:
            verb = "agree" if among["as_unlike"] > 1 else "agrees"
            said += f"; {unlike} of the {descendants} damaged or disguised descendants {verb} no more closely"
        else:
            said += f"; each of the {descendants} damaged or disguised descendants agrees more closely"
    # p ranks the rows; next to layers that agree it would contradict them.
    match = lineage["neurons"]
    layers = lineage["circuits"] is not None or (match is not None and bool(match["layers"]))
    said = f"same origin: {said}" if lineage["status"] == DERIVED and not layers else said
    said = f"based on the rows alone, {said}" if layers else said
    return said[:1].upper() + said[1:]


def clause(reason: str) -> str:
    """A lineage's reason without the numbers of the rows at its end, which are shown separately."""
    return reason.partition(": the median row has a cosine")[0]


def caveat(document: schema.Report) -> Markup:
    """The limits of the finding on lineage."""
    return NO_RESEMBLANCE if document["lineage"]["status"] == NOT_DERIVED else OWN_FINDING


def attention(document: schema.Report) -> Markup:
    """How well layer 0's attention agrees, or why that is not known."""
    if document["lineage"]["attention"] is not None:
        return _say("{} in layer 0", decimal(document["lineage"]["attention"], 3))
    if document["items"]["suspect"]["answers"]:
        return Markup("not compared, because answers do not reveal it")
    if not document["alignment"]["aligned"]:
        return Markup("not compared, because tokens could not be matched")
    return Markup("could not be compared in this suspect")


def sentence(text: str) -> Markup:
    """Text from a finding with a capital at its start and a full stop at its end."""
    return _text(as_sentence(text.strip()))


def _model(item: schema.Item, alignment: schema.Alignment) -> Markup:
    if item["heads"]:
        return _say(
            "{}, according to its tensor names; {} query heads and {} key heads of size {}",
            item["family"],
            number(item["heads"]),
            number(item["kv_heads"]),
            number(item["head_dim"]),
        )
    by_content = any(step["name"] == "embedding" for step in alignment["steps"])
    how = "its content, among several tensors" if by_content else "its shape or name"
    return _say("unknown tensor names; the embedding was recognised by {}, but layer 0’s attention was not", how)


def _many(count: int) -> str:
    return number(count) if count else "none"


def _say(template: str, *parts: str) -> Markup:
    """`template` with its parts filled in; a part that is not `Markup` is text."""
    return Markup(template).format(*(part if isinstance(part, Markup) else _text(part) for part in parts))


def _text(text: str) -> Markup:
    return Markup.escape(re.sub(r"(?<=\w)'", "’", printable(text, LONGEST_TEXT)))
