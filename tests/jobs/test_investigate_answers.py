"""A suspect that only answers: investigated, reported with its evidence, verified, and examined again from the file."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import irwm
from irwm.report import from_json, reproduce
from irwm.report.verify import verify_report
from storage import Jobs, Vault
from tests.jobs.recipients import given_out, jobs_of, new_vault, put_in_vault, request, run_here
from tests.recording.answers import ENDPOINT, MODEL, write_recording
from tools.small_models import write_llama
from ui.jobs import requests


@dataclass(frozen=True)
class Served:
    """A model whose marked copy was served, its key in a vault, and the answers that were recorded."""

    original: irwm.Checkpoint
    key: irwm.Key
    id: str
    answers: Path
    vault: Vault
    jobs: Jobs
    root: Path

    def investigated(self, suspect: Path, **changes: Any) -> Any:
        asked = request(self.original.path, [self.id], suspect=str(suspect), answers=True, **changes)
        return run_here("investigate", asked, self.vault, self.jobs)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Served:
    root = tmp_path_factory.mktemp("served")
    original = irwm.open_checkpoint(write_llama(root / "original"))
    key = irwm.generate_key(original, secret=bytes(32), owner="Example Labs", recipient="Early access 7")
    copy = irwm.open_checkpoint(irwm.insert(original, key, root / "copy").path)
    answers = write_recording(copy, original, root / "answers.safetensors")
    vault = new_vault(root / "home")
    (id,) = put_in_vault(vault, [key])
    return Served(original, key, id, answers, vault, jobs_of(vault), root)


@pytest.fixture(scope="module")
def report(served: Served) -> Path:
    """The numbers of the report on the answers."""
    job = served.investigated(served.answers)
    assert job.state == "done", job.error
    assert [row["verdict"] for row in job.result["rows"]] == ["found"]
    return given_out(served.jobs, job.id, served.root / "report") / job.result["json"]


@pytest.mark.quick("the only run of this kind of suspect from the job to its report")
def test_report_states_source_and_time_of_answers(served: Served, report: Path) -> None:
    document = from_json(report.read_bytes())
    item = document["items"]["suspect"]
    digest = hashlib.sha256(served.answers.read_bytes()).hexdigest()
    assert item["name"] == f"answers of {MODEL} at {ENDPOINT}"
    assert item["files"] == [{"name": served.answers.name, "bytes": served.answers.stat().st_size, "sha256": digest}]
    width = served.original.hidden_size
    heard = item["answers"]
    assert (heard["given"], heard["used"], heard["directions"]) == (3 * width // 2, 3 * width // 2, width)
    assert heard["tokens"] == item["vocab_size"] == served.original.vocab_size
    who = heard["recording"]
    assert (who["endpoint"], who["model"], who["original"]) == (ENDPOINT, MODEL, served.original.fingerprint)
    assert (who["began"], who["ended"]) == ("2026-03-01T10:00:00.000Z", "2026-03-01T10:00:47.500Z")
    recorded = irwm.read_answers(served.answers).requests
    assert recorded is not None
    assert who["requests_sha256"] == hashlib.sha256(recorded.request_sha256.tobytes()).hexdigest()
    assert who["responses_sha256"] == hashlib.sha256(recorded.response_sha256.tobytes()).hexdigest()
    assert any("known only through its answers" in limit for limit in document["limitations"])
    assert any("open_suspect" in line for line in document["reproduce"]["python"])
    page = report.with_suffix(".html").read_text("utf-8")
    for text in (f"answers of {MODEL} at {ENDPOINT}", digest, who["requests_sha256"], "10:00:47.500Z"):
        assert text in page


@pytest.mark.slow
def test_the_report_is_verified_with_the_file_and_without(served: Served, report: Path) -> None:
    alone = verify_report(report)
    assert {check.name: check.ok for check in alone.checks if check.ok is False} == {}
    assert any("if it only answers" in group.name for group in alone.states.left)
    again = verify_report(report, suspect=served.answers, original=served.original, key=served.key)
    said = {check.name: (check.ok, check.said) for check in again.checks}
    assert [said[name][0] for name in ("numbers", "page", "pdf", "suspect", "original", "examination", "controls")] == [
        True
    ] * 7
    assert not any("if it only answers" in group.name for group in again.states.left)


@pytest.mark.slow
def test_other_answers_of_the_same_model_fail_verification(served: Served, report: Path, tmp_path: Path) -> None:
    copy = irwm.open_checkpoint(served.root / "copy")
    other = write_recording(copy, served.original, tmp_path / served.answers.name, model="base-8")
    found = verify_report(report, suspect=other, original=served.original)
    (check,) = [check for check in found.checks if check.name == "suspect"]
    assert check.ok is False
    assert "SHA-256 differs" in check.said
    alone = verify_report(report, suspect=served.answers)
    (check,) = [check for check in alone.checks if check.name == "suspect"]
    assert check.ok is None
    assert "original" in check.said


@pytest.mark.slow
def test_case_returns_the_same_recording_bytes(served: Served, report: Path) -> None:
    document = from_json(report.read_bytes())
    (case,) = served.vault.cases()
    items = {item.note: item for item in served.vault.case_items(case.id)}
    assert items["Suspect"].name == f"answers of {MODEL} at {ENDPOINT}"
    assert list(items["Suspect"].files) == [served.answers.name]
    assert reproduce(document, irwm.open_suspect(served.answers, served.original), served.original, served.key) == []


@pytest.mark.slow
def test_answers_of_the_unmarked_original_carry_no_mark(served: Served, tmp_path: Path) -> None:
    file = write_recording(served.original, served.original, tmp_path / "own.safetensors")
    job = served.investigated(file)
    assert job.state == "done", job.error
    assert job.result["verdict"] == "not found"


def corrupted(served: Served, file: Path, how: str) -> None:
    copy = irwm.open_checkpoint(served.root / "copy")
    if how == "few":
        write_recording(copy, served.original, file, count=served.original.hidden_size)
    elif how == "narrow":
        write_recording(copy, served.original, file, tokens=range(100))
    elif how == "vocabulary":
        write_recording(copy, served.original, file, vocab_size=601)
    elif how == "weights":
        file.write_bytes((served.original.path / "model.safetensors").read_bytes())
    elif how == "cut":
        file.write_bytes(served.answers.read_bytes()[:-100])
    elif how == "text":
        file.write_text("no answers at all")


BAD = (
    ("few", "there are too few answers"),
    ("narrow", "there are too few tokens"),
    ("vocabulary", "tokens from a different vocabulary"),
    ("weights", "contains no recorded answers"),
    ("cut", "cannot be read"),
    ("text", "cannot be read"),
    ("missing", "cannot be read"),
)


@pytest.mark.parametrize(("how", "said"), BAD)
def test_invalid_recording_fails_with_its_file_name(served: Served, tmp_path: Path, how: str, said: str) -> None:
    file = tmp_path / "answers.safetensors"
    corrupted(served, file, how)
    job = served.investigated(file)
    assert job.state == "failed"
    assert job.error["type"] == "AnswersFileError"
    assert said in job.error["problem"]
    assert "answers.safetensors" in job.error["file"]
    assert job.error["advice"]


def test_request_states_the_kind_of_suspect(served: Served) -> None:
    """Recognised by the file's contents, so that the command line accepts it as a model, whole or cut off."""
    cut = served.root / "cut.safetensors"
    cut.write_bytes(served.answers.read_bytes()[:-100])
    of = {
        path: requests.investigate(
            served.vault, served.jobs, path, served.original.path, served.original.fingerprint
        ).request.answers
        for path in (served.answers, cut, served.original.path, served.original.path / "model.safetensors")
    }
    assert list(of.values()) == [True, True, False, False]
