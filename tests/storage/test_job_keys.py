"""The text of jobs is sealed in the list, in their logs and in their folders, with keys that the vault keeps."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from storage import DamagedRecordError, Jobs, RecordNotFoundError, RecordValueError, Vault, VaultLockedError
from storage.errors import JobSealedError
from storage.job_keys import JobKey
from storage.job_table import Job, JobLine
from tests.storage.conftest import Sql, unlocked

NAME = "Quuxholm Zebrawerke"


@pytest.fixture
def jobs(vault: Vault) -> Jobs:
    return Jobs(vault.home).opened(vault.jobs_keys_to_seal())


def whole_story(jobs: Jobs) -> str:
    """A job with the name in all of its text; returns its identifier."""
    job = jobs.create("protect", f"Protect for {NAME}", {"recipient": NAME}, "cpu")
    jobs.start(job.id, os.getpid())
    jobs.progress(job.id, 1, 2, f"Copy for {NAME}")
    jobs.log(job.id, f"Writing the copy of {NAME}")
    files = jobs.files(job.id)
    files.write("report.json", NAME.encode())
    for line in ("one", NAME):
        files.append("receipts.csv", f'"{line}"\r\n')
    jobs.finish(job.id, "done", {"whose": NAME}, {"problem": NAME})
    return job.id


def holding(home: Path, text: str) -> list[str]:
    """The files that contain a text."""
    return [p.name for p in home.rglob("*") if p.is_file() and text.encode() in p.read_bytes()]


def test_without_keys_only_kind_state_and_times_are_readable(jobs: Jobs, home: Path) -> None:
    id = whole_story(jobs)
    job, files = jobs.get(id), jobs.files(id)
    assert (job.title, job.request, job.what) == (f"Protect for {NAME}", {"recipient": NAME}, f"Copy for {NAME}")
    assert (job.result, job.error) == ({"whose": NAME}, {"problem": NAME})
    assert jobs.log_tail(id) == f"Writing the copy of {NAME}\n"
    assert (files.read("report.json"), files.read("receipts.csv")) == (NAME.encode(), f'"one"\r\n"{NAME}"\r\n'.encode())
    assert holding(home, "Quuxholm") == []

    locked = Jobs(home)
    line = locked.line(id)
    assert type(line) is JobLine
    assert (line.kind, line.state, line.done, line.total, line.created) == ("protect", "done", 1, 2, job.created)
    assert locked.recent() == [line]
    assert locked.log_tail(id) == ""
    for read in (
        lambda: locked.get(id),
        lambda: locked.files(id).read("report.json"),
        lambda: locked.files(id).write("report.json", b""),
        lambda: locked.files(id).append("receipts.csv", ""),
        lambda: locked.log(id, "x"),
        lambda: locked.create("protect", "t", {}),
        lambda: locked.key_of(id),
    ):
        with pytest.raises(JobSealedError):
            read()
    assert len(list((home / "jobs").iterdir())) == 1


def test_job_key_opens_no_other_job_and_starts_none(jobs: Jobs, home: Path) -> None:
    mine, other = whole_story(jobs), whole_story(jobs)
    own = Jobs(home).opened(jobs.key_of(mine))
    assert own.get(mine).title == f"Protect for {NAME}"
    assert [isinstance(job, Job) for job in own.recent()] == [False, True]
    with pytest.raises(JobSealedError):
        own.get(other)
    with pytest.raises(JobSealedError):
        own.create("protect", "t", {})
    assert NAME not in repr(own.get(mine).key)
    assert jobs.key_of(mine).secret.hex() not in repr(jobs.key_of(mine))


def test_locked_app_ends_dead_jobs_and_unlock_cleans_up(jobs: Jobs, home: Path) -> None:
    job = jobs.create("protect", "t", {"out_dir": "/releases"})
    jobs.start(job.id, 2**22 + 7)  # beyond every process number
    locked = Jobs(home)
    assert [line.state for line in locked.interrupt_dead()] == ["interrupted"]
    assert locked.unswept() == []
    assert [left.request["out_dir"] for left in jobs.unswept()] == ["/releases"]
    assert "start the job again" in (jobs.get(job.id).error or {})["advice"]
    jobs.swept(job.id)
    assert jobs.unswept() == []


@pytest.mark.parametrize("column", ["title", "request", "what", "result", "error"])
def test_changed_or_moved_job_text_is_rejected(jobs: Jobs, sql: Sql, column: str) -> None:
    first, second = whole_story(jobs), whole_story(jobs)
    statement = f"UPDATE jobs SET {column} = (SELECT {column} FROM jobs WHERE id = ?) WHERE id = ?"
    sql(statement, first, second, name="jobs.sqlite3")
    with pytest.raises(JobSealedError):
        jobs.get(second)
    assert jobs.get(first).title


def test_job_request_is_bound_to_its_kind(jobs: Jobs, sql: Sql) -> None:
    id = whole_story(jobs)
    sql("UPDATE jobs SET kind = 'lab'", name="jobs.sqlite3")
    with pytest.raises(JobSealedError):
        jobs.get(id)


def test_changed_exchanged_or_missing_job_file_is_reported(jobs: Jobs) -> None:
    id = whole_story(jobs)
    files = jobs.files(id)
    files.write("report.html", b"page")
    folder = files.folder
    (folder / "report.json.sealed").write_bytes((folder / "report.html.sealed").read_bytes())
    with pytest.raises(DamagedRecordError):
        files.read("report.json")
    grown = folder / "receipts.csv.sealed"
    grown.write_bytes(grown.read_bytes() + b"~AAAA\n")
    with pytest.raises(DamagedRecordError):
        files.read("receipts.csv")
    with pytest.raises(RecordNotFoundError):
        files.read("report.pdf")
    assert ("report.html" in files, "report.pdf" in files) == (True, False)
    for name in ("", "../vault.sqlite3", ".hidden", "a/b", "line\nend"):
        with pytest.raises(RecordValueError):
            files.read(name)


def test_library_output_is_kept_between_sealed_lines(jobs: Jobs) -> None:
    id = jobs.create("lab", "t", {}).id
    jobs.log(id, "first")
    with jobs.log_path(id).open("ab") as stream:
        stream.write(b"Segmentation fault\n~not sealed at all\n")
    jobs.log(id, "last")
    lines = jobs.log_tail(id).splitlines()
    assert (lines[0], lines[1], lines[3]) == ("first", "Segmentation fault", "last")
    assert "changed after it was written" in lines[2]


def test_jobs_keys_are_dropped_when_vault_locks(vault: Vault) -> None:
    assert vault.jobs_keys().newest is None
    keys = vault.jobs_keys_to_seal()
    assert vault.jobs_keys_to_seal() == keys == unlocked(vault.home).jobs_keys() == vault.jobs_keys()
    assert vault.check().ok
    assert next(iter(keys.secrets.values())).hex() not in repr(keys)
    assert [entry.event for entry in vault.audit_log()].count("key of the job list made") == 1
    vault.lock()
    for ask in (vault.jobs_keys, vault.jobs_keys_to_seal):
        with pytest.raises(VaultLockedError):
            ask()


def test_new_data_key_gets_new_jobs_key_and_opens_earlier_jobs(vault: Vault) -> None:
    """As after a change of the passphrase that seals every record again: here with a note of another data key."""
    jobs = Jobs(vault.home).opened(vault.jobs_keys_to_seal())
    before = jobs.create("lab", NAME, {})
    old = vault.jobs_keys()
    vault._add("job_keys", "of another data key", {"made_under": "00" * 32}, b"\x01" * 32)
    assert vault.jobs_keys().newest == old.newest, "a key made under another data key never seals new jobs"
    with closing(sqlite3.connect(vault.path)) as db, db:
        db.execute("DELETE FROM job_keys WHERE id = ?", [old.newest])
    assert vault.jobs_keys().newest is None
    later = Jobs(vault.home).opened(vault.jobs_keys_to_seal())
    assert vault.jobs_keys().newest not in (None, old.newest)
    assert later.create("lab", "later", {}).key == vault.jobs_keys().newest
    assert isinstance(later.line(before.id), JobLine)
    assert not isinstance(later.line(before.id), Job), "its key is gone: this vault does not open it"
    assert not vault.check().ok


def test_jobs_of_replaced_vault_stay_sealed(jobs: Jobs, home: Path) -> None:
    id = whole_story(jobs)
    other = JobKey(id, jobs.line(id).key, b"\x02" * 32)
    assert type(Jobs(home).opened(other).line(id)) is JobLine
    with pytest.raises(JobSealedError):
        Jobs(home).opened(other).get(id)
