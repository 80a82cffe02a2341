from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from storage import files


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture(autouse=True)
def _no_umask() -> object:
    """A permissive umask must have no effect."""
    before = os.umask(0)
    yield
    os.umask(before)


def test_files_are_private_with_any_umask(tmp_path: Path) -> None:
    files.private_folder(tmp_path / "folder")
    os.close(files.new_private_file(tmp_path / "new"))
    files.append_private(tmp_path / "log", b"a")
    files.replace_private(tmp_path / "small", b"b")
    assert mode(tmp_path / "folder") == 0o700
    assert {mode(tmp_path / name) for name in ("new", "log", "small")} == {0o600}


def test_links_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "target").write_bytes(b"precious")
    (tmp_path / "link").symlink_to(tmp_path / "target")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    with pytest.raises(OSError, match="symbolic links"):
        files.append_private(tmp_path / "link", b"x")
    with pytest.raises(FileExistsError):
        files.new_private_file(tmp_path / "dangling")
    files.replace_private(tmp_path / "link", b"x")
    assert (tmp_path / "target").read_bytes() == b"precious"
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize("hard_links", [True, False])
def test_publishing_never_overwrites(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hard_links: bool) -> None:
    if not hard_links:

        def refuse(*_: object, **__: object) -> None:
            raise PermissionError("no hard links here")

        monkeypatch.setattr(os, "link", refuse)
    (tmp_path / "first").write_bytes(b"1")
    (tmp_path / "second").write_bytes(b"2")
    files.publish_new(tmp_path / "first", tmp_path / "final")
    with pytest.raises(FileExistsError):
        files.publish_new(tmp_path / "second", tmp_path / "final")
    assert (tmp_path / "final").read_bytes() == b"1"
    assert not (tmp_path / "first").exists()


def test_failed_replacement_keeps_old_content_and_no_partial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files.replace_private(tmp_path / "small", b"old")

    def fail(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space"):
        files.replace_private(tmp_path / "small", b"new")
    assert [path.name for path in tmp_path.iterdir()] == ["small"]
    assert (tmp_path / "small").read_bytes() == b"old"


def test_the_sweep_takes_only_our_own_old_partials(tmp_path: Path) -> None:
    old = files.partial_name(tmp_path / "vault.sqlite3")
    log = old.with_name(old.name + "-wal")
    young = files.partial_name(tmp_path / "jobs.sqlite3")
    foreign = tmp_path / "film.mkv.partial"
    for path in (old, log, young, foreign):
        path.write_bytes(b"x")
    for path in (old, log, foreign):
        os.utime(path, (0, 0))
    assert set(files.sweep(tmp_path)) == {old, log}
    assert young.exists()
    assert foreign.exists()
