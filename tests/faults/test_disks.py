"""Disks that are full, read-only or another one, and too few file handles (FAULTS 40, 43)."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import irwm
from irwm.checkpoint import open_checkpoint
from irwm.errors import DiskSpaceError, PublishError
from irwm.release import publish, verify_manifest
from tests.checkpoint.builders import tree, unprivileged
from tests.faults.helpers import all_but, empty, fill_up, full_disk


@pytest.mark.fault(40)
def test_too_little_space_is_reported_before_copying(folder: Path, small_disk: Path) -> None:
    fill_up(small_disk, 100_000)
    polled: list[int] = []
    with pytest.raises(full_disk(small_disk)) as caught:
        publish(open_checkpoint(folder), small_disk / "out", {}, progress=lambda *step: polled.append(step[0]))
    assert not (small_disk / "out").exists()
    assert not (small_disk / "out.partial").exists()
    if os.path.ismount(small_disk):
        assert polled == []
        assert "bytes)" in (caught.value.expected or "")
        assert "100" in (caught.value.found or "") or "98" in (caught.value.found or "")


@pytest.mark.fault(40)
def test_disk_filling_up_before_the_last_check_leaves_nothing(folder: Path, small_disk: Path) -> None:
    model = open_checkpoint(folder)
    with pytest.raises(full_disk(small_disk)):
        publish(model, small_disk / "out", {}, verify=lambda _: fill_up(small_disk, 0))
    assert not list(small_disk.glob("out*"))
    assert open_checkpoint(folder).fingerprint == model.fingerprint


@pytest.mark.fault(40)
def test_disk_full_at_each_write(folder: Path, small_disk: Path) -> None:
    """Space runs out a little later each time: at every file, and in the middle of the large ones."""
    publish(open_checkpoint(folder), small_disk / "old", {})
    size = sum(file.stat().st_size for file in (small_disk / "old").iterdir())
    refusals = []
    for left in range(0, 2 * size, max(4096, size // 20)):
        polls = iter(range(1, 1000))

        def meanwhile(polls: Iterator[int] = polls, left: int = left) -> bool:
            if next(polls) == 1:
                fill_up(small_disk, left)
            return False

        try:
            publish(open_checkpoint(folder), small_disk / "new", {}, cancelled=meanwhile)
            break
        except full_disk(small_disk) as error:
            refusals.append(error)
        finally:
            empty(small_disk)
        assert sorted(os.listdir(small_disk)) == ["old"]
        assert verify_manifest(small_disk / "old").ok
    assert len(refusals) > 10
    if os.path.ismount(small_disk):
        assert all("bytes" in (error.expected or "") for error in refusals), "the message states the space needed"
    assert verify_manifest(small_disk / "new").ok


@pytest.mark.fault(40, 43)
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG])
def test_each_failed_write_is_typed(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    model = open_checkpoint(folder)
    before = tree(tmp_path)

    def refuse(*_: object) -> int:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "write", refuse)
    expected = DiskSpaceError if code in (errno.ENOSPC, errno.EDQUOT) else PublishError
    with pytest.raises(expected):
        publish(model, tmp_path / "out", {})
    monkeypatch.undo()
    assert tree(tmp_path) == before


@pytest.mark.fault(43)
def test_read_only_disk_is_reported(folder: Path, small_disk: Path) -> None:
    if os.path.ismount(small_disk):
        subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    else:
        os.chmod(small_disk, 0o555)
    with pytest.raises(PublishError):
        publish(open_checkpoint(folder), small_disk / "out", {})
    assert os.listdir(small_disk) == []


@pytest.mark.fault(43)
def test_unwritable_folder_is_reported(folder: Path) -> None:
    with tempfile.TemporaryDirectory() as root:
        source = shutil.copytree(folder, Path(root, "model")).resolve()
        for file in source.iterdir():
            os.chmod(file, 0o644)
        (source.parent / "shelf").mkdir()
        os.chmod(source.parent / "shelf", 0o555)
        os.chmod(root, 0o755)
        model = open_checkpoint(source)
        with unprivileged(), pytest.raises(PublishError):
            publish(model, source.parent / "shelf" / "out", {})
        assert os.listdir(source.parent / "shelf") == []


@pytest.mark.fault(43)
def test_target_on_another_disk_works(folder: Path, small_disk: Path) -> None:
    assert verify_manifest(publish(open_checkpoint(folder), small_disk / "out", {}).path).ok


@pytest.mark.fault(43)
def test_missing_file_handles_are_reported(folder: Path) -> None:
    model = open_checkpoint(folder)
    with all_but(0):
        for use in (lambda: open_checkpoint(folder), lambda: model.embedding([0]), lambda: model.fingerprint):
            with pytest.raises(irwm.IrwmError):
                use()


@pytest.mark.fault(43)
def test_publishing_with_few_file_handles_succeeds_or_leaves_nothing(folder: Path, tmp_path: Path) -> None:
    (folder / "sub").mkdir()
    (folder / "sub" / "README.md").write_text("x")
    model, before, outcomes = open_checkpoint(folder), tree(tmp_path), []
    for free in range(16):
        caught = None
        with all_but(free):
            try:
                publish(model, tmp_path / "out", {})
            except irwm.IrwmError as error:
                caught = error
        outcomes.append(caught is None)
        if caught is not None:
            assert "Too many" in str(caught)
            assert tree(tmp_path) == before
        else:
            assert verify_manifest(tmp_path / "out").ok
            shutil.rmtree(tmp_path / "out")
    assert outcomes == sorted(outcomes)
    assert set(outcomes) == {False, True}
