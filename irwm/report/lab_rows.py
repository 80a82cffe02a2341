"""The meaning of a lab's rows: words for the ways of reading, which models count as usable, and the overall result."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from irwm.report import schema

# A model whose perplexity rose by more than this share counts as unusable.
USABLE = 0.25
RELEASE, CONTROL, ATTACK = "release", "control", "attack"
# Rows of copies that are not attacked: by role, the name in place of an attack's, and the label.
NOT_AN_ATTACK: Mapping[str, tuple[str, str]] = {
    RELEASE: ("none", "Not attacked"),
    CONTROL: ("original", "Unmarked original"),
}
SINGLE, MANY = "single", "many"
MODES = {SINGLE: "One owner", MANY: "Many recipients"}
# The paper's thresholds for ranks: its tables have the first three, its figure of collusion the last.
TOP = (0.01, 0.1, 0.2, 0.5)
HELD, LOST, UNMEASURED = "held", "lost", "not measured"
# (statistic, invariant): in a table's head, in a legend and in a sentence. The verdict's way first.
WAY_WORDS: Mapping[tuple[str, str], tuple[str, str]] = {
    ("joint", "original"): ("Joint, original’s A", "all equations together, with the original’s scores (joint, A)"),
    ("sum", "suspect"): ("Sum, suspect’s A", "the paper’s sum, with the suspect’s scores (sum, A*)"),
    ("sum", "original"): ("Sum, original’s A", "the paper’s sum, with the original’s scores (sum, A)"),
    ("joint", "suspect"): ("Joint, suspect’s A", "all equations together, with the suspect’s scores (joint, A*)"),
}


@dataclass(frozen=True, slots=True)
class Tally:
    """The number of attacks by result.

    Attributes:
        kept, taken: the model stayed usable, and the mark was found, or was not.
        outlived, died: the model was ruined, and the mark was still found, or was not.
        unmeasured: the mark was read, but perplexity is not known.
        failed: the attack could not be carried out.
    """

    kept: int = 0
    taken: int = 0
    outlived: int = 0
    died: int = 0
    unmeasured: int = 0
    failed: int = 0

    @classmethod
    def of(cls, rows: Iterable[schema.LabRow]) -> Tally:
        counts = dict.fromkeys(cls.__slots__, 0)
        for row in rows:
            if row["role"] == ATTACK:
                counts[_kind(row)] += 1
        return cls(**counts)


def _kind(row: schema.LabRow) -> str:
    if not row["ways"]:
        return "failed"
    usable = is_usable(row)
    if usable is None:
        return "unmeasured"
    found = row["verdict"] == "found"
    if usable:
        return "kept" if found else "taken"
    return "outlived" if found else "died"


def is_usable(row: schema.LabRow) -> bool | None:
    """Whether the model is still usable; None if its perplexity is not known."""
    change = change_of(row)
    return None if change is None else change <= USABLE


def change_of(row: schema.LabRow) -> float | None:
    """The change of perplexity; infinite if the model gives no numbers any more, None if it is not known."""
    if row["utility"] is None or row["utility"]["change"] is None:
        return None
    return number_of(row["utility"]["change"])


def number_of(value: schema.Extended) -> float:
    """A number of a document, which writes infinity as a word."""
    return float(value)  # "infinity" too


def largest_difference(row: schema.LabRow) -> float:
    """The largest difference of a logit behind a row's proof, as its log10."""
    largest = 0.0 if row["proof"] is None else number_of(row["proof"]["largest"])
    return math.log10(largest) if largest > 0 else -math.inf


def lost_tokens(row: schema.LabRow) -> bool:
    """Whether tokens of the text are gone, so that comparison and proof only cover the remaining tokens."""
    return row["utility"] is not None and row["utility"]["compared"] < row["utility"]["tokens"]


def way_of(row: schema.LabRow, statistic: str, invariant: str) -> schema.LabReading | None:
    """The row's reading in one way."""
    ways = (way for way in row["ways"] if (way["statistic"], way["invariant"]) == (statistic, invariant))
    return next(ways, None)


def verdict_way(row: schema.LabRow) -> schema.LabReading | None:
    """The reading that the row's verdict rests on."""
    return row["ways"][0] if row["ways"] else None


def all_rows(document: schema.Lab) -> list[schema.LabRow]:
    return [row for mark in document["marks"] for row in mark["rows"]]


def word(document: schema.Lab) -> str:
    """The result of a lab, in a word or two."""
    tally = Tally.of(all_rows(document))
    if tally.taken:
        return LOST
    return HELD if tally.kept else UNMEASURED


def headline(document: schema.Lab) -> str:
    """The result of a lab so far, in one sentence."""
    rows = all_rows(document)
    tally = Tally.of(rows)
    usable = tally.kept + tally.taken
    if not any(row["role"] == ATTACK for row in rows):
        return "No attack has been tried yet."
    if not usable and tally.unmeasured:
        found = sum(_kind(row) == "unmeasured" and row["verdict"] == "found" for row in rows if row["role"] == ATTACK)
        return f"The perplexity is not known. Trials in which the mark was found: {found} of {tally.unmeasured}."
    if tally.failed == sum(row["role"] == ATTACK for row in rows):
        return "No attack could be carried out; the reasons are in the table."
    if not usable:
        return "None of the attacks tried left the model usable."
    left = f"left the model usable (perplexity at most {100 * USABLE:g}% higher)"
    if not tally.taken:
        which = "the one trial" if usable == 1 else f"each of the {usable} trials"
        return f"The mark was found in {which} that {left}."
    if usable == 1:
        return f"The one trial that {left} removed the mark."
    return f"Of the {usable} trials that {left}, {tally.taken} removed the mark."


def remarks(document: schema.Lab) -> list[str]:
    """Further remarks, as sentences."""
    tally = Tally.of(all_rows(document))
    died, said = tally.outlived + tally.died, []
    if died:
        still = {0: "no longer found", died: "still found"}.get(
            tally.outlived, f"still found in {tally.outlived} of them"
        )
        said.append(f"{_trials(died)} ruined the model; the mark was {still}.")
    if tally.unmeasured and tally.kept + tally.taken:
        after = _trials(tally.unmeasured).lower()
        said.append(f"After {after}, the perplexity is not known; the reason is in the table.")
    if tally.failed:
        said.append(f"{_trials(tally.failed)} could not be carried out; the reason is in the table.")
    said += [text for text in map(_control, document["marks"]) if text]
    return said


def _control(mark: schema.LabMark) -> str:
    """A remark if the unmarked original or the release does not read as required."""
    control = next((row for row in mark["rows"] if row["role"] == CONTROL and row["ways"]), None)
    release = next((row for row in mark["rows"] if row["role"] == RELEASE and row["ways"]), None)
    if control is not None and control["verdict"] == "found":
        return "The mark was also “found” in the unmarked original, so these findings mean nothing. Check the models."
    if release is not None and release["verdict"] != "found":
        return (
            "The mark was not found in the release itself. "
            "Check that the release, the original and the key belong together."
        )
    return ""


def _trials(count: int) -> str:
    return "One trial" if count == 1 else f"{count} trials"
