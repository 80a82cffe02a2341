"""The cost of a mark, on the receipt of a real protect task; a failed measurement does not fail the task."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import irwm
from irwm.errors import CancelledError
from irwm.evidence.devices import NOT_ENOUGH
from irwm.inference import certificate
from irwm.release import verify_manifest
from storage import Jobs, Vault
from tests.jobs.recipients import protect_request, run_job, succeeded
from tools.waiting import PATIENCE, until
from ui.components.receipt import cost_text, receipt_html
from ui.jobs import runner, task
from ui.jobs.reporter import JobReporter
from ui.jobs.vault_access import secrets_for
from ui.services import certifying


@pytest.mark.slow
def test_protect_task_measures_cost_on_request(vault: Vault, jobs: Jobs, demo_path: Path, tmp_path: Path) -> None:
    job = succeeded(run_job("protect", protect_request(demo_path, tmp_path / "release", utility="small"), vault, jobs))
    made = job.result["utility"]
    assert made["why"] == ""
    assert made["utility"]["tokens"] == 1023
    assert made["utility"]["top1"] > 0.98
    assert json.loads(jobs.files(job.id).read("utility.json").decode("utf-8")) == made
    assert "Cost to the model" in receipt_html(job.result)
    assert cost_text(made) in receipt_html(job.result)
    assert len(vault.releases()) == 1


class Kept:
    """The files of a job, in clear."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, name: str, content: bytes) -> None:
        (self.folder / name).write_bytes(content)


def report(tmp_path: Path, progress: Any = lambda *_: None, log: Any = lambda _: None) -> Any:
    return SimpleNamespace(folder=tmp_path, files=Kept(tmp_path), progress=progress, log=log)


RECEIPT = {"changed_rows": 50, "path": "/nowhere"}


def test_cost_is_not_measured_without_a_request(demo_path: Path, tmp_path: Path) -> None:
    model = irwm.open_checkpoint(demo_path)
    for wanted, receipt in (("no", RECEIPT), ("yes", None)):
        assert certifying.certificate_of(wanted, model, receipt, "cpu", report(tmp_path)) is None
    assert not list(tmp_path.iterdir())


