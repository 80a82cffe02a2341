"""The tasks behind the pages, in real child processes on real models, with a real vault file."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

import irwm
from storage import Jobs, Vault
from storage.encryption import Cost
from tests.jobs.recipients import put_in_vault
from ui.components.receipt import receipt_html
from ui.jobs import runner
from ui.jobs.vault_access import secrets_for
from ui.report.verify import verify_report

PASSPHRASE = "four unrelated plain words"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def vault(home: Path) -> Vault:
    return Vault.create(home, PASSPHRASE, cost=Cost(memory_kib=8, passes=1, lanes=1))


@pytest.fixture
def jobs(home: Path, vault: Vault) -> Jobs:
    return Jobs(home)


def finish(jobs: Jobs, id: str, seconds: float = 120):
    deadline = time.monotonic() + seconds
    while not (job := jobs.get(id)).is_over:
        assert time.monotonic() < deadline, jobs.log_tail(id)
        time.sleep(0.1)
    return job


def protect_request(model: Path, out: Path, **changes) -> dict:
    return {
        "model": str(model),
        "out_dir": str(out),
        "parameters": irwm.Parameters().to_dict(),
        "owner": "Example Labs",
        "recipient": "Early access 7",
        "label": "spring release",
        "device": "cpu",
    } | changes


def investigate_request(suspect: Path, original: Path, keys: list[str], **changes) -> dict:
    return {
        "suspect": str(suspect),
        "original": str(original),
        "keys": keys,
        "seed": 0,
        "statistic": "joint",
        "invariant": "original",
        "decoys": 200,
        "case_id": "",
        "case_title": "Leak of 3 May",
        "note": "",
        "device": "cpu",
    } | changes


@pytest.fixture
def released(jobs: Jobs, vault: Vault, tiny_path: Path, tmp_path: Path):
    """A protected model: the finished job and its release folder."""
    out = tmp_path / "release"
    job = runner.start("protect", "Protect tiny", protect_request(tiny_path, out), secrets_for(vault), jobs)
    return finish(jobs, job.id), out


def test_protect_seals_the_key_publishes_and_files_a_receipt(released, vault: Vault, tiny_path: Path) -> None:
    job, out = released
    assert job.state == "done", job.error
    record = vault.keys()[0]
    assert record.commitment == job.result["commitment"]
    assert vault.releases()[0].path == str(out)
    assert vault.releases()[0].manifest == job.result["files"]
    key = irwm.Key.from_bytes(vault.key_bytes(record.id))
    found = irwm.detect(irwm.open_checkpoint(out), irwm.open_checkpoint(tiny_path), key)
    assert found.verdict == "found"


def test_no_secret_reaches_the_job_table_its_log_or_its_folder(released, vault: Vault, home: Path) -> None:
    _job, _out = released
    key = irwm.Key.from_bytes(vault.key_bytes(vault.keys()[0].id))
    forbidden = [key.secret, key.secret.hex().encode(), vault.hand_over(), vault.hand_over().hex().encode()]
    forbidden.append(PASSPHRASE.encode())
    for file in home.rglob("*"):
        if file.is_file():
            content = file.read_bytes()
            assert not [x for x in forbidden if x in content], file


def test_investigate_reports_every_key_and_files_the_run(released, jobs: Jobs, vault: Vault, tiny_path: Path) -> None:
    _, out = released
    other = irwm.generate_key(irwm.open_checkpoint(tiny_path), owner="Example Labs", recipient="Somebody else")
    put_in_vault(vault, [other])
    ids = [record.id for record in vault.keys()]
    request = investigate_request(out, tiny_path, ids, examiner="A. Officer", seen_utc="2024-01-28T00:00:00+00:00")
    job = finish(jobs, runner.start("investigate", "Investigate", request, secrets_for(vault), jobs).id)
    assert job.state == "done", job.error
    first, second = job.result["rows"]
    assert (first["recipient"], first["verdict"]) == ("Early access 7", "found")
    assert second["verdict"] == "not found"
    folder = jobs.folder(job.id)
    document = json.loads((folder / job.result["json"]).read_text(encoding="utf-8"))
    assert document["verdict"]["word"] == "found"
    assert [test["verdict"] for test in document["self_tests"]] == ["not found"] * 4 + ["inconclusive"]
    assert "<html" in (folder / job.result["html"]).read_text(encoding="utf-8")[:500]
    case = vault.cases()[0]
    assert case.title == "Leak of 3 May"
    (run,) = vault.case_runs(case.id)
    assert (run.id, run.finding) == (job.result["run_id"], document)

    files = vault.run_files(run.id)
    assert sorted(files) == ["report.html", "report.json", "report.pdf", "report.signature.json"]
    assert files["report.pdf"].startswith(b"%PDF")
    assert all((folder / name).read_bytes() == content for name, content in files.items())
    checked = verify_report(folder / "report.json", identity=vault.identity().first_public_key)
    assert checked.ok, checked.checks
    assert document["case"]["Examiner"] == "A. Officer"
    assert document["standing"]["status"] == "not committed"
    assert document["standing"]["suspect_seen_utc"] == "2024-01-28T00:00:00+00:00"

    original, suspect = vault.case_items(case.id)
    assert [(item.note, item.added_by, item.seen_utc[:10]) for item in (original, suspect)] == [
        ("Original", "A. Officer", ""),
        ("Suspect", "A. Officer", "2024-01-28"),
    ]
    hashed = {file["name"]: file["sha256"] for file in document["items"]["suspect"]["files"]}
    assert {name: digest for name, (_, digest) in suspect.files.items()} == hashed
    signed = [entry.event for entry in vault.audit_log()]
    assert signed.index("item received") < signed.index("signature made") < signed.index("investigation filed")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model": "/nonexistent"}, ""),
        ({"parameters": {"positions": 10_000}}, "too few usable rows"),
        ({"parameters": {"positions": 0}}, "out of range"),
        ({"out_dir": "/nonexistent/out"}, "does not exist"),
    ],
)
def test_bad_requests_fail_with_a_message_and_change_nothing(
    jobs: Jobs, vault: Vault, tiny_path: Path, tmp_path: Path, changes: dict, words: str
) -> None:
    request = protect_request(tiny_path, tmp_path / "out") | changes
    job = finish(jobs, runner.start("protect", "Protect", request, secrets_for(vault), jobs).id)
    assert job.state == "failed"
    assert job.error["problem"]
    assert words in job.error["problem"] + (job.error["found"] or "")
    assert not (tmp_path / "out").exists()
    assert not list(tmp_path.glob("*.partial"))
    assert not vault.keys()


def test_an_existing_release_is_never_touched(released, jobs: Jobs, vault: Vault, tiny_path: Path) -> None:
    _, out = released
    before = {file: file.read_bytes() for file in out.rglob("*") if file.is_file()}
    request = protect_request(tiny_path, out, label="again")
    job = finish(jobs, runner.start("protect", "Protect", request, secrets_for(vault), jobs).id)
    assert job.state == "failed"
    assert job.error["type"] == "OutputExistsError"
    assert before == {file: file.read_bytes() for file in out.rglob("*") if file.is_file()}
    assert len(vault.keys()) == 1


def test_without_the_vaults_key_nothing_starts(jobs: Jobs, tiny_path: Path, tmp_path: Path) -> None:
    job = finish(jobs, runner.start("protect", "Protect", protect_request(tiny_path, tmp_path / "o"), {}, jobs).id)
    assert job.state == "failed"
    assert "access to the vault" in job.error["problem"]


def test_fault_38_marking_a_release_again_is_warned_of_and_both_marks_are_read(
    released, jobs: Jobs, vault: Vault, tiny_path: Path, tmp_path: Path
) -> None:
    first, out = released
    assert first.result["marked_before"] == []
    again = tmp_path / "again"
    second = runner.start("protect", "Protect again", protect_request(out, again), secrets_for(vault), jobs)
    result = finish(jobs, second.id).result
    assert result["marked_before"] == ["Example Labs, issued to Early access 7"]
    assert "Marked before" in receipt_html(result)
    keys = [irwm.Key.from_bytes(vault.key_bytes(record.id)) for record in vault.keys()]
    for key, original in zip(keys, (tiny_path, out), strict=True):
        assert irwm.detect(irwm.open_checkpoint(again), irwm.open_checkpoint(original), key).verdict == "found"
