"""A backup restored from the gate: compared first, proved by its passphrase, and never another vault's."""

from __future__ import annotations

import shutil
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import gradio as gr
import pytest

from irwm.errors import IrwmError
from storage.backup import back_up
from storage.database import DatabaseFile
from storage.errors import StorageBusyError, TooManyTriesError
from storage.schema import VAULT_SCHEMA_VERSION
from storage.vault import Vault
from storage.wrong_passphrases import FREE, Tries
from tests.ui.handlers import CHEAP, PASSPHRASE, SESSION, Pages, value
from ui.components.job_list import SEALED
from ui.components.restore_box import require_present
from ui.components.uploads import browser_folder


@pytest.fixture
def backup(pages: Pages) -> Path:
    """A backup of the vault with one case; then a second case was opened and the vault locked."""
    pages.vault.add_case("Before")
    path = pages.vault.backup()
    pages.vault.add_case("After")
    pages.lock()
    return path


def ask(pages: Pages, button: str, which: str | None, file: Any = None, typed: str = PASSPHRASE) -> dict[str, Any]:
    present = [None] if button == "restore-now" else []
    return pages.call(button, "click", which, file, typed, *present)


def posted(path: Path, name: str = "copy.sqlite3") -> str:
    folder = browser_folder() / "restored"
    folder.mkdir(exist_ok=True)
    return str(shutil.copy(path, folder / name))


def cases(pages: Pages) -> list[str]:
    pages.context.sessions.unlock(SESSION, PASSPHRASE)
    return [case.title for case in pages.vault.cases()]


@pytest.mark.fault(52)
def test_backup_is_compared_then_restored_without_loss(pages: Pages, backup: Path) -> None:
    home = pages.context.settings.home
    before = backup.read_bytes()
    compared = ask(pages, "restore-look", backup.name)
    # The second case, the backup's own entry; the backup was made before both were written.
    assert "2 later entries" in compared["restore-said"]
    assert cases(pages) == ["Before", "After"], "a comparison changes nothing"
    assert backup.read_bytes() == before
    assert [path.name for path in backup.parent.iterdir()] == [backup.name]
    out = ask(pages, "restore-now", backup.name)
    assert "was restored" in out["restore-said"]
    assert out["restore-passphrase"] == ""
    assert str(home) not in str(out)
    assert not pages.context.sessions.is_open(SESSION), "every browser must enter the passphrase again"
    assert cases(pages) == ["Before"]
    assert any("older state" in warning for warning in pages.vault.warnings)
    assert "exchange noticed" in [entry.event for entry in pages.vault.audit_log()]
    (aside,) = home.glob("vault.sqlite3.replaced-*")
    assert aside.name in out["restore-said"]


def test_backup_with_an_old_passphrase_does_not_replace_an_intact_vault(pages: Pages, backup: Path) -> None:
    pages.context.sessions.unlock(SESSION, PASSPHRASE)
    pages.vault.change_passphrase(PASSPHRASE, "another four plain words")
    pages.lock()
    for present in (None, "a guess at it"):
        out = pages.call("restore-now", "click", backup.name, None, PASSPHRASE, present)
        assert "does not open the current vault" in out["restore-said"]
        assert (out["restore-passphrase"], out["restore-present"]) == ("", "")
    assert not list(pages.context.settings.home.glob("*.replaced-*"))
    out = pages.call("restore-now", "click", backup.name, None, PASSPHRASE, "another four plain words")
    assert "was restored" in out["restore-said"]
    assert cases(pages) == ["Before"]


@pytest.mark.parametrize("hindrance", ["newer", "busy", "unsafe", "cost"])
def test_vault_that_cannot_be_checked_now_is_not_treated_as_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hindrance: str
) -> None:
    home = tmp_path / "home"
    Vault.create(home, "the passphrase of now", CHEAP).lock()
    with closing(sqlite3.connect(home / "vault.sqlite3", isolation_level=None)) as conn:
        if hindrance == "newer":
            conn.execute(f"PRAGMA user_version = {VAULT_SCHEMA_VERSION + 1}")
        elif hindrance == "busy":
            monkeypatch.setattr(DatabaseFile, "prepare", _busy)
        elif hindrance == "unsafe":
            (home / "vault.sqlite3").unlink()
            (home / "vault.sqlite3").mkdir()
        else:
            conn.execute("UPDATE vault SET memory_kib = 1 << 40")
    for tried in ("a revoked passphrase", "the passphrase of now"):
        with pytest.raises(IrwmError):
            require_present(home, tried, Tries(time.monotonic), "browser")
    monkeypatch.undo()


def _busy(file: DatabaseFile) -> list[str]:
    raise StorageBusyError("the vault is in use by another process", file=file.path)


