"""`python app.py protect --sign-key` and `attest`: signed for other tools, in separate processes."""

from __future__ import annotations

from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from tests.attestation.commands import verifies
from tests.attestation.conftest import write_key
from tests.attestation.test_statement import checked
from tests.command.commands import Desk
from tools.small_models import write_llama


@pytest.mark.slow
def test_release_is_signed_and_its_report_attested(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    desk = Desk.made(tmp_path)
    write_llama(desk.work / "model")
    (desk.work / "model" / "README.md").write_text("# A model\n")
    (desk.work / "model" / "model.sig").write_text("{}")
    keys = write_key(desk.work / "keys", ec.generate_private_key(ec.SECP256R1()))
    refused = desk.here(capfd, "protect", "model", "release", "--owner", "Example Labs", "--sign-key", "no.pem")
    assert (refused.status, refused.answer["error"]["file"]) == (2, str(desk.work / "no.pem"))

    words = "protect", "model", "release", "--owner", "Example Labs", "--utility", "no"
    released = desk.here(capfd, *words, "--sign-key", "keys/key.pem", "--base-model", "example-labs/base")
    assert released.status == 0, released.said
    assert released.answer["result"]["signature"]
    assert "is not valid for the release" in released.said.splitlines()[-1]
    assert verifies(desk.work / "release", keys.public)
    assert "example-labs/base" in (desk.work / "release" / "README.md").read_text()

    found = desk.here(capfd, "investigate", "release", "--original", "model", "--report", "report")
    assert found.status == 0, found.said
    attest = "attest", "report", "report.dsse.json", "--public-key", "identity.pem"
    attested = desk.here(capfd, *attest)
    assert (attested.status, attested.answer["outcome"]) == (0, "attested")
    assert attested.answer["files"] == [str(desk.work / name) for name in ("report.dsse.json", "identity.pem")]
    public = load_pem_public_key((desk.work / "identity.pem").read_bytes())
    statement = checked((desk.work / "report.dsse.json").read_bytes(), public)
    assert statement["predicate"]["keyCommitment"] == released.answer["result"]["key_fingerprint"]
    names = {each["name"] for each in statement["subject"]}
    assert "model.safetensors" in names
    again = desk.here(capfd, *attest)
    assert (again.status, again.answer["error"]["type"]) == (2, "AttestationError")