def test_too_large_model_is_not_measured(demo_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = irwm.open_checkpoint(demo_path)
    monkeypatch.setattr(certifying, "SMALL_BYTES", 1000)
    found = certifying.certificate_of("small", model, RECEIPT, "cpu", report(tmp_path))
    assert "larger than 1 GB" in found["why"]
    monkeypatch.setattr(certifying, "free_memory", lambda: 10_000_000)
    found = certifying.certificate_of("yes", model, RECEIPT, "cpu", report(tmp_path))
    assert "more memory than this machine has available" in found["why"]
    assert cost_text(found).startswith("not measured: running the model would need")


@pytest.mark.parametrize("free", [None, 10_000_000])
def test_full_gpu_falls_back_to_cpu_if_memory_allows(
    demo_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int | None
) -> None:
    """No GPU here, so the error of a full GPU is raised instead."""
    real = certificate.reference

    def reference(original: Path, text: str, tokens: int, device: str, **rest: Any) -> Any:
        if device != "cpu":
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        return real(original, text, tokens, device, **rest)

    said: list[str] = []
    monkeypatch.setattr(certificate, "reference", reference)
    monkeypatch.setattr(certifying, "free_memory", lambda: free)
    told = report(tmp_path, log=said.append)
    receipt = {"changed_rows": 0, "path": str(demo_path)}
    found = certifying.certificate_of("yes", irwm.open_checkpoint(demo_path), receipt, "cuda", told)
    assert said == [NOT_ENOUGH]
    if free is None:
        assert found["why"] == ""
        assert found["utility"]["top1"] == 1.0
    else:
        assert found["utility"] is None
        assert "more memory than this machine has available" in found["why"]


def test_a_stop_in_one_long_step_of_the_measurement_keeps_the_receipt(
    demo_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Opening a large model takes longer than a task has after Stop, and checks for no Stop meanwhile."""
    pressed, may_end, ended = threading.Event(), threading.Event(), threading.Event()

    def certify(*_: object, progress: Any, **__: object) -> Any:
        pressed.set()
        may_end.wait(PATIENCE)
        ended.set()
        progress(1, 2, "too late")

    def look(*_: object) -> None:
        if pressed.is_set():
            raise CancelledError("stopped on request")

    monkeypatch.setattr("irwm.inference.certify", certify)
    model = irwm.open_checkpoint(demo_path)
    found = certifying.certificate_of("yes", model, RECEIPT, "cpu", report(tmp_path, look))
    assert not ended.is_set(), "the task did not wait for the long step"
    may_end.set()
    assert "was stopped; the release is complete" in found["why"]


@pytest.mark.slow
def test_a_real_stop_while_it_is_measured_ends_in_a_receipt(
    vault: Vault, jobs: Jobs, demo_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "GRACE_SECONDS", PATIENCE)  # it needs far less, also on a busy machine
    release = tmp_path / "release"
    job = runner.start(
        "protect", "Protect demo", protect_request(demo_path, release, utility="yes"), secrets_for(vault), jobs
    )
    measuring = "Measuring the cost of the mark"
    until(lambda: measuring in jobs.log_tail(job.id), f"{measuring!r} in the log", lambda: jobs.log_tail(job.id))
    ended = runner.stop(job.id, jobs)
    assert ended.state == "done", jobs.log_tail(job.id)
    assert "was stopped; the release is complete" in ended.result["utility"]["why"]
    assert verify_manifest(release).ok
    (record,) = vault.releases()
    assert record.receipt["release_fingerprint"] == irwm.open_checkpoint(release).fingerprint


def test_stop_after_publication_keeps_the_record(vault: Vault, jobs: Jobs, demo_path: Path, tmp_path: Path) -> None:
    release = tmp_path / "release"
    request = protect_request(demo_path, release)
    reporter = JobReporter(jobs, jobs.start(jobs.create("protect", "Protect demo", request).id, os.getpid()).id)
    real = reporter.progress

    def progress(done: int, total: int, what: str) -> None:
        if release.exists():
            reporter.cancel()
        real(done, total, what)

    reporter.progress = progress
    receipt = task.run("protect", request, secrets_for(vault), reporter)
    assert receipt["path"] == str(release)
    assert len(vault.releases()) == 1


MEASURED = {
    "tokens": 1023, "perplexity_reference": 40.0, "perplexity": 40.1, "change": 0.0025, "change_error": 0.002,
    "kl": 0.0004, "kl_error": 1e-5, "top1": 0.995, "compared": 1023, "similarity": None, "reason": "",
}  # fmt: skip

MANY = {
    "many": True, "written": 1, "skipped": 0, "failed": 0, "recipients": 1, "path": "/x", "owner": "o",
    "vocab_size": 9, "bytes": 1, "bytes_cloned": 0, "parameters": {}, "rows": [],
    "example": {"left_out": [], "changed_rows": 1, "changed_values": 1, "changed_tensors": ["e"]},
}  # fmt: skip


@pytest.mark.parametrize(
    ("figures", "said"),
    [
        ({}, ["40.00 before, 40.10 after (+0.25% ± 0.40%)", "may be due to chance", "99.5%", "0.0004 nats"]),
        ({"change_error": 0.0005}, ["± 0.10%); the same"]),
        ({"change_error": None}, ["(+0.25%);"]),
        ({"perplexity": "infinity", "change": "infinity", "kl": "infinity", "change_error": None}, ["infinite KL"]),
        ({"similarity": 0.99991, "perplexity": None}, ["similarity of 0.999910", "no perplexity"]),
    ],
)
def test_words_of_the_certificate_agree_with_its_figures(figures: dict[str, Any], said: list[str]) -> None:
    made = {"text": "<b>text</b>", "why": "", "utility": MEASURED | figures}
    text = cost_text(made)
    for words in said:
        assert words in text
    assert "<b>" in text
    card = receipt_html(MANY | {"utility": made})
    assert "&lt;b&gt;text" in card
    assert "<b>" not in card
