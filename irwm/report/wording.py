"""The sentences of a report, in one place: a lawyer can read them all, and a change of words is a small diff.

Rules: say what was seen before what it means; p is a chance given the second proposition and never a chance of it; the
report speaks of copies, not of people.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from datetime import UTC, datetime

from irwm import Finding, Parameters
from irwm.checkpoint.served_source import GENERATED
from irwm.errors import printable
from irwm.evidence.finding import FOUND, INCONCLUSIVE, NOT_FOUND
from irwm.evidence.verdict import odds
from irwm.ownership.key_search import COMMITTED, LATE, SEARCH_BITS, UNCOMMITTED, UNDATED, Standing
from irwm.report import schema, tracing, tracing_words
from irwm.report.items import ItemDescription, SelfTest
from irwm.report.numbers import is_stated, number, one_in
from irwm.scheme.parameters import HEAD

STATUS = (
    "This report is not signed, so nothing shows that it has not been changed since it was made. It is meant for "
    "internal use, not for use in court."
)
SIGNED = (
    "The signature is in a separate file next to this one and identifies this file by its SHA-256. It shows that the "
    "files have not been changed since they were signed. It does not show that their content is correct; to check "
    "that, run the examination again."
)
HANDLING = (
    "Confidential: this report identifies the rows that carry the mark. Anyone who knows these rows can remove the "
    "mark from other copies made with the same key."
)
# For a suspect that only answers: what this form of evidence can and cannot show.
BY_ANSWERS = (
    "Answers with log-probabilities reveal a model’s output head, where a mark can be read. They reveal nothing about "
    "its embedding, unless the embedding is also the output head, and nothing about its layers."
)
# For a suspect that is known only by generated text.
BY_TEXT = (
    "Generated text shows only the noise of recipients’ copies. It shows neither a mark nor descent from the original, "
    "so it rules no one out."
)
ANSWERS_LIMITS = (
    "The suspect is known only through its answers. They reveal the rows of its output head. They reveal nothing about "
    "its embedding, unless the embedding is also the output head, and nothing about its layers, so attention was not "
    "compared. Noise added to the log-probabilities, a retrained output head, false values for unlikely tokens, or "
    "answers that contain only the likeliest tokens can hide a mark."
)
GENERATED_LIMITS = (
    "The suspect is known only through the text that it generated. This text can show the noise of a recipient’s copy, "
    "but neither a mark nor descent from the original. Too few tokens, unknown text before the prompts, retraining and "
    "coarse number formats hide this noise, so these answers rule no one out."
)
ANSWERS_SOURCE = (
    "That the answers came from the named endpoint at the stated times is known only from the person who recorded "
    "them. The file is not signed. Its digests of the requests and responses tie it to the logs of a server or witness."
)
NOT_INNOCENCE = (
    "This figure is the probability of such a result if the second proposition is true. It is not the probability that "
    "the second proposition is true, so it is not the probability of innocence. Reading it that way is the error known "
    "as the transposed conditional. This report does not say how likely either proposition is; that depends on all the "
    "evidence in the case."
)
ERROR_RATE = (
    "The verdict “found” is given only if fewer than one in a million models without the mark would produce such a "
    "reading, after the corrections listed above. The bound follows from the permutation ranks, which are exact for "
    "any number of permutations and any model."
)
MEASURED = (
    "Keys that were never inserted (decoys) were read on the suspect’s own rows, which were aligned in the same way as "
    "for the key examined. The same statistic and the original’s attention scores were used. Each decoy has its own "
    "rows and its own random orders, and shares its equations and its null with about a hundred others. No decoy can "
    "be in the suspect, so any decoy with the verdict “found” would be an error. The figures apply to a single key and "
    "are not corrected for the number of keys tried."
)
# For a key with more positions or orders than decoys have: the decoys' odds stop earlier but are just as exact.
SMALLER = (
    "To limit the cost, decoys have at most {positions} positions and {permutations} orders, fewer than the key "
    "examined. Their probabilities are valid but cannot be as low as that of the key."
)
NOT_MEASURED = (
    "No decoy keys were read, because the suspect cannot be judged or the key’s settings leave nothing to rank."
)
NO_NEUTRAL = (
    "No neutral model was examined along with this suspect, because aligning one to an original of this size would "
    "take longer than the rest of the examination."
)
# H1 and H2 of irwm.evidence.likelihood_ratio. They are about the mark alone, also if a verdict rests on more.
LR_PROPOSITIONS = (
    "the suspect carries this key’s mark",
    "the suspect does not carry this key’s mark",
)
LR_MEANING = (
    "The likelihood ratio states how many times more probable these ranks are if the first of two propositions is true "
    "than if the second is. It says nothing about how probable the propositions themselves are."
)
LR_MODEL = (
    "Without the mark, each rank is uniformly distributed because of the permutations. With the mark, a rank r is "
    "assumed to have the density a times r to the power a − 1, with the same strength a for all positions. The "
    "strength is unknown, so all strengths from 0 (a fresh mark) to 1 (no mark) have the same weight. Whatever the "
    "true distribution of marked copies is, a ratio of c or more occurs without the mark in at most one case in c."
)
LR_BY_NOISE = (
    "The verdict in this report rests on the noise of the recipients’ copies. The likelihood ratio concerns only the "
    "mark of the likeliest recipient, and a mark becomes weaker when copies are mixed."
)
CORRECTED = (
    "The probability is corrected for every way in which a mark could have been found where there is none: every key "
    "tried, every tensor that was read as the suspect’s embedding, the two maps from the suspect’s coordinates to the "
    "original’s (one found by the alignment and one fitted by least squares), the fingerprint if the key has one, and "
    "the two ways of combining the ranks (the smaller of the p-values from Fisher’s combination and from the count is "
    "doubled)."
)
ALIGNMENT_IS_FREE = (
    "Whether a mark is found does not depend on the alignment’s score, and the probability is not corrected for the "
    "number of alignments tried. An alignment is chosen by how closely the suspect’s rows resemble the original’s. A "
    "key can affect this choice only through the rows that it reads. Every rank depends on the orders in which the key "
    "reads the entries of a row. These orders follow from the key’s secret and are independent of the suspect and the "
    "alignment, so without the mark the ranks are uniform under any alignment. The other statistics in this report are "
    "shown only for comparison; the verdict is not chosen from among them."
)
P_IS_NEVER_ZERO = (
    "A probability is never zero: the smallest possible rank is one divided by the number of orders compared, and p "
    "cannot be below the smallest values given above."
)
NOBODYS = "this key’s mark"
# How far two runs may differ and still count as the same; ranks, counts and the verdict must be equal outright.
TOLERANCE = (
    "The verdict, the counts and the settings must agree exactly. Other numbers must agree to within one part in a "
    "million, or to within 0.000001 if they are smaller than one. Different processors add numbers in different "
    "orders, so the null is compared by its quantiles, not by its SHA-256."
)
TOLERANCE_OF_TEXT = (
    "The verdict, the counts and the settings must agree exactly. Other numbers must agree to within one part in a "
    "thousand, or to within 0.001 if they are smaller than one. The original is run in float32, and different "
    "processors add numbers in different orders."
)


def as_sentence(text: str) -> str:
    """The text with a capital at its start and a full stop at its end."""
    return text[:1].upper() + text[1:] + ("" if text[-1:] in ".?!…" else ".")


def whose_mark(recipient: str, owner: str = "") -> str:
    """A key's mark, named after its recipient or its owner."""
    if recipient:
        return f"the mark issued to “{recipient}”"
    return f"the mark of “{owner}”" if owner else NOBODYS


