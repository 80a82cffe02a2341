from __future__ import annotations

import json
import os
import stat
import subprocess
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from storage import Jobs, NewerSchemaError, RecordNotFoundError, RecordValueError, StorageError
from storage.job_keys import JobsKeys
from storage.jobs import SCRATCH_NAME
from tests.storage.conftest import Spawn, Sql, answer, begin_together

KEYS = JobsKeys({"0" * 16: b"\x07" * 32}, "0" * 16)


def opened(home: Path, **settings: Any) -> Jobs:
    """The list as an unlocked vault opens it."""
    return Jobs(home, **settings).opened(KEYS)


@pytest.fixture
def jobs(home: Path) -> Jobs:
    return opened(home)


def test_a_job_lives_from_queue_to_result(jobs: Jobs, home: Path, clock: Any) -> None:
    jobs = opened(home, now=clock.now)
    request = {"model": "/models/a", "recipients": ["x"]}
    job = jobs.create("protect", "Mark northwind-7b", request)
    assert (job.state, job.request, job.started, job.is_over) == ("queued", request, None, False)
    clock.later(seconds=2)
    running = jobs.start(job.id, os.getpid())
    assert (running.state, running.pid, running.started) == ("running", os.getpid(), "2026-03-01T12:00:02.000Z")
    assert jobs.progress(job.id, 5, 2**40, "copying model-00001.safetensors")
    assert (jobs.get(job.id).done, jobs.get(job.id).total, jobs.get(job.id).memory) == (5, 2**40, 0)
    for seen, kept in ((300, 300), (500, 500), (200, 500)):
        assert jobs.progress(job.id, 5, 2**40, "copying model-00001.safetensors", seen)
        assert jobs.get(job.id).memory == kept
    clock.later(seconds=3)
    over = jobs.finish(job.id, "done", {"path": "/out"})
    assert (over.state, over.result, over.error, over.is_over) == ("done", {"path": "/out"}, None, True)
    assert over.ended == "2026-03-01T12:00:05.000Z"
    assert over.what == "copying model-00001.safetensors"
    assert opened(home).get(job.id) == over, "it survives a restart"


def test_a_repeated_job_rests_between_its_passes(jobs: Jobs) -> None:
    repeated, other = (jobs.create("watch", "Watch", {"every": 1}, "cpu") for _ in range(2))
    jobs.start(repeated.id, os.getpid())
    assert jobs.start(other.id, os.getpid()).state == "queued"
    assert jobs.rest(repeated.id, "Next pass at noon", {"known": 1})
    assert not jobs.rest(repeated.id, "Next pass at noon"), "it rests already"
    resting = jobs.get(repeated.id)
    assert (resting.state, resting.what, resting.result, resting.error) == (
        "resting", "Next pass at noon", {"known": 1}, None,
    )  # fmt: skip
    assert (resting.is_over, jobs.is_alive(repeated.id)) == (False, True)
    assert [job.id for job in jobs.under_way()] == [other.id, repeated.id]
    assert jobs.take_turn(other.id) == "running", "another job may use the device"

    assert jobs.wake(repeated.id)
    assert not jobs.wake(repeated.id)
    assert [before.id for before in jobs.ahead(repeated.id)] == [other.id]
    jobs.finish(other.id, "done")
    assert jobs.take_turn(repeated.id) == "running"
    assert jobs.rest(repeated.id, "Next pass at one", error={"problem": "x"})
    failed = jobs.get(repeated.id)
    assert (failed.result, failed.error) == ({"known": 1}, {"problem": "x"})
    assert jobs.finish(repeated.id, "stopped").result == {"known": 1}
    assert not jobs.wake(repeated.id)


def test_a_resting_job_without_a_process_is_interrupted(jobs: Jobs) -> None:
    process = subprocess.Popen(["sleep", "60"])
    job = jobs.create("watch", "Watch", {"every": 1})
    jobs.start(job.id, process.pid)
    jobs.rest(job.id, "Next pass at noon")
    process.kill()
    process.wait()
    assert [each.id for each in jobs.interrupt_dead()] == [job.id]
    assert jobs.get(job.id).state == "interrupted"


def test_files_and_folders_are_private(home: Path) -> None:
    before = os.umask(0)
    try:
        jobs = opened(home)
        job = jobs.create("lab", "t", {})
        jobs.log(job.id, "line")
    finally:
        os.umask(before)
    modes = {path.relative_to(home).as_posix(): stat.S_IMODE(path.stat().st_mode) for path in home.rglob("*")}
    folder = f"jobs/{job.id}"
    assert modes == {"jobs": 0o700, folder: 0o700, f"{folder}/log.txt": 0o600, "jobs.sqlite3": 0o600}
    assert jobs.folder(job.id) == home / folder


