"""The queue, with real processes: one heavy task for each device, the oldest first, from any process."""

from __future__ import annotations

import itertools
import os
import signal
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from irwm.errors import IrwmError
from storage.errors import StorageFullError
from storage.job_table import Job
from storage.jobs import Jobs
from storage.processes import still_runs
from tests.jobs.recipients import new_vault
from tools.running_app import FAKE_TASKS
from tools.waiting import PATIENCE, until, until_over
from ui.components.job_card import job_html
from ui.jobs import queue, runner


def start(jobs: Jobs, number: int, do: str = "work", **more: Any) -> Job:
    return runner.start("protect", f"Task {number}", {"do": do, "number": number, **more}, {"key": "k" * 32}, jobs)


def state(jobs: Jobs, job: Job) -> str:
    return jobs.get(job.id).state


@pytest.mark.fault(65)
@pytest.mark.slow
def test_one_job_runs_and_others_wait_in_order(jobs: Jobs) -> None:
    first, second, third = (start(jobs, number, steps=40) for number in range(3))
    assert (first.state, second.state, third.state) == ("running", "queued", "queued")
    assert [job.id for job in jobs.ahead(third.id)] == [first.id, second.id]
    with pytest.raises(runner.JobRunningError) as refused:
        start(jobs, 1, steps=40)
    assert refused.value.job.id == second.id
    card = job_html(third, speed=None, unit="bytes", now=datetime.now(UTC), ahead=jobs.ahead(third.id))
    assert "“Task 0”" in card
    until_over(jobs, third.id)
    ended = [jobs.get(job.id) for job in (first, second, third)]
    assert [job.state for job in ended] == ["done"] * 3
    for before, after in itertools.pairwise(ended):
        assert before.ended is not None
        assert after.started is not None
        assert before.ended <= after.started, "never two at once"
    assert f"Jobs ahead of this one: 2. Current job: protect {first.id}" in jobs.log_tail(third.id)


def test_stop_takes_a_waiting_task_out_of_the_queue(jobs: Jobs) -> None:
    first, second, third = (start(jobs, number) for number in range(3))
    assert second.pid is not None
    assert runner.stop(second.id, jobs).state == "stopped"
    until(lambda: not still_runs(second.pid or 0, None), "the process's end")
    assert [job.id for job in jobs.ahead(third.id)] == [first.id]
    runner.stop(first.id, jobs)
    until(lambda: state(jobs, third) == "running", "the job to be running", lambda: jobs.log_tail(third.id))
    assert state(jobs, second) == "stopped"


@pytest.mark.slow
def test_task_waits_for_other_processes_and_survives_its_starter(jobs: Jobs) -> None:
    """As between the app and the command line; the process that started the second one ends while it waits."""
    first = start(jobs, 0, steps=100_000)
    code = (
        "import sys; from pathlib import Path; from storage.jobs import Jobs; from ui.jobs import runner\n"
        "from tests.ui.handlers import JOBS_KEYS; from tools.waiting import until\n"
        "jobs = Jobs(Path(sys.argv[1])).opened(JOBS_KEYS)\n"
        "job = runner.start('protect', 'Task 1', {'do': 'work', 'number': 1, 'steps': 3}, {'key': 'k' * 32}, jobs)\n"
        "print(job.id, job.state, flush=True)\n"
        "until(lambda: 'Jobs ahead' in jobs.log_tail(job.id), 'the job to wait', lambda: jobs.log_tail(job.id))"
    )
    root = Path(__file__).parents[2]
    done = runner.subprocess.run(
        [sys.executable, "-c", code, str(jobs.home)],
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE,
    )
    id, was = done.stdout.split()
    assert was == "queued"
    Jobs(jobs.home).interrupt_dead()
    assert jobs.get(id).state == "queued", "its own process waits, so it is not dead"
    runner.stop(first.id, jobs)
    until(lambda: jobs.get(id).state == "done", "the second job", lambda: jobs.log_tail(id))


def test_dead_tasks_do_not_block_the_queue(jobs: Jobs) -> None:
    """One that is killed while another waits, and one whose process ended without the app."""
    first, second = start(jobs, 0), start(jobs, 1, steps=3)
    assert first.pid is not None
    os.kill(first.pid, signal.SIGKILL)
    until(lambda: state(jobs, second) == "done", "the job to be done", lambda: jobs.log_tail(second.id))
    killed = jobs.get(first.id)
    assert (killed.state, (killed.error or {})["found"]) == ("failed", "signal SIGKILL")
    dead = runner.subprocess.Popen(["true"])
    dead.wait()
    lost = jobs.start(jobs.create("protect", "Task 2", {"do": "work", "number": 2}, "cpu").id, dead.pid)
    assert lost.state == "running"
    assert start(jobs, 2).state == "running"
    assert state(jobs, lost) == "interrupted"


def test_failed_start_does_not_block_the_queue(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise StorageFullError("the disk is full")

    monkeypatch.setattr(Jobs, "log", full)
    with pytest.raises(StorageFullError):
        start(jobs, 0)
    assert [job.state for job in jobs.recent()] == ["failed"]
    monkeypatch.setattr(Jobs, "finish", full)  # its end cannot be written either
    with pytest.raises(StorageFullError):
        start(jobs, 0)
    monkeypatch.undo()
    monkeypatch.setenv("PYTHONPATH", str(FAKE_TASKS))
    assert start(jobs, 0).state == "running"


def test_queue_length_is_limited(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "MOST_WAITING", 1)
    start(jobs, 0)
    start(jobs, 1)
    with pytest.raises(runner.QueueFullError):
        start(jobs, 2)
    assert len(jobs.recent()) == 2


def test_tasks_of_two_devices_do_not_wait_for_each_other(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    lanes = [queue.lane_of(*each) for each in (("item", {}), ("protect", {"device": "cpu"}), ("verify", {}))]
    assert lanes == ["", "cpu", "cpu"], "hashing an item waits for no device"
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(IrwmError):
        start(jobs, 0, device="cuda")
    assert jobs.recent() == []
    monkeypatch.setattr("ui.jobs.runner.lane_of", lambda kind, request: request["device"])
    states = [start(jobs, n, device=device).state for n, device in enumerate(("cpu", "cuda", "cpu"))]
    assert states == ["running", "running", "queued"]


def test_an_ended_task_is_run_again_with_the_same_request(jobs: Jobs) -> None:
    vault, job = new_vault(jobs.home), start(jobs, 0)
    with pytest.raises(runner.JobRunningError):
        runner.again(job, vault, jobs)
    stopped = runner.stop(job.id, jobs)
    once_more = runner.again(stopped, vault, jobs, {"do": "work", "device": "cuda"})
    assert once_more.id != job.id
    assert (once_more.kind, once_more.title, once_more.request) == (job.kind, job.title, job.request)


@pytest.mark.parametrize("kind", ["sweep", "lab"])
def test_resumable_task_is_resumed(jobs: Jobs, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    vault = new_vault(jobs.home)
    job = jobs.finish(jobs.create(kind, "old", {"resume": "", "seed": 1}).id, "stopped")
    asked: list[Any] = []
    monkeypatch.setattr(runner, "start", lambda *values: asked.append(values))
    runner.again(job, vault, jobs)
    assert asked[0][2] == {"resume": job.id, "seed": 1}
