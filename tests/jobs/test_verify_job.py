"""Verify as the page runs it if models are given: in its own process, without anything from the vault."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import irwm
from irwm.report import to_json
from irwm.report.write import write_document
from tests.jobs.recipients import jobs_of, new_vault, run_here, run_job
from tests.report.conftest import complete
from tools.small_models import write_llama
from ui.services.filing import CaseFiling


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A release, its signed report, and the key as its owner opens it."""
    folder = tmp_path_factory.mktemp("verify-job")
    vault = new_vault(folder / "home")
    model = irwm.open_checkpoint(write_llama(folder / "model"))
    key = irwm.generate_key(model, irwm.Parameters(constraints=5), owner="Example Labs")
    suspect = irwm.open_checkpoint(irwm.insert(model, key, folder / "release").path)
    world = {"copy": suspect, "model": model, "key": key}
    document = complete(world, case={"Case": "Leak of January"}).document
    signer = CaseFiling(vault, vault.add_case("Leak of January").id, "").signer()
    write_document(folder / "report", document, signer=signer)
    (folder / "opened.key").write_bytes(key.to_bytes())
    return {"folder": folder, "vault": vault, "identity": signer.identity, "document": document}


def asked(world: dict[str, Any], report: Path) -> dict[str, Any]:
    folder = world["folder"]
    return {
        "report": str(report),
        "identity": world["identity"],
        "device": "cpu",
        "suspect": str(folder / "release"),
        "original": str(folder / "model"),
        "keys": str(folder / "opened.key"),
    }


@pytest.mark.slow
def test_verify_job_reproduces_every_number(world: dict[str, Any]) -> None:
    report = world["folder"] / "report" / "report.json"
    job = run_job("verify", asked(world, report), world["vault"], jobs_of(world["vault"]))
    assert job.state == "done", job.error
    assert job.result["ok"], job.result["checks"]
    checks = {check["name"]: check["ok"] for check in job.result["checks"]}
    assert checks.keys() >= {"identity", "numbers", "page", "pdf", "suspect", "original", "key", "examination"}
    assert all(checks.values())


@pytest.mark.slow
def test_edit_that_only_the_models_reveal_is_named(world: dict[str, Any], tmp_path: Path) -> None:
    changed = json.loads(to_json(world["document"]))
    changed["lineage"]["decoy_similarity"] = 0.75
    (tmp_path / "report.json").write_bytes(to_json(changed))
    job = run_here("verify", asked(world, tmp_path / "report.json"), world["vault"], jobs_of(world["vault"]))
    assert job.state == "done", job.error
    assert not job.result["ok"]
    failed = {check["name"]: check["said"] for check in job.result["checks"] if check["ok"] is False}
    assert "lineage.decoy_similarity: recorded 0.75" in failed["examination"]


@pytest.mark.slow
def test_invalid_key_file_is_an_error_with_its_name(world: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "not.key").write_bytes(b"not a key")
    wrong = asked(world, world["folder"] / "report" / "report.json") | {"keys": str(tmp_path / "not.key")}
    job = run_here("verify", wrong, world["vault"], jobs_of(world["vault"]))
    assert job.state == "failed"
    assert job.error["problem"]
