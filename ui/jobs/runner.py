"""Starting and stopping jobs, on the app's side."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping

import psutil
from filelock import lock_descriptor

from irwm.checkpoint.platform import unlock_and_close
from irwm.errors import IrwmError
from storage.canonical import json_bytes
from storage.errors import RecordValueError
from storage.files import open_to_append
from storage.job_keys import JobKey
from storage.job_table import RESTING, Job, JobLine
from storage.jobs import Jobs
from storage.processes import process_mark, still_runs
from storage.vault import Vault
from ui.jobs import KINDS, Kind, orphans
from ui.jobs.child import LENGTH_BYTES
from ui.jobs.processes import Ready, environment, spawn
from ui.jobs.queue import lane_of
from ui.jobs.vault_access import secrets_for

# Time that a task has to clean up after Stop before it is killed.
GRACE_SECONDS = 1.5
LOCK_NAME = "starting.lock"
# Each waits in its own process, of 80 MB or, if it uses a GPU, about 300 MB.
MOST_WAITING = 16

_STARTING = threading.Lock()
# Jobs that `stop` is ending; only `stop` records their end, no matter which signal ended them.
_STOPPING: set[str] = set()


class QueueFullError(IrwmError):
    """Too many tasks wait; each needs a process."""


class JobRunningError(IrwmError):
    """The same task is already running.

    Attributes:
        job: the running job.
    """

    def __init__(self, job: Job) -> None:
        self.job = job
        if job.state == RESTING:
            super().__init__(
                f"already scheduled: {job.title}",
                found=f"job {job.id}: {job.what}",
                advice="Stop it first, then start it again",
            )
            return
        super().__init__(
            f"already running: {job.title}",
            found=f"job {job.id}, started {job.started or job.created}",
            advice="wait until it has finished, or stop it first",
        )


def start(
    kind: str,
    title: str,
    request: Mapping[str, object],
    secrets: Mapping[str, str] | None,
    jobs: Jobs,
    ready: Ready | None = None,
) -> Job:
    """Starts a task in its own process and returns its row, with the state "queued" if it waits.

    Args:
        kind: one of `ui.jobs.KINDS`.
        title: shown in lists.
        request: plain JSON without secrets; stored in the row.
        secrets: plain JSON, bytes as hex; sent through a pipe and not stored.
        jobs: opened with the keys of an unlocked vault (`Vault.jobs_keys_to_seal`).
        ready: may have a process for it; a new one is started otherwise.

    Raises:
        JobRunningError: the same request is already running or waiting; no job was started.
        RecordValueError: request or secrets are not plain JSON.
        JobSealedError: the vault is locked.
        QueueFullError: too many tasks are already waiting.
        IrwmError: unknown kind, missing device, or the process could not be started.
    """
    _kind(kind)
    _message(jobs, request, secrets or {}, None)  # raises before there is a job if the message cannot be sent
    lane = lane_of(kind, request)
    with _one_at_a_time(jobs):
        # If a task's process and its starter are both gone, no process has recorded its end.
        orphans.interrupt_dead(jobs)
        same = _running_twin(kind, request, jobs)
        if same is not None:
            raise JobRunningError(same)
        if jobs.waiting(lane) >= MOST_WAITING:
            raise QueueFullError(
                "too many tasks are waiting for this device",
                found=f"{MOST_WAITING}",
                advice="wait, or stop some of them",
            )
        job, process = _started(jobs.create(kind, title, request, lane), jobs, ready)
    own = jobs.key_of(job.id)
    message = _message(jobs, request, secrets or {}, own)
    # Only with the job's own key: the vault may be locked long before the job ends.
    args = (process, message, job.id, jobs.opened(own))
    threading.Thread(target=_attend, args=args, daemon=True, name=f"job {job.id}").start()
    return job


def again(job: Job, vault: Vault, jobs: Jobs, today: Mapping[str, str] | None = None) -> Job:
    """Runs the request of a job that is over again. A sweep or a lab continues with the remaining work.

    Args:
        today: current settings of the app, such as "device"; they replace those of the request.

    Raises:
        JobRunningError: it is not over, or the same request is already running.
        IrwmError: see `start`.
    """
    if not job.is_over:
        raise JobRunningError(job)
    request = job.request | {name: value for name, value in (today or {}).items() if name in job.request}
    kind = _kind(job.kind)
    request |= {"resume": job.id} if kind.resumed else {}
    own = secrets_for(vault) if kind.opens_vault else None
    return start(job.kind, job.title, request, own, jobs.opened(vault.jobs_keys_to_seal()))


def with_vault(jobs: Jobs) -> list[JobLine]:
    """The running or waiting tasks that have the vault's data key."""
    orphans.interrupt_dead(jobs)
    return [job for job in jobs.under_way() if job.kind in KINDS and KINDS[job.kind].opens_vault]


def stop(job_id: str, jobs: Jobs) -> JobLine:
    """Ends a job and all processes that it started within two seconds, and returns its row.

    The task first gets a request to stop, so that it can remove partial output, and is killed soon after.

    Raises:
        RecordNotFoundError: the job does not exist.
    """
    job = jobs.line(job_id)
    if job.is_over:
        return job
    _STOPPING.add(job_id)
    try:
        if job.pid is not None and jobs.is_alive(job.id):
            if not hasattr(os, "killpg"):
                jobs.finish(job_id, "stopped")  # instead of a signal: `JobReporter.flush` sees it in the row
            _end_all(job.pid)
        return jobs.finish(job_id, "stopped")
    finally:
        _STOPPING.discard(job_id)