def headline(verdict: str, recipient: str, owner: str = "") -> str:
    """The verdict in one short sentence. Only a mark that was found is called somebody's: others accuse nobody."""
    return {
        FOUND: f"The suspect carries {whose_mark(recipient, owner)}.",
        NOT_FOUND: "The mark that was tested for was not found in the suspect.",
        INCONCLUSIVE: "This examination cannot tell whether the suspect carries the mark that was tested for.",
    }.get(verdict, f"Verdict: {verdict}.")


def by_fingerprint(recipient: str, owner: str = "") -> str:
    """The verdict "found" where the mark alone does not give it."""
    release = f"the release of “{owner}”" if owner else "this key’s release"
    return f"The suspect carries the fingerprint of {f'the copy issued to “{recipient}”' if recipient else release}."


def is_generated(heard: schema.Answers | None) -> bool:
    """Whether a suspect is known only by generated text, which shows no weights."""
    return heard is not None and heard["form"] in GENERATED


def question(document: schema.Report) -> str:
    """The question that the report answers, as a heading after the suspect’s name."""
    if is_generated(document["items"]["suspect"]["answers"]):
        return "whose copy generated them?"
    if document["tracing"] is not None:
        return "whose copy was it made from?"
    return "whose mark does it carry?"


def chance(log10_risk: float) -> str:
    """The corrected odds as a sentence."""
    if log10_risk > -1.0:
        return "More than one in ten models without the mark would look like this."
    return odds(log10_risk)


