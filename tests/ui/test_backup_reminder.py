"""The reminder of keys without a backup, where keys are made and where they are kept."""

from __future__ import annotations

from pathlib import Path

import pytest

import irwm
from storage.backup import latest_backup
from tests.jobs.recipients import put_in_vault
from tests.ui.handlers import Pages, value
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
