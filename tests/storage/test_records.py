"""Records that are filed in the vault are returned complete."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import pytest

from storage import NewKey, RecordName, RecordNotFoundError, RecordValueError, Vault
from tests.storage.conftest import PASSPHRASE, Flip, add_key, new_key, new_keys, unlocked

MANIFEST = {"model.safetensors": "ab" * 32, "config.json": "cd" * 32}
FINDING = {"verdict": "found", "ranks": [0.001, None], "log10_p": -41.5}


def test_filed_keys_and_releases_round_trip(vault: Vault) -> None:
    key = add_key(vault)
    release = vault.add_release(key.id, Path("/releases/copy-1"), MANIFEST, {"changed_rows": 50})
    again = unlocked(vault.home)
    assert again.keys() == again.key_records([key.id]) == [key]
    assert again.find_keys("brightwater").records == (key,)
    assert again.key_bytes(key.id) == b"SECRET-KEY-Brightwater Labs"
    assert again.releases() == [release]
    assert (key.owner, key.label) == ("Northwind Research AG", "early access")
    assert key.parameters == {"positions": 50, "scale": 1000.0}
    assert (release.key_id, release.path, release.manifest) == (key.id, "/releases/copy-1", MANIFEST)
    assert (again.check().ok, again.check().records) == (True, 2)


def test_the_marks_on_a_release_are_found_by_its_model(vault: Vault, flip: Flip) -> None:
    ours, other, again = add_key(vault, "a"), add_key(vault, "b"), add_key(vault, "c")
    for key, fingerprint in ((ours, "77" * 32), (other, "88" * 32), (again, "77" * 32)):
        vault.add_release(key.id, "/releases/copy", MANIFEST, {"release_fingerprint": fingerprint})
    vault.add_release(ours.id, "/releases/older", MANIFEST, {})
    assert vault.marks_on("77" * 32) == [ours, again]
    assert vault.marks_on("99" * 32) == []
    assert ours.whose == f"{ours.owner}, issued to {ours.recipient}"
    assert dataclasses.replace(ours, recipient="").whose == ours.owner
    flip("keys", "meta", "id", ours.id, 5)
    marks = unlocked(vault.home).marks_on("77" * 32)
    assert marks == [again]
    assert marks.damaged == (RecordName("keys", ours.id),), "a key of it may be damaged: this is reported"


def test_vault_files_hold_no_secret_in_clear(vault: Vault) -> None:
    key = add_key(vault)
    vault.add_keys(new_keys(20, name="Lakeside"))
    vault.find_keys("lakeside")
    vault.set_label("keys", key.id, "left the company")
    vault.add_release(key.id, "/srv/releases/brightwater", MANIFEST, {"receipt": "number R-77"})
    case = vault.add_case("Leak of January", "seen on a forum")
    finding, report = FINDING | {"log10_p": -41.53127}, {"report.html": b"<p>REPORTED"}
    vault.add_run(case.id, finding, "suspect.gguf", "inconclusive", files=report)
    vault.add_item(case.id, "courier's disk", {"disk.img": (77, "ef" * 32)}, received_from="a journalist")
    vault.add_note(case.id, "Called the customer.", added_by="R. Weber")
    vault.add_timestamp(key.id, b"COMMITTED", b"THEY-ASKED", b"ANSWERED", "2026-03-01T12:00Z", "Stamp Office", True)
    identity = vault.identity()
    vault.log("report exported", {"file": "evidence.pdf"})
    with vault._file.writing():  # a connection is open, so log and index are next to the database
        files = {path.name: path.read_bytes() for path in vault.home.rglob("*") if path.is_file()}
    files |= {"backup": vault.backup().read_bytes()}
    assert {"vault.sqlite3", "vault.sqlite3-wal", "vault.sqlite3-shm", "vault.witness.json"} <= files.keys()
    secrets = ["SECRET-KEY", "Northwind", "Brightwater", "northwind-7b", "ab" * 32, "cd" * 32, "llama-like"]
    secrets += ["early access", "brightwater", "number R-77", "Leak of January", "on a forum", "suspect.gguf"]
    secrets += ["inconclusive", "41.53127", "evidence.pdf", "REPORTED", "report.html", "courier's", "disk.img"]
    secrets += ["ef" * 32, "journalist", "customer", "R. Weber", "COMMITTED", "THEY-ASKED", "ANSWERED", "Q09NTUlUVEVE"]
    secrets += ["Stamp Office", identity.public_key, "Lakeside", "lakeside", "left the company"]
    assert min(map(len, secrets)) >= 8, "any four letters can occur in random bytes by chance"
    for name, content in files.items():
        for secret in (*secrets, PASSPHRASE):
            assert secret.encode() not in content, f"{secret} in {name}"
    assert b"key added" in files["vault.sqlite3"], "the search would have found clear text"


def test_record_is_independent_of_later_changes_by_caller(vault: Vault) -> None:
    case, finding = vault.add_case("a"), {"ranks": [1]}
    run = vault.add_run(case.id, finding, "s", "found")
    finding["ranks"].append(2)
    assert run.finding == {"ranks": [1]}


@pytest.mark.parametrize(
    "change",
    [
        *({"sealed": b""}, {"sealed": "text"}, {"owner": " "}, {"commitment": ""}, {"model_fingerprint": None}),
        *({"recipient": None}, {"parameters": {"scale": math.nan}}, {"label": b"bytes"}),
    ],
    ids=str,
)
def test_invalid_key_is_refused(vault: Vault, change: dict[str, Any]) -> None:
    values = dataclasses.asdict(new_key("Ada")) | change
    with pytest.raises(RecordValueError):
        vault.add_keys([NewKey(**values)])
    with pytest.raises(RecordValueError):
        vault.add_key(**values)
    assert vault.keys() == []


def test_missing_or_non_json_values_are_refused(vault: Vault) -> None:
    case, head = vault.add_case("a"), vault.audit_head
    for action in (
        lambda: vault.add_run(case.id, {"ranks": [math.nan]}, "s", "found"),
        lambda: vault.add_run(case.id, {}, "s", ""),
        lambda: vault.add_item(case.id, "x", {"a": (1, "ab" * 32)}, seen_utc="2026-01-31T12:00"),
        lambda: vault.add_case(""),
        lambda: vault.add_release("x", "/a", {"a": "not a digest"}, {}),
    ):
        with pytest.raises(RecordValueError):
            action()
    assert vault.audit_head == head


def test_unknown_identifiers_are_refused(vault: Vault) -> None:
    for name, *arguments in (
        ("key_bytes",), ("run_files",), ("run_finding",), ("case_file",), ("add_release", "/a", MANIFEST, {}),
        ("add_timestamp", b"d", b"q", b"r", "2026-03-01T12:00Z", "A", False), ("add_run", {}, "s", "found"),
        ("add_item", "x", {"a": (1, "ab" * 32)}), ("add_note", "x"), ("rename_case", "Leak"),
    ):  # fmt: skip
        for id in ("no such", "' OR 1=1 --"):
            with pytest.raises(RecordNotFoundError):
                getattr(vault, name)(id, *arguments)
    assert vault.check().records == 0