def likelihood(log10_lr: float) -> str:
    """A likelihood ratio as a sentence, with no more digits than its model justifies."""
    first, second = LR_PROPOSITIONS if log10_lr >= 0 else LR_PROPOSITIONS[::-1]
    if abs(log10_lr) < math.log10(2.0):
        return f"The ranks are about as probable if {first} as if {second}."
    about = "about " if is_stated(log10_lr) else ""
    return f"The ranks are {about}{times(abs(log10_lr))} times more probable if {first} than if {second}."


def verbal(step: str) -> str:
    """A step of ENFSI's scale in terms of the mark: "strong support for the proposition that the mark is present"."""
    present = step.replace("for the first proposition", "for the proposition that the mark is present")
    return present.replace("for the second proposition", "for the proposition that the mark is absent")


def times(log10: float) -> str:
    """A ratio above one in words: "6", "4 000", "10¹⁴", "more than 10³⁰"; one digit, the rest rounded down."""
    if log10 >= 6.0:
        return ("" if is_stated(log10) else "more than ") + one_in(-log10)
    value = 10.0**log10
    digits = 10 ** math.floor(log10 + 1e-9)
    return f"{math.floor(value / digits + 1e-9) * digits:,}".replace(",", " ")


def measured(sizes: tuple[int, int] | None, p: Parameters) -> str:
    """How decoy keys were read.

    Args:
        sizes: positions and permutations of each; None where none were read.
        p: of the key examined.
    """
    if sizes is None:
        return NOT_MEASURED
    if sizes == (p.positions, p.permutations):
        return MEASURED
    return f"{MEASURED} {SMALLER.format(positions=sizes[0], permutations=sizes[1])}"


_NO_FINDING = "The verdict is not “found”, so there is no finding that a search could explain."


def standing_sentence(standing: Standing, authority: str, word: str) -> str:
    """How strong the claim is against a possible search for a key that fits."""
    bits, left = number(math.floor(standing.evidence_bits)), math.floor(standing.margin_bits)
    by = f" by {authority}" if authority else ""
    if standing.status == COMMITTED:
        dated = (
            f"The key’s commitment was timestamped on {standing.committed_utc}{by}. According to the examiner, the "
            f"suspect has been known since {standing.suspect_seen_utc}, which is later."
        )
        if word != FOUND:
            return f"{dated} {_NO_FINDING}"
        rest = math.floor(standing.searched_bits)
        rests = number(rest) if rest > 0 else "none"
        return (
            f"{dated} If the claimant had no access to the suspect before the commitment, no search can explain the "
            f"finding, and all {bits} bits count. If the claimant had access, {SEARCH_BITS:.0f} bits are subtracted "
            f"to allow for a search, which leaves {rests}."
        )
    dated = {
        LATE: (
            f"The key’s commitment was timestamped on {standing.committed_utc}{by}, not before the suspect was "
            f"first known to exist ({standing.suspect_seen_utc})."
        ),
        UNDATED: (
            f"The key’s commitment was timestamped on {standing.committed_utc}{by}. The report does not give the date "
            "from which the suspect is known to have existed, so nothing follows from the timestamp."
        ),
        UNCOMMITTED: "The report shows no earlier commitment to this key whose date is confirmed by a third party.",
    }[standing.status]
    searched = "Anyone who makes a key can search for one that fits."
    if word != FOUND:
        return f"{dated} {searched} {_NO_FINDING}"
    rests = number(left) if left > 0 else "none"
    subtracted = (
        f"From the {bits} bits of evidence, {standing.search_bits:.0f} bits are subtracted to allow for a search, "
        f"which leaves {rests}."
    )
    means = "Such a search alone explains the finding, and the report shows nothing beyond that."
    if left > 0:
        means = "Such a search does not explain the finding."
    return f"{dated} {searched} {subtracted} {means}"


