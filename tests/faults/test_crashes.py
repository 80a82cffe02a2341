"""A run killed or failing at any moment leaves the old state or the complete new one, never half (FAULTS 41, 42)."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from irwm.checkpoint import open_checkpoint
from irwm.errors import PublishError
from irwm.release import Patch, publish, sweep_partials, verify_manifest
from tests.checkpoint.builders import EMBEDDING, tree
from tests.faults.helpers import failing

CALLS = ("mkdir", "open", "write", "fsync", "close", "rename", "unlink")


def in_child(work: Callable[[], None]) -> int:
    """Runs `work` in a forked child and returns its wait status; 0 for a child that finished."""
    child = os.fork()
    if child == 0:
        try:
            work()
            os._exit(0)
        except BaseException:
            os._exit(9)
    return os.waitpid(child, 0)[1]


def complete_or_absent(out: Path, source: Path) -> bool:
    """Whether the target exists; it must then be complete, and the sweep must be able to remove partial files."""
    there = out.exists()
    if there:
        assert verify_manifest(out).ok
        assert (out / "SHA256SUMS").exists()
        assert open_checkpoint(out).vocab_size == 600
    partial = out.with_name(out.name + ".partial")
    left = [partial] if partial.exists() else []
    assert sweep_partials(out.parent) == left
    assert not partial.exists()
    assert sorted(os.listdir(source)) == ["config.json", "generation_config.json", "model.safetensors"]
    return there


def killed_at(folder: Path, out: Path, call: str, count: int) -> bool:
    """Publishes in a child that kills itself with SIGKILL before its `count`-th system call of a kind."""
    model = open_checkpoint(folder)
    original, seen = getattr(os, call), iter(range(1, 10_000))

    def deadly(*args: object, **kwargs: object) -> object:
        if next(seen) == count:
            os.kill(os.getpid(), signal.SIGKILL)
        return original(*args, **kwargs)

    def work() -> None:
        setattr(os, call, deadly)
        publish(model, out, {})

    status = in_child(work)
    assert os.WIFSIGNALED(status) or status == 0, f"{call} {count}: the child raised"
    return os.WIFSIGNALED(status)


@pytest.mark.fault(41)
@pytest.mark.sweep
@pytest.mark.parametrize("call", CALLS)
def test_killed_before_any_call_the_target_is_absent_or_complete(folder: Path, tmp_path: Path, call: str) -> None:
    outcomes = []
    for count in range(1, 200):
        out = tmp_path / f"out{count}"
        killed = killed_at(folder, out, call, count)
        outcomes.append(complete_or_absent(out, folder))
        if not killed:
            break
    assert outcomes[-1] is True  # the one that was not killed
    assert outcomes[0] is (call == "unlink")  # only a lock file is unlinked, after the release exists


@pytest.mark.fault(41)
@pytest.mark.quick("kills of a real process while it publishes")
def test_killed_at_random_moments(folder: Path, tmp_path: Path) -> None:
    model = open_checkpoint(folder)
    start = model.tensors[EMBEDDING].start
    patches = {model.shards[0]: [Patch(start, b"marked!!")]}
    generator = torch.Generator().manual_seed(41)
    for number in range(16):
        out = tmp_path / f"out{number}"
        pause = float(torch.rand((), generator=generator)) * 0.03
        child = os.fork()
        if child == 0:
            try:
                publish(model, out, patches)
            finally:
                os._exit(0)
        signal.sigtimedwait([signal.SIGUSR2], pause)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        if complete_or_absent(out, folder):
            assert (out / "model.safetensors").read_bytes()[start : start + 8] == b"marked!!"


@pytest.mark.fault(41)
def test_partial_folder_of_a_dead_run_is_reused_by_the_next(folder: Path, tmp_path: Path) -> None:
    assert killed_at(folder, tmp_path / "out", "rename", 1)
    assert (tmp_path / "out.partial" / "SHA256SUMS").exists()
    publish(open_checkpoint(folder), tmp_path / "out", {})
    assert verify_manifest(tmp_path / "out").ok
    assert sorted(os.listdir(tmp_path)) == ["model", "out"]


@pytest.mark.fault(42)
@pytest.mark.parametrize("call", ["fsync", "rename"])
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("flushed", [None, 1 << 16])
def test_failure_at_each_fsync_and_rename_leaves_nothing(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, after: bool, flushed: int | None
) -> None:
    model, before, out = open_checkpoint(folder), tree(tmp_path), tmp_path / "out"
    if flushed is not None:  # files are flushed while they are written
        module = sys.modules["irwm.release.publish"]  # the function has the module's name
        monkeypatch.setattr(module, "CHUNK", flushed)
        monkeypatch.setattr(module, "FLUSHED", flushed)
    for number in range(1, 100):
        with monkeypatch.context() as patch:
            patch.setattr(os, call, failing(call, number, after)[0])
            try:
                publish(model, out, {})
                break
            except PublishError:
                pass
        if call == "rename" and after:
            # The rename took place and then reported failure, as a network disk may: complete or absent, never half.
            assert not out.exists() or verify_manifest(out).ok
            shutil.rmtree(out, ignore_errors=True)
        assert tree(tmp_path) == before
    assert number >= (2 if call == "rename" else 6 if flushed is None else 12)
    assert verify_manifest(out).ok
