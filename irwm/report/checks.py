"""The outcome of verifying a report: one answer for each question."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from irwm.errors import IrwmError, printable

# After what holds, where nobody said whose signature it should be.
BY_WHOM = "Nothing here shows who made this report: anybody can sign one of their own."


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
        """Nothing that was checked fails, and nothing that was asked for was left unchecked."""
        return self.exit_code == 0

    @property
    def exit_code(self) -> int:
        """0: all that was checked holds. 1: something was changed, or differs. 2: what was asked was left unchecked."""
        if any(check.ok is False for check in self.checks):
            return 1
        return 2 if any(check.ok is None and check.asked for check in self.checks) else 0


def listed(names: Sequence[str], most: int = 8) -> str:
    """Names of files or sentence parts in a row, made inert; of many the first, and how many more."""
    shown = [printable(name, 300) for name in names[:most]]
    return "; ".join(shown) + (f" and {len(names) - most} more" if len(names) > most else "")


def said(error: IrwmError) -> str:
    """An error as a sentence part."""
    return printable(str(error), 600).rstrip(".")
