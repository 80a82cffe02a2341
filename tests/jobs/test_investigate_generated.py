"""A suspect that is known only by what it generated: from the file to the signed report and its verification."""

from __future__ import annotations

import copy
import hashlib
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import pytest

import irwm
import irwm.report.reproduction
import ui.services.investigate
from irwm.answers import Fits
from irwm.answers.suspect import open_generated
from irwm.errors import InsufficientMemoryError, UnsupportedCheckpointError
from irwm.inference.loading import open_tokenizer
from irwm.report import from_json, reproduce
from irwm.report.checks import Check
from irwm.report.consistency import contradictions
from irwm.report.schema import Report
from irwm.report.verify import verify_report
from storage import Jobs, Vault
from storage.job_table import Job
from tests.jobs.recipients import given_out, jobs_of, new_vault, put_in_vault, request, run_here
from tests.recording.generated import ENDPOINT, MODEL, write_generated
from tools.copies import keys_for
from tools.generating import prompts, served, text_of

HOLD = ("numbers", "page", "pdf", "suspect", "original", "key", "examination", "controls", "recipients", "choices")


@dataclass(frozen=True)
class Recorded:
    """A recipient's copy that generated text, and the keys of three recipients in a vault."""

    original: irwm.Checkpoint
    keys: list[irwm.Key]
    ids: list[str]
    answers: irwm.Answers
    file: Path
    vault: Vault
    jobs: Jobs
    root: Path

    def investigated(self, file: Path, ids: list[str] | None = None, **changes: Any) -> Job:
        asked = request(self.original.path, ids or self.ids, suspect=str(file), **changes)
        return run_here("investigate", asked, self.vault, self.jobs)

    def verified(self, report: Path, file: Path, keys: list[irwm.Key]) -> dict[str, Check]:
        found = verify_report(report, suspect=file, original=self.original, keys=keys)
        return {check.name: check for check in found.checks}


