"""The form of an answer, and the answers that need no library, so that a command that fails early has one too."""

from __future__ import annotations

import json
import traceback
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypedDict

from ui.services.outcomes import ERROR, FOUND, INCONCLUSIVE, NOT_FOUND, PARTS, STOPPED, WRITTEN

if TYPE_CHECKING:
    from ui.jobs.results import JobState

SCHEMA, VERSION = "irwm-command", 1
CREATED, NAMED, PLANNED, RECORDED, OPENED = "created", "named", "planned", "recorded", "opened"
ATTESTED = "attested"
EXIT = {
    CREATED: 0, WRITTEN: 0, FOUND: 0, NAMED: 0, PLANNED: 0, RECORDED: 0, OPENED: 0, ATTESTED: 0,
    NOT_FOUND: 1, ERROR: 2, INCONCLUSIVE: 3, STOPPED: 4,
}  # fmt: skip
STOPPED_SAID = "Stopped; no partial output was left."


class Schema(TypedDict):
    name: str
    version: int


class Answer(TypedDict):
    """The document that a command prints; the content of `result` depends on the command."""

    schema: Schema
    command: str | None
    outcome: str
    exit_status: int
    job: JobState | None
    result: Any
    files: list[str]
    error: dict[str, str | None] | None


def document(
    command: str | None,
    outcome: str,
    *,
    job: JobState | None = None,
    result: object = None,
    files: Sequence[str] = (),
    error: dict[str, str | None] | None = None,
) -> Answer:
    """The answer with the parts that exist."""
    return {
        "schema": {"name": SCHEMA, "version": VERSION},
        "command": command,
        "outcome": outcome,
        "exit_status": EXIT[outcome],
        "job": job,
        "result": result,
        "files": list(files),
        "error": error,
    }


def of_usage(command: str | None, problem: str) -> Answer:
    """The answer if the arguments are not a command."""
    advice = f"Try: python app.py {f'{command} ' if command else ''}--help"
    own = {"type": "IrwmError", "problem": problem, "advice": advice}
    return document(command, ERROR, error=dict.fromkeys(PARTS) | own)


def of_unforeseen(command: str | None, error: BaseException) -> Answer:
    """The answer to an unexpected error. Its text is left out, because it may contain anything."""
    return document(command, ERROR, error=unforeseen(error))


def unforeseen(error: BaseException) -> dict[str, str | None]:
    """An unexpected error, in the parts of an `IrwmError`."""
    own: dict[str, str | None] = {
        "type": type(error).__name__,
        "problem": "an unexpected error ended the command",
        "advice": "Please report it with the lines above",
    }
    if isinstance(error, ImportError):
        own |= {
            "problem": "a library that this app needs cannot be imported by this Python",
            "found": f"no usable {error.name}" if error.name else None,
            "advice": "Start it with the Python that has its requirements: .venv/bin/python app.py after `make run`",
        }
    return dict.fromkeys(PARTS) | own


def trace_of(error: BaseException) -> str:
    """The origin of an unexpected error, without its text, because this goes into the logs of pipelines."""
    return "".join([*traceback.format_tb(error.__traceback__), type(error).__name__])


def plain_sentence(answer: Answer) -> str:
    """An answer of this module as a sentence."""
    error = answer["error"]
    if error is None:
        return STOPPED_SAID
    found = f" Actual: {error['found']}." if error["found"] else ""
    said = f"Error: {error['problem']}.{found} {error['advice']}."[:2000]
    # As `irwm.errors.printable`, whose import takes seconds: the arguments may contain anything.
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in said)


def text(answer: Answer) -> str:
    """The answer in its printed form; plain ASCII, so that no pipeline changes it."""
    return json.dumps(answer, indent=2, allow_nan=False)
