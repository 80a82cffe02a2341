"""Waiting for a condition, never for a time, so that nothing fails because the machine is slow."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from storage.job import Job
from storage.jobs import Jobs

# Only what hangs for good is given up: whatever runs here takes seconds, and a minute beside a dozen other programs.
PATIENCE = 300
FIRST_PAUSE, LONGEST_PAUSE = 0.005, 0.02
LOG_CHARACTERS = 4000
Answer = TypeVar("Answer")


class GaveUpError(AssertionError):
    """A condition was not met in all that time."""


def until(
    condition: Callable[[], Answer],
    what: str,
    log: Path | Callable[[], str] | None = None,
    longest_pause: float = LONGEST_PAUSE,
) -> Answer:
    """What `condition` returns, once that is true.

    Args:
        what: ends the sentence "waited for ...".
        log: where the reason may be if it never becomes true; its end is quoted.
        longest_pause: seconds between two looks.

    Raises:
        GaveUpError: it stayed false.
    """
    began, pause = time.monotonic(), min(FIRST_PAUSE, longest_pause)
    while not (answer := condition()):
        if time.monotonic() - began > PATIENCE:
            raise GaveUpError(f"waited {PATIENCE:g} s for {what}{quoted(log)}")
        time.sleep(pause)
        pause = min(1.5 * pause, longest_pause)
    return answer


def until_over(jobs: Jobs, job_id: str) -> Job:
    """The job, once it has ended, however that was.

    Args:
        jobs: opened with keys of the job.

    Raises:
        GaveUpError: it goes on and on; the message has the end of its log.
    """
    until(lambda: jobs.line(job_id).is_over, f"the end of job {job_id}", lambda: jobs.log_tail(job_id))
    return jobs.get(job_id)


def until_ended(process: subprocess.Popen[str], what: str) -> tuple[str, str]:
    """What a child process has written to its output and to its errors, once it has ended.

    Raises:
        GaveUpError: it goes on and on; it is killed, and the message has what it wrote.
    """
    try:
        return process.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        said = "".join(part or "" for part in process.communicate())
        raise GaveUpError(f"waited {PATIENCE:g} s for {what}{quoted(lambda: said)}") from None


def quoted(log: Path | Callable[[], str] | None) -> str:
    """The end of a log, for a message."""
    if log is None:
        return ""
    text = log.read_text(encoding="utf-8", errors="replace") if isinstance(log, Path) else log()
    return f"; the log ends:\n{text[-LOG_CHARACTERS:]}"