@pytest.mark.fault(59)
def test_newest_job_comes_first_despite_wrong_clock(home: Path, clock: Any) -> None:
    jobs = opened(home, now=clock.now)
    for title, step in (("a", 0), ("b", -9000), ("c", 26000), ("d", -1)):
        clock.wall += timedelta(days=step)
        jobs.create("lab", title, {})
    assert [job.title for job in jobs.recent()] == ["d", "c", "b", "a"]
    assert [job.title for job in jobs.recent(2)] == ["d", "c"]
    assert jobs.recent(0) == jobs.recent(-1) == []
    assert jobs.recent()[1].created.startswith("2072-")


def test_first_ending_of_a_job_is_kept(jobs: Jobs) -> None:
    job = jobs.create("lab", "t", {})
    jobs.start(job.id, os.getpid())
    jobs.finish(job.id, "stopped")
    late = jobs.finish(job.id, "done", {"path": "/out"})
    assert (late.state, late.result) == ("stopped", None)
    assert not jobs.progress(job.id, 9, 9, "too late")
    assert jobs.get(job.id) == late


def test_a_job_starts_once_and_not_after_stop(jobs: Jobs) -> None:
    started, stopped = jobs.create("lab", "a", {}), jobs.create("lab", "b", {})
    jobs.start(started.id, os.getpid())
    jobs.finish(stopped.id, "stopped")
    for job in (started, stopped):
        with pytest.raises(RecordValueError):
            jobs.start(job.id, os.getpid())


@pytest.mark.parametrize(
    "action",
    [
        lambda jobs, id: jobs.create("lab", "t", {"rank": float("nan")}),
        lambda jobs, id: jobs.create("", "t", {}),
        lambda jobs, id: jobs.create("lab", " ", {}),
        lambda jobs, id: jobs.finish(id, "running"),
        lambda jobs, id: jobs.finish(id, "done", {"path": Path("/")}),
    ],
)
def test_invalid_job_values_are_refused(jobs: Jobs, action: Callable[[Jobs, str], Any]) -> None:
    job = jobs.create("lab", "t", {})
    with pytest.raises(RecordValueError):
        action(jobs, job.id)
    assert jobs.recent() == [job]


@pytest.mark.parametrize("id", ["", "../../etc", "0" * 15, "0" * 16 + "\n", "A" * 16, None, "' OR 1=1 --"])
def test_invalid_identifier_never_becomes_a_path(jobs: Jobs, id: str) -> None:
    for action in (jobs.folder, jobs.log_path, jobs.log_tail, jobs.get, jobs.is_alive, lambda id: jobs.log(id, "x")):
        with pytest.raises(RecordNotFoundError):
            action(id)
    with pytest.raises(RecordNotFoundError):
        jobs.log("0" * 16, "x")
    assert jobs.log_tail("0" * 16) == "", "of an unknown job"


def test_a_log_only_grows_and_its_tail_begins_with_a_whole_line(jobs: Jobs) -> None:
    job = jobs.create("lab", "t", {})
    assert jobs.log_tail(job.id) == ""
    for n in range(100):
        jobs.log(job.id, f"line {n:03d} é")
    jobs.log(job.id, "half of a pair \ud800\n")
    whole = jobs.log_tail(job.id)
    assert whole.splitlines()[0] == "line 000 é"
    assert whole.splitlines()[-1] == "half of a pair \\ud800"
    tail = jobs.log_tail(job.id, 100)
    assert tail.splitlines()[0].startswith("line 09")
    assert whole.endswith(tail)
    assert len(tail.encode()) <= 100
    exact = len("line 099 é\nhalf of a pair \\ud800\n".encode())
    assert jobs.log_tail(job.id, exact).splitlines()[0] == "line 099 é"


def test_a_log_that_is_a_link_is_not_followed(jobs: Jobs, tmp_path: Path) -> None:
    job = jobs.create("lab", "t", {})
    (tmp_path / "target").write_text("precious")
    jobs.log_path(job.id).symlink_to(tmp_path / "target")
    with pytest.raises(StorageError):
        jobs.log(job.id, "x")
    assert (tmp_path / "target").read_text() == "precious"


def test_a_newer_job_list_is_refused_without_a_write(jobs: Jobs, home: Path, sql: Sql) -> None:
    sql("PRAGMA user_version = 9", name="jobs.sqlite3")
    before = (home / "jobs.sqlite3").read_bytes()
    with pytest.raises(NewerSchemaError):
        Jobs(home)
    assert (home / "jobs.sqlite3").read_bytes() == before


# Processes


