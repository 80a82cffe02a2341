"""Waiting for a condition, never for a fixed time, so that no test fails on a slow machine."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from storage.job_table import Job
from storage.jobs import Jobs

# Long enough to detect only real hangs: everything here takes seconds, or minutes on a busy machine.
PATIENCE = 600
FIRST_PAUSE, LONGEST_PAUSE = 0.005, 0.02
LOG_CHARACTERS = 4000
Answer = TypeVar("Answer")


class GaveUpError(AssertionError):
    """A condition was not met in time."""


def until(
    condition: Callable[[], Answer],
    what: str,
    log: Path | Callable[[], str] | None = None,
    longest_pause: float = LONGEST_PAUSE,
) -> Answer:
    """Wait until `condition` returns a true value, and return it.

    Args:
        what: end of the sentence "waited for ...".
        log: log with a possible reason if it never becomes true; its end is quoted.
        longest_pause: seconds between two checks.

    Raises:
        GaveUpError: the value stayed false.
    """
    began, pause = time.monotonic(), min(FIRST_PAUSE, longest_pause)
    while not (answer := condition()):
        if time.monotonic() - began > PATIENCE:
            raise GaveUpError(f"waited {PATIENCE:g} s for {what}{quoted(log)}")
        time.sleep(pause)
        pause = min(1.5 * pause, longest_pause)
    return answer


def until_over(jobs: Jobs, job_id: str) -> Job:
    """Wait until a job has ended in any state, and return it.

    Args:
        jobs: job list opened with the keys of the job.

    Raises:
        GaveUpError: it does not end; the message has the end of its log.
    """
    until(lambda: jobs.line(job_id).is_over, f"the end of job {job_id}", lambda: jobs.log_tail(job_id))
    return jobs.get(job_id)


def until_ended(process: subprocess.Popen[str], what: str) -> tuple[str, str]:
    """Wait until a child process has ended, and return its output and its errors.

    Raises:
        GaveUpError: it does not end; it is killed, and the message has its output.
    """
    try:
        return process.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        said = "".join(part or "" for part in process.communicate())
        raise GaveUpError(f"waited {PATIENCE:g} s for {what}{quoted(lambda: said)}") from None


def quoted(log: Path | Callable[[], str] | None) -> str:
    """Return the end of a log, for a message."""
    if log is None:
        return ""
    text = log.read_text(encoding="utf-8", errors="replace") if isinstance(log, Path) else log()
    return f"; the log ends:\n{text[-LOG_CHARACTERS:]}"
