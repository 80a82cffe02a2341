"""A report as an attestation that securesystemslib alone can check."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import load_pem_public_key
from in_toto_attestation.v1.resource_descriptor import ResourceDescriptor
from in_toto_attestation.v1.statement import Statement
from securesystemslib.dsse import Envelope
from securesystemslib.exceptions import VerificationError
from securesystemslib.signer import SSlibKey

from irwm.attestation import enveloped, report_statement
from irwm.errors import AttestationError
from irwm.report import dispute, to_json
from irwm.report.signature_file import announced, sign_report
from tests.attestation.commands import irwm
from tests.attestation.conftest import Token
from tests.report.conftest import found, world
from tests.report.signers import SIGNED_UTC, Signatory, sign_alone

__all__ = ["found", "world"]


def checked(content: bytes, public: Any) -> dict[str, Any]:
    """The statement in an envelope, after securesystemslib checked its signature."""
    envelope = Envelope.from_dict(json.loads(content))
    envelope.verify([SSlibKey.from_crypto(public)], 1)
    assert envelope.payload_type == "application/vnd.in-toto+json"
    statement: dict[str, Any] = json.loads(envelope.payload)
    return statement


@pytest.fixture
def report(found: Any, tmp_path: Path) -> Path:
    return sign_alone(tmp_path / "report", found.document)


def test_statement_names_the_suspect_and_the_verdict(report: Path, found: Any) -> None:
    statement = json.loads(report_statement(report))
    document = json.loads((report / "report.json").read_bytes())
    suspect, original = (
        {file["name"]: file["sha256"] for file in document["items"][item]["files"]} for item in ("suspect", "original")
    )
    named = {each["name"]: each["digest"]["sha256"] for each in statement["subject"]}
    assert named == {name: digest for name, digest in suspect.items() if digest not in original.values()}
    assert "model.safetensors" in named
    assert "config.json" in set(suspect) - set(named), "it says nothing about a file that the original has too"
    predicate = statement["predicate"]
    assert predicate["verdict"] == "found"
    assert predicate["keyCommitment"] == found.key.commitment
    assert predicate["log10P"] == document["evaluation"]["log10_p"]
    assert predicate["report"] == {
        "name": "report.json",
        "digest": {"sha256": hashlib.sha256((report / "report.json").read_bytes()).hexdigest()},
        "createdUtc": document["created_utc"],
        "signedUtc": SIGNED_UTC,
        "identity": Signatory().first,
    }
    subjects = [ResourceDescriptor(name=each["name"], digest=each["digest"]).pb for each in statement["subject"]]
    Statement(subjects, statement["predicateType"], predicate).validate()


def test_statement_has_no_names_and_no_rows(report: Path, found: Any) -> None:
    said = report_statement(report).decode()
    assert found.key.owner not in said
    assert found.key.recipient not in said
    assert "rows" not in said


@pytest.mark.parametrize("kind", ["ed25519", "ec"])
def test_securesystemslib_checks_the_envelope(report: Path, kind: str) -> None:
    make: Any = {"ed25519": ed25519.Ed25519PrivateKey.generate, "ec": lambda: ec.generate_private_key(ec.SECP256R1())}
    key, other = make[kind](), make[kind]()
    statement = report_statement(report)
    content = enveloped(statement, key)
    assert checked(content, key.public_key()) == json.loads(statement)
    with pytest.raises(VerificationError):
        checked(content, other.public_key())


def test_token_attests_a_report(report: Path, token: Token, tmp_path: Path) -> None:
    public, out = tmp_path / "public.pem", tmp_path / "report.dsse.json"
    irwm("attest", report, "--key", token.uri, "--secret-file", token.pin_file, "--out", out, "--public-key", public)
    assert checked(out.read_bytes(), load_pem_public_key(public.read_bytes())) == json.loads(report_statement(report))


def test_report_that_cannot_be_attested_is_named(report: Path, tmp_path: Path) -> None:
    with pytest.raises(AttestationError, match="signed by another vault") as refused:
        report_statement(report, "00" * 32)
    assert refused.value.found == Signatory().first
    changed = json.loads((report / "report.json").read_bytes())
    changed["evaluation"]["log10_p"] -= 1
    (report / "report.json").write_bytes(to_json(changed))
    with pytest.raises(AttestationError, match="not those that were signed"):
        report_statement(report)
    (report / "report.signature.json").unlink()
    with pytest.raises(AttestationError, match="not signed, or not complete"):
        report_statement(report)
    with pytest.raises(AttestationError, match="no report to attest"):
        report_statement(tmp_path / "none")


def test_other_kinds_of_documents_have_no_statement(report: Path) -> None:
    values = json.loads((report / "report.json").read_bytes())
    values["schema"]["name"] = dispute.SCHEMA
    (report / "report.json").write_bytes(to_json(values))
    with pytest.raises(AttestationError, match="not a report on a single suspect"):
        report_statement(report)


def test_report_with_another_verdict_than_its_numbers_is_refused(found: Any, tmp_path: Path) -> None:
    document = json.loads(json.dumps(found.document))
    document["verdict"]["mark"] = "not found"
    with pytest.raises(AttestationError, match="fails verification"):
        report_statement(sign_alone(tmp_path / "report", document))


def test_report_whose_page_cannot_be_compared_is_refused(found: Any, tmp_path: Path) -> None:
    document = json.loads(json.dumps(found.document))
    document["versions"]["plotly"] = "1.0"
    signer = Signatory().signer()
    files = {"report.json": to_json(announced(document, signer)), "report.html": b"<html>as plotly 1.0 drew it</html>"}
    files["report.signature.json"] = sign_report(files, signer)
    folder = tmp_path / "report"
    folder.mkdir()
    for name, data in files.items():
        (folder / name).write_bytes(data)
    with pytest.raises(AttestationError, match="cannot be verified completely with this installation") as refused:
        report_statement(folder)
    assert "plotly 1.0" in str(refused.value.found)


@pytest.mark.parametrize("which", [slice(None), slice(-1, None)], ids=["all", "the weights"])
def test_suspect_with_files_that_were_not_hashed_is_refused(found: Any, tmp_path: Path, which: slice) -> None:
    document = json.loads(json.dumps(found.document))
    names = sorted(file["name"] for file in document["items"]["suspect"]["files"])[which]
    assert any(name.endswith(".safetensors") for name in names)
    for file in document["items"]["suspect"]["files"]:
        if file["name"] in names:
            file["sha256"] = ""
    with pytest.raises(AttestationError, match=r"verification|some of the suspect"):
        report_statement(sign_alone(tmp_path / "report", document))
