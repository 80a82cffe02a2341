"""The outcome of verifying a report: one answer for each question."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from irwm.errors import IrwmError, printable

# After what holds, where nobody said whose signature it should be.
BY_WHOM = "Nothing here shows who made this report: anybody can sign one of their own."


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
class Verification:
    """All checks of a report, in the order in which they were made."""

    checks: tuple[Check, ...]

    @property
    def ok(self) -> bool:
        """Nothing that was checked fails, and nothing that was asked for was left unchecked; it need not be signed."""
        return not any(check.ok is False or (check.ok is None and check.asked) for check in self.checks)

    @property
    def established(self) -> bool:
        """`ok`, and signed by the identity that the caller expects, with every number worked out again."""
        held = {check.name for check in self.checks if check.ok}
        return self.ok and held >= _SIGNED and not held.isdisjoint(_WORKED_OUT)

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
        return tuple(reasons)

    @property
    def exit_code(self) -> int:
        """0: `established`. 1: something was changed, or differs. 2: whether the report holds is not established."""
        if any(check.ok is False for check in self.checks):
            return 1
        return 0 if self.established else 2


def listed(names: Sequence[str], most: int = 8) -> str:
    """Names of files or sentence parts in a row, made inert; of many the first, and how many more."""
    shown = [printable(name, 300) for name in names[:most]]
    return "; ".join(shown) + (f" and {len(names) - most} more" if len(names) > most else "")


def said(error: IrwmError) -> str:
    """An error as a sentence part."""
    return printable(str(error), 600).rstrip(".")
