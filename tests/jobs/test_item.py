"""The task that hashes received files and adds them to a case."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

import irwm
from storage import Jobs, Vault
from tests.jobs.recipients import run_here, run_job, succeeded
from tests.recording.answers import ENDPOINT, MODEL, write_recording


def asked(path: Path, case_id: str, **changes: str) -> dict[str, str]:
    values = {"path": str(path), "case_id": case_id, "name": "", "received_from": "the press office", "note": "by mail"}
    return {**values, "examiner": "A. Officer", "seen_utc": "2024-01-28T00:00:00+00:00", **changes}


@pytest.fixture
def letter(tmp_path: Path) -> Path:
    path = tmp_path / "letter.pdf"
    path.write_bytes(b"%PDF-1.7 Dear Sirs")
    return path


@pytest.mark.quick("the real child process of an item")
def test_a_file_is_hashed_and_filed_with_who_received_it(vault: Vault, jobs: Jobs, letter: Path) -> None:
    case = vault.add_case("Leak of January")
    job = succeeded(run_job("item", asked(letter, case.id), vault, jobs))
    assert job.result == {"name": "letter.pdf", "files": 1, "bytes": 18, "added": True}
    (item,) = vault.case_items(case.id)
    assert item.files == {"letter.pdf": (18, hashlib.sha256(letter.read_bytes()).hexdigest())}
    assert (item.added_by, item.received_from, item.note) == ("A. Officer", "the press office", "by mail")
    assert item.seen_utc.startswith("2024-01-28T00:00:00")


def test_a_folder_is_filed_with_every_file_below_it_but_no_link(vault: Vault, jobs: Jobs, tmp_path: Path) -> None:
    case, folder = vault.add_case("Leak"), tmp_path / "received"
    (folder / "sub").mkdir(parents=True)
    (folder / "a.bin").write_bytes(b"a")
    (folder / "sub" / "b.bin").write_bytes(b"bb")
    (folder / "link").symlink_to("/etc/passwd")
    assert run_here("item", asked(folder, case.id), vault, jobs).state == "done"
    (item,) = vault.case_items(case.id)
    assert {name: size for name, (size, _) in item.files.items()} == {"a.bin": 1, "sub/b.bin": 2}


def test_the_same_files_are_filed_once_and_a_changed_one_again(vault: Vault, jobs: Jobs, letter: Path) -> None:
    case = vault.add_case("Leak")
    first, second = (run_here("item", asked(letter, case.id), vault, jobs).result["added"] for _ in range(2))
    assert (first, second) == (True, False)
    letter.write_bytes(b"%PDF-1.7 Dear Madam")
    assert run_here("item", asked(letter, case.id), vault, jobs).result["added"]
    assert len(vault.case_items(case.id)) == 2


def test_item_filed_again_with_a_date_is_separate(vault: Vault, jobs: Jobs, letter: Path) -> None:
    case = vault.add_case("Leak")
    run_here("item", asked(letter, case.id, seen_utc=""), vault, jobs)
    run_here("item", asked(letter, case.id), vault, jobs)
    run_here("item", asked(letter, case.id, seen_utc=""), vault, jobs)
    assert [item.seen_utc[:10] for item in vault.case_items(case.id)] == ["", "2024-01-28"]


@pytest.mark.parametrize("what", ["missing", "empty"])
def test_unhashable_item_is_reported_and_not_filed(vault: Vault, jobs: Jobs, tmp_path: Path, what: str) -> None:
    case, path = vault.add_case("Leak"), tmp_path / what
    if what == "empty":
        path.mkdir()
    job = run_here("item", asked(path, case.id), vault, jobs)
    assert job.state == "failed"
    assert job.error["advice"]
    assert not vault.case_items(case.id)


def test_recorded_answers_are_named_after_the_server(vault: Vault, jobs: Jobs, tiny_path: Path, tmp_path: Path) -> None:
    model, case = irwm.open_checkpoint(tiny_path), vault.add_case("Who serves this?")
    file = write_recording(model, model, tmp_path / "answers.safetensors", count=2)
    name = f"answers of {MODEL} at {ENDPOINT}"
    assert run_here("item", asked(file, case.id), vault, jobs).result["name"] == name
    assert run_here("item", asked(file, case.id, name="Exhibit A"), vault, jobs).result["name"] == "Exhibit A"
    file.write_bytes(file.read_bytes()[:-1])
    assert run_here("item", asked(file, case.id), vault, jobs).result["name"] == "answers.safetensors"
    assert [item.name for item in vault.case_items(case.id)] == [name, "Exhibit A", "answers.safetensors"]
