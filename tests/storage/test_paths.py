from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from storage import StorageError, UnsafeHomeError, Vault, check_home, home, paths
from tests.storage.conftest import CHEAP, PASSPHRASE, ROOT
from tools.waiting import PATIENCE


@pytest.fixture
def safe(tmp_path: Path) -> dict[str, Any]:
    """A home next to a working folder and a temp folder."""
    folders = {name: tmp_path / name for name in ("home", "working_folder", "temp_folder")}
    for folder in folders.values():
        folder.mkdir(mode=0o700)
    return folders


def test_home_follows_the_setting_and_is_private(tmp_path: Path) -> None:
    place = home({"IRWM_HOME": str(tmp_path / "a" / "b")})
    assert place == tmp_path / "a" / "b"
    assert stat.S_IMODE(place.stat().st_mode) == 0o700


@pytest.mark.parametrize("setting", [None, "", "  "])
def test_default_home_is_the_user_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setting: str | None) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert home({} if setting is None else {"IRWM_HOME": setting}) == tmp_path / "irwm-studio"


def test_home_understands_a_tilde_and_relative_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert home({"IRWM_HOME": "~/vault"}) == tmp_path / "vault"
    assert home({"IRWM_HOME": "other"}) == tmp_path / "other"


@pytest.mark.parametrize("name", ["file", "file/below", "nul\0"])
def test_uncreatable_home_is_a_typed_error(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError):
        home({"IRWM_HOME": str(tmp_path / name)})


@pytest.mark.parametrize("where", ["working_folder", "temp_folder"])
@pytest.mark.parametrize("below", [".", "deep/down"])
def test_home_that_web_server_could_serve_is_refused(safe: dict[str, Any], where: str, below: str) -> None:
    inside = safe[where] / below
    inside.mkdir(parents=True, exist_ok=True)
    with pytest.raises(UnsafeHomeError):
        check_home(**safe | {"home": inside})


def test_a_link_on_the_way_into_the_working_folder_does_not_hide_it(safe: dict[str, Any], tmp_path: Path) -> None:
    (safe["working_folder"] / "data").mkdir()
    (tmp_path / "alias").symlink_to(safe["working_folder"])
    with pytest.raises(UnsafeHomeError):
        check_home(**safe | {"home": tmp_path / "alias" / "data"})


def test_named_home_in_temp_folder_is_allowed_with_warning(safe: dict[str, Any]) -> None:
    inside = safe["temp_folder"] / "home"
    inside.mkdir(mode=0o700)
    (warning,) = check_home(**safe | {"home": inside}, allow_temp=True)
    assert "cleared" in warning


def test_by_default_the_processs_own_folders_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UnsafeHomeError):
        check_home(home({"IRWM_HOME": "here"}))


@pytest.mark.fault(55)
def test_a_linked_home_is_refused(safe: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(safe["home"])
    with pytest.raises(UnsafeHomeError):
        check_home(**safe | {"home": tmp_path / "link"})


@pytest.mark.fault(55)
@pytest.mark.parametrize("name", ["vault.sqlite3", "vault.sqlite3-wal", "jobs.sqlite3", "jobs.sqlite3-shm"])
def test_a_linked_database_is_refused(safe: dict[str, Any], tmp_path: Path, name: str) -> None:
    assert check_home(**safe) == ()
    Vault.create(tmp_path / "real", PASSPHRASE, CHEAP)
    (safe["home"] / name).symlink_to(tmp_path / "real" / "vault.sqlite3")
    with pytest.raises(UnsafeHomeError):
        check_home(**safe)
    if name == "vault.sqlite3":
        with pytest.raises(UnsafeHomeError):
            Vault.open(safe["home"])


def test_a_pipe_in_the_vaults_place_is_refused_and_does_not_hang(safe: dict[str, Any]) -> None:
    os.mkfifo(safe["home"] / "vault.sqlite3")
    for use in (lambda: check_home(**safe), lambda: Vault.open(safe["home"])):
        with pytest.raises(UnsafeHomeError):
            use()


@pytest.mark.fault(55)
def test_world_readable_vault_is_made_private_with_warning(safe: dict[str, Any]) -> None:
    Vault.create(safe["home"], "a passphrase", CHEAP)
    path = safe["home"] / "vault.sqlite3"
    path.chmod(0o644)
    (warning,) = check_home(**safe)
    assert "Other accounts had access" in warning
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(0o640)
    assert "Other accounts had access" in Vault.open(safe["home"]).warnings[0]
    assert Vault.open(safe["home"]).warnings == ()


def test_a_home_that_others_may_write_to_is_refused(safe: dict[str, Any]) -> None:
    safe["home"].chmod(0o770)
    with pytest.raises(UnsafeHomeError):
        check_home(**safe)


def test_home_that_others_list_or_own_gives_a_warning(safe: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    safe["home"].chmod(0o755)
    (warning,) = check_home(**safe)
    assert "chmod 700" in warning
    safe["home"].chmod(0o700)
    monkeypatch.setattr(os, "geteuid", lambda: safe["home"].stat().st_uid + 1)
    (warning,) = check_home(**safe)
    assert "belongs to another account" in warning


@pytest.mark.fault(55)
@pytest.mark.parametrize("kind", ["nfs4", "cifs", "fuse.sshfs"])
def test_home_on_a_network_drive_warns(safe: dict[str, Any], monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setattr(paths, "file_system", lambda _: kind)
    (warning,) = check_home(**safe)
    assert f"network drive ({kind})" in warning


def test_the_innermost_and_latest_mount_decides(tmp_path: Path) -> None:
    inner = tmp_path / "with space"
    inner.mkdir()
    mounts = tmp_path / "mounts"
    escaped = str(inner).replace(" ", "\\040")
    mounts.write_text(
        f"/dev/a / ext4 rw 0 0\nb {escaped} nfs4 rw 0 0\nodd\nc {escaped} xfs rw 0 0\nd /other cifs rw 0 0\n"
    )
    assert paths.file_system(inner / "home", mounts) == "xfs"
    assert paths.file_system(tmp_path, mounts) == "ext4"
    assert paths.file_system(tmp_path, tmp_path / "absent") is None


@pytest.mark.fault(55)
@pytest.mark.slow
def test_the_app_does_not_start_on_a_linked_home(safe: dict[str, Any], tmp_path: Path) -> None:
    """It refuses the home before it tries the port, which is unavailable."""
    Vault.create(safe["home"], PASSPHRASE, CHEAP)
    (tmp_path / "link").symlink_to(safe["home"])
    settings = {"IRWM_HOME": str(tmp_path / "link"), "IRWM_PORT": "1", "IRWM_DEVICE": "cpu"}
    environment = {**os.environ, **settings, "TMPDIR": str(safe["temp_folder"])}
    app = [sys.executable, "app.py"]
    refused = subprocess.run(app, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=PATIENCE)
    assert refused.returncode == 2
    assert "is a link" in refused.stderr
    assert "Traceback" not in refused.stderr
