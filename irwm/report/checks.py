"""The outcome of verifying a report: one answer for each question."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from irwm.errors import IrwmError, printable

# After what holds, where nobody said whose signature it should be.
BY_WHOM = "Nothing here shows who made this report: anybody can sign one of their own."


# Names of checks that are told apart by what they show.
EXAMINATION, KEY, SUSPECT, ORIGINAL, RECIPIENTS = "examination", "key", "suspect", "original", "recipients"
TIME_STAMP = "time-stamp"
# The checks that make a report a certain person's, and those that work its numbers out, by the kind of report.
_SIGNED = frozenset({"files", "document", "signature", "certificates", "identity"})
_WORKED_OUT = frozenset({"numbers", "rulings"})


@dataclass(frozen=True, slots=True)
class Check:
    """One question asked of a report, and its answer.

    Attributes:
        name: a word, as listed in `irwm.report.verify`.
        ok: whether it holds; None where it was not, or could not be, checked.
        said: a sentence part that says what was found; what a stranger wrote in it is inert.
        asked: somebody gave what this check needs, so that None is a failure to do what was asked.
    """

    name: str
    ok: bool | None
    said: str
    asked: bool = False


@dataclass(frozen=True, slots=True)
class Unchecked:
    """Fields of a document that nothing else in it determines, though some are checked for whether they can be so.

    Attributes:
        name: the group in a few words, as the result prints it.
        why: why the report alone cannot show that they are true.
        fields: their places. "[]" is every element of a list, "*" every name of an object, and "name*" all that lies
            within `name`.
        shown_by: checks of which any one that holds shows these fields after all.
    """

    name: str
    why: str
    fields: tuple[str, ...]
    shown_by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Verification:
    """All checks of a report, in the order in which they were made.

    Attributes:
        checks: the checks.
        unchecked: the report's fields that no check that was made shows.
    """

    checks: tuple[Check, ...]
    unchecked: tuple[Unchecked, ...] = ()

    @property
    def ok(self) -> bool:
        """Nothing that was checked fails, and nothing that was asked for was left unchecked; it need not be signed."""
        return not any(check.ok is False or (check.ok is None and check.asked) for check in self.checks)

    @property
    def established(self) -> bool:
        """`ok`, and signed by the identity that the caller expects, with every number worked out again."""
        held = {check.name for check in self.checks if check.ok}
        left = {check.name for check in self.checks if check.ok is None}
        return self.ok and held >= _SIGNED and not held.isdisjoint(_WORKED_OUT) and TIME_STAMP not in left

    @property
    def open(self) -> tuple[str, ...]:
        """Why it is not `established` although nothing is wrong, each reason as a sentence part."""
        answers = {check.name: check.ok for check in self.checks}
        reasons = [f"{check.name} could not be checked" for check in self.checks if check.ok is None and check.asked]
        if not answers.get("signature"):
            reasons.append("it is not signed")
        elif not answers.get("identity"):
            reasons.append("nobody said whose signature is expected")
        if not any(answers.get(name) for name in _WORKED_OUT):
            reasons.append("its numbers were not worked out again")
        if TIME_STAMP in answers and answers[TIME_STAMP] is None:
            reasons.append("nobody said which authority is trusted to have dated the key’s commitment")
        return tuple(reasons)

    @property
    def exit_code(self) -> int:
        """0: `established`. 1: something was changed, or differs. 2: whether the report holds is not established."""
        if any(check.ok is False for check in self.checks):
            return 1
        return 0 if self.established else 2


def left_unchecked(
    groups: Sequence[Unchecked], document: Mapping[str, Any], checks: Sequence[Check]
) -> tuple[Unchecked, ...]:
    """Those of a kind of report's unchecked fields that this one has, and that none of these checks shows."""
    held = {check.name for check in checks if check.ok}
    return tuple(
        group
        for group in groups
        if held.isdisjoint(group.shown_by) and any(has_field(document, field) for field in group.fields)
    )


def in_words(unchecked: Sequence[Unchecked]) -> list[str]:
    """What is not checked, in a sentence for each reason why."""
    by_reason: dict[str, list[str]] = {}
    for group in unchecked:
        by_reason.setdefault(group.why, []).append(group.name)
    return [f"{'; '.join(names)}: {why}" for why, names in by_reason.items()]


def _steps(field: str) -> list[str]:
    return re.findall(r"\[\]|[^.\[\]]+", field)


def has_field(value: Any, field: str) -> bool:
    """Whether a document has a value at a field of `Unchecked`."""
    values = [value]
    for step in _steps(field):
        whole = step.endswith("*") and step != "*"
        name = step.removesuffix("*") if whole else step
        inside: list[Any] = []
        for each in values:
            if name == "[]" and isinstance(each, list):
                inside += each
            elif step == "*" and isinstance(each, Mapping):
                inside += each.values()
            elif isinstance(each, Mapping) and name in each:
                inside.append(each[name])
        values = inside
        if whole:
            break
    return bool(values)


def holds_field(pattern: str, place: Sequence[str | int]) -> bool:
    """Whether a field of `Unchecked` means the value at this place, given as names and numbers."""
    steps = _steps(pattern)
    for number, step in enumerate(steps):
        if step.endswith("*") and step != "*":
            return len(place) > number and place[number] == step[:-1]
        if number >= len(place):
            return False
        here = place[number]
        if isinstance(here, int) != (step == "[]") or (step not in ("[]", "*") and here != step):
            return False
    return len(steps) == len(place)


def listed(names: Sequence[str], most: int = 8) -> str:
    """Names of files or sentence parts in a row, made inert; of many the first, and how many more."""
    shown = [printable(name, 300) for name in names[:most]]
    return "; ".join(shown) + (f" and {len(names) - most} more" if len(names) > most else "")


def said(error: IrwmError) -> str:
    """An error as a sentence part."""
    return printable(str(error), 600).rstrip(".")
