"""The queue: tasks that need a device exclusively run one at a time, the oldest first.

Two tasks that share a processor or a GPU take longer than one after the other, and may both run out of memory. A task
waits in its own process, so that it keeps its request and secrets even if the app ends; the order is that of the job
list, which the pages and the command line share.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from irwm.errors import CancelledError
from storage.job_table import QUEUED, RUNNING
from storage.jobs import Jobs
from ui.jobs import KINDS
from ui.jobs.reporter import JobReporter
from ui.services.device import device_of

SECONDS_BETWEEN_LOOKS = 0.25


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
