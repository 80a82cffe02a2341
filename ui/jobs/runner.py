"""Starting and stopping jobs, from the app's side."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any

import psutil
from filelock import lock_descriptor

from irwm.checkpoint.child_process import module_command, module_environment
from irwm.checkpoint.platform import unlock_and_close
from irwm.errors import IrwmError
from storage.canonical import json_bytes
from storage.errors import RecordValueError
from storage.files import open_to_append
from storage.job import QUEUED, RUNNING, Job, JobLine
from storage.job_keys import JobKey
from storage.jobs import Jobs
from storage.processes import process_mark, still_runs
from storage.vault import Vault
from ui import quiet
from ui.jobs import KINDS, OPENS_VAULT, RESUMED, orphans
from ui.jobs.child import LENGTH_BYTES
from ui.jobs.queue import lane_of
from ui.jobs.vault_access import secrets_for
from ui.settings import REPOSITORY

# How long a task may take to clean up after Stop before it is ended the hard way.
GRACE_SECONDS = 1.5
LOCK_NAME = "starting.lock"
# Each waits in a process of its own, of 80 MB or, with a GPU to ask for, some 300 MB.
MOST_WAITING = 16
# The task gets what it needs by pipe; whatever else looks like a secret is not its business.
SECRET_NAME = re.compile(r"TOKEN|SECRET|PASSW|PASSPHRASE|CREDENTIAL|API_?KEY|PRIVATE_?KEY|AUTH", re.IGNORECASE)
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")

_STARTING = threading.Lock()
# A console of its own, without a window, so that neither Ctrl+C nor closing the app's window ends the task.
_WINDOWS_FLAGS = getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0) | getattr(subprocess, "CREATE_NO_WINDOW", 0)
# Jobs that `stop` is ending; their end is its to tell, whatever signal they die of.
_STOPPING: set[str] = set()


class QueueFullError(IrwmError):
    """More tasks wait than this computer should hold the processes of."""


class JobRunningError(IrwmError):
    """The same task is under way already.

    Attributes:
        job: that one.
    """

    def __init__(self, job: Job) -> None:
        self.job = job
        super().__init__(
            f"this is already running: {job.title}",
            found=f"job {job.id}, started {job.started or job.created}",
            advice="wait for it to end, or stop it first",
        )


def start(kind: str, title: str, request: Mapping[str, Any], secrets: Mapping[str, Any] | None, jobs: Jobs) -> Job:
    """Starts a task in a process of its own and returns its row, which says "queued" where it waits for its turn.

    Args:
        kind: one of `ui.jobs.KINDS`.
        title: what a person reads in lists.
        request: plain JSON without secrets; kept in the row.
        secrets: plain JSON, bytes as hex; goes through a pipe and is kept nowhere.
        jobs: opened with the keys of an unlocked vault (`Vault.jobs_keys_to_seal`).

    Raises:
        JobRunningError: the same request runs or waits already; nothing was started.
        RecordValueError: request or secrets are not plain JSON.
        JobSealedError: the vault is locked.
        QueueFullError: too many wait already.
        IrwmError: no such kind, no such device, or the process could not be started.
    """
    if kind not in KINDS:
        raise IrwmError("there is no such task", expected=", ".join(KINDS), found=kind)
    _message(jobs, request, secrets or {}, None)  # what cannot be sent is refused before there is a job
    lane = lane_of(kind, request)
    with _one_at_a_time(jobs):
        # A task whose process and starter are both gone is told by nobody that it ended.
        orphans.interrupt_dead(jobs)
        same = _running_twin(kind, request, jobs)
        if same is not None:
            raise JobRunningError(same)
        if jobs.waiting(lane) >= MOST_WAITING:
            raise QueueFullError(
                "too many tasks wait for this device", found=f"{MOST_WAITING}", advice="wait, or stop some of them"
            )
        job, process = _started(jobs.create(kind, title, request, lane), jobs)
    own = jobs.key_of(job.id)
    message = _message(jobs, request, secrets or {}, own)
    # With the job's own key alone: the vault may be locked long before the job ends.
    args = (process, message, job.id, jobs.opened(own))
    threading.Thread(target=_attend, args=args, daemon=True, name=f"job {job.id}").start()
    return job


def again(job: Job, vault: Vault, jobs: Jobs, today: Mapping[str, Any] | None = None) -> Job:
    """Runs the request of a job that is over once more. A sweep or a lab goes on with what the job left undone.

    Args:
        today: what the app's settings say now, such as "device"; it takes the place of what the request says of it.

    Raises:
        JobRunningError: it is not over, or the same request runs already.
        IrwmError: see `start`.
    """
    if not job.is_over:
        raise JobRunningError(job)
    request = job.request | {name: value for name, value in (today or {}).items() if name in job.request}
    request |= {"resume": job.id} if job.kind in RESUMED else {}
    own = secrets_for(vault) if job.kind in OPENS_VAULT else None
    return start(job.kind, job.title, request, own, jobs.opened(vault.jobs_keys_to_seal()))


def with_vault(jobs: Jobs) -> list[JobLine]:
    """The tasks that run or wait now, and that were handed the vault's data key."""
    orphans.interrupt_dead(jobs)
    return [job for job in jobs.under_way() if job.kind in OPENS_VAULT]


def stop(job_id: str, jobs: Jobs) -> JobLine:
    """Ends a job with all that it started, within two seconds, and returns its row.

    It is asked first, so that the task can take away what it had half-written, and ended the hard way soon after.

    Raises:
        RecordNotFoundError: no such job.
    """
    job = jobs.line(job_id)
    if job.is_over:
        return job
    _STOPPING.add(job_id)
    try:
        if job.state in (QUEUED, RUNNING) and job.pid is not None and _is_ours(job):
            if not hasattr(os, "killpg"):
                jobs.finish(job_id, "stopped")  # instead of a signal: `JobReporter.flush` sees it in the row
            _end_all(job.pid)
        return jobs.finish(job_id, "stopped")
    finally:
        _STOPPING.discard(job_id)


