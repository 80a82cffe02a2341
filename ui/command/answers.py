"""The form of an answer, and the answers that need no library: a command that fails early has one too."""

from __future__ import annotations

import json
import traceback
from typing import Any

SCHEMA, VERSION = "irwm-command", 1
STOPPED, ERROR = "stopped", "error"
PLANNED, RECORDED, OPENED = "planned", "recorded", "opened"
EXIT = {
    "created": 0, "written": 0, "found": 0, "named": 0, PLANNED: 0, RECORDED: 0, OPENED: 0,
    "not found": 1, ERROR: 2, "inconclusive": 3, STOPPED: 4,
}  # fmt: skip
# Of an error, as `irwm.errors.IrwmError` names them.
PARTS = ("problem", "file", "tensor", "expected", "found", "advice")
STOPPED_SAID = "Stopped; nothing was left half-done."


def document(command: str | None, outcome: str, **parts: Any) -> dict[str, Any]:
    """The answer; `parts` are its "job", "result", "files" and "error", as far as there are any."""
    whole = {"job": None, "result": None, "files": [], "error": None} | parts
    return {
        "schema": {"name": SCHEMA, "version": VERSION},
        "command": command,
        "outcome": outcome,
        "exit_status": EXIT[outcome],
        **whole,
    }


def of_usage(command: str | None, problem: str) -> dict[str, Any]:
    """The answer where what was typed is no command."""
    advice = f"Try: python app.py {f'{command} ' if command else ''}--help"
    own = {"type": "IrwmError", "problem": problem, "advice": advice}
    return document(command, ERROR, error=dict.fromkeys(PARTS) | own)


def of_unforeseen(command: str | None, error: BaseException) -> dict[str, Any]:
    """The answer where something went wrong that nobody foresaw. Its text is left out: it may hold anything."""
    return document(command, ERROR, error=unforeseen(error))


def unforeseen(error: BaseException) -> dict[str, str | None]:
    """What nobody foresaw, in the parts of an `IrwmError`."""
    own: dict[str, str | None] = {
        "type": type(error).__name__,
        "problem": "an error that this app did not foresee ended the command",
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
    """Where an error that nobody foresaw came from, without its text: this goes into the logs of pipelines."""
    return "".join([*traceback.format_tb(error.__traceback__), type(error).__name__])


def plain_sentence(answer: dict[str, Any]) -> str:
    """An answer of this module as a person reads it."""
    error = answer["error"]
    if error is None:
        return STOPPED_SAID
    found = f" Found: {error['found']}." if error["found"] else ""
    said = f"Error: {error['problem']}.{found} {error['advice']}."[:2000]
    # As `irwm.errors.printable`, whose import takes seconds: what was typed may hold anything.
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in said)


def text(answer: dict[str, Any]) -> str:
    """The answer as it is printed; plain ASCII, which no pipeline can garble."""
    return json.dumps(answer, indent=2, allow_nan=False)
