"""A large original's fingerprint is cached only as long as its file is unchanged."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

import irwm
from irwm.checkpoint import fingerprint_cache
from irwm.checkpoint.fingerprint_cache import boot_id, keeps_change_times
from irwm.checkpoint.model import Checkpoint
from tools.waiting import until

LATELY = 50_000_000  # ns


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(fingerprint_cache, "LEAST_BYTES", 1000)
    monkeypatch.setattr(fingerprint_cache, "LATELY", LATELY)
    monkeypatch.setattr(fingerprint_cache, "keeps_change_times", lambda file: True)  # on any disk
    return tmp_path / "cache" / "irwm" / "fingerprints"


@pytest.fixture
def hashed(cache: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The checkpoints whose embedding was hashed, in order."""
    seen: list[Path] = []
    plain = Checkpoint._hashed

    def counting(self: Checkpoint, tensor: object) -> str:
        seen.append(self.path)
        return plain(self, tensor)  # type: ignore[arg-type]

    monkeypatch.setattr(Checkpoint, "_hashed", counting)
    return seen


@pytest.fixture
def model(tmp_path: Path, tiny_path: Path) -> Path:
    path = Path(shutil.copytree(tiny_path, tmp_path / "model"))
    until_no_longer_lately(path)
    return path


def until_no_longer_lately(model: Path) -> None:
    """Waits until a new file's time is more than `LATELY` after the last change of the model's files."""
    changed = max(max(file.stat().st_mtime_ns, file.stat().st_ctime_ns) for file in model.iterdir())
    probe = model.with_name("probe")

    def is_past() -> bool:
        probe.unlink(missing_ok=True)
        probe.touch()
        return probe.stat().st_mtime_ns > changed + LATELY

    until(is_past, "the file system's clock to pass the last change")


def hashes_twice(model: Path, hashed: list[Path]) -> bool:
    """Whether the second opening hashes again, with the same result."""
    before = len(hashed)
    same = irwm.open_checkpoint(model).fingerprint == irwm.open_checkpoint(model).fingerprint
    return same and len(hashed) == before + 2


def test_the_same_files_are_hashed_once(cache: Path, hashed: list[Path], model: Path) -> None:
    first = irwm.open_checkpoint(model).fingerprint
    assert irwm.open_checkpoint(model).fingerprint == first
    assert len(hashed) == 1
    (kept,) = cache.iterdir()
    assert kept.read_text() == f"{kept.name} {first}\n"
    assert kept.stat().st_mode & 0o777 == 0o600
    assert cache.stat().st_mode & 0o777 == 0o700
    assert str(model) not in kept.name + kept.read_text()


def test_change_with_restored_mtime_is_noticed(hashed: list[Path], model: Path) -> None:
    """Size, inode and the time of writing are as before; programs cannot set the time of the change."""
    first, file = irwm.open_checkpoint(model).fingerprint, model / "model.safetensors"
    before = file.stat()
    start = irwm.open_checkpoint(model).tensors["model.embed_tokens.weight"].parts[0].start
    with file.open("r+b") as handle:
        handle.seek(start)
        byte = handle.read(1)[0]
        handle.seek(start)
        handle.write(bytes([byte ^ 1]))
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    until_no_longer_lately(model)
    after = file.stat()
    assert all(getattr(after, name) == getattr(before, name) for name in ("st_size", "st_ino", "st_mtime_ns"))
    assert irwm.open_checkpoint(model).fingerprint != first
    assert len(hashed) == 2


def test_replaced_file_is_hashed_again(hashed: list[Path], model: Path) -> None:
    first = irwm.open_checkpoint(model).fingerprint
    file = model / "model.safetensors"
    os.replace(shutil.copy2(file, file.with_name("other")), file)
    until_no_longer_lately(model)
    assert irwm.open_checkpoint(model).fingerprint == first
    assert len(hashed) == 2


