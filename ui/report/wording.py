"""The sentences of a report. One place, so that a lawyer can read them all and a change of words is a small diff.

Rules: what was seen before what it means; p is a chance given the second proposition and never a chance of it; the
report speaks of copies, not of people.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from irwm import Finding
from irwm.errors import printable
from irwm.finding import FOUND, INCONCLUSIVE, NOT_FOUND
from irwm.verdict import odds
from ui.report import tracing, tracing_words
from ui.report.items import ItemDescription, SelfTest

STATUS = (
    "This report is not signed and carries no custody log. It is meant for internal use and is not ready for a court; "
    "a later version of the program adds both."
)
HANDLING = (
    "Confidential: this report names the rows that carry the mark. Whoever knows them can remove it from other copies "
    "made with the same key."
)
NOT_INNOCENCE = (
    "This figure is a chance under the second proposition. It is not the chance that the second proposition is true, "
    "and so it is not the probability of innocence; reading it that way is the error known as the transposed "
    "conditional. How likely either proposition is depends on all the evidence in the case, and is not for this report."
)
ERROR_RATE = (
    "The verdict “found” is given only where fewer than one in a million models without the mark would show such "
    "a reading, after the corrections named above. The bound follows from the permutation ranks; it was not measured "
    "on a collection of other models for this report."
)
# How far two runs may differ and still count as the same; ranks, counts and the verdict must be equal outright.
TOLERANCE = (
    "Verdict, counts and settings must agree exactly; other numbers to one part in a million, or to 0.000001 where "
    "they are smaller than one. Processors of another kind add up in another order, so the null is compared by its "
    "quantiles and not by its SHA-256."
)


def headline(verdict: str, recipient: str) -> str:
    """The verdict in one sentence that can be read at arm’s length."""
    whose = f"the mark issued to “{recipient}”" if recipient else "this key’s mark"
    return {
        FOUND: f"The suspect carries {whose}.",
        NOT_FOUND: f"{whose[0].upper()}{whose[1:]} was not found in the suspect.",
        INCONCLUSIVE: f"This examination cannot tell whether the suspect carries {whose}.",
    }.get(verdict, f"Verdict: {verdict}.")


def answer(document: Mapping[str, Any]) -> str:
    """A document's verdict in one sentence; names of leakers only where the verdict rests on their noise."""
    found, verdict = document.get("tracing"), document["verdict"]
    if found is None or verdict.get("rests_on") != tracing.TRACING:
        return headline(verdict["word"], document["key"]["recipient"])
    if verdict["word"] == FOUND:
        return tracing_words.sentence(found, list(tracing.names(found)))
    return "This examination cannot tell whether any recipient’s copy had a part in the suspect."


def question(document: Mapping[str, Any]) -> str:
    """What the report answers, as a heading after the suspect’s name."""
    if document.get("tracing") is not None:
        return "whose copy was it made from?"
    return "does it carry this key’s mark?"


def chance(log10_risk: float) -> str:
    """The corrected odds as a sentence."""
    if log10_risk > -1.0:
        return "More than one in ten models without the mark would read like this."
    return odds(log10_risk)


def propositions(computed: Mapping[str, Any], commitment: str, recipient: str) -> list[str]:
    """The two propositions that the findings are weighed between."""
    verdict = computed["verdict"]
    if verdict["rests_on"] == tracing.TRACING and verdict["word"] == FOUND:
        return tracing_words.propositions(list(tracing.names(computed["tracing"])))
    issued = f", issued to “{recipient}”," if recipient else ""
    return [
        f"The suspect’s embedding was taken, directly or after changes, from the copy{issued} into which the key with "
        f"commitment {commitment[:16]}… was inserted.",
        "It was not. The suspect is unrelated, or comes from another copy of the original, and whatever agreement it "
        "shows with this key is chance.",
    ]