def test_restore_is_refused_while_a_job_may_write(pages: Pages, backup: Path) -> None:
    pages.context.sessions.unlock(SESSION, PASSPHRASE)
    job = pages.jobs.create("verify", "Verify for a customer", {})
    pages.lock()
    assert "job may be writing" in ask(pages, "restore-now", backup.name)["restore-said"]
    pages.context.jobs.finish(job.id, "stopped")
    assert "was restored" in ask(pages, "restore-now", backup.name)["restore-said"]

    # Its key was made after the backup, so the current vault cannot open it; it is still listed.
    pages.context.sessions.unlock(SESSION, PASSPHRASE)
    listed = pages.call("jobs-refresh", "click", 0, None)["jobs-list"]
    assert "Stopped" in listed
    assert SEALED in listed
    assert "customer" not in listed
    assert pages.call("jobs-list", "chosen", 0, data={"record": job.id})["jobs-list"]
    with pytest.raises(gr.Error):
        pages.call("run-again", "click", job.id)


@pytest.mark.fault(79, 92)
def test_wrong_backup_passphrases_count_as_gate_attempts(pages: Pages, backup: Path) -> None:
    for _ in range(FREE):
        assert "does not open" in ask(pages, "restore-look", backup.name, typed="a guess")["restore-said"]
    refused = ask(pages, "restore-look", backup.name)
    assert "Too many wrong passphrases" in refused["restore-said"]
    assert "entries" not in refused["restore-said"], "the correct one is not checked either"
    with pytest.raises(TooManyTriesError):
        pages.context.sessions.unlock(SESSION, PASSPHRASE)
    pages.context.sessions.unlock("hash:another", PASSPHRASE)
    tried = pages.context.sessions.vault("hash:another").audit_log()[-1].details
    assert tried == {"failed tries before": FREE, "tries not looked at": 2}


@pytest.mark.parametrize("file", ["film.sqlite3", "film.mp4", "another vault's", "endless"])
def test_upload_that_is_no_backup_of_this_vault_replaces_nothing(
    pages: Pages, backup: Path, tmp_path: Path, file: str
) -> None:
    made = tmp_path / "made"
    if file == "another vault's":
        Vault.create(tmp_path / "other", PASSPHRASE, CHEAP)
        made = back_up(tmp_path / "other")
    elif file == "endless":
        shutil.copy(backup, made)
        with closing(sqlite3.connect(made)) as conn:
            conn.executescript(
                "DROP TABLE vault; CREATE VIEW vault AS "
                "WITH RECURSIVE n(i) AS (SELECT 2 UNION ALL SELECT i + 1 FROM n) SELECT i AS one FROM n"
            )
    else:
        made.write_bytes(b"x" * 5000)
    for button in ("restore-look", "restore-now"):
        refused(pages, button, None, posted(made, file if "film" in file else "copy.sqlite3"))


@pytest.mark.parametrize("typed", ["", "another passphrase", "x" * 1025])
def test_restore_needs_the_passphrase_of_the_backup(pages: Pages, backup: Path, typed: str) -> None:
    for button in ("restore-look", "restore-now"):
        refused(pages, button, backup.name, typed=typed)


@pytest.mark.parametrize("which", [None, "../vault.sqlite3", "/etc/passwd", "vault-99999999-x.sqlite3"])
def test_only_listed_backups_and_uploaded_files_are_taken(pages: Pages, backup: Path, which: str | None) -> None:
    assert pages.call("restore", "expand")["restore-which"].choices == [(backup.stem, backup.name)]
    refused(pages, "restore-now", which)
    refused(pages, "restore-now", None, str(pages.context.settings.home / which) if which else "/etc/passwd")


def refused(pages: Pages, button: str, which: str | None, file: Any = None, typed: str = PASSPHRASE) -> None:
    """The refusal has no path and no facts about the backup, and changes nothing."""
    out = ask(pages, button, which, file, typed)
    assert "notice-fault" in out["restore-said"]
    assert "entries" not in out["restore-said"]
    assert out["restore-passphrase"] == ""
    for path in (pages.context.settings.home, browser_folder(), file or "/etc/passwd"):
        assert str(path) not in str(out)
    assert cases(pages) == ["Before", "After"]
    pages.lock()


@pytest.mark.fault(50)
def test_lost_and_damaged_vaults_are_restored_from_a_listed_or_uploaded_backup(pages: Pages, backup: Path) -> None:
    vault = pages.context.settings.home / "vault.sqlite3"
    for end in ("-wal", "-shm"):
        vault.with_name(vault.name + end).unlink(missing_ok=True)
    vault.write_bytes(b"not a database any more" * 400)
    pages.context.sessions.forget()
    gate = pages.call("unlock-vault", "click", PASSPHRASE, 0)
    assert any("notice-fault" in str(value(part)) for part in gate.values())
    file = posted(backup)
    assert "later entries" in ask(pages, "restore-look", None, file)["restore-said"]
    assert "was restored" in ask(pages, "restore-now", None, file)["restore-said"]
    assert cases(pages) == ["Before"]
    assert list(vault.parent.glob("vault.sqlite3.replaced-*")), "the damaged file is kept"
    pages.lock()
    vault.unlink()
    assert "was restored" in ask(pages, "restore-now", backup.name)["restore-said"]
    assert cases(pages) == ["Before"]
