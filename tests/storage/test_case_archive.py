"""A case as one archive: checked with `sha256sum`, complete or absent, and without a secret in it."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
import subprocess
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest

from storage import (
    CaseRecord,
    RecordNotFoundError,
    StorageError,
    StorageFullError,
    Vault,
    VaultExistsError,
    VaultLockedError,
    audit,
)
from storage.case_archive import export_case
from storage.records import open_body
from tests.faults.conftest import small_disk
from tests.faults.helpers import empty, fill_up
from tests.storage.conftest import PASSPHRASE, Flip, Sql, add_key, documented_hashes

__all__ = ["small_disk"]

FINDING = {"verdict": "found", "log10_p": -41.5}
REPORT = {"report.html": b"<p>found</p>", "report.json": b"{}"}


@pytest.fixture
def case(vault: Vault) -> CaseRecord:
    """A case with every kind of record, and another case."""
    add_key(vault)
    vault.identity()
    made, other = vault.add_case("Leak of J\u00e4nner", "seen on a forum"), vault.add_case("ANOTHER-CASE")
    vault.add_item(made.id, "the forum's file", {"../süß.gguf": (7, "ab" * 32)}, seen_utc="2026-01-31T12:00Z")
    vault.add_run(made.id, FINDING, "suspect.gguf", "found", files=REPORT)
    vault.add_run(other.id, FINDING, "ANOTHER-SUSPECT", "found", files=REPORT)
    vault.add_note(made.id, "Called the customer.", added_by="R. Weber")
    vault.add_run(made.id, FINDING, "control.gguf", "not found")
    vault.log("report exported", {"case": made.id, "path": "/tmp/report.html"})
    return made


def document(path: Path) -> dict[str, Any]:
    with zipfile.ZipFile(path) as archive:
        found: dict[str, Any] = json.loads(archive.read("case.json"))
    return found


def test_archive_has_the_whole_case_and_no_other(vault: Vault, case: CaseRecord, tmp_path: Path) -> None:
    head, count = vault.audit_head, vault.audit_count
    path = export_case(vault, case.id, tmp_path / "case.zip")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        names = ["run-1/finding.json", "run-1/report.html", "run-1/report.json", "run-2/finding.json"]
        assert archive.namelist() == ["README.txt", "case.json", "case.jsonld", *names, "SHA256SUMS"]
        assert archive.read("run-1/report.html") == REPORT["report.html"]
        assert json.loads(archive.read("run-2/finding.json")) == FINDING
    found = document(path)
    assert found["case"]["title"] == "Leak of J\u00e4nner"
    assert [item["known_to_exist_since_utc"] for item in found["items"]] == ["2026-01-31T12:00Z"]
    assert found["items"][0]["files"] == [{"name": "../süß.gguf", "bytes": 7, "sha256": "ab" * 32}]
    assert [note["text"] for note in found["notes"]] == ["Called the customer."]
    assert [(run["suspect"], run["verdict"], run["folder"]) for run in found["investigations"]] == [
        ("suspect.gguf", "found", "run-1"),
        ("control.gguf", "not found", "run-2"),
    ]
    log = found["audit_log"]
    assert (log["head"], log["entries"], log["sound"]) == (head, count, True)
    assert [entry["event"] for entry in log["about_this_case"]] == [
        "case opened",
        "item received",
        "investigation filed",
        "note added",
        "investigation filed",
        "report exported",
    ]
    assert (found["damaged"], found["missing"]) == ([], [])
    for foreign in (b"ANOTHER-CASE", b"ANOTHER-SUSPECT"):
        assert foreign not in path.read_bytes()


def test_sha256sum_checks_unpacked_archive(vault: Vault, case: CaseRecord, tmp_path: Path) -> None:
    if shutil.which("sha256sum") is None:
        pytest.skip("there is no sha256sum")
    place = tmp_path / "unpacked"
    with zipfile.ZipFile(export_case(vault, case.id, tmp_path / "case.zip")) as archive:
        archive.extractall(place)
    command = ["sha256sum", "--strict", "-c", "SHA256SUMS"]
    sound = subprocess.run(command, cwd=place, capture_output=True, text=True, check=True)
    assert sound.stdout.count(": OK") == 7
    listed = {line.split("  ")[1] for line in (place / "SHA256SUMS").read_text().splitlines()}
    present = {path.relative_to(place).as_posix() for path in place.rglob("*") if path.is_file()}
    assert listed == present - {"SHA256SUMS"}
    (place / "run-1" / "report.json").write_bytes(b"{ }")
    changed = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False)
    assert changed.returncode != 0
    assert "run-1/report.json: FAILED" in changed.stdout


def test_entry_hashes_can_be_computed_from_archive(vault: Vault, case: CaseRecord, tmp_path: Path) -> None:
    found = document(export_case(vault, case.id, tmp_path / "case.zip"))
    for entry in found["audit_log"]["about_this_case"]:
        hashes = documented_hashes(found["vault"], entry | {"time": entry["time_utc"]})
        assert hashes == (entry["details_sha256"], entry["hash"])


def test_export_is_logged_and_appears_in_next_archive(vault: Vault, case: CaseRecord, tmp_path: Path) -> None:
    path = export_case(vault, case.id, tmp_path / "case.zip")
    entry = vault.audit_log()[-1]
    with zipfile.ZipFile(path) as archive:
        sums = hashlib.sha256(archive.read("SHA256SUMS")).hexdigest()
    assert (entry.event, entry.details) == ("case exported", {"case": case.id, "path": str(path), "sha256sums": sums})
    again = document(export_case(vault, case.id, tmp_path / "again.zip"))
    assert again["audit_log"]["about_this_case"][-1]["details"]["sha256sums"] == sums


def test_equal_states_give_equal_archives(vault: Vault, case: CaseRecord, tmp_path: Path, clock: Any) -> None:
    made = []
    for name, umask, zone in (("left", 0o077, "UTC"), ("right", 0o000, "Asia/Tokyo")):
        shutil.copytree(vault.home, tmp_path / name)
        copy = Vault.take_over(tmp_path / name, vault.hand_over(), now=clock.now)
        before, was = os.umask(umask), os.environ.get("TZ")
        os.environ["TZ"] = zone
        time.tzset()
        try:
            made.append(export_case(copy, case.id, tmp_path / f"{name}.zip").read_bytes())
        finally:
            os.umask(before)
            os.environ.pop("TZ") if was is None else os.environ.update(TZ=was)
            time.tzset()
    assert made[0] == made[1]
    assert document(tmp_path / "left.zip")["exported_utc"] == "2026-03-01T12:00:00.000Z"


def test_archive_contains_no_secret(vault: Vault, case: CaseRecord, tmp_path: Path) -> None:
    vault.rotate_identity()
    vault.sign(b"report")
    content = export_case(vault, case.id, tmp_path / "case.zip").read_bytes()
    with vault._file.reading() as db:
        privates = [open_body(vault._use(), "identities", row) for row in db.query("SELECT * FROM identities")]
    assert len(privates) == 2
    secrets = [*privates, vault.hand_over(), vault.key_bytes(vault.keys()[0].id), PASSPHRASE.encode()]
    for secret in secrets:
        assert secret not in content
        assert secret.hex().encode() not in content
    assert b"Called the customer." in content, "the search would have found clear text"


def test_archive_readme_has_verify_command_for_each_signed_report(vault: Vault, tmp_path: Path) -> None:
    made = vault.add_case("swept")
    files = {"report-0001.json": b"{}", "report-0001.signature.json": b"{}"}
    vault.add_run(made.id, FINDING, "suspect.gguf", "found", files=files)
    with zipfile.ZipFile(export_case(vault, made.id, tmp_path / "case.zip")) as archive:
        readme = archive.read("README.txt").decode("utf-8")
    assert "irwm verify run-1/report-0001.json\n" in readme
    assert readme.count("irwm verify") == 1


def test_empty_case_can_be_archived(vault: Vault, tmp_path: Path) -> None:
    path = export_case(vault, vault.add_case("empty").id, tmp_path / "case.zip")
    with zipfile.ZipFile(path) as archive:
        assert archive.namelist() == ["README.txt", "case.json", "case.jsonld", "SHA256SUMS"]


# Whole or not there


def test_archive_never_overwrites(vault: Vault, case: CaseRecord, tmp_path: Path) -> None:
    head = vault.audit_head
    taken, link = tmp_path / "taken.zip", tmp_path / "link.zip"
    taken.write_text("precious")
    link.symlink_to(tmp_path / "nowhere")
    for target in (taken, link):
        with pytest.raises(VaultExistsError):
            export_case(vault, case.id, target)
    assert taken.read_text() == "precious"
    assert not (tmp_path / "nowhere").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["home", "link.zip", "taken.zip"]
    assert vault.audit_head == head


def test_second_concurrent_export_fails(
    vault: Vault, case: CaseRecord, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "case.zip"
    ours = zipfile.ZipFile.writestr

    def overtaken(*arguments: Any) -> None:
        target.touch()
        ours(*arguments)

    monkeypatch.setattr(zipfile.ZipFile, "writestr", overtaken)
    head = vault.audit_head
    with pytest.raises(VaultExistsError):
        export_case(vault, case.id, target)
    assert target.read_bytes() == b""
    assert sorted(path.name for path in tmp_path.iterdir()) == ["case.zip", "home"]
    assert vault.audit_head == head, "an unpublished archive is not logged"


def test_full_disk_leaves_no_partial_file(vault: Vault, case: CaseRecord, small_disk: Path) -> None:
    vault.add_run(case.id, FINDING, "large", "found", files={"report.html": os.urandom(3_000_000)})
    head = vault.audit_head
    fill_up(small_disk, 100_000)
    with pytest.raises(StorageFullError if os.path.ismount(small_disk) else StorageError):
        export_case(vault, case.id, small_disk / "case.zip")
    empty(small_disk)
    assert list(small_disk.iterdir()) == []
    assert vault.audit_head == head


def test_unwritable_archive_target_is_reported(vault: Vault, case: CaseRecord, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    for target in (tmp_path / "absent" / "case.zip", tmp_path / "file" / "case.zip", tmp_path / ("x" * 250 + ".zip")):
        with pytest.raises(StorageError, match="cannot be written"):
            export_case(vault, case.id, target)


def test_failed_commit_removes_archive(
    vault: Vault, case: CaseRecord, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, calls = audit.state, []

    def fail(db: Any) -> Any:
        calls.append(1)
        if (tmp_path / "case.zip").exists():
            raise OSError("the disk went away")
        return state(db)

    monkeypatch.setattr(audit, "state", fail)
    with pytest.raises(StorageError, match="went away"):
        export_case(vault, case.id, tmp_path / "case.zip")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["home"]


def test_next_export_removes_partial_of_killed_one(vault: Vault, case: CaseRecord, tmp_path: Path) -> None:
    old, young, foreign = (
        tmp_path / name
        for name in ("case.zip.0123456789abcdef.partial", f"case.zip.{'f' * 16}.partial", "case.zip.mine.partial")
    )
    for path in (old, young, foreign):
        path.write_bytes(b"half")
    for path in (old, foreign):
        os.utime(path, (time.time() - 7200,) * 2)
    export_case(vault, case.id, tmp_path / "case.zip")
    assert [path.exists() for path in (old, young, foreign)] == [False, True, True]


def test_a_locked_vault_and_an_unknown_case_are_refused(vault: Vault, case: CaseRecord, tmp_path: Path) -> None:
    with pytest.raises(RecordNotFoundError):
        export_case(vault, "no such", tmp_path / "case.zip")
    vault.lock()
    with pytest.raises(VaultLockedError):
        export_case(vault, case.id, tmp_path / "case.zip")
    assert not (tmp_path / "case.zip").exists()


# Damaged


def test_archive_names_damaged_and_missing_records(
    vault: Vault, case: CaseRecord, tmp_path: Path, sql: Sql, flip: Flip
) -> None:
    first, second = vault.case_runs(case.id)
    (item,), (note,) = vault.case_items(case.id), vault.case_notes(case.id)
    (foreign,) = vault.case_runs(vault.cases()[1].id)
    flip("run_files", "body", "id", first.file_ids["report.json"])
    flip("runs", "body", "id", second.id)
    flip("notes", "meta", "id", note.id)
    flip("runs", "meta", "id", foreign.id)
    sql("DELETE FROM items WHERE id = ?", item.id)
    path = export_case(vault, case.id, tmp_path / "case.zip")
    found = document(path)
    assert {(name["table"], name["id"]) for name in found["damaged"]} == {
        ("run_files", first.file_ids["report.json"]),
        ("runs", second.id),
        ("notes", note.id),
    }
    assert found["missing"] == [{"table": "items", "id": item.id}]
    with zipfile.ZipFile(path) as archive:
        assert archive.namelist()[3:-1] == ["run-1/finding.json", "run-1/report.html"]
    assert found["investigations"][1]["in_this_archive"] == []


def test_archive_reports_a_broken_log(vault: Vault, case: CaseRecord, tmp_path: Path, sql: Sql) -> None:
    sql("UPDATE audit SET event = 'nothing' WHERE seq = 2")
    log = document(export_case(vault, case.id, tmp_path / "case.zip"))["audit_log"]
    assert (log["sound"], log["reason"]) == (False, "entry 2 was changed")
