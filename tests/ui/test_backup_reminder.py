"""The reminder of keys without a backup, where keys are made and where they are kept."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import irwm
from storage.backup import inspect, latest_backup
from tests.jobs.recipients import put_in_vault
from tests.ui.handlers import PASSPHRASE, Pages, value
from ui.components.backup_reminder import LOOKED_AT, reminder_text, unsaved_keys


@pytest.mark.parametrize("page", ["protect", "vault"])
def test_key_reminder_stays_until_a_backup(pages: Pages, tiny_path: Path, page: str) -> None:
    look = pages.handler("look", f"{page}-reminder")

    def reminded() -> str | None:
        row, said = look.fn(pages.request)
        return str(said) if row.visible else None

    def add(*names: str) -> None:
        put_in_vault(pages.vault, [irwm.generate_key(model, owner="Labs", recipient=name) for name in names])

    model = irwm.open_checkpoint(tiny_path)
    assert reminded() is None
    add("Ada")
    assert unsaved_keys(pages.vault) == (1, "")
    assert "One key is not backed up" in str(reminded())
    out = pages.call(f"{page}-backup", "click")
    assert "A sealed copy was written to" in value(out[f"{page}-backed-up"])
    stored = latest_backup(pages.vault.home)
    assert stored is not None
    given = Path(out[f"{page}-backup-file"].value["path"])
    assert (given.name, given.read_bytes()) == (stored.name, stored.read_bytes())
    assert reminded() is None
    add("Ben", "Cleo")
    count, day = unsaved_keys(pages.vault)
    assert (count, len(day)) == (2, 10)
    assert f"2 keys are newer than the last backup of the vault, made on {day}" in str(reminded())
    pages.lock()
    assert reminded() is None
    # Very many are not counted one by one.
    assert reminder_text(LOOKED_AT, "").startswith("50 or more keys are not backed up")


def test_a_backup_is_also_written_to_the_chosen_folder(pages: Pages, tmp_path: Path) -> None:
    other = tmp_path / "other disk"
    other.mkdir()
    pages.context.prefer(replace(pages.context.settings.preferences, backups=str(other)))
    out = pages.call("backup", "click")
    stored = latest_backup(pages.vault.home)
    assert stored is not None
    (copy,) = other.iterdir()
    assert copy.name == stored.name
    assert copy.stat().st_mode & 0o777 == 0o600
    assert inspect(copy, PASSPHRASE).vault == inspect(stored, PASSPHRASE).vault
    assert str(copy) in str(out)


def test_a_folder_for_backups_that_is_gone_does_not_prevent_the_backup(pages: Pages, tmp_path: Path) -> None:
    pages.context.prefer(replace(pages.context.settings.preferences, backups=str(tmp_path / "unplugged")))
    out = str(pages.call("backup", "click"))
    stored = latest_backup(pages.vault.home)
    assert stored is not None
    assert f"{stored}, but not to the folder for backups" in out
    assert "he backup cannot be written" in out
    assert "Check the folder and its disk, then try again" in out
    assert stored.name in out, "it is offered as a download"
