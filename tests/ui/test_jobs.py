from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from irwm.errors import CancelledError, IrwmError
from storage.errors import RecordValueError
from storage.job_table import Job
from storage.jobs import Jobs
from storage.processes import still_runs
from tools.waiting import PATIENCE, until, until_over
from ui.jobs import child, processes, runner, task
from ui.jobs.processes import Ready
from ui.jobs.reporter import JobReporter

SECRET = "feedfacecafebeef" * 4


def start(jobs: Jobs, do: str, ready: Ready | None = None, **more: Any) -> Job:
    return runner.start("protect", f"Try {do}", {"do": do, **more}, {"key": SECRET}, jobs, ready)


def wait(jobs: Jobs, job: Job) -> Job:
    return until_over(jobs, job.id)


def test_unexpected_error_is_logged_with_traceback_and_without_secrets(jobs: Jobs) -> None:
    job = wait(jobs, start(jobs, "crash"))
    assert job.state == "failed"
    assert job.error is not None
    assert "unexpected error" in job.error["problem"]
    assert "low-level trouble" not in json.dumps(job.error)
    log = jobs.log_tail(job.id)
    assert "RuntimeError: low-level trouble with [secret]" in log
    assert SECRET not in log


def test_a_job_reports_and_ends(jobs: Jobs) -> None:
    job = wait(jobs, start(jobs, "work", steps=12))
    assert (job.state, job.result, job.error) == ("done", {"answer": 42}, None)
    assert (job.done, job.total) == (48_000_000, 48_000_000), "the last progress is written although it came fast"
    assert "Copying shard 1 of 120" in jobs.log_tail(job.id)
    assert jobs.log_path(job.id).stat().st_mode & 0o077 == 0
    assert runner.stop(job.id, jobs).state == "done", "a stop comes too late"
    assert wait(jobs, start(jobs, "read stdin")).result == {"rest": "", "secret length": len(SECRET)}


@pytest.mark.parametrize(
    ("do", "error"),
    [
        ("fail", {"type": "CorruptCheckpointError", "file": "/models/a", "tensor": "t", "expected": "8", "found": "7"}),
        ("memory", {"problem": "the computer ran out of memory"}),
        ("leave", {"found": "exit status 7"}),
        ("bad result", {}),
    ],
)
def test_how_a_task_failed_is_kept(jobs: Jobs, do: str, error: dict[str, str]) -> None:
    job = wait(jobs, start(jobs, do))
    assert job.state == "failed"
    assert (job.error or {}).items() >= error.items()