def _message(jobs: Jobs, request: Mapping[str, Any], secrets: Mapping[str, Any], own: JobKey | None) -> bytes:
    seal = {} if own is None else {"key": own.key, "secret": own.secret.hex()}
    try:
        values = {"home": str(jobs.home), "request": dict(request), "secrets": dict(secrets), "seal": seal}
        body = json.dumps(values, allow_nan=False).encode("utf-8")
    except (TypeError, ValueError):
        # Without the cause: its text quotes the value.
        raise RecordValueError("request and secrets must be plain JSON values") from None
    return len(body).to_bytes(LENGTH_BYTES, "big") + body


@contextlib.contextmanager
def _one_at_a_time(jobs: Jobs) -> Iterator[None]:
    """Holds off other starts, of this app and of another one on the same home folder, between look and start."""
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


def _running_twin(kind: str, request: Mapping[str, Any], jobs: Jobs) -> Job | None:
    wanted = json_bytes(dict(request), "the request")
    for job in jobs.under_way():
        # One without a process failed to start, and its end could not be written.
        if (
            isinstance(job, Job)
            and job.kind == kind
            and job.pid is not None
            and json_bytes(job.request, "the request") == wanted
        ):
            return job
    return None


def _started(job: Job, jobs: Jobs) -> tuple[Job, subprocess.Popen[bytes]]:
    """The job in a process of its own; one that fails to start, as on a full disk, is over and holds nobody up."""
    process = None
    try:
        process = _spawn(job, jobs)
        # It waits for its message, so the row says whose it is before the task can say "done".
        jobs.start(job.id, process.pid)
        return jobs.get(job.id), process
    except BaseException as error:
        if process is not None:
            _end_all(process.pid)
            if isinstance(error, RecordValueError):  # stopped in this very moment
                return jobs.get(job.id), process
        with contextlib.suppress(IrwmError):
            jobs.finish(job.id, "failed", error={"problem": "the task could not be started", "found": str(error)})
        raise


def _spawn(job: Job, jobs: Jobs) -> subprocess.Popen[bytes]:
    jobs.log(job.id, f"{time.strftime('%Y-%m-%d %H:%M:%S', time.gmtime())} UTC {job.title}")
    try:
        with jobs.log_path(job.id).open("ab") as log:
            return subprocess.Popen(
                module_command("ui.jobs.child", job.id),
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                cwd=REPOSITORY,
                env=child_environment(),
                start_new_session=True,
                creationflags=_WINDOWS_FLAGS,
            )
    except OSError as error:
        raise IrwmError("the task's process could not be started", found=str(error)) from error


def child_environment() -> dict[str, str]:
    """This process's environment without what looks like a secret, with the network off and threads bounded."""
    kept = {name: value for name, value in os.environ.items() if not SECRET_NAME.search(name)}
    # All cores but one, so that the pages stay quick.
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    streams = {"PYTHONUNBUFFERED": "1", "PYTHONIOENCODING": "utf-8:backslashreplace"}
    own = dict.fromkeys(THREAD_VARIABLES, str(max(1, cores - 1))) | kept | quiet.SWITCHES | streams
    return module_environment(base=own)


def _attend(process: subprocess.Popen[bytes], message: bytes, job_id: str, jobs: Jobs) -> None:
    """Hands over the message, waits for the end, and says so when the task could not say it itself."""
    assert process.stdin is not None
    with contextlib.suppress(OSError):  # it ended before it read
        process.stdin.write(message)
    with contextlib.suppress(OSError):
        process.stdin.close()
    code = process.wait()
    if code < 0:  # it had no time to clean up
        with contextlib.suppress(IrwmError):
            orphans.sweep(jobs.get(job_id))
    if job_id in _STOPPING:
        return
    with contextlib.suppress(IrwmError):  # the home folder is gone, as at the end of a test
        jobs.finish(job_id, "failed", error=_sudden_end(code))


def _sudden_end(code: int) -> dict[str, str]:
    name = signal.Signals(-code).name if code < 0 else None
    how = f"signal {name}" if name else f"exit status {code}"
    advice = "look at the log, then start it again"
    if name == "SIGKILL":
        advice = "as a rule the computer ran out of memory: close other programs, then start it again"
    advice += "; what it had finished by then stays, and what was half-written is gone"
    return {
        "problem": "the process that worked on this ended without saying how",
        "found": how,
        "advice": advice,
    }


def _is_ours(job: JobLine) -> bool:
    """Whether the process with this number is still the job's, so that no stranger is ended in its place."""
    try:
        return job.pid is not None and job.id in psutil.Process(job.pid).cmdline()
    except psutil.Error:
        return False


def _end_all(pid: int) -> None:
    """Ends a process and what it started."""
    mark, groups = process_mark(pid), hasattr(os, "killpg")
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if groups:
            os.killpg(pid, signal.SIGTERM)
        deadline = time.monotonic() + GRACE_SECONDS
        while time.monotonic() < deadline and still_runs(pid, mark):
            time.sleep(0.02)
        if groups:
            # Also when the task itself has ended: what it started may not have.
            os.killpg(pid, signal.SIGKILL)
        elif still_runs(pid, mark):
            _end_tree(pid)


def _end_tree(pid: int) -> None:
    """Windows has no groups of processes. On POSIX a group also holds those whose parent is gone, which this misses."""
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        for each in (*process.children(recursive=True), process):
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()