def _kind(name: str) -> Kind:
    if name not in KINDS:
        raise IrwmError("this task does not exist", expected=", ".join(KINDS), found=name)
    return KINDS[name]


def _message(jobs: Jobs, request: Mapping[str, object], secrets: Mapping[str, str], own: JobKey | None) -> bytes:
    seal = {} if own is None else {"job": own.job, "key": own.key, "secret": own.secret.hex()}
    try:
        values = {"home": str(jobs.home), "request": dict(request), "secrets": dict(secrets), "seal": seal}
        body = json.dumps(values, allow_nan=False).encode("utf-8")
    except (TypeError, ValueError):
        # Without the cause: its text quotes the value.
        raise RecordValueError("the request and the secrets must be plain JSON values") from None
    return len(body).to_bytes(LENGTH_BYTES, "big") + body


@contextlib.contextmanager
def _one_at_a_time(jobs: Jobs) -> Iterator[None]:
    """Blocks other starts, of this app and of another one on the same home folder, between check and start."""
    with _STARTING:
        descriptor = open_to_append(jobs.home / LOCK_NAME)
        try:
            lock_descriptor(descriptor)
        except BaseException:
            os.close(descriptor)
            raise
        try:
            yield
        finally:
            unlock_and_close(descriptor)


def _running_twin(kind: str, request: Mapping[str, object], jobs: Jobs) -> Job | None:
    wanted = json_bytes(dict(request), "the request")
    for job in jobs.under_way():
        # A job without a process failed to start, and its end could not be written.
        if (
            isinstance(job, Job)
            and job.kind == kind
            and job.pid is not None
            and json_bytes(job.request, "the request") == wanted
        ):
            return job
    return None


def _started(job: Job, jobs: Jobs, ready: Ready | None) -> tuple[Job, subprocess.Popen[bytes]]:
    """The job in its own process; a job that fails to start, as on a full disk, is over and does not block others."""
    process = None
    try:
        process = _process_for(job, jobs, ready)
        # The process waits for its message, so the row has its number before the task can record "done".
        jobs.start(job.id, process.pid)
        return jobs.get(job.id), process
    except BaseException as error:
        if process is not None:
            _end_all(process.pid)
            if isinstance(error, RecordValueError):  # stopped at this moment
                return jobs.get(job.id), process
        with contextlib.suppress(IrwmError):
            jobs.finish(job.id, "failed", error={"problem": "the task could not be started", "found": str(error)})
        raise


def _process_for(job: Job, jobs: Jobs, ready: Ready | None) -> subprocess.Popen[bytes]:
    jobs.log(job.id, f"{time.strftime('%Y-%m-%d %H:%M:%S', time.gmtime())} UTC {job.title}")
    process = ready.take() if ready is not None else None
    if process is not None:
        return process
    return spawn(environment(), jobs.log_path(job.id), job.id)


def _attend(process: subprocess.Popen[bytes], message: bytes, job_id: str, jobs: Jobs) -> None:
    """Sends the message, waits for the end, and records it if the task could not."""
    assert process.stdin is not None
    with contextlib.suppress(OSError):  # the process ended before it read the message
        process.stdin.write(message)
    with contextlib.suppress(OSError):
        process.stdin.close()
    code = process.wait()
    if code < 0:  # the process had no time to clean up
        with contextlib.suppress(IrwmError):
            orphans.sweep(jobs.get(job_id))
    if job_id in _STOPPING:
        return
    with contextlib.suppress(IrwmError):  # the home folder is gone, as at the end of a test
        jobs.finish(job_id, "failed", error=_sudden_end(code))


def _sudden_end(code: int) -> dict[str, str]:
    name = signal.Signals(-code).name if code < 0 else None
    how = f"signal {name}" if name else f"exit status {code}"
    advice = "see the log, then start the task again"
    if name == "SIGKILL":
        advice = "the usual cause is too little memory. Close other programs, then start the task again"
    advice += "; finished files were kept, and partial output was removed"
    return {
        "problem": "the process that was running this job ended without a result",
        "found": how,
        "advice": advice,
    }


def _end_all(pid: int) -> None:
    """Ends a process and all processes that it started."""
    mark, groups = process_mark(pid), hasattr(os, "killpg")
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if groups:
            os.killpg(pid, signal.SIGTERM)
        deadline = time.monotonic() + GRACE_SECONDS
        while time.monotonic() < deadline and still_runs(pid, mark):
            time.sleep(0.02)
        if groups:
            # Also if the task itself has ended: processes that it started may still run.
            os.killpg(pid, signal.SIGKILL)
        elif still_runs(pid, mark):
            _end_tree(pid)


def _end_tree(pid: int) -> None:
    """For Windows, which has no process groups. Unlike a POSIX group, it misses processes whose parent has ended."""
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        for each in (*process.children(recursive=True), process):
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()
