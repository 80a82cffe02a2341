from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from storage.processes import process_mark, still_runs


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """A /proc made by the test, in which process 1 is this one."""
    (tmp_path / "sys/kernel/random").mkdir(parents=True)
    (tmp_path / "sys/kernel/random/boot_id").write_text("boot-1\n")
    write(tmp_path, os.getpid(), "python", "R", 5)
    return tmp_path


def write(proc: Path, pid: int, name: str, state: str, start: int) -> None:
    (proc / str(pid)).mkdir(exist_ok=True)
    fields = [state, *["0"] * 18, str(start), *["0"] * 30]
    (proc / str(pid) / "stat").write_text(f"{pid} ({name}) {' '.join(fields)}\n")


def test_process_mark_is_boot_and_start_time_for_any_name(proc: Path) -> None:
    write(proc, 77, "a) Z 1 (b", "S", 4242)
    assert process_mark(77, proc) == "boot-1:4242"


def test_another_boot_or_start_is_another_process(proc: Path) -> None:
    write(proc, 77, "job", "S", 4242)
    assert still_runs(77, "boot-1:4242", proc)
    assert not still_runs(77, "boot-0:4242", proc)
    assert not still_runs(77, "boot-1:4241", proc)
    assert not still_runs(77, "", proc)


@pytest.mark.parametrize("state", ["Z", "X"])
def test_zombie_counts_as_ended(proc: Path, state: str) -> None:
    write(proc, 77, "job", state, 4242)
    assert not still_runs(77, "boot-1:4242", proc)


@pytest.mark.parametrize("readable", [True, False])
def test_real_process_is_running_until_it_ends(tmp_path: Path, readable: bool) -> None:
    """Without /proc, psutil says when it started."""
    proc = Path("/proc") if readable else tmp_path
    child = subprocess.Popen(["sleep", "60"])
    try:
        mark = process_mark(child.pid, proc)
        assert mark is not None
        assert still_runs(child.pid, mark, proc)
        assert still_runs(child.pid, None, proc)
        assert not still_runs(child.pid, "1.0", proc)
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert not still_runs(child.pid, None, proc), "a zombie"
    finally:
        child.kill()
        child.wait()
    assert not still_runs(child.pid, mark, proc)
    assert not still_runs(child.pid, None, proc)
