"""Files shared between the copies of a release: on a disk that can clone, on one that cannot, and never as a link."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from pathlib import Path
from unittest.mock import Mock

import pytest

from irwm.checkpoint import open_checkpoint
from irwm.errors import DiskSpaceError
from irwm.release import Patch, Published, preflight, publish, verify_manifest
from irwm.release.cloning import clone, clones_in
from tests.checkpoint.builders import EMBEDDING, split
from tests.release.disks import plain_disk, reflink_disk

__all__ = ["plain_disk", "reflink_disk"]

# Small, but with as many blocks as these tests need.
SHARED_BYTES = 24 * 1024 * 1024


@pytest.fixture(params=["clones", "copies"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A folder on a disk that clones, and one on a tmpfs, which does not."""
    if request.param == "clones":
        return Path(request.getfixturevalue("reflink_disk"))
    return Path(request.getfixturevalue("plain_disk"))


@pytest.fixture
def source(tiny_path: Path, tmp_path: Path) -> Path:
    """The tiny Llama in several shards, with a large file that no mark changes."""
    folder = split(tiny_path, tmp_path / "source")
    (folder / "NOTICE.txt").write_bytes(os.urandom(1024) * (SHARED_BYTES // 1024))
    return folder


def marked(source: Path, out: Path, byte: int, shared: Published | None = None) -> Published:
    """A copy whose embedding begins with `byte`."""
    model = open_checkpoint(source)
    item = model.tensors[EMBEDDING]
    patches = {item.file: [Patch(item.start, bytes([byte]) * 4)]}
    return publish(model, out, patches, shared=shared.shared if shared else None)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def used(disk: Path) -> int:
    subprocess.run(["sync", "-f", str(disk)], check=True)
    return shutil.disk_usage(disk).used


def test_a_clone_takes_no_space_and_has_a_valid_manifest(source: Path, reflink_disk: Path) -> None:
    assert clones_in(reflink_disk)
    first = marked(source, reflink_disk / "1", 1)
    before = used(reflink_disk)
    second = marked(source, reflink_disk / "2", 2, first)
    assert second.bytes_cloned >= SHARED_BYTES
    assert used(reflink_disk) - before < SHARED_BYTES / 4
    assert verify_manifest(second.path).ok
    subprocess.run(["sha256sum", "--quiet", "--strict", "-c", "SHA256SUMS"], cwd=second.path, check=True)
    assert second.bytes_written == first.bytes_written


def test_copy_that_shares_files_equals_any_other_and_is_independent(source: Path, disk: Path) -> None:
    first = marked(source, disk / "1", 1)
    assert open_checkpoint(source).tensors[EMBEDDING].file.name not in first.shared
    second = marked(source, disk / "2", 2, first)
    assert (second.bytes_cloned > 0) == clones_in(disk)
    marked(source, disk / "plain", 2)
    assert contents(disk / "2") == contents(disk / "plain")
    one, two = disk / "1" / "NOTICE.txt", disk / "2" / "NOTICE.txt"
    mode = one.stat().st_mode
    assert one.stat().st_ino != two.stat().st_ino
    assert two.stat().st_nlink == 1
    with two.open("r+b") as file:
        file.write(b"a note of recipient 2")
    os.chmod(two, 0o400)
    assert verify_manifest(disk / "1").ok
    assert one.stat().st_mode == mode


@pytest.mark.parametrize("harm", ["edited", "replaced", "moved away"])
@pytest.mark.parametrize("which", ["earlier copy", "original"])
def test_changed_file_is_copied_again(source: Path, reflink_disk: Path, which: str, harm: str) -> None:
    first = marked(source, reflink_disk / "1", 1)
    changed = (source if which == "original" else first.path) / "NOTICE.txt"
    if harm == "edited":
        with changed.open("r+b") as file:
            file.write(b"edited")
    elif harm == "replaced":
        other = changed.with_name("README.md")
        other.write_bytes(bytes(changed.stat().st_size))
        os.utime(other, ns=(changed.stat().st_atime_ns, changed.stat().st_mtime_ns))
        other.replace(changed)
    else:
        changed.unlink()
    second = marked(source, reflink_disk / "2", 2, first)
    assert verify_manifest(second.path).ok
    assert contents(second.path).get("NOTICE.txt") == contents(source).get("NOTICE.txt")


def test_a_clone_of_a_clone_may_be_cloned(source: Path, reflink_disk: Path) -> None:
    first = marked(source, reflink_disk / "1", 1)
    second = marked(source, reflink_disk / "2", 2, first)
    shutil.rmtree(first.path)
    third = marked(source, reflink_disk / "3", 3, second)
    assert third.bytes_cloned >= SHARED_BYTES
    assert verify_manifest(third.path).ok


def test_a_copy_that_fits_only_as_a_clone_is_written(source: Path, reflink_disk: Path) -> None:
    first = marked(source, reflink_disk / "1", 1)
    # Half of it: btrfs needs some of the free space for itself.
    while shutil.disk_usage(reflink_disk).free > SHARED_BYTES * 0.9:
        left = shutil.disk_usage(reflink_disk).free - SHARED_BYTES // 2
        (reflink_disk / f"filler-{left}").write_bytes(os.urandom(min(left, 16 * 1024 * 1024)))
        used(reflink_disk)
    with pytest.raises(DiskSpaceError):
        marked(source, reflink_disk / "2", 2)
    assert marked(source, reflink_disk / "2", 2, first).bytes_cloned >= SHARED_BYTES


def test_preflight_counts_shared_blocks_once(source: Path, disk: Path) -> None:
    model = open_checkpoint(source)
    one, ten = preflight(model, disk / "1"), preflight(model, disk / "1", copies=10)
    assert one.clones is None
    assert one.needed == one.each == ten.each
    assert ten.same >= SHARED_BYTES
    assert ten.clones == clones_in(disk)
    expected = 10 * one.each if not ten.clones else one.each + 9 * (one.each - ten.same)
    assert ten.needed == expected


def test_clone_onto_a_foreign_file_is_an_error(source: Path, disk: Path) -> None:
    first = marked(source, disk / "1", 1)
    (disk / "there").write_text("mine")
    with pytest.raises(FileExistsError):
        clone(first.shared["NOTICE.txt"], disk / "there")
    assert (disk / "there").read_text() == "mine"


def refuse_to_clone(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    refuse = Mock(side_effect=OSError(code, os.strerror(code)))
    monkeypatch.setattr("irwm.release.cloning.fcntl.ioctl", refuse)


@pytest.mark.parametrize("code", [errno.EOPNOTSUPP, errno.ENOTTY, errno.EXDEV, errno.EINVAL])
def test_kernel_refusal_to_clone_leads_to_a_copy(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    first = marked(source, tmp_path / "1", 1)
    refuse_to_clone(monkeypatch, code)
    second = marked(source, tmp_path / "2", 2, first)
    assert second.bytes_cloned == 0
    assert verify_manifest(second.path).ok


def test_a_disk_that_fills_up_while_cloning_leaves_nothing(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse_to_clone(monkeypatch, errno.ENOSPC)
    first = marked(source, tmp_path / "1", 1)
    with pytest.raises(DiskSpaceError):
        marked(source, tmp_path / "2", 2, first)
    assert sorted(os.listdir(tmp_path)) == ["1", "source"]


def test_probing_a_disk_for_cloning_leaves_no_files(disk: Path) -> None:
    before = sorted(os.listdir(disk))
    clones_in(disk)
    assert sorted(os.listdir(disk)) == before
    assert not clones_in(disk / "missing")
