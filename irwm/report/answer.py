"""The first lines of a report: one word and one sentence for the result of all its evidence.

Nothing below may contradict them. So a failed control, a finding that a search for a key could explain, and keys that
were left out are reported here, above the figures.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from irwm.evidence.finding import FOUND, INCONCLUSIVE, MARK, NOT_FOUND
from irwm.evidence.verdict import FOUND_LOG10_RISK
from irwm.ownership.key_search import LATE
from irwm.report import schema, tracing, tracing_words, wording
from irwm.report.items import SETTINGS, failed
from irwm.report.numbers import number

# The label of the statement about the case on which day the report's key was made.
MADE = "Key made (by the vault’s clock)"
# Found, but a search for a key could produce evidence as strong.
UNPROVEN = "unproven"
WORDS = {
    FOUND: "Found",
    UNPROVEN: "Found, not yet proof",
    NOT_FOUND: "Not found",
    INCONCLUSIVE: "Inconclusive",
}


@dataclass(frozen=True, slots=True)
class Answer:
    """The first thing that a reader sees.

    Attributes:
        kind: "found", "unproven", "not found" or "inconclusive"; chooses icon and colour.
        sentence: the result, and whose copy or mark it is about.
        fault: why the examination cannot be relied on; "" for no fault.
        caution: what is missing for a full answer, and what to do about it; "" if the answer is complete.
    """

    kind: str
    sentence: str
    fault: str = ""
    caution: str = ""

    @property
    def word(self) -> str:
        return WORDS[self.kind]


def answer(document: schema.Report) -> Answer:
    """The answer of a whole document."""
    word = document["verdict"]["word"]
    said, broken = _sentence(document), [test for test in document["self_tests"] if failed(test)]
    if broken:
        return Answer(word, said, fault=_broken(broken))
    if word != FOUND:
        return Answer(word, said, caution=_left_out(document))
    standing, conflict = document["standing"], _conflict(document)
    if standing["margin_bits"] <= 0:
        late = standing["status"] == LATE  # then the first sentences have both dates
        cautions = [wording.not_yet_proof(standing), *([] if late else [conflict])]
        return Answer(UNPROVEN, said, caution=" ".join(filter(None, cautions)))
    return Answer(word, said, caution=conflict)


def _conflict(document: schema.Report) -> str:
    """The contradiction between the days of suspect and key; "" if they agree or are not given."""
    standing, made = document["standing"], document["case"].get(MADE)
    seen = standing["suspect_seen_utc"]
    if seen is None:
        return ""
    if made is not None and wording.is_day(made) and made > wording.day(seen):
        return wording.made_later(seen, made)
    # On the same day the timestamp is late too, but contradicts nothing.
    committed = standing["committed_utc"]
    if standing["status"] == LATE and committed is not None and wording.day(committed) > wording.day(seen):
        return wording.stamped_later(seen, committed)
    return ""


def word_of(document: schema.Report) -> str:
    """The answer's word as used in lists: "found", "found, not yet proof", "not found", "inconclusive"."""
    return answer(document).word.lower()


def is_original(document: schema.Report) -> bool:
    """Whether the suspect is the original itself: the same weight files, under any file names."""
    items = document["items"]["suspect"], document["items"]["original"]
    suspect, original = ({file["sha256"] for file in item["files"] if file["name"] not in SETTINGS} for item in items)
    return bool(suspect) and "" not in suspect and suspect == original


def keys_tried(document: schema.Report) -> str:
    """How many keys were tried, and of how many: "1 of 6"; "3" if their number is not known."""
    tried, held = document["keys"]["tried"], document["keys"]["held"]
    return number(tried) if held is None else f"{number(tried)} of {number(held)}"


def whose(key: schema.Key) -> str:
    """Whose a key is, for a figure or a table: its recipient, else its owner, else the beginning of its fingerprint."""
    return key["recipient"] or key["owner"] or f"key {key['commitment'][:12]}"


def log10_risk(document: schema.Report) -> float:
    """The corrected log10 chance of the strongest evidence for or against the key that the report is about."""
    return strongest(document)["log10_risk"]


def strongest(document: schema.Report) -> schema.Evidence:
    """The evidence of the smallest corrected chance; of equal ones the first."""
    return min(document["evidence"], key=lambda each: each["log10_risk"])


def named(text: str, document: schema.Report) -> str:
    """A sentence of the examination, with the key's name instead of "this key" if something was found."""
    key = document["key"]
    mark = wording.whose_mark(key["recipient"], key["owner"])
    if mark == wording.NOBODYS or document["verdict"]["word"] != FOUND:
        return text

    def put(found: re.Match[str]) -> str:
        thing = found["thing"] or "key"
        said = mark if thing == "mark" else f"the {thing} of “{whose(key)}”"
        return said[0].upper() + said[1:] if found[0].startswith("T") else said

    return re.sub(r"\b[Tt]his key(?:['’]s (?P<thing>mark|fingerprint))?\b(?!['’]s)", put, text)


def _sentence(document: schema.Report) -> str:
    verdict, key, found = document["verdict"], document["key"], document["tracing"]
    if verdict["rests_on"] == tracing.TRACING:
        if verdict["word"] == FOUND and found is not None:
            return tracing_words.sentence(found)
        return "This examination cannot tell whether any recipient’s copy was used to make the suspect."
    suspect, original = document["items"]["suspect"], document["items"]["original"]
    if wording.is_generated(suspect["answers"]):
        return "These answers show no recipient’s copy, but they rule no one out."
    if verdict["word"] == NOT_FOUND and suspect["fingerprint"] == original["fingerprint"]:
        if is_original(document):
            return "This is your unmarked original itself. It carries no mark."
        return "The suspect’s embedding equals that of your unmarked original, number for number. It carries no mark."
    marks = [each["log10_risk"] for each in document["evidence"] if each["form"] == MARK]
    if verdict["word"] == FOUND and min(marks) > FOUND_LOG10_RISK:
        return wording.by_fingerprint(key["recipient"], key["owner"])
    tried = document["keys"]["tried"]
    # Only if the keys were counted is the document known to be about the strongest of those tried.
    if verdict["word"] != FOUND and tried > 1 and document["keys"]["held"] is not None:
        if verdict["word"] == NOT_FOUND:
            return f"None of the marks of the {number(tried)} keys tried was found in the suspect."
        return (
            f"This examination cannot tell whether the suspect carries the mark of any of the {number(tried)} keys "
            "tried."
        )
    return wording.headline(verdict["word"], key["recipient"], key["owner"])


def _broken(tests: list[schema.SelfTest]) -> str:
    listed = "; ".join(f"{test['name']} gave “{test['verdict']}” instead of “{test['expected']}”" for test in tests)
    one = "A control" if len(tests) == 1 else f"{len(tests)} controls"
    return f"Do not rely on this examination. {one} failed: {listed}."


def _left_out(document: schema.Report) -> str:
    tried, held = document["keys"]["tried"], document["keys"]["held"]
    if held is None or tried >= held:
        return ""
    left, done = held - tried, f"Keys tried: {keys_tried(document)}."
    others = f"{number(left)} more keys for this original were not tried. Include them before you rule out a copy."
    if left == 1:
        others = "One more key for this original was not tried. Include it before you rule out a copy."
    return f"{done} {others}"
