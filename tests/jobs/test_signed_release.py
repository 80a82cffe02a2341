"""Protect with a signature and a base model, and a report of the vault as an attestation."""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_pem_public_key

import irwm
from irwm.attestation import model_signer, open_signing_key
from irwm.errors import AttestationError, ParameterError, SigningKeyError
from irwm.release.front_matter import front_matter
from irwm.report.signature_file import Signer
from storage import Jobs, Vault
from tests.attestation.conftest import KeyFiles, write_key
from tests.attestation.test_statement import checked
from tests.jobs.recipients import PARAMETERS, protect_request, run_here, succeeded
from tests.report.conftest import found, world
from tests.report.signers import sign_alone
from tools.small_models import write_llama
from ui.components.receipt import receipt_html
from ui.jobs import requests
from ui.services.attesting import attest
from ui.services.releasing import note_folder, seal

__all__ = ["found", "world"]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model with a card and a signature."""
    folder = write_llama(tmp_path / "model")
    (folder / "README.md").write_text("# A model\n")
    (folder / "model.sig").write_text("{}")
    return folder


@pytest.fixture
def keys(tmp_path: Path) -> KeyFiles:
    return write_key(tmp_path / "keys", ec.generate_private_key(ec.SECP256R1()))


@pytest.fixture
def wanted(keys: KeyFiles) -> dict[str, Any]:
    """The parts of a request for a signed release."""
    return {"sign_key": str(keys.private), "base_model": "example-labs/base"}


def covered(release: Path) -> set[str]:
    bundle = json.loads((release / "model.sig").read_bytes())
    payload = json.loads(base64.b64decode(bundle["dsseEnvelope"]["payload"]))
    return {each["name"] for each in payload["predicate"]["resources"]}


def test_release_is_signed_and_names_its_base_model(
    vault: Vault, jobs: Jobs, model: Path, tmp_path: Path, wanted: dict[str, Any]
) -> None:
    out = tmp_path / "release"
    job = succeeded(run_here("protect", protect_request(model, out, **wanted), vault, jobs))
    content = (out / "model.sig").read_bytes()
    assert job.result["signature"] == vault.releases()[0].receipt["signature"] == hashlib.sha256(content).hexdigest()
    assert covered(out) == {*job.result["files"], "SHA256SUMS"}
    assert front_matter(out / "README.md")["base_model"] == "example-labs/base"
    assert job.result["left_out"] == ["model.sig"]
    for said in (jobs.log_tail(job.id), receipt_html(job.result)):
        assert "model.sig of the original was not copied, because it is not valid for the release" in said
    again = succeeded(run_here("protect", protect_request(model, out, **wanted), vault, jobs))
    assert again.result["key_id"] == job.result["key_id"]


def test_each_of_many_copies_is_signed(vault: Vault, jobs: Jobs, model: Path, tmp_path: Path, keys: KeyFiles) -> None:
    people = [{"name": name, "note": ""} for name in ("Acme", "Bolt")]
    several = {"many": True, "recipients": people, "parameters": PARAMETERS.to_dict(), "sign_key": str(keys.private)}
    job = succeeded(run_here("protect", protect_request(model, tmp_path / "copies", **several), vault, jobs))
    for row in job.result["rows"]:
        assert "model.safetensors" in covered(Path(row["folder"]))
    assert jobs.log_tail(job.id).count("is not valid for the release") == 1


def test_signed_copy_of_a_killed_run_is_filed(
    vault: Vault, jobs: Jobs, model: Path, tmp_path: Path, keys: KeyFiles, wanted: dict[str, Any]
) -> None:
    out, original = tmp_path / "release", irwm.open_checkpoint(model)
    key = irwm.generate_key(original, irwm.Parameters(), owner="Example Labs", recipient="Early access 7")
    note_folder(vault.home, key.commitment, out)
    record = seal(vault, original, key, "spring release")
    sign = model_signer(open_signing_key(str(keys.private)))
    written = irwm.insert(original, key, out, sign=sign, base_model="example-labs/base")
    (out / "model.sig").write_text("anyone may have written this")
    job = succeeded(run_here("protect", protect_request(model, out, **wanted), vault, jobs))
    assert job.result["key_id"] == record.id
    assert covered(out) == {*written.manifest.files, "SHA256SUMS"}
    assert job.result["signature"] == hashlib.sha256((out / "model.sig").read_bytes()).hexdigest()


def test_copy_filed_without_a_signature_is_signed_where_it_still_is(
    vault: Vault, jobs: Jobs, model: Path, tmp_path: Path, keys: KeyFiles
) -> None:
    sign, one = {"sign_key": str(keys.private)}, tmp_path / "release"
    filed = succeeded(run_here("protect", protect_request(model, one), vault, jobs)).result
    again = succeeded(run_here("protect", protect_request(model, one, **sign), vault, jobs)).result
    assert (again["key_id"], filed["signature"]) == (filed["key_id"], "")
    assert again["signature"] == hashlib.sha256((one / "model.sig").read_bytes()).hexdigest()
    people = [{"name": name, "note": ""} for name in ("Acme", "Bolt", "Cirrus")]
    several = {"many": True, "parameters": PARAMETERS.to_dict(), "recipients": people[:2]}
    rows = succeeded(run_here("protect", protect_request(model, tmp_path / "copies", **several), vault, jobs)).result
    moved, kept = (Path(row["folder"]) for row in rows["rows"])
    moved.rename(tmp_path / "moved")
    request = protect_request(model, tmp_path / "copies", **several | {"recipients": people}, **sign)
    job = succeeded(run_here("protect", request, vault, jobs))
    assert [row["state"] for row in job.result["rows"]] == ["already released", "already released", "written"]
    assert "SHA256SUMS" in covered(kept) & covered(Path(job.result["rows"][2]["folder"]))
    assert not moved.exists()
    assert f"{moved.name} was moved or changed, so it was not signed" in jobs.log_tail(job.id)


def test_unusable_key_or_base_model_is_refused_before_a_key_is_sealed(
    vault: Vault, model: Path, tmp_path: Path, keys: KeyFiles
) -> None:
    def ask(**changes: str) -> None:
        requests.protect(
            vault, model, tmp_path / "out", owner="Example Labs", parameters=irwm.Parameters(), **changes
        )  # fmt: skip

    ask(sign_key=str(keys.private), base_model="example-labs/base")
    with pytest.raises(SigningKeyError):
        ask(sign_key=str(keys.public))
    (model / "README.md").unlink()
    with pytest.raises(ParameterError, match="no model card"):
        ask(base_model="example-labs/base")
    assert vault.keys() == []


def test_vault_attests_its_own_reports_only(vault: Vault, found: Any, tmp_path: Path) -> None:
    identity = vault.identity().first_public_key
    mine = sign_alone(
        tmp_path / "mine", found.document,
        Signer(vault.sign, identity, "2026-11-21T03:00:00.000Z", vault.audit_head, vault.audit_count),
    )  # fmt: skip
    envelope, pem = attest(vault, mine)
    predicate = checked(envelope, load_pem_public_key(pem))["predicate"]
    assert (predicate["verdict"], predicate["report"]["identity"]) == ("found", identity)
    assert (vault.audit_log()[-1].details or {})["purpose"] == "DSSEv1"
    shutil.rmtree(mine)
    with pytest.raises(AttestationError, match="another vault"):
        attest(vault, sign_alone(tmp_path / "theirs", found.document))
