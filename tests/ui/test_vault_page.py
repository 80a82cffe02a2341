"""What the Vault page says of cases and runs."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from storage import RecordName, Vault
from storage.encryption import Cost
from ui.pages.vault import damage_html, filed


def test_a_damaged_run_is_named_and_the_others_are_shown(tmp_path: Path) -> None:
    vault = Vault.create(tmp_path / "home", "four unrelated plain words", cost=Cost(memory_kib=8, passes=1, lanes=1))
    case, other = vault.add_case("Leak of January"), vault.add_case("Leak of March")
    lost = vault.add_run(case.id, {"a": 1}, "first.gguf", "found")
    vault.add_run(case.id, {"a": 2}, "second.gguf", "not found")
    vault.add_run(other.id, {"a": 3}, "third.gguf", "found")
    with sqlite3.connect(vault.path) as db:
        db.execute("UPDATE runs SET meta = zeroblob(length(meta)) WHERE id = ?", [lost.id])
    rows, damaged = filed(vault)
    assert [(row[0], row[1]) for row in rows] == [("Leak of March", "third.gguf"), ("Leak of January", "second.gguf")]
    assert damaged == [RecordName("runs", lost.id)]
    assert lost.id in damage_html(damaged)
