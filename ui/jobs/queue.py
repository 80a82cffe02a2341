"""The queue: tasks that need a device exclusively run one at a time, the oldest first.

Two tasks that share a processor or a GPU take longer than one after the other, and may both run out of memory. A task
waits in its own process, so that it keeps its request and secrets even if the app ends; the order is that of the job
list, which the pages and the command line share. A repeated task rests between its passes in the same way.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta

from irwm.errors import CancelledError
from storage.errors import StorageBusyError, StorageFullError
from storage.job_table import QUEUED, RUNNING
from storage.jobs import Jobs
from ui.jobs import KINDS
from ui.jobs.reporter import JobReporter
from ui.services.device import device_of

SECONDS_BETWEEN_LOOKS = 0.25
_OF_A_RESTING_JOB = 1.0


def lane_of(kind: str, request: Mapping[str, object]) -> str:
    """The device that a task needs exclusively, or "" for none.

    Raises:
        IrwmError: it requires a GPU and there is none.
    """
    if KINDS[kind].light:
        return ""
    return device_of(str(request.get("device", "cpu")))


def wait_for_turn(jobs: Jobs, job_id: str, report: JobReporter) -> None:
    """Returns once the job runs.

    Raises:
        CancelledError: it was stopped while it waited.
    """
    told = ""
    while (state := jobs.take_turn(job_id)) == QUEUED:
        if report.cancelled():
            break
        before = jobs.ahead(job_id)
        if before and before[0].id != told:
            told = before[0].id
            report.log(f"Jobs ahead of this one: {len(before)}. Current job: {before[0].kind} {told}")
        time.sleep(SECONDS_BETWEEN_LOOKS)
    if state != RUNNING:
        raise CancelledError("stopped on request")


def hours_between(kind: str, request: Mapping[str, object]) -> float:
    """The hours between two passes of a repeated task; 0 for a task that runs once."""
    hours = request.get("every", 0)
    return float(hours) if KINDS[kind].repeated and isinstance(hours, int | float) else 0.0


def rest(
    jobs: Jobs,
    job_id: str,
    report: JobReporter,
    hours: float,
    result: Mapping[str, object] | None,
    error: Mapping[str, str | None] | None,
) -> None:
    """Stores what a pass found, or the parts of its error, and returns when the next pass is due. A computer that slept
    meanwhile is late once.

    Raises:
        CancelledError: the task was stopped.
    """
    until = datetime.now(UTC) + timedelta(hours=hours)
    report.flush()
    said = f"Next pass on {until:%Y-%m-%d at %H:%M} UTC"
    if not _once_possible(lambda: jobs.rest(job_id, said, result, error), report):
        raise CancelledError("stopped on request")
    while not report.cancelled() and datetime.now(UTC) < until:
        time.sleep(_OF_A_RESTING_JOB)
    if not _once_possible(lambda: jobs.wake(job_id), report):
        raise CancelledError("stopped on request")


def _once_possible(change: Callable[[], bool], report: JobReporter) -> bool:
    """The result of a change of the list, tried again while the list is busy or the disk is full; False after Stop."""
    while not report.cancelled():
        try:
            return change()
        except (StorageBusyError, StorageFullError):
            time.sleep(_OF_A_RESTING_JOB)
    return False