def not_yet_proof(standing: schema.Standing) -> str:
    """Why a finding that a search for a key could explain is not yet proof, and what would make it proof.

    Args:
        standing: the section of a document; its margin is at most 0.
    """
    dated = {
        LATE: (
            f"The key was timestamped on {day(standing['committed_utc'])}, but the suspect has been known to exist "
            f"since {day(standing['suspect_seen_utc'])}."
        ),
        UNDATED: (
            f"The key was timestamped on {day(standing['committed_utc'])}, but the report does not give the date "
            "from which the suspect is known to have existed. Enter that date and investigate again."
        ),
        UNCOMMITTED: (
            "A timestamp that shows the key to be older than the suspect would turn this finding into proof. If you "
            "have one, add it on the Vault page, enter the date from which the suspect is known to have existed, and "
            "investigate again."
        ),
    }.get(standing["status"], "")
    bits, search = math.floor(standing["evidence_bits"]), math.ceil(standing["search_bits"])
    return (
        "Someone who tries a very large number of keys could produce a finding as strong as this one: this finding "
        f"has {bits} bits, and a search can reach {search}. {dated}"
    ).strip()


def made_later(seen_utc: str, made: str) -> str:
    """The contradiction between the day since which the suspect is known and a later day on which the key was made."""
    return (
        f"The report states that the suspect has existed since {day(seen_utc)}, but according to the vault’s clock the "
        f"key was made later, on {made}. A copy is never older than its key. Check both dates. If both are correct, "
        "the suspect was changed after the earlier date."
    )


def stamped_later(seen_utc: str, committed_utc: str) -> str:
    """The same for a later timestamp, which does not show when the key was made."""
    return (
        f"The report states that the suspect has existed since {day(seen_utc)}, but the key was timestamped later, on "
        f"{day(committed_utc)}. The timestamp does not show that the key is older than the suspect. Check both dates."
    )


def is_day(text: str) -> bool:
    """Whether this is a day such as "2024-01-28"."""
    return re.fullmatch(r"\d{4}-\d\d-\d\d", text, re.ASCII) is not None


def day(utc: str | None) -> str:
    """The day in UTC of a time in ISO 8601: "2024-01-28". Such days are ordered like dates. The beginning of anything
    else, which a received report may contain."""
    try:
        return datetime.fromisoformat(str(utc)).astimezone(UTC).date().isoformat()
    except (ValueError, OverflowError):
        return str(utc)[:10]


def propositions(computed: schema.Examination, commitment: str, recipient: str) -> list[str]:
    """The two propositions that the findings are weighed between."""
    verdict, found = computed["verdict"], computed["tracing"]
    if found is not None and verdict["rests_on"] == tracing.TRACING and verdict["word"] == FOUND:
        return tracing_words.propositions(found)
    issued = f", issued to “{recipient}”," if recipient else ""
    if found is not None and tracing_words.is_of_text(found):
        return [
            f"The copy{issued} into which the key with commitment {commitment[:16]}… was inserted contributed to the "
            "answers, directly or after changes.",
            "It did not contribute to them. Any agreement of the answers with this key is due to chance.",
        ]
    what = "output head" if computed["place"] == HEAD else "embedding"
    return [
        f"The suspect’s {what} was taken, directly or after changes, from the copy{issued} into which the key with "
        f"commitment {commitment[:16]}… was inserted.",
        "It was not. The suspect is unrelated or comes from another copy of the original, and any agreement with "
        "this key is due to chance.",
    ]