@pytest.fixture(scope="module")
def recorded(gemma_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    root = tmp_path_factory.mktemp("generated")
    original = irwm.open_checkpoint(gemma_path)
    keys = keys_for(original, ["second", "guilty", "third"])
    irwm.insert(original, keys[1], root / "copy")
    answers = served(root / "copy", prompts(gemma_path, 16), 32)
    file = write_generated(answers, original, root / "answers.jsonl")
    vault = new_vault(root / "home")
    return Recorded(original, keys, put_in_vault(vault, keys), answers, file, vault, jobs_of(vault), root)


@pytest.fixture(scope="module")
def found(recorded: Recorded) -> tuple[Job, Path]:
    """The job that names the recipient, and the numbers of its report."""
    job = recorded.investigated(recorded.file, answers=True)
    assert job.state == "done", job.error
    return job, given_out(recorded.jobs, job.id, recorded.root / "report") / job.result["json"]


@pytest.mark.quick("the only run of this kind of suspect from the job to its report")
def test_recipient_is_named_and_the_report_states_the_source(recorded: Recorded, found: tuple[Job, Path]) -> None:
    job, report = found
    assert job.result["verdict"] == "found"
    assert job.result["rows"][0]["recipient"] == "guilty"
    assert [row["named"] for row in job.result["rows"]] == [True, False, False]
    document = from_json(report.read_bytes())
    item, traced = document["items"]["suspect"], document["tracing"]
    digest = hashlib.sha256(recorded.file.read_bytes()).hexdigest()
    assert (item["name"], item["fingerprint"]) == (f"answers of {MODEL} at {ENDPOINT}", digest)
    assert item["files"] == [{"name": recorded.file.name, "bytes": recorded.file.stat().st_size, "sha256": digest}]
    assert (item["answers"]["used"], item["answers"]["tokens"]) == (16, recorded.answers.tokens)
    assert item["answers"]["recording"]["scale"] == "generated tokens"
    assert (document["verdict"]["rests_on"], document["verdict"]["mark"]) == ("tracing", "inconclusive")
    assert not document["rows_disclosed"], "no mark was read, so nobody needs its rows"
    direct = irwm.trace_answers(recorded.answers, recorded.original, recorded.keys)
    assert traced is not None
    z = {row["recipient"]: row["z"] for row in traced["ranked"]}
    assert z == {trace.recipient: pytest.approx(trace.z, rel=1e-4) for trace in direct}
    assert traced["ranked"][0]["log10_risk"] >= max(direct, key=lambda each: each.z).log10_risk, "no weaker correction"
    assert [point["tokens"] for point in traced["growth"]] == [64, 128, 256, 512]
    assert traced["growth"][-1]["z"] == max(z.values())
    assert (traced["growth"][0]["z"] or 0.0) < max(z.values())
    page = report.with_suffix(".html").read_text("utf-8")
    assert "guilty" in page
    assert "figure-growth" in page
    assert "figure-positions" not in page, "a mark that was not read has no figures"


def test_report_is_verified_from_the_file(recorded: Recorded, found: tuple[Job, Path]) -> None:
    _, report = found
    checks = recorded.verified(report, recorded.file, recorded.keys)
    assert {name: checks[name].ok for name in HOLD} == dict.fromkeys(HOLD, True), checks
    document = from_json(report.read_bytes())
    suspect = open_generated(recorded.file, recorded.original)
    assert reproduce(document, suspect, recorded.original, recorded.keys[1], keys=recorded.keys) == []


@pytest.mark.slow
def test_with_some_keys_the_others_are_used_as_recorded(recorded: Recorded, found: tuple[Job, Path]) -> None:
    checks = recorded.verified(found[1], recorded.file, recorded.keys[1:2])
    assert (checks["examination"].ok, checks["recipients"].ok, checks["controls"].ok) == (True, None, None)


@pytest.mark.slow
def test_other_answers_or_changed_numbers_fail_verification(
    recorded: Recorded, found: tuple[Job, Path], tmp_path: Path
) -> None:
    other = write_generated(recorded.answers, recorded.original, tmp_path / recorded.file.name, model="base-8")
    assert recorded.verified(found[1], other, recorded.keys)["suspect"].ok is False
    document = json.loads(found[1].read_bytes())
    assert list(contradictions(document)) == []
    for change in (
        lambda d: d["tracing"]["ranked"][1].update(z=30.0),
        lambda d: d["tracing"].update(by="aligned"),
        lambda d: d["tracing"]["ranked"][0].update(share=1.0),
        lambda d: d["items"]["suspect"]["answers"]["recording"].update(scale="all tokens"),
        lambda d: d["items"]["suspect"]["answers"].update(form="text"),
        lambda d: d["tracing"].update(tries=1),
        lambda d: d["tracing"].update(tries_made=4),
        lambda d: d["tracing"].update(tries_ended="not requested"),
        lambda d: d["tracing"]["growth"][-1].update(z=40.0),
        lambda d: d["tracing"]["growth"][0].update(tokens=400),
        lambda d: d["tracing"].update(by="log-probabilities, weights"),
        lambda d: d["verdict"].update(mark="not found"),
        lambda d: d.update(rows_disclosed=True),
        lambda d: d.update(error_rates={"decoys": None, "method": "none", "neutral": []}),
    ):
        changed = copy.deepcopy(document)
        change(changed)
        assert list(contradictions(changed))


@pytest.mark.slow
def test_report_is_verified_with_another_processors_arithmetic(recorded: Recorded, found: tuple[Job, Path]) -> None:
    """Without wide vector instructions, sums in float32 have other last digits."""
    folder = recorded.root / "keys"
    folder.mkdir()
    for number, key in enumerate(recorded.keys):
        (folder / f"{number}.irwm-key").write_bytes(key.to_bytes())
    command = [sys.executable, "-m", "irwm", "verify", str(found[1]), "--json", "--suspect", str(recorded.file)]
    command += ["--original", str(recorded.original.path), "--key", str(folder)]
    plain = {"ATEN_CPU_CAPABILITY": "default", "MKL_ENABLE_INSTRUCTIONS": "SSE4_2", "ONEDNN_MAX_CPU_ISA": "SSE41"}
    done = subprocess.run(command, env=os.environ | plain, capture_output=True, text=True, check=False)
    checks = {each["name"]: each["ok"] for each in json.loads(done.stdout)["checks"]}
    assert {name: checks[name] for name in HOLD} == dict.fromkeys(HOLD, True), done.stdout


@pytest.mark.slow
def test_too_few_tokens_clear_nobody(recorded: Recorded, tmp_path: Path, short_fits: None) -> None:
    """Text alone of 512 tokens: inconclusive, also for recipients who had no part, with the original as it is and after
    each fit."""
    file = write_generated(text_of(recorded.answers), recorded.original, tmp_path / "text.jsonl")
    job = recorded.investigated(file)
    assert job.state == "done", job.error
    assert job.result["verdict"] == "inconclusive"
    assert not any(row["named"] or row["verdict"] == "not found" for row in job.result["rows"])
    report = given_out(recorded.jobs, job.id, tmp_path / "report") / job.result["json"]
    document = from_json(report.read_bytes())
    answers = document["items"]["suspect"]["answers"]
    assert answers is not None
    assert answers["recording"] is not None
    assert answers["recording"]["scale"] == "text"
    assert document["tracing"] is not None
    assert _tries_of(document) == (3, 3, "all made")
    checks = recorded.verified(report, file, recorded.keys)
    assert {name: checks[name].ok for name in HOLD} == dict.fromkeys(HOLD, True), checks
    own = [key for key in recorded.keys if key.commitment == document["key"]["commitment"]]
    checks = recorded.verified(report, file, own)
    assert checks["examination"].ok is True, "the same tries with one of the keys"


@pytest.fixture
def short_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fits of a few steps, by the job and by the verifier."""
    for module in (ui.services.investigate, irwm.report.reproduction):
        monkeypatch.setattr(module, "Fits", partial(Fits, steps=2))


def _tries_of(document: Report) -> tuple[int, int, str]:
    traced = document["tracing"]
    assert traced is not None
    return traced["tries"], traced["tries_made"], traced["tries_ended"]


@pytest.mark.parametrize(
    ("error", "ended", "said"),
    [
        (UnsupportedCheckpointError("no inputs_embeds"), "not supported", "transformers cannot run the original"),
        (InsufficientMemoryError("allocate"), "too little memory", "had too little memory"),
    ],
)
def test_result_before_a_failed_fit_is_reported(
    recorded: Recorded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, ended: str, said: str
) -> None:
    def fails(*_: object) -> NoReturn:
        raise error

    monkeypatch.setattr("irwm.answers.reading.fitted", fails)
    file = write_generated(text_of(recorded.answers), recorded.original, tmp_path / "text.jsonl")
    job = recorded.investigated(file)
    assert job.state == "done", job.error
    report = given_out(recorded.jobs, job.id, tmp_path / "report") / job.result["json"]
    document = from_json(report.read_bytes())
    assert _tries_of(document) == (3, 1, ended)
    assert said in report.with_suffix(".html").read_text("utf-8")
    checks = recorded.verified(report, file, recorded.keys)
    assert {name: checks[name].ok for name in HOLD} == dict.fromkeys(HOLD, True), checks


@pytest.mark.slow
def test_a_text_file_is_a_suspect(recorded: Recorded, tmp_path: Path) -> None:
    tokenizer, answers = open_tokenizer(recorded.original.path), recorded.answers
    pairs = zip(answers.sequences, answers.prompt_lengths, strict=True)
    file = tmp_path / "said.txt"
    file.write_text("\n---\n".join(tokenizer.decode(each[start:]) for each, start in pairs), "utf-8")
    job = recorded.investigated(file, fits=False)
    assert job.state == "done", job.error
    assert job.result["verdict"] == "inconclusive"
    report = given_out(recorded.jobs, job.id, tmp_path / "report") / job.result["json"]
    document = from_json(report.read_bytes())
    item, traced = document["items"]["suspect"], document["tracing"]
    assert item["answers"] is not None
    assert traced is not None
    assert (item["name"], item["answers"]["form"], item["answers"]["recording"]) == ("said.txt", "text", None)
    assert (item["answers"]["used"], traced["by"]) == (16, "text")
    assert _tries_of(document) == (3, 1, "not requested"), "corrected for fits, so that they can follow"
    checks = recorded.verified(report, file, recorded.keys)
    assert {name: checks[name].ok for name in HOLD} == dict.fromkeys(HOLD, True), checks
    file.write_text("another text\n", "utf-8")
    assert recorded.verified(report, file, recorded.keys)["suspect"].ok is False
    job = recorded.investigated(file)
    assert job.state == "done", "one text is too few for a fit, and is traced without one"
    report = given_out(recorded.jobs, job.id, tmp_path / "other") / job.result["json"]
    assert _tries_of(from_json(report.read_bytes())) == (3, 1, "too few answers")


def test_keys_without_noise_and_broken_files_are_refused(recorded: Recorded, tmp_path: Path) -> None:
    plain = irwm.generate_key(recorded.original, secret=bytes(32), owner="Owner")
    job = recorded.investigated(recorded.file, put_in_vault(recorded.vault, [plain]))
    assert (job.state, job.error["type"]) == ("failed", "AnswersError")
    assert job.error["advice"]
    broken = tmp_path / "cut.jsonl"
    broken.write_bytes(recorded.file.read_bytes()[:-100])
    job = recorded.investigated(broken)
    assert (job.state, job.error["type"]) == ("failed", "AnswersFileError")
    assert "cut.jsonl" in job.error["file"]