def limitations(
    finding: Finding,
    items: Sequence[ItemDescription],
    self_tests: Sequence[SelfTest],
    disclose_rows: bool,
    found: Mapping[str, Any] | None = None,
) -> list[str]:
    """What the examination cannot show, general points first, then what is particular to this one."""
    said = [
        "Distillation and retraining from scratch are out of reach of any mark in the weights. A model trained on "
        "another model’s answers has none of its rows, and no examination of this kind can connect the two.",
        "“Not found” does not show that the suspect is not a copy. A mark can be destroyed at a cost to the model, and "
        "a copy made before the mark, or under another key, does not carry this one.",
        "“Found” identifies a copy, not a person. Who passed it on, when, and whether they were entitled to is outside "
        "this examination.",
        "The key and the original were taken as presented. That the key existed before the dispute, and was not "
        "searched for until it fitted, rests on other evidence, such as a commitment that was published or deposited "
        "earlier.",
        "The chances given assume that, in a model without the mark, the order in which the key reads a row’s entries "
        "is no different from any other order, and that the positions are independent of one another.",
        "A likelihood ratio is not given: this version has no validated model of how a marked copy looks after being "
        "tampered with, and states only how readings behave without the mark.",
        "“Derived” says that the suspect and the original have a common origin. Likeness has no direction: the suspect "
        "may descend from the original, both from a third model, or the original from the suspect. Dates tell these "
        "apart, and are not examined here.",
    ]
    if found is not None:
        said += tracing_words.LIMITATIONS
    if not finding.alignment.aligned:
        said.append(
            "The suspect could not be put into the original’s coordinates. A disguise that this version cannot undo "
            "and an unrelated model look the same here."
        )
    if finding.paper is None:
        said.append(
            "The published method’s own reading needs the suspect’s first attention layer, which could not be used; it "
            "is missing here."
        )
    if not self_tests:
        said.append(
            "No self-tests were run with this examination: neither a key that was never inserted nor an unrelated "
            "model was examined in the same way as a control."
        )
    if any(not file.sha256 for item in items for file in item.files) or any(not item.files for item in items):
        said.append(
            "Not every file was hashed in full. The embeddings are identified by their fingerprints; the other weights "
            "of such files are not."
        )
    if not disclose_rows:
        said.append("Which rows carry the mark is withheld from this copy of the report; the key re-derives them.")
    return said


def reproduction(
    finding: Finding, suspect: ItemDescription, original: ItemDescription, found: Mapping[str, Any] | None = None
) -> dict[str, object]:
    """Python lines that run the same detection, and what they must print."""
    ours, theirs = (json.dumps(printable(item.name)) for item in (original, suspect))
    reading = finding.reading
    lines = [
        "import irwm",
        "from ui.report import from_json, reproduce",
        "",
        f"model = irwm.open_checkpoint({ours})   # the path to the original",
        f"suspect = irwm.open_checkpoint({theirs}{', base=model' if suspect.is_adapter else ''})   # to this item",
        'key = irwm.Key.from_bytes(open("KEY FILE FROM THE VAULT", "rb").read())',
        "",
        f"found = irwm.detect(suspect, model, key, seed={finding.seed}, statistic={json.dumps(reading.statistic)},",
        f"                    invariant={json.dumps(reading.invariant)}, keys_tried={finding.keys_tried})",
        "print(found.verdict, found.count, found.present, found.log10_p)",
        f"# {finding.verdict} {reading.count} {reading.present} {reading.log10_p:.6f}",
        "",
        'document = from_json(open("THE JSON BESIDE THIS REPORT", "rb").read())',
    ]
    if found is None:
        lines.append("print(reproduce(document, suspect, model, key))   # [] when every number agrees")
        return {"python": lines, "tolerance": TOLERANCE}
    lines += [
        "",
        "# The recipients' keys; with some of them, the recipients whose keys are given are traced again.",
        'keys = [irwm.Key.from_bytes(open(name, "rb").read()) for name in ["KEY FILES FROM THE VAULT"]]',
        f"traces = irwm.trace(suspect, model, keys, risk={found['risk']:g})",
        "print([(trace.recipient, round(trace.z, 3), trace.named) for trace in traces])",
        "print(reproduce(document, suspect, model, key, keys=keys))   # [] when every number agrees",
    ]
    return {"python": lines, "tolerance": TOLERANCE}