def test_the_fingerprint_of_a_recently_changed_file_is_not_cached(
    cache: Path, hashed: list[Path], model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may change again within the same tick of the clock."""
    monkeypatch.setattr(fingerprint_cache, "LATELY", int(3600e9))
    assert hashes_twice(model, hashed)
    assert not list(cache.iterdir())


@pytest.mark.parametrize("damage", ["text", "open to others", "a link", "cut", "another state's"])
def test_a_cache_entry_that_others_may_have_written_is_ignored(
    cache: Path, hashed: list[Path], model: Path, tmp_path: Path, damage: str
) -> None:
    first = irwm.open_checkpoint(model).fingerprint
    (kept,) = cache.iterdir()
    lie = f"{kept.name} {'0' * 64}\n"
    texts = {"text": "x" + lie, "cut": lie[:100], "another state's": f"{'1' * 64} {'0' * 64}\n"}
    kept.write_text(texts.get(damage, lie))
    if damage == "open to others":
        kept.chmod(0o666)
    elif damage == "a link":
        kept.rename(tmp_path / "elsewhere")
        kept.symlink_to(tmp_path / "elsewhere")
    assert irwm.open_checkpoint(model).fingerprint == first
    assert len(hashed) == 2


def test_a_folder_that_others_may_change_is_not_used(cache: Path, hashed: list[Path], model: Path) -> None:
    cache.mkdir(parents=True)
    cache.chmod(0o777)
    assert hashes_twice(model, hashed)
    assert not list(cache.iterdir())


def test_a_relative_cache_folder_is_not_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "cache")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert fingerprint_cache._folder() == tmp_path / ".cache" / "irwm" / "fingerprints"


@pytest.mark.parametrize("reason", ["no folder", "the disk", "the start of the machine"])
def test_files_without_reliable_change_times_or_a_cache_are_hashed(
    cache: Path, hashed: list[Path], model: Path, monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    if reason == "no folder":
        monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null/nowhere")
    elif reason == "the disk":
        monkeypatch.setattr(fingerprint_cache, "keeps_change_times", lambda file: False)
    else:
        monkeypatch.setattr(fingerprint_cache, "boot_id", lambda: "")
    assert hashes_twice(model, hashed)
    assert not cache.exists()


def test_reboot_invalidates_remembered_hashes(hashed: list[Path], model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for boot in ("one", "two", "two"):
        monkeypatch.setattr(fingerprint_cache, "boot_id", lambda boot=boot: boot)
        assert irwm.open_checkpoint(model).fingerprint
    assert len(hashed) == 2


def test_the_cache_of_fingerprints_is_limited(cache: Path, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fingerprint_cache, "MOST_REMEMBERED", 3)
    cache.mkdir(mode=0o700, parents=True)
    for number in range(5):
        (cache / f"{number:064x}").write_text(f"{number:064x} {'ab' * 32}\n")
        os.utime(cache / f"{number:064x}", (number, number))
    assert irwm.open_checkpoint(model).fingerprint
    left = {file.name for file in cache.iterdir()}
    assert len(left) == 3
    assert {f"{3:064x}", f"{4:064x}"} < left


def test_small_embeddings_are_not_remembered(
    cache: Path, hashed: list[Path], model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fingerprint_cache, "LEAST_BYTES", 1 << 30)
    assert irwm.open_checkpoint(model).fingerprint
    assert not cache.exists()
    assert len(hashed) == 1


MOUNTS = """\
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw
22 27 0:21 / /proc rw,relatime - proc proc rw
40 27 7:0 / /evidence rw,relatime - squashfs /dev/loop0 ro,errors=continue
41 27 7:1 / /seized ro,relatime shared:5 - ext4 /dev/sdb1 rw
42 27 7:2 / /seized/again rw,relatime - ext4 /dev/sdb2 ro
43 27 0:30 / /tmp rw - tmpfs tmpfs rw
44 27 0:31 / /home/a\\040b rw shared:9 master:1 - btrfs /dev/sdc rw,subvol=/x
45 27 0:32 / /remote rw - nfs4 server:/x rw
46 27 0:33 / /over rw - ext4 /dev/sdd rw
47 46 0:34 / /over rw - fuse.sshfs peer:/x rw
half a line
"""


TRUSTED = {"/models/a.safetensors", "/evidences/a", "/home/a b/c"}
OTHERS = {"/evidence/a", "/seized/a", "/seized/again/a", "/tmp/a", "/remote/a", "/over/a"}


@pytest.mark.parametrize("file", sorted(TRUSTED | OTHERS))
def test_only_local_writable_disks_are_trusted(file: str) -> None:
    assert keeps_change_times(file, MOUNTS) == (file in TRUSTED)


def test_a_link_is_followed_to_the_disk_that_holds_the_file(tmp_path: Path) -> None:
    where = tmp_path.resolve()
    (where / "there").mkdir()
    (where / "link").symlink_to(where / "there")
    text = f"1 0 1:1 / / rw - tmpfs x rw\n2 1 1:2 / {where / 'there'} rw - xfs /dev/x rw\n"
    assert keeps_change_times(where / "link" / "a", text)
    assert not keeps_change_times(where / "a", text)


def test_a_system_without_mount_information_is_not_trusted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(fingerprint_cache, "_MOUNTS", tmp_path / "none")
    monkeypatch.setattr(fingerprint_cache, "_BOOT", tmp_path / "none")
    boot_id.cache_clear()
    assert not keeps_change_times(tmp_path)
    assert boot_id() == ""
    boot_id.cache_clear()
