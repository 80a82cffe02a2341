"""The answer of a command: one JSON document, a sentence, and the exit status. docs/headless.md names every field."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from irwm.errors import IrwmError
from storage.jobs import Job, Jobs
from ui.amounts import number, size_text
from ui.command.parser import TRACE
from ui.jobs.child import error_parts
from ui.jobs.results import (
    ERROR,
    FOUND,
    INCONCLUSIVE,
    NOT_FOUND,
    PARTS,
    STOPPED,
    WRITTEN,
    error_of,
    files_of,
    outcome_of,
    result_of,
    state_of,
)

SCHEMA, VERSION = "irwm-command", 1
CREATED, NAMED = "created", "named"
EXIT = {CREATED: 0, WRITTEN: 0, FOUND: 0, NAMED: 0, NOT_FOUND: 1, ERROR: 2, INCONCLUSIVE: 3, STOPPED: 4}
# Of whom a sentence names so many; the document names all.
_NAMED = 5


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


def of_error(command: str | None, error: IrwmError) -> dict[str, Any]:
    """The answer where nothing was started."""
    return document(command, ERROR, error=error_parts(error))


def of_unforeseen(command: str | None, error: Exception) -> dict[str, Any]:
    """The answer where something went wrong that nobody foresaw. Its text is left out: it may hold anything."""
    parts = dict.fromkeys(PARTS) | {
        "type": type(error).__name__,
        "problem": "an error that this app did not foresee ended the command",
        "advice": "Please report it with the lines above",
    }
    return document(command, ERROR, error=parts)


def of_job(command: str, job: Job, jobs: Jobs, files: Sequence[Path] | None = None) -> dict[str, Any]:
    """The answer of a job that is over.

    Args:
        files: what it wrote for people, where that was copied; None for where it lies.
    """
    outcome, result = outcome_of(job), result_of(job)
    assert outcome is not None
    if command == TRACE and outcome == FOUND:
        outcome = NAMED
    found = files_of(job, jobs) if files is None else files
    return document(
        command,
        outcome,
        job=state_of(job),
        result=result,
        files=[str(file) for file in found],
        error=error_of(job),
    )


def sentence(answer: dict[str, Any]) -> str:
    """The answer as a person reads it."""
    outcome, result = answer["outcome"], answer["result"]
    if answer["error"] is not None:
        return f"Error: {_error(answer['error'])}"
    if outcome == STOPPED:
        return "Stopped; nothing was left half-done."
    if outcome == CREATED:
        return "The vault is made. Nobody can reset its passphrase."
    if outcome == WRITTEN:
        return _written(result)
    if "suspects" in result:
        return _swept(result["suspects"])
    if outcome in (FOUND, NAMED):
        names = result["whose"]
        more = f" and {number(len(names) - _NAMED)} more" if len(names) > _NAMED else ""
        said = "Named:" if outcome == NAMED else "Found: the mark made for"
        return f"{said} {', '.join(names[:_NAMED])}{more}."
    if outcome == NOT_FOUND:
        tried = result["keys_tried"]
        return f"Not found: {number(tried)} {'key' if tried == 1 else 'keys'} tried, none of them fits."
    return "Inconclusive: this suspect supports neither answer; the report says why."


def text(answer: dict[str, Any]) -> str:
    """The answer as it is printed; plain ASCII, which no pipeline can garble."""
    return json.dumps(answer, indent=2, allow_nan=False)


def _written(result: dict[str, Any]) -> str:
    if "rows" in result:
        return (
            f"Written: {number(result['written'])} copies, {size_text(result['bytes'])}, in {result['folder']}; "
            f"{number(result['skipped'])} recipients had theirs."
        )
    reading = result["reading"]
    return (
        f"Written: {result['folder']}, {size_text(result['bytes'])}; read back, its mark is {reading['verdict']} "
        f"with {reading['count']} of {reading['present']} positions."
    )


def _swept(suspects: Sequence[dict[str, Any]]) -> str:
    failed = sum(row["error"] is not None for row in suspects)
    found = sum(row["verdict"] == FOUND for row in suspects)
    more = f"; {number(failed)} could not be examined" if failed else ""
    return f"Found in {number(found)} of {number(len(suspects))} suspects{more}."


def _error(parts: dict[str, str | None]) -> str:
    """The parts as an `IrwmError` puts them into words."""
    known = {name: parts.get(name) for name in ("file", "tensor", "expected", "found", "advice")}
    return str(IrwmError(parts.get("problem") or "something went wrong", **known))
