"""A dispute run as a job: the paper's second mark on our release, and no secret of a key file stays on disk."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import irwm
from irwm.report import dispute, rulings
from irwm.report.signature_file import read_signature
from irwm.report.verify import verify_report
from irwm.signing import verify
from storage import Jobs, Vault
from tests.jobs.recipients import given_out, put_in_vault, run_here, run_job, succeeded
from tests.ownership.authority import make_authority
from tools.small_models import write_llama
from ui.services.stamps import own_request


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Our original and release, and an attacker who calls that release his original and marks it again."""
    folder = tmp_path_factory.mktemp("dispute")
    original = irwm.open_checkpoint(write_llama(folder / "ours"))
    params = irwm.Parameters(constraints=5)
    key = irwm.generate_key(original, params, b"\x01" * 32, "Example Labs")
    release = irwm.insert(original, key, folder / "release").path
    taken = irwm.open_checkpoint(release)
    his = irwm.generate_key(taken, params, b"\x02" * 32, "Copy Works")
    marked = irwm.insert(taken, his, folder / "marked").path
    (folder / "their.key").write_bytes(his.to_bytes())
    return {"folder": folder, "original": original.path, "key": key, "release": release, "his": his, "marked": marked}


def asked(world: dict[str, Any], vault: Vault, case_id: str, **theirs: str) -> dict[str, Any]:
    (id,) = put_in_vault(vault, [world["key"]])
    return {
        "case_id": case_id,
        "ours": {"original": str(world["original"]), "release": str(world["release"]), "key": id},
        "theirs": {
            "name": "Copy Works",
            "original": str(world["release"]),
            "key_file": str(world["folder"] / "their.key"),
            "release": str(world["marked"]),
            "stamp": "",
            **theirs,
        },
        "exhibit": "",
        "device": "cpu",
    }


@pytest.mark.slow
def test_second_marker_is_identified_by_our_mark(world, vault: Vault, jobs: Jobs, tmp_path: Path) -> None:
    case = vault.add_case("Two claims on one model")
    job = succeeded(run_job("dispute", asked(world, vault, case.id), vault, jobs))
    assert "Testing the key of Copy Works on the original of Example Labs" in jobs.log_tail(job.id)
    document = dispute.from_json(jobs.files(job.id).read(job.result["json"]))
    assert document["outcome"]["winner"] == "Example Labs"
    assert job.result["outcome"] == "decided"
    tests = {(t["claimant"], t["model"]): t["verdict"] for t in document["outcome"]["tests"]}
    assert tests["Example Labs", "original of Copy Works"] == "found"
    assert tests["Copy Works", "original of Example Labs"] == "not found"

    (run,) = vault.case_runs(case.id)
    assert (run.id, run.verdict, run.finding) == (job.result["run_id"], "decided", document)
    files = vault.run_files(run.id)
    assert sorted(files) == ["dispute.html", "dispute.json", "dispute.signature.json"]
    signed = read_signature(files["dispute.signature.json"])
    assert verify(signed.message, signed.signature) == vault.identity().first_public_key
    roles = [f"{what} of {whose}" for what in ("Original", "Release") for whose in ("Example Labs", "Copy Works")]
    assert [item.note for item in vault.case_items(case.id)] == roles
    folder = given_out(jobs, job.id, tmp_path / "given")
    checked = verify_report(folder / "dispute.json", identity=vault.identity().first_public_key)
    assert checked.ok, checked.checks
    assert [check.name for check in checked.checks if check.ok] == [
        "files", "document", "signature", "certificates", "identity", "custody", "rulings", "page", "choices",
    ]  # fmt: skip
    document["outcome"]["winner"] = "Copy Works"
    assert "outcome.winner" in [difference.where for difference in rulings.contradictions(document)]
    asked_for_more = verify_report(folder / "dispute.json", suspect=world["release"])
    assert asked_for_more.exit_code == 2, "this does not examine a dispute's models, and says so"
    page = files["dispute.html"].decode("utf-8")
    assert "Two claims on one model" in page
    assert "The evidence supports “Example Labs”." in page

    secrets = [world["his"].secret, world["his"].to_bytes(), world["his"].secret.hex().encode()]
    for file in vault.home.rglob("*"):
        assert not file.is_file() or not [s for s in secrets if s in file.read_bytes()], file


def test_a_commitment_of_another_key_is_refused(world, vault: Vault, jobs: Jobs, tmp_path: Path) -> None:
    case, stamp = vault.add_case("Two claims"), tmp_path / "stamp"
    stamp.mkdir()
    other = irwm.ownership.Commitment.of(world["key"])
    (stamp / "commitment.json").write_bytes(other.to_bytes())
    job = run_here("dispute", asked(world, vault, case.id, stamp=str(stamp)), vault, jobs)
    assert job.state == "failed"
    assert "does not belong to the key that they opened" in job.error["problem"]
    assert not vault.case_runs(case.id)


@pytest.mark.slow
def test_root_sent_with_a_time_stamp_does_not_date_a_claim(world, vault: Vault, jobs: Jobs, tmp_path: Path) -> None:
    """Anyone can make an authority and send its root along; only a root that we chose ourselves counts."""
    case, stamp, authority = vault.add_case("Two claims"), tmp_path / "stamp", make_authority(tmp_path / "tsa")
    stamp.mkdir()
    commitment = irwm.ownership.Commitment.of(world["his"])
    (stamp / "commitment.json").write_bytes(commitment.to_bytes())
    (stamp / "commitment.tsr").write_bytes(authority.answer(own_request(commitment.digest)))
    (stamp / "roots.pem").write_bytes(authority.root)
    for roots, trusted in (("", False), (str(authority.folder / "root.pem"), True)):
        request = asked(world, vault, case.id, stamp=str(stamp)) | {"roots": roots}
        job = succeeded(run_here("dispute", request, vault, jobs))
        document = dispute.from_json(jobs.files(job.id).read(job.result["json"]))
        (claim,) = (each for each in document["claims"] if not each["ours"])
        assert (claim["committed_utc"] is not None) == trusted
        assert claim["stamp"].endswith(
            "; trusted" if trusted else "its certificate does not lead to a trusted root certificate"
        )


@pytest.mark.parametrize("content", [b"", b"no key at all", b"{}"])
def test_invalid_key_file_is_reported(world, vault: Vault, jobs: Jobs, tmp_path: Path, content: bytes) -> None:
    case, file = vault.add_case("Two claims"), tmp_path / "their.key"
    file.write_bytes(content)
    job = run_here("dispute", asked(world, vault, case.id, key_file=str(file)), vault, jobs)
    assert job.state == "failed"
    assert job.error["problem"]
    assert not vault.case_items(case.id)


def test_dispute_document_with_wrong_version_or_missing_part_is_refused() -> None:
    for data in (b"[]", b"{}", json.dumps({"schema": {"name": dispute.SCHEMA, "version": 2}, "outcome": {}}).encode()):
        with pytest.raises(irwm.IrwmError):
            dispute.from_json(data)
