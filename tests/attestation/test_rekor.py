"""The entry for a transparency log: of the log's form, and only for a signature that holds."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from pydantic import TypeAdapter
from rekor_types import Dsse, ProposedEntry

from irwm.attestation import enveloped, open_signing_key, public_pem, rekor_entry, sign_release
from irwm.errors import AttestationError
from tests.attestation.commands import irwm
from tests.attestation.conftest import KeyFiles


def read(content: bytes) -> Dsse:
    entry = TypeAdapter(ProposedEntry).validate_json(content)
    assert isinstance(entry, Dsse)
    assert entry.api_version == "0.0.1"
    return entry


def test_entry_of_a_release_has_its_envelope_and_its_key(release: Path, keys: KeyFiles) -> None:
    signature = sign_release(release, open_signing_key(str(keys.private)))
    proposed = read(rekor_entry(signature, keys.public)).spec.root.proposed_content
    assert proposed is not None
    bundle = json.loads(signature.read_bytes())["dsseEnvelope"]
    envelope = json.loads(proposed.envelope)
    assert envelope["payload"] == bundle["payload"]
    assert envelope["signatures"][0]["sig"] == bundle["signatures"][0]["sig"]
    assert [base64.b64decode(each) for each in proposed.verifiers] == [keys.public.read_bytes()]


def test_entry_of_an_attestation_with_an_identity(tmp_path: Path) -> None:
    key = ed25519.Ed25519PrivateKey.generate()
    (tmp_path / "a.json").write_bytes(enveloped(b"{}", key))
    (tmp_path / "public.pem").write_bytes(public_pem(key.public_key()))
    assert read(rekor_entry(tmp_path / "a.json", tmp_path / "public.pem")).kind == "dsse"


def test_signature_that_does_not_hold_gets_no_entry(tmp_path: Path, keys: KeyFiles) -> None:
    (tmp_path / "a.json").write_bytes(enveloped(b"{}", ec.generate_private_key(ec.SECP256R1())))
    with pytest.raises(AttestationError, match="cannot be verified with this public key") as refused:
        rekor_entry(tmp_path / "a.json", keys.public)
    assert refused.value.file == str(tmp_path / "a.json")
    with pytest.raises(AttestationError, match="not a public key"):
        rekor_entry(tmp_path / "a.json", tmp_path / "a.json")


@pytest.mark.parametrize(
    "content",
    ["", "[]", "{}", '{"payload": "e30=", "payloadType": "x", "signatures": []}',
     '{"payload": "e30=", "payloadType": "x", "signatures": [{"sig": "*"}]}', '{"dsseEnvelope": 1}'],
)  # fmt: skip
def test_other_files_are_refused(tmp_path: Path, keys: KeyFiles, content: str) -> None:
    (tmp_path / "a.json").write_text(content)
    with pytest.raises(AttestationError, match="not a signed envelope"):
        rekor_entry(tmp_path / "a.json", keys.public)


@pytest.mark.slow
def test_command_writes_the_entry(release: Path, keys: KeyFiles, tmp_path: Path) -> None:
    signature = sign_release(release, open_signing_key(str(keys.private)))
    assert "entry.json" in irwm("rekor", signature, "--public-key", keys.public, "--out", tmp_path / "entry.json")
    assert (tmp_path / "entry.json").read_bytes() == rekor_entry(signature, keys.public)
