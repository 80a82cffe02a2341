"""The tasks behind the pages, in real child processes on real models, with a real vault file."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

import irwm
from irwm.release import MANIFEST_NAME, read_manifest
from irwm.release.manifest import format_manifest
from irwm.report.verify import verify_report
from storage import Jobs, Vault
from storage.errors import StorageBusyError, StorageFullError
from storage.job_table import Job
from storage.records import KeyRecord
from tests.checkpoint.builders import tree
from tests.jobs.recipients import (
    PASSPHRASE,
    given_out,
    protect_request,
    put_in_vault,
    request,
    run_here,
    run_job,
    succeeded,
)
from tools.waiting import until, until_over
from ui.components.receipt import receipt_html
from ui.jobs import child, runner
from ui.jobs.reporter import JobReporter
from ui.services.releasing import alone, note_folder, seal


@pytest.mark.quick("the real child process of a protect task")
def test_protect_seals_the_key_files_a_receipt_and_shows_no_secret(
    vault: Vault, jobs: Jobs, tiny_path: Path, tmp_path: Path
) -> None:
    out = tmp_path / "release"
    job = succeeded(run_job("protect", protect_request(tiny_path, out), vault, jobs))
    _, *steps = jobs.log_tail(job.id).splitlines()
    assert len(steps) > 3
    assert [step for step in steps if not step[len("00:00:00 ")].isupper()] == [], "each begins with a capital letter"
    (record,), (release,) = vault.keys(), vault.releases()
    assert record.commitment == job.result["commitment"]
    assert (release.path, release.manifest) == (str(out), job.result["files"])
    key = irwm.Key.from_bytes(vault.key_bytes(record.id))
    assert irwm.detect(irwm.open_checkpoint(out), irwm.open_checkpoint(tiny_path), key).verdict == "found"
    secrets = [key.secret, vault.hand_over()]
    forbidden = [*secrets, *(secret.hex().encode() for secret in secrets), PASSPHRASE.encode()]
    for file in vault.home.rglob("*"):
        assert not file.is_file() or not [x for x in forbidden if x in file.read_bytes()], file


@pytest.fixture
def released(jobs: Jobs, vault: Vault, tiny_path: Path, tmp_path: Path) -> tuple[Job, Path]:
    """A protected model: the finished job and its release folder."""
    out = tmp_path / "release"
    return succeeded(run_here("protect", protect_request(tiny_path, out), vault, jobs)), out


@pytest.mark.quick("the real child process of an investigation")
def test_investigate_reports_every_key_and_files_the_run(
    released, jobs: Jobs, vault: Vault, tiny_path: Path, tmp_path: Path
) -> None:
    _, out = released
    other = irwm.generate_key(irwm.open_checkpoint(tiny_path), owner="Example Labs", recipient="Somebody else")
    put_in_vault(vault, [other])
    ids = [record.id for record in vault.keys()]
    about = {"examiner": "A. Officer", "seen_utc": "2024-01-28T00:00:00+00:00"}
    job = succeeded(run_job("investigate", request(tiny_path, ids, suspect=str(out), **about), vault, jobs))
    first, second = job.result["rows"]
    assert (first["recipient"], first["verdict"]) == ("Early access 7", "found")
    assert second["verdict"] == "not found"
    folder = given_out(jobs, job.id, tmp_path / "given")
    document = json.loads((folder / job.result["json"]).read_text(encoding="utf-8"))
    assert document["verdict"]["word"] == "found"
    assert [test["verdict"] for test in document["self_tests"]] == ["not found"] * 4 + ["inconclusive"]
    assert "<html" in (folder / job.result["html"]).read_text(encoding="utf-8")[:500]
    case = vault.cases()[0]
    assert case.title == "Leak of 3 May"
    (run,) = vault.case_runs(case.id)
    assert (run.id, run.finding) == (job.result["run_id"], document)

    files = vault.run_files(run.id)
    stem = job.result["json"].removesuffix(".json")
    assert stem.startswith("report-release-")
    endings = ("-without-rows.zip", ".html", ".json", ".pdf", ".signature.json")
    assert sorted(files) == [stem + ending for ending in endings]
    assert files[f"{stem}.pdf"].startswith(b"%PDF")
    assert all((folder / name).read_bytes() == content for name, content in files.items())
    for name in (f"{stem}.json", f"{stem}-without-rows.zip"):
        checked = verify_report(folder / name, identity=vault.identity().first_public_key)
        assert checked.ok, checked.checks
        assert checked.open == ("the verdict depends on values for which there is only the signer’s word",)
    assert document["case"]["Examiner"] == "A. Officer"
    assert document["standing"]["status"] == "not committed"
    assert document["standing"]["suspect_seen_utc"] == "2024-01-28T00:00:00+00:00"

    original, suspect = vault.case_items(case.id)
    assert (original.note, original.added_by, original.seen_utc) == ("Original", "A. Officer", "")
    assert (suspect.note, suspect.added_by, suspect.seen_utc[:10]) == ("Suspect", "A. Officer", "2024-01-28")
    hashed = {file["name"]: file["sha256"] for file in document["items"]["suspect"]["files"]}
    assert {name: digest for name, (_, digest) in suspect.files.items()} == hashed
    signed = [entry.event for entry in vault.audit_log()]
    assert signed.index("item received") < signed.index("signature made") < signed.index("investigation filed")


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"model": "/nonexistent"}, "NotACheckpointError"),
        ({"parameters": {"positions": 10_000}}, "ParameterError"),
        ({"parameters": {"positions": 0}}, "ParameterError"),
        ({"out": "/nonexistent/out"}, "PublishError"),
    ],
)
def test_bad_requests_fail_with_a_message_and_change_nothing(
    jobs: Jobs, vault: Vault, tiny_path: Path, tmp_path: Path, changes: dict, kind: str
) -> None:
    job = run_here("protect", protect_request(tiny_path, tmp_path / "out") | changes, vault, jobs)
    assert (job.state, job.error["type"]) == ("failed", kind)
    assert job.error["problem"]
    assert not list(tmp_path.glob("out*"))
    assert not vault.keys()


def test_an_existing_release_is_never_touched(released, jobs: Jobs, vault: Vault, tiny_path: Path) -> None:
    _, out = released
    before = tree(out)
    job = run_here("protect", protect_request(tiny_path, out, label="again"), vault, jobs)
    assert (job.state, job.error["type"]) == ("failed", "OutputExistsError")
    assert tree(out) == before
    assert len(vault.keys()) == 1


def test_task_without_the_vault_key_does_not_start(jobs: Jobs, tiny_path: Path, tmp_path: Path) -> None:
    job = until_over(jobs, runner.start("protect", "Protect", protect_request(tiny_path, tmp_path / "o"), {}, jobs).id)
    assert job.state == "failed"
    assert "access to the vault" in job.error["problem"]


@pytest.mark.fault(38)
@pytest.mark.slow
def test_second_mark_on_a_release_warns_and_both_marks_are_read(
    released, jobs: Jobs, vault: Vault, tiny_path: Path, tmp_path: Path
) -> None:
    first, out = released
    assert first.result["marked_before"] == []
    again = tmp_path / "again"
    result = run_here("protect", protect_request(out, again), vault, jobs).result
    assert result["marked_before"] == ["Example Labs, issued to Early access 7"]
    assert "Marked before" in receipt_html(result)
    keys = [irwm.Key.from_bytes(vault.key_bytes(record.id)) for record in vault.keys()]
    for key, original in zip(keys, (tiny_path, out), strict=True):
        assert irwm.detect(irwm.open_checkpoint(again), irwm.open_checkpoint(original), key).verdict == "found"


# A killed run, and the run that continues it.


def killed(vault: Vault, asked: dict, *, before_its_copy: bool = False) -> KeyRecord:
    """State after a kill between rename and receipt, or before the first write: the sealed key."""
    model, out = irwm.open_checkpoint(asked["model"]), Path(asked["out"])
    params = irwm.Parameters.from_dict(asked["parameters"])
    (person,) = asked["recipients"]
    key = irwm.generate_key(model, params, owner=asked["owner"], recipient=person["name"])
    note_folder(vault.home, key.commitment, out)
    record = seal(vault, model, key, person["note"])
    if not before_its_copy:
        irwm.insert(model, key, out)
    return record


def filed(vault: Vault) -> dict[str, str]:
    return {Path(release.path).name: release.key_id for release in vault.releases()}


def test_key_of_a_killed_run_is_used_for_its_folder(vault: Vault, jobs: Jobs, tiny_path: Path, tmp_path: Path) -> None:
    first, second = (protect_request(tiny_path, tmp_path / name) for name in "ab")
    waiting = killed(vault, first)
    before = (tmp_path / "a" / "model.safetensors").stat().st_mtime_ns
    other = succeeded(run_here("protect", second, vault, jobs))
    assert other.result["key_id"] != waiting.id
    succeeded(run_here("protect", first, vault, jobs))
    assert filed(vault) == {"b": other.result["key_id"], "a": waiting.id}
    assert (tmp_path / "a" / "model.safetensors").stat().st_mtime_ns == before
    assert len(vault.keys()) == 2
    assert list((vault.home / "unfiled").iterdir()) == []


def test_killed_runs_resume_with_changed_notes(vault: Vault, jobs: Jobs, tiny_path: Path, tmp_path: Path) -> None:
    requests = [protect_request(tiny_path, tmp_path / name, label=f"note {name}") for name in "ab"]
    waiting = [killed(vault, requests[0], before_its_copy=True), killed(vault, requests[1])]
    for record in waiting:
        vault.set_label("keys", record.id, "ended in between")
    for asked in reversed(requests):
        succeeded(run_here("protect", asked, vault, jobs))
    assert filed(vault) == {name: record.id for name, record in zip("ab", waiting, strict=True)}
    assert len(vault.keys()) == 2


def test_run_killed_after_filing_returns_its_receipt(vault: Vault, jobs: Jobs, tiny_path: Path, tmp_path: Path) -> None:
    asked = protect_request(tiny_path, tmp_path / "a")
    first = run_here("protect", asked, vault, jobs)
    vault.set_label("keys", first.result["key_id"], "a note")
    again = succeeded(run_here("protect", asked, vault, jobs))
    assert again.result == first.result
    assert (len(vault.keys()), len(vault.releases())) == (1, 1)


def changed_copy(folder: Path, how: str) -> None:
    """Changes bytes that no mark changes, and writes a manifest that agrees."""
    if how == "a tensor":
        tensors = load_file(folder / "model.safetensors")
        name = next(name for name in tensors if "embed" not in name)
        save_file(tensors | {name: tensors[name] * 2}, folder / "model.safetensors", metadata={"format": "pt"})
    elif how == "an unmarked row":
        tensors = load_file(folder / "model.safetensors")
        rows = next(tensor for name, tensor in tensors.items() if "embed_tokens" in name)
        rows[:] *= 1.001
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    elif how == "the config":
        with (folder / "config.json").open("a") as stream:
            stream.write("\n")
    else:
        (folder / "payload.py").write_text("print()")
    files = [path for path in folder.rglob("*") if path.is_file() and path.name != MANIFEST_NAME]
    digests = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
    (folder / MANIFEST_NAME).write_bytes(format_manifest(digests))


@pytest.mark.parametrize("how", ["a tensor", "an unmarked row", "the config", "a file more"])
def test_changed_copy_of_a_killed_run_fails(
    vault: Vault, jobs: Jobs, tiny_path: Path, tmp_path: Path, how: str
) -> None:
    asked = protect_request(tiny_path, tmp_path / "a")
    killed(vault, asked)
    changed_copy(tmp_path / "a", how)
    job = run_here("protect", asked, vault, jobs)
    assert (job.state, (job.error or {})["type"]) == ("failed", "OutputExistsError")
    assert not vault.releases()


def test_resumed_receipt_equals_an_uninterrupted_one(vault: Vault, jobs: Jobs, tiny_path: Path, tmp_path: Path) -> None:
    model = Path(shutil.copytree(tiny_path, tmp_path / "model"))
    (model / "model.onnx").write_bytes(b"unmarked weights")
    written = run_here("protect", protect_request(model, tmp_path / "whole"), vault, jobs).result
    asked = protect_request(model, tmp_path / "a")
    killed(vault, asked)
    job = succeeded(run_here("protect", asked, vault, jobs))
    assert job.result["left_out"] == written["left_out"] == ["model.onnx"]
    assert job.result["files"] == dict(read_manifest(tmp_path / "a").files)
    for same in ("bytes", "changed_tensors", "verdict", "model"):
        assert job.result[same] == written[same]


def test_copy_waits_for_the_end_of_another_run(vault: Vault, jobs: Jobs, tiny_path: Path, tmp_path: Path) -> None:
    ended: list[Job] = []
    asked = protect_request(tiny_path, tmp_path / "a")
    unused: Any = None  # nobody waits for this run
    with alone(vault.home, unused):
        thread = threading.Thread(target=lambda: ended.append(run_here("protect", asked, vault, jobs)))
        thread.start()
        until(lambda: any(job.what.startswith("Waiting for another run") for job in jobs.recent(1)), "the job to wait")
        assert not vault.keys()
    thread.join()
    assert [job.state for job in ended] == ["done"]


class BusyJobs(Jobs):
    """A job list that is busy, or on a full disk, for a number of calls."""

    errors: list[Exception]

    def finish(self, *args, **kwargs) -> Job:
        if self.errors:
            raise self.errors.pop()
        return super().finish(*args, **kwargs)

    def progress(self, *args) -> bool:
        if self.errors:
            raise self.errors.pop()
        return super().progress(*args)


@pytest.fixture
def busy(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> tuple[BusyJobs, Job]:
    monkeypatch.setattr(child, "PAUSES", (0, 0, 0))
    job = jobs.create("investigate", "Investigate", {})
    jobs.start(job.id, os.getpid())
    list_of_jobs = BusyJobs(jobs.home).opened(jobs.key_of(job.id))
    list_of_jobs.errors = []
    return list_of_jobs, job


def test_finished_task_is_not_failed_by_a_busy_job_list(busy: tuple[BusyJobs, Job]) -> None:
    jobs, job = busy
    jobs.errors = [StorageBusyError("busy"), StorageFullError("full")]
    assert child.finish(jobs, job.id, JobReporter(jobs, job.id), "done", result={"a": 1}) == 0
    assert (jobs.get(job.id).state, jobs.get(job.id).result) == ("done", {"a": 1})


def test_end_that_cannot_be_recorded_is_logged(busy: tuple[BusyJobs, Job]) -> None:
    jobs, job = busy
    jobs.errors = [StorageBusyError("busy")] * 9
    assert child.finish(jobs, job.id, JobReporter(jobs, job.id), "done", result={}) == 1
    assert jobs.get(job.id).state == "running"
    assert "The task ended (done)" in jobs.log_tail(job.id)


def test_unwritable_progress_line_does_not_fail_the_task(busy: tuple[BusyJobs, Job]) -> None:
    jobs, job = busy
    jobs.errors = [StorageFullError("full")]
    report = JobReporter(jobs, job.id)
    report.progress(1, 2, "Copying")
    assert not jobs.errors
    assert not report.cancelled()


def test_unexpected_error_does_not_claim_that_nothing_was_published() -> None:
    said = child.unexpected(ValueError("x"))
    assert "nothing was published" not in said["problem"]
    assert "finished files were kept" in said["advice"]