# Limits of examinations that rank marked rows and compare weights.
_OF_WEIGHTS = (
    "The probabilities in this report assume that, in a model without the mark, the order in which the key reads a "
    "row’s entries is no different from any other order, and that the positions are independent of one another.",
    "The likelihood ratio assumes a family of distributions for the ranks of a marked copy that was tampered with. "
    "The family is stated next to the ratio; a different family would give a different ratio. For any family, a ratio "
    "of c or more occurs without the mark in at most one case in c.",
    "“Same origin” means that the suspect and the original have a common origin. Similarity has no direction: the "
    "suspect may descend from the original, the original from the suspect, or both from a third model. Dates can show "
    "which of these is true, but they are not examined here.",
)
ROWS_WITHHELD = "This copy of the report does not say which rows carry the mark; they can be derived from the key."


def limitations(
    finding: Finding,
    items: Sequence[ItemDescription],
    self_tests: Sequence[SelfTest],
    disclose_rows: bool,
    found: schema.Tracing | None = None,
    measured: bool = False,
) -> list[str]:
    """What the examination cannot show: first the general limits, then those of this examination."""
    said = [
        "No mark in the weights survives distillation or retraining from scratch. A model that was trained on another "
        "model’s answers has none of that model’s rows, and no examination of this kind can connect the two.",
        "“Not found” does not show that the suspect is not a copy. A mark can be destroyed at a cost to the model. "
        "A copy made before the mark was inserted, or with another key, does not carry this mark.",
        "“Found” identifies a copy, not a person. This examination does not show who passed the copy on, when this "
        "happened, or whether they were entitled to do so.",
        "The key and the original were used as presented. The section “Possible search for a key” states how the key’s "
        "commitment is dated, and what a search could have achieved without such a date.",
        "The probability is corrected for the keys tried in this examination, not for keys tried earlier on the same "
        "suspect. The case file lists every examination that was filed.",
        "Items are identified by the hashes of their weight files and of the other files in their folder, such "
        "as the configuration and the tokenizer.",
    ]
    text = any(item.answers is not None and item.answers.generated for item in items)
    if not text:
        said += _OF_WEIGHTS
    if found is not None:
        said += [each for each in tracing_words.LIMITATIONS if not text or each != tracing_words.ESTIMATE]
    if not finding.alignment.aligned and not text:
        said.append(
            "The suspect could not be mapped to the original’s coordinates. A mark found in it still counts. If no "
            "mark is found, this examination cannot distinguish an unrelated model from one with a disguise that "
            "this version of the program cannot undo."
        )
    if any(item.answers is not None for item in items):
        said += [GENERATED_LIMITS if text else ANSWERS_LIMITS, ANSWERS_SOURCE]
    if finding.paper is None and not text:
        said.append(
            "The reading with the published method is missing because it requires the suspect’s first attention layer, "
            "which could not be used."
        )
    if not self_tests:
        said.append(
            "No self-tests were run in this examination: neither a key that was never inserted nor an unrelated "
            "model was examined in the same way, as a control."
        )
    if not measured and not text:
        said.append("No decoy keys were ranked in this examination, so its error rate is computed, not measured.")
    if any(item.source is not None for item in items):
        said.append(
            "Only parts of the files on the server were read. Each of these parts is identified by its SHA-256; the "
            "content of the other parts is not known."
        )
    elif any(not file.sha256 for item in items for file in item.files) or any(not item.files for item in items):
        said.append(
            "Not every file was hashed completely. The embeddings are identified by their fingerprints; the other "
            "weights in files without a hash are not identified."
        )
    if not disclose_rows:
        said.append(ROWS_WITHHELD)
    return said


