"""The words of an outcome and the parts of an error, in results for programs. Needs no import, so `--help` is quick."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ui.services.results import KeyRow

WRITTEN, FOUND, NOT_FOUND, INCONCLUSIVE, STOPPED, ERROR = (
    "written", "found", "not found", "inconclusive", "stopped", "error",
)  # fmt: skip
# Outcome of the other kinds of job, whose results are only for their pages.
DONE = "done"
# The parts of an error, with their names in `irwm.errors.IrwmError`.
PARTS = ("problem", "file", "tensor", "expected", "found", "advice")


def error_parts(error: Any) -> dict[str, str | None]:
    """An `IrwmError` in the form of the job's row and of `ui.components.notices`."""
    return {"type": type(error).__name__} | {part: getattr(error, part) for part in PARTS}


def whose(verdict: str, rows: Iterable[KeyRow]) -> list[str]:
    """The recipients that a finding points to: those named by their noise, else the one of the most likely mark."""
    if verdict != FOUND:
        return []
    listed = list(rows)
    named = [row for row in listed if row["named"]]
    marks = named or [row for row in listed if row["verdict"] == FOUND][:1]
    return [row["recipient"] or row["owner"] for row in marks]