OPENED = """
from storage.job_keys import JobsKeys
from storage.jobs import Jobs
jobs = Jobs(home).opened(JobsKeys({"0" * 16: b"\\x07" * 32}, "0" * 16))
"""
RUN = (
    OPENED
    + """
queued, running = jobs.create("lab", "queued", {}), jobs.create("lab", "running", {})
jobs.start(running.id, os.getpid())
print(json.dumps([queued.id, running.id]), flush=True)
sys.stdin.readline()
"""
)


@pytest.mark.parametrize("state", ["done", "failed", "stopped", "interrupted"])
def test_end_of_job_removes_only_its_scratch_folder(jobs: Jobs, state: str) -> None:
    job = jobs.create("lab", "Attack", {})
    folder = jobs.folder(job.id)
    (folder / SCRATCH_NAME / "release").mkdir(parents=True)
    (folder / SCRATCH_NAME / "release" / "model.safetensors").write_bytes(b"half")
    (folder / "lab.json").write_bytes(b"{}")
    jobs.finish(job.id, state)
    assert [path.name for path in folder.iterdir()] == ["lab.json"]


@pytest.mark.fault(41)
def test_a_killed_process_leaves_an_interrupted_job(jobs: Jobs, spawn: Spawn) -> None:
    mine = jobs.create("lab", "mine", {})
    alive = jobs.start(jobs.create("lab", "alive", {}).id, os.getpid())
    child = spawn(RUN)
    assert child.stdout is not None
    queued, running = json.loads(child.stdout.readline())
    assert jobs.interrupt_dead() == []
    child.kill()
    # Not waited for yet: a zombie counts as dead too.
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert {job.id for job in jobs.interrupt_dead()} == {queued, running}
    over = jobs.get(running)
    assert (over.state, over.pid) == ("interrupted", child.pid)
    assert over.ended is not None
    assert over.error is not None
    assert jobs.get(mine.id).state == "queued"
    assert jobs.get(alive.id).state == "running"
    assert jobs.interrupt_dead() == []


def test_reused_pid_is_not_the_job(jobs: Jobs, sql: Sql) -> None:
    job = jobs.start(jobs.create("lab", "t", {}).id, os.getpid())
    mark = sql("SELECT process FROM jobs", name="jobs.sqlite3")[0][0]
    boot, ticks = mark.split(":")
    assert jobs.is_alive(job.id)
    sql("UPDATE jobs SET process = ?", f"{boot}:{int(ticks) - 1}", name="jobs.sqlite3")
    assert not jobs.is_alive(job.id)
    assert [dead.id for dead in jobs.interrupt_dead()] == [job.id]


def test_process_gone_before_recorded_start_is_dead(jobs: Jobs, sql: Sql) -> None:
    child = subprocess.Popen(["true"])
    child.wait()
    job = jobs.start(jobs.create("lab", "t", {}).id, child.pid)
    sql("UPDATE jobs SET pid = ?", os.getpid(), name="jobs.sqlite3")  # as if its number had been used again
    assert [dead.id for dead in jobs.interrupt_dead()] == [job.id]


MANY = (
    OPENED
    + """
for number in range(20):
    job = jobs.create("lab", sys.argv[2], {})
    jobs.start(job.id, os.getpid()); jobs.progress(job.id, number, 20, "step"); jobs.finish(job.id, "done", {})
    jobs.log(sys.argv[3], sys.argv[2] * 200)
print(number)
"""
)


def test_processes_share_the_list_and_a_log(jobs: Jobs, spawn: Spawn) -> None:
    shared = jobs.create("lab", "shared log", {})
    children = [spawn(MANY, name, shared.id) for name in "xy"]
    for child in children:
        assert answer(child) == 19
    recent = jobs.recent(100)
    assert len(recent) == 41
    assert {job.state for job in recent[:-1]} == {"done"}
    assert sorted(jobs.log_tail(shared.id, 10**6).splitlines()) == ["x" * 200] * 20 + ["y" * 200] * 20


FIRST = (
    """
print("ready", flush=True); sys.stdin.readline()
"""
    + OPENED
    + """
print(json.dumps(jobs.create("lab", "t", {}).sequence))
"""
)


def test_two_concurrent_first_users_share_the_list(home: Path, spawn: Spawn) -> None:
    children = [spawn(FIRST) for _ in range(2)]
    begin_together(*children)
    assert sorted(answer(child) for child in children) == [1, 2]


@pytest.mark.fault(81)
def test_untrusted_name_stays_one_plain_line_in_the_log(jobs: Jobs) -> None:
    job = jobs.create("investigate", "t", {})
    jobs.log(job.id, "Reading model\n12:00:00 found\x1b[2J\u202egnp.exe\u2028x\r\x00 é\n")
    assert jobs.log_path(job.id).read_bytes().count(b"\n") == 1
    text = jobs.log_tail(job.id)
    assert text == "Reading model\\n12:00:00 found\\x1b[2J\\u202egnp.exe\\u2028x\\r\\x00 é\n"