def _generated_again(original: str, file: str, risk: float) -> list[str]:
    return [
        "import irwm",
        "from irwm.answers.suspect import open_generated",
        "from irwm.report import from_json, reproduce",
        "",
        f"model = irwm.open_checkpoint({original})   # the path to the original",
        f"suspect = open_generated({file}, model)   # the path to the recorded answers",
        'keys = [irwm.Key.from_bytes(open(name, "rb").read()) for name in ["KEY FILES FROM THE VAULT"]]',
        f"traces = irwm.trace_answers(suspect.generated, model, keys, risk={risk:g})",
        "print([(trace.recipient, round(trace.z, 3), trace.named) for trace in traces])",
        "",
        'document = from_json(open("THE JSON FILE OF THIS REPORT", "rb").read())',
        'key = next(each for each in keys if each.commitment == document["key"]["commitment"])',
        "print(reproduce(document, suspect, model, key, keys=keys))   # [] when every number agrees",
    ]


def reproduction(
    finding: Finding, suspect: ItemDescription, original: ItemDescription, found: schema.Tracing | None = None
) -> schema.Reproduce:
    """Python lines that run the same detection, and the output that they must print."""
    ours, theirs = (json.dumps(printable(item.name)) for item in (original, suspect))
    reading = finding.reading
    if suspect.answers is not None and suspect.answers.generated and found is not None:
        file = json.dumps(printable(suspect.files[0].name))
        return {"python": _generated_again(ours, file, found["risk"]), "tolerance": TOLERANCE_OF_TEXT}
    if suspect.source is not None:
        theirs = json.dumps(printable(suspect.source["address"]))
    opening = (
        f"suspect = irwm.open_checkpoint({theirs}{', base=model' if suspect.is_adapter else ''})"
        "   # the path to the suspect"
    )
    if suspect.answers is not None:
        file = json.dumps(printable(suspect.files[0].name if suspect.files else suspect.name))
        opening = f"suspect = irwm.open_suspect({file}, model)   # the path to the recorded answers"
    # A key with noise whose fingerprint was traced together with those of other keys.
    marks_alone = found is not None and finding.parameters.noise_coordinates > 0
    read = "detect_marks" if marks_alone else "irwm.detect_each"
    lines = [
        "import irwm",
        *(["from irwm.evidence.detection import detect_marks"] if marks_alone else []),
        "from irwm.report import from_json, reproduce",
        "",
        f"model = irwm.open_checkpoint({ours})   # the path to the original",
        opening,
        'key = irwm.Key.from_bytes(open("KEY FILE FROM THE VAULT", "rb").read())',
        "",
        *(
            ["found = irwm.detect(suspect, model, key,"]
            if finding.forms > 1 and not marks_alone
            else ["examination = irwm.Examination(suspect, model)", f"(found,) = {read}(examination, [key],"]
        ),
        f"    seed={finding.seed}, statistic={json.dumps(reading.statistic)}, "
        f"invariant={json.dumps(reading.invariant)}, keys_tried={finding.keys_tried})",
        "print(found.verdict, found.count, found.present, found.log10_p)",
        f"# {finding.verdict} {reading.count} {reading.present} {reading.log10_p:.6f}",
        "",
        'document = from_json(open("THE JSON FILE OF THIS REPORT", "rb").read())',
    ]
    if found is None:
        lines.append("print(reproduce(document, suspect, model, key))   # [] when every number agrees")
        return {"python": lines, "tolerance": TOLERANCE}
    lines += [
        "",
        "# The recipients' keys. Only the recipients whose keys are given are traced again.",
        'keys = [irwm.Key.from_bytes(open(name, "rb").read()) for name in ["KEY FILES FROM THE VAULT"]]',
        f"traces = irwm.trace(suspect, model, keys, risk={found['risk']:g})",
        "print([(trace.recipient, round(trace.z, 3), trace.named) for trace in traces])",
        "print(reproduce(document, suspect, model, key, keys=keys))   # [] when every number agrees",
    ]
    return {"python": lines, "tolerance": TOLERANCE}
