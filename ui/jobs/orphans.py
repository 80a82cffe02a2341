"""What a protect task left half-written when it was ended the hard way: SIGKILL, a power cut, a Stop in a long fsync.

A partial folder is as large as the model, and nobody but the next run into the same folder would take it away.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from irwm.errors import IrwmError
from irwm.release import sweep_partials
from storage.errors import StorageError
from storage.job import Job, JobLine
from storage.jobs import Jobs

KIND = "protect"


def sweep(job: Job) -> list[Path]:
    """Removes what dead runs left half-written where this job wrote, and returns it; what a living run holds stays."""
    out = job.request.get("out_dir")
    if job.kind != KIND or not isinstance(out, str):
        return []
    try:
        return sweep_partials(Path(out) if "recipients" in job.request else Path(out).parent)
    except (IrwmError, OSError, ValueError):
        return []  # the disk is not there any more, or it is a path that never was


def interrupt_dead(jobs: Jobs) -> list[JobLine]:
    """Ends the jobs that nobody runs any more, and sweeps up after those that can be opened; called at start."""
    dead = jobs.interrupt_dead()
    sweep_left(jobs)
    return dead


def sweep_left(jobs: Jobs) -> None:
    """Sweeps up after interrupted jobs; called after an unlocking too, for a locked app cannot read where they
    wrote."""
    with contextlib.suppress(StorageError):  # the list is busy: the next one who comes sweeps
        for job in jobs.unswept():
            sweep(job)
            jobs.swept(job.id)