@pytest.mark.fault(54)
def test_secrets_are_not_in_arguments_environment_or_files(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", SECRET)
    job = start(jobs, "work")
    until(lambda: jobs.get(job.id).done > 0, "the first progress", lambda: jobs.log_tail(job.id))
    for name in ("cmdline", "environ"):
        assert SECRET.encode() not in Path(f"/proc/{job.pid}/{name}").read_bytes()
    for path in jobs.home.rglob("*"):
        if path.is_file():
            assert SECRET.encode() not in path.read_bytes(), path
    assert f"{job.id}".encode() in Path(f"/proc/{job.pid}/cmdline").read_bytes()


def until_attended(job: Job) -> None:
    """Waits until the thread that watches the job's process has ended, and so has written everything."""
    until(
        lambda: f"job {job.id}" not in [thread.name for thread in threading.enumerate()], "the job's attendant to end"
    )


def test_stop_lets_a_task_remove_partial_files(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "GRACE_SECONDS", PATIENCE)  # it needs far less, also on a busy machine
    job = start(jobs, "work")
    half = jobs.folder(job.id) / "half"
    until(half.exists, "the half-written file", lambda: jobs.log_tail(job.id))
    ended = runner.stop(job.id, jobs)
    assert ended.state == "stopped"
    assert not half.exists()


def test_stop_kills_an_unresponsive_task_and_its_children(jobs: Jobs) -> None:
    job = start(jobs, "stubborn")
    until(lambda: jobs.get(job.id).what == "Not listening", "the task to stop listening", lambda: jobs.log_tail(job.id))
    grandchild = int((jobs.folder(job.id) / "grandchild").read_text())
    assert runner.stop(job.id, jobs).state == "stopped"
    assert job.pid is not None
    until(lambda: not still_runs(job.pid, None) and not still_runs(grandchild, None), "the end of both processes")
    until_attended(job)
    assert jobs.get(job.id).state == "stopped", "the watcher does not overwrite it"


MOMENTS: dict[str, Callable[[Jobs, Job], object]] = {
    "at once": lambda jobs, job: True,
    "in the task's own program": lambda jobs, job: job.id.encode() in Path(f"/proc/{job.pid}/cmdline").read_bytes(),
    "with the first progress": lambda jobs, job: jobs.get(job.id).done > 0,
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_immediate_stop_is_not_a_failure(jobs: Jobs, moment: str) -> None:
    job = start(jobs, "work")
    until(lambda: MOMENTS[moment](jobs, job), moment, lambda: jobs.log_tail(job.id))
    assert runner.stop(job.id, jobs).state == "stopped"
    until_attended(job)
    assert jobs.get(job.id).state == "stopped"


def test_stop_does_not_kill_another_process_with_the_same_pid(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    job = jobs.create("protect", "old", {"do": "x"})
    other_process = runner.subprocess.Popen(["sleep", "60"], start_new_session=True)
    try:
        with monkeypatch.context() as earlier:
            earlier.setattr("storage.jobs.process_mark", lambda pid: "a process that has ended")
            jobs.start(job.id, other_process.pid)
        assert runner.stop(job.id, jobs).state == "stopped"
        assert other_process.poll() is None
    finally:
        other_process.kill()
        other_process.wait()


@pytest.mark.fault(65)
def test_the_same_request_does_not_run_twice_at_once(jobs: Jobs) -> None:
    first = start(jobs, "work")
    with pytest.raises(runner.JobRunningError) as caught:
        start(jobs, "work")
    assert caught.value.job.id == first.id
    assert len(jobs.recent()) == 1
    runner.stop(first.id, jobs)
    attempts: list[str] = []

    def attempt() -> None:
        with contextlib.suppress(runner.JobRunningError):
            attempts.append(start(jobs, "work").id)

    threads = [threading.Thread(target=attempt) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    (again,) = attempts
    assert again != first.id, "a finished job may be started again, once"


def test_request_of_an_unknown_kind_or_not_in_json_is_refused_without_quoting_it(jobs: Jobs) -> None:
    with pytest.raises(IrwmError):
        runner.start("os", "x", {}, None, jobs)
    with pytest.raises(IrwmError):
        task.run("runner", {}, {}, JobReporter(jobs, "0" * 16))
    with pytest.raises(RecordValueError) as caught:
        runner.start("protect", "x", {"do": "work"}, {"key": SECRET.encode()}, jobs)
    assert SECRET not in str(caught.value)
    assert caught.value.__cause__ is None
    assert jobs.recent() == []


def test_the_childs_environment_has_switches_and_no_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "MY_PASSWORD", "OPENAI_API_KEY"):
        monkeypatch.setenv(name, "x")
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    environment = processes.environment()
    assert not {"HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "MY_PASSWORD", "OPENAI_API_KEY"} & set(environment)
    assert environment["HF_HUB_OFFLINE"] == "1"
    assert int(environment["OMP_NUM_THREADS"]) >= 1
    assert environment["MALLOC_ARENA_MAX"] == "2"
    assert environment["PATH"] == os.environ["PATH"]


@pytest.fixture
def ready() -> Iterator[Ready]:
    ready = Ready()
    yield ready
    ready.end()


def waiting(ready: Ready) -> subprocess.Popen[bytes]:
    """The process that waits."""
    ready.prepare()
    assert ready._process is not None
    return ready._process


@pytest.mark.fault(54)
def test_a_ready_process_runs_the_next_task_only(jobs: Jobs, ready: Ready, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", SECRET)
    process = waiting(ready)
    assert waiting(ready) is process, "at most one"
    first, second = start(jobs, "work", ready, steps=12), start(jobs, "work", ready, steps=13)
    assert first.pid == process.pid != second.pid
    assert SECRET.encode() not in Path(f"/proc/{first.pid}/environ").read_bytes()
    for job in (first, second):
        job = wait(jobs, job)
        assert (job.state, job.result, job.error) == ("done", {"answer": 42}, None)
        assert "Copying shard 1 of 120" in jobs.log_tail(job.id)
    failed = start(jobs, "crash", ready)
    assert wait(jobs, failed).state == "failed"
    assert "RuntimeError: low-level trouble with [secret]" in jobs.log_tail(failed.id)


def test_a_task_in_a_ready_process_can_be_stopped(jobs: Jobs, ready: Ready) -> None:
    process = waiting(ready)
    job = start(jobs, "stubborn", ready)
    assert runner.stop(job.id, jobs).state == "stopped"
    until(lambda: not still_runs(process.pid, None), "the end of the process")


def test_a_ready_process_is_not_used_once_it_ended_or_the_environment_changed(
    jobs: Jobs, ready: Ready, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting(ready).kill()
    waiting(ready).kill()
    until(lambda: ready._process is None or ready._process.poll() is not None, "the end of the process")
    job = start(jobs, "work", ready, steps=3)
    assert wait(jobs, job).state == "done"
    process = waiting(ready)
    monkeypatch.setenv("IRWM_SERVERS", "example.org")
    assert ready.take() is None
    assert not still_runs(process.pid, None)


def test_a_ready_process_ends_when_it_is_not_used_and_with_the_app() -> None:
    ready = Ready(idle_seconds=0.05)
    process = waiting(ready)
    until(lambda: ready._process is None, "the end of the wait")
    assert process.returncode is not None
    ready = Ready()
    process = waiting(ready)
    assert process.stdin is not None
    process.stdin.close()  # as if the app had been killed
    assert process.wait(PATIENCE) == 0
    ready.end()


@pytest.mark.parametrize("data", [b"", b"\0" * 7, b"\xff" * 8, (100).to_bytes(8, "big") + b"{}"])
def test_truncated_child_message_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="input"):
        child.read_message(io.BytesIO(data))


class Table:
    """Replaces the jobs table and counts the writes."""

    def __init__(self, folder: Path) -> None:
        self.home = folder
        self.writes: list[tuple[int, int, str]] = []
        self.lines: list[str] = []
        self.runs = True

    def folder(self, id: str) -> Path:
        return self.home

    def progress(self, id: str, done: int, total: int, what: str, memory: int) -> bool:
        self.writes.append((done, total, what))
        return self.runs

    def log(self, id: str, line: str) -> None:
        self.lines.append(line)


def test_progress_is_written_five_times_a_second_and_at_the_end(tmp_path: Path) -> None:
    table, now = Table(tmp_path), [0.0]
    report = JobReporter(table, "a" * 16, clock=lambda: now[0])  # type: ignore[arg-type]
    for step in range(1000):
        now[0] = step / 1000
        report.progress(step, 1000, "Copying")
    assert len(table.writes) == 5
    report.flush()
    assert table.writes[-1] == (999, 1000, "Copying")
    assert len(table.lines) == 1, "a step is logged once"
    report.progress(0, 0, "Checking")
    assert table.writes[-1] == (0, 0, "Checking"), "a new step is written at once"


@pytest.mark.parametrize("how", ["cancelled", "its row says stopped"])
def test_progress_ends_a_task_that_was_stopped(tmp_path: Path, how: str) -> None:
    table = Table(tmp_path)
    table.runs = how == "cancelled"
    report = JobReporter(table, "a" * 16)  # type: ignore[arg-type]
    if how == "cancelled":
        report.progress(1, 2, "Copying")
        report.cancel()
        assert report.cancelled()
    with pytest.raises(CancelledError):
        report.progress(2, 2, "Copying")
