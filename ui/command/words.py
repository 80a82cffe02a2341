"""The answer of a command: one JSON document, a sentence, and the exit status. docs/headless.md names every field."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from irwm.errors import IrwmError
from irwm.evidence.lineage import DERIVED
from irwm.release import SIGNATURE_NAME, STALE_SIGNATURE
from irwm.report.numbers import counted, number
from storage.job_table import Job
from ui.command.output import (
    ATTESTED,
    CREATED,
    NAMED,
    OPENED,
    PLANNED,
    RECORDED,
    STOPPED_SAID,
    Answer,
    document,
    unforeseen,
)
from ui.command.parser import COLLECT, TRACE
from ui.jobs.results import error_of, names_somebody, open_originals, outcome_of, passed_over, result_of, state_of
from ui.services.outcomes import ERROR, FOUND, INCONCLUSIVE, NOT_FOUND, PARTS, STOPPED, WRITTEN, error_parts
from ui.units import size_text

# Number of recipients that a sentence names; the document names all.
_NAMED = 5
# How a watch counts suspects, by result.
_SCREENED = {
    FOUND: "with a mark", INCONCLUSIVE: "inconclusive", NOT_FOUND: "alike but without a mark that was tried",
    "no match": "like no original", "failed": "could not be examined",
}  # fmt: skip


def of_error(command: str | None, error: IrwmError) -> Answer:
    """The answer if no job was started."""
    return document(command, ERROR, error=error_parts(error))


def of_lost(command: str, job: Job, error: Exception) -> Answer:
    """The answer if a job was started but could not be followed to its end; `job` is its last known state."""
    parts = error_parts(error) if isinstance(error, IrwmError) else unforeseen(error)
    parts["advice"] = "The job continues without this command: follow it, or stop it, on the page Jobs"
    return document(command, ERROR, job=state_of(job), error=parts)


def of_uncopied(command: str, job: Job, error: IrwmError) -> Answer:
    """The answer for a finished job whose report could not be copied: an error, with all results of the job."""
    answer = of_job(command, job)
    if answer["outcome"] in (ERROR, STOPPED):  # which says more
        return answer
    return document(
        command, ERROR, job=answer["job"], result=answer["result"], files=answer["files"], error=error_parts(error)
    )


def of_job(command: str, job: Job, files: Sequence[Path] = ()) -> Answer:
    """The answer of a finished job.

    Args:
        files: the files it wrote for users, if they were copied; in the app's own folder they are sealed.
    """
    outcome, result = outcome_of(job), result_of(job)
    assert outcome is not None
    if command == TRACE and outcome == FOUND and names_somebody(job):
        outcome = NAMED
    return document(
        command,
        outcome,
        job=state_of(job),
        result=result,
        files=[str(file) for file in files],
        error=error_of(job),
    )


def sentence(answer: Answer) -> str:
    """The answer as a sentence for the user."""
    outcome, result = answer["outcome"], answer["result"]
    if answer["error"] is not None:
        return f"Error: {_error(answer['error'])}"
    if outcome == STOPPED:
        return _stopped_recording(result) if answer["command"] == COLLECT and result else STOPPED_SAID
    if outcome == PLANNED:
        return "No request was sent. Give --send instead of --plan to send the requests."
    if outcome == RECORDED and "log_probabilities" in result:
        told = "with" if result["log_probabilities"] else "without"
        return (
            f"Recorded: {number(result['answers'])} answers with {number(result['tokens'])} tokens in all, {told} "
            f"log-probabilities, {size_text(result['bytes'])}, in {result['file']}."
        )
    if outcome == RECORDED:
        return (
            f"Recorded: {number(result['answers'])} answers with {number(result['tokens'])} tokens each, "
            f"{size_text(result['bytes'])}, in {result['file']}."
        )
    if outcome == OPENED:
        return f"The key was written to {result['file']}, readable by this account alone."
    if outcome == ATTESTED:
        return f"The attestation was written to {result['file']}."
    if outcome == CREATED:
        return "The vault is made. Its passphrase cannot be reset."
    if outcome == WRITTEN:
        return _written(result)
    if "suspects" in result:
        return _swept(result)
    if "sources" in result:
        return _watched(result)
    if outcome in (FOUND, NAMED):
        names = result["whose"]
        more = f" and {number(len(names) - _NAMED)} more" if len(names) > _NAMED else ""
        said = "Named:" if outcome == NAMED else "Found: the mark made for"
        nobody = "; its noise names no one" if outcome == FOUND and answer["command"] == TRACE else ""
        return f"{said} {', '.join(names[:_NAMED])}{more}{nobody}."
    if outcome == NOT_FOUND:
        tried, held = result["keys_tried"], result["keys_held"]
        of_all = "" if held is None else f" of {number(held)}"
        return (
            f"Not found: {number(tried)}{of_all} {'key' if (held or tried) == 1 else 'keys'} tried, none of them fits."
        )
    originals = result.get("originals", [])
    if open_originals(originals) and not any(row["verdict"] == INCONCLUSIVE for row in originals):
        return "Inconclusive: some originals of the vault are neither excluded nor examined."
    return "Inconclusive: this suspect supports neither answer; the report says why."


def _written(result: Any) -> str:
    if "rows" in result:
        return (
            f"Written: {number(result['written'])} copies, {size_text(result['bytes'])}, in {result['folder']}; "
            f"{number(result['skipped'])} recipients already had a copy."
        )
    reading = result["reading"]
    return (
        f"Written: {result['folder']}, {size_text(result['bytes'])}; read back, its mark is {reading['verdict']} "
        f"with {reading['count']} of {reading['present']} positions."
        + (f" Warning: {STALE_SIGNATURE}." if SIGNATURE_NAME in result["left_out"] else "")
    )


def _stopped_recording(result: Any) -> str:
    kept = result["answers_kept"]
    return f"Stopped; {number(kept)} answers are kept, and the same command continues with them."


def _watched(result: Any) -> str:
    """The results of this pass, and the findings so far."""
    counts = result["counts"]
    named = [f"{number(count)} {_SCREENED[word]}" for word, count in sorted(counts.items(), key=_of_word) if count]
    new = f"{counted(sum(counts.values()), 'new suspect')}{': ' if named else ''}{', '.join(named)}."
    left = sum(source["left"] for source in result["sources"])
    failed = [source for source in result["sources"] if source["error"]]
    more = f" Left for the next pass: {number(left)}." if left else ""
    more += "".join(f" {source['source']}: {_error(source['error'])}" for source in failed)
    found = [row for row in result["rows"] if row["result"]["word"] == FOUND]
    names = [f"{row['name']} ({', '.join(row['result']['whose'][:_NAMED])})" for row in found[:_NAMED]]
    more_found = f" and {number(len(found) - _NAMED)} more" if len(found) > _NAMED else ""
    so_far = f" Marks found so far: {'; '.join(names)}{more_found}." if found else ""
    derived = [row["name"] for row in result["rows"] if row["result"]["lineage"] == DERIVED and row not in found]
    if derived:
        others = f" and {number(len(derived) - _NAMED)} more" if len(derived) > _NAMED else ""
        so_far += f" Without a mark, but made from an original: {'; '.join(derived[:_NAMED])}{others}."
    return f"{new}{more}{so_far}"


def _of_word(pair: tuple[str, int]) -> int:
    return list(_SCREENED).index(pair[0])


def _swept(result: Any) -> str:
    suspects = result["suspects"]
    failed = sum(row["error"] is not None for row in suspects)
    found = sum(row["verdict"] == FOUND for row in suspects)
    more = f"; {number(failed)} could not be examined" if failed else ""
    more += "; not all of the folder was examined" if passed_over(result) else ""
    return f"Found in {number(found)} of {number(len(suspects))} suspects{more}."


def _error(parts: dict[str, str | None]) -> str:
    """The parts as the text of an `IrwmError`."""
    known = {name: parts.get(name) for name in PARTS if name != "problem"}
    return str(IrwmError(parts.get("problem") or "something went wrong", **known))
