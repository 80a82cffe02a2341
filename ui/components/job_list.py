"""The history of jobs as a table: title, state, time, duration and result. All functions are pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from markupsafe import Markup

from irwm.errors import printable
from irwm.report.numbers import counted, number
from storage.job_table import Job, JobLine
from ui.components.job_card import duration_text, state_html
from ui.components.markup import moment, record_row, table
from ui.components.notices import empty_html

# Sends the id of the chosen line. The line's name is a real button, so that the list works by keyboard. The list may be
# redrawn every few seconds, so the script keeps the keyboard focus.
LIST_SCRIPT = """
let held = null;
const of = (target) => target.closest?.('[data-record]')?.dataset.record ?? null;
element.addEventListener('click', (event) => {
  const record = of(event.target);
  if (record) trigger('chosen', {record});
});
element.addEventListener('focusin', (event) => { held = of(event.target); });
element.addEventListener('focusout', () => setTimeout(() => {
  // When a line is removed, the focus falls back to the page; when a user moves on, another element has it.
  if (document.activeElement !== document.body && !element.contains(document.activeElement)) held = null;
}));
watch('value', () => {
  if (held && document.activeElement === document.body) {
    element.querySelector(`[data-record="${CSS.escape(held)}"]`)?.focus({preventScroll: true});
  }
});
"""
NO_JOBS = empty_html(
    "No jobs yet", "Long tasks are listed here. Protect a model or investigate a suspect to start one."
)
# Result of a job that was started under another vault, such as one that was replaced by a backup.
SEALED = "Sealed by another vault"
# A job in one of these states did not finish, so it may be run again.
UNDONE = ("failed", "stopped", "interrupted")
_HEADS = ("Job", "State", ("Requested (UTC)", "snug"), ("Duration", "number"), "Result")
_LONGEST_RESULT = 90


def jobs_html(jobs: Sequence[JobLine], chosen: str | None, now: datetime) -> str:
    """One page of the history, newest first; the chosen job is marked. Titles are buttons, for mouse and keyboard."""
    if not jobs:
        return NO_JOBS
    return str(table("Jobs", _HEADS, (_row(job, job.id == chosen, now) for job in jobs), "jobs"))


def result_text(job: JobLine) -> str:
    """The result of a job in a few words; its error if it failed."""
    if not isinstance(job, Job):
        return SEALED
    if job.state in ("failed", "interrupted"):
        problem = printable(str((job.error or {}).get("problem", "")), _LONGEST_RESULT)
        return problem[:1].upper() + problem[1:]
    if job.state != "done" or job.result is None:
        return ""
    return _word(job.kind, job.result)


def took_text(job: JobLine, now: datetime) -> str:
    """How long a job ran, or has run so far; "" while it waits."""
    if job.started is None:
        return ""
    ended = datetime.fromisoformat(job.ended) if job.ended else now
    return duration_text((ended - datetime.fromisoformat(job.started)).total_seconds())


def where_text(page: int, size: int, total: int, one: str = "job") -> str:
    """The range of the rows shown, and their total number.

    Args:
        page: counts from 0.
        size: rows on a page.
        one: the name of a row.
    """
    if total <= size:
        return counted(total, one)
    return f"{number(page * size + 1)} to {number(min(total, (page + 1) * size))} of {counted(total, one)}"


def _word(kind: str, result: Any) -> str:
    if kind == "protect":
        if not result.get("many"):
            return "Released"
        failed = f", {number(result['failed'])} failed" if result.get("failed") else ""
        return f"{number(result.get('written', 0))} released{failed}"
    if kind == "investigate":
        return printable(str(result.get("word", "")), _LONGEST_RESULT).capitalize()
    if kind == "sweep":
        rows = result.get("rows", ())
        found = sum(row.get("verdict") == "found" for row in rows)
        return f"Found in {number(found)} of {number(len(rows))} suspects"
    if kind == "watch":
        counts = result.get("counts", {})
        found = f", {number(counts['found'])} with a mark" if counts.get("found") else ""
        return f"{counted(sum(counts.values()), 'new suspect')}{found}"
    if kind == "descent":
        names = result.get("names", ())
        return f"{counted(len(names), 'model')} on the map"
    if kind == "lab":
        return "Report written"
    if kind == "dispute":
        return printable(str(result.get("outcome", "")), _LONGEST_RESULT).capitalize()
    if kind == "item":
        return "Added" if result.get("added", True) else "Already in the case"
    if kind == "verify":
        return "Valid" if result.get("ok") else "Not valid"
    return "Done"


def _row(job: JobLine, chosen: bool, now: datetime) -> Markup:
    title = printable(job.title, 120) if isinstance(job, Job) else job.kind.capitalize()
    cells = Markup('<td>{}</td><td class="snug">{}</td><td class="number">{}</td><td>{}</td>').format(
        state_html(job), moment(job.created), took_text(job, now) or "–", result_text(job) or "–"
    )
    return record_row(job.id, title, chosen, cells)
