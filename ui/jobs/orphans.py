"""Partial output of a protect task that was killed: by SIGKILL, a power cut, or Stop during a long fsync.

A partial folder is as large as the model, and otherwise only the next run into the same folder would remove it.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from irwm.errors import IrwmError
from irwm.release import sweep_partials
from storage.errors import StorageError
from storage.job_table import Job, JobLine
from storage.jobs import Jobs

KIND = "protect"


def sweep(job: Job) -> list[Path]:
    """Removes and returns partial output of dead runs in this job's target folder; output of running jobs stays."""
    out = job.request.get("out")
    if job.kind != KIND or not isinstance(out, str):
        return []
    try:
        return sweep_partials(Path(out) if job.request.get("many") else Path(out).parent)
    except (IrwmError, OSError, ValueError):
        return []  # the disk is not connected any more, or the path never existed


def interrupt_dead(jobs: Jobs) -> list[JobLine]:
    """Marks jobs without a process as interrupted, and cleans up after those that can be opened; called at start."""
    dead = jobs.interrupt_dead()
    sweep_left(jobs)
    return dead


def sweep_left(jobs: Jobs) -> None:
    """Cleans up after interrupted jobs; also called after unlocking, because a locked app cannot read their target
    folders."""
    with contextlib.suppress(StorageError):  # the list is busy: the next call cleans up
        for job in jobs.unswept():
            sweep(job)
            jobs.swept(job.id)
