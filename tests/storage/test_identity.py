"""The vault's signing identity: signatures that can be checked without the vault, and detection of damage."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
import shutil
import traceback
from collections.abc import Callable
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from irwm.signing import CERTIFICATE, REPORT, SCHEME, Certificate, public_hex, verify
from storage import AuditBrokenError, IdentityLostError, RecordName, Signature, SignatureError, Vault, VaultLockedError
from storage.records import open_body
from tests.storage.conftest import Flip, Spawn, Sql, answer, begin_together, unlocked

MESSAGE = b'{"verdict":"found"}'


def private_bytes(vault: Vault) -> list[bytes]:
    with vault._file.reading() as db:
        return [open_body(vault._use(), "identities", row) for row in db.query("SELECT * FROM identities")]


def as_received(signature: Signature) -> Signature:
    """A signature as it is known to someone who only has its JSON."""
    return Signature.from_dict(json.loads(json.dumps(signature.to_dict())))


def test_the_first_identity_is_made_at_first_use_and_stays(vault: Vault) -> None:
    assert vault.identities() == []
    first = vault.identity()
    assert (first.number, first.certificates, first.first_public_key) == (1, (), first.public_key)
    assert vault.identity() == unlocked(vault.home).identity() == first
    made = [entry for entry in vault.audit_log() if entry.event == "identity made"]
    assert [(entry.details or {})["public_key"] for entry in made] == [first.public_key]
    assert vault.check().ok
    assert vault.check().records == 1


def test_signed_message_matches_the_documentation(vault: Vault) -> None:
    """Checked with `cryptography` alone, as another program would do."""
    vault.identity()
    vault.rotate_identity()
    signature = vault.sign(MESSAGE)
    signed = b"irwm/v1/report\0" + MESSAGE
    Ed25519PublicKey.from_public_bytes(bytes.fromhex(signature.public_key)).verify(
        bytes.fromhex(signature.signature), signed
    )
    (certificate,) = signature.certificates
    fields = {name: value for name, value in certificate.to_dict().items() if name != "signature"}
    canonical = json.dumps(fields | {"scheme": SCHEME}, sort_keys=True, separators=(",", ":")).encode()
    Ed25519PublicKey.from_public_bytes(bytes.fromhex(certificate.previous_public_key)).verify(
        bytes.fromhex(certificate.signature), b"irwm/v1/identity\0" + canonical
    )
    assert (certificate.vault, certificate.number) == (vault.id, 2)


def test_each_signature_is_in_the_log_with_its_digest(vault: Vault) -> None:
    vault.sign(MESSAGE)
    entry = vault.audit_log()[-1]
    digest, public_key = hashlib.sha256(MESSAGE).hexdigest(), vault.identity().public_key
    about = {"purpose": "irwm/v1/report", "message_sha256": digest, "identity": 1, "public_key": public_key}
    assert (entry.event, entry.details) == ("signature made", about)


def test_envelope_is_signed_as_it_is_and_logged(vault: Vault) -> None:
    encoded = b"DSSEv1 1 x 2 {}"
    signature = vault.sign_envelope(encoded)
    Ed25519PublicKey.from_public_bytes(bytes.fromhex(signature.public_key)).verify(
        bytes.fromhex(signature.signature), encoded
    )
    entry = vault.audit_log()[-1]
    assert entry.event == "signature made"
    assert (entry.details or {})["purpose"] == "DSSEv1"
    assert (entry.details or {})["message_sha256"] == hashlib.sha256(encoded).hexdigest()


@pytest.mark.parametrize("message", [REPORT + MESSAGE, CERTIFICATE + MESSAGE, b"", MESSAGE])
def test_envelope_signature_is_never_one_for_a_purpose(vault: Vault, message: bytes) -> None:
    with pytest.raises(SignatureError, match="not the encoding of a DSSE envelope"):
        vault.sign_envelope(message)


def test_a_chain_of_rotations_leads_back_to_the_first(vault: Vault) -> None:
    first = vault.identity()
    early = vault.sign(MESSAGE)
    others = [vault.rotate_identity() for _ in range(3)]
    late = unlocked(vault.home).sign(MESSAGE)
    assert [other.number for other in others] == [2, 3, 4]
    assert len({first.public_key, *(other.public_key for other in others)}) == 4
    assert late.public_key == others[-1].public_key
    assert [certificate.number for certificate in late.certificates] == [2, 3, 4]
    assert verify(MESSAGE, late) == verify(MESSAGE, early) == first.public_key
    assert others[-1].first_public_key == first.public_key
    assert list(vault.identities()) == [first, *others]
    assert [entry.event for entry in vault.audit_log()].count("identity rotated") == 3
    assert vault.check().ok
    shutil.rmtree(vault.home)
    assert verify(MESSAGE, as_received(late)) == first.public_key


# Invalid signatures


def changed(signature: Signature, /, **values: Any) -> Signature:
    return dataclasses.replace(signature, **values)


def recertified(signature: Signature, at: int, /, **values: Any) -> Signature:
    certificates = list(signature.certificates)
    certificates[at] = dataclasses.replace(certificates[at], **values)
    return changed(signature, certificates=tuple(certificates))


def flipped(text: str) -> str:
    return ("0" if text[0] != "0" else "1") + text[1:]


@pytest.fixture
def signed(vault: Vault) -> Signature:
    """A signature by the third identity."""
    vault.identity()
    vault.rotate_identity()
    vault.rotate_identity()
    return vault.sign(MESSAGE)


@pytest.mark.parametrize(
    "tamper",
    [
        lambda s: changed(s, signature=flipped(s.signature)),
        lambda s: changed(s, signature=s.signature[:-2]),
        lambda s: changed(s, public_key=s.certificates[0].public_key),
        lambda s: changed(s, public_key="ff" * 32),
        lambda s: changed(s, public_key="FF" * 32),
        lambda s: changed(s, certificates=s.certificates[:1]),
        lambda s: changed(s, certificates=s.certificates[::-1]),
        lambda s: changed(s, certificates=s.certificates * 501),
        lambda s: recertified(s, 0, signature=flipped(s.certificates[0].signature)),
        lambda s: recertified(s, 0, previous_public_key="00"),
        lambda s: recertified(s, 1, created_utc="2001-01-01T00:00:00.000Z"),
        lambda s: recertified(s, 1, vault="another"),
        *(lambda s, number=number: recertified(s, 1, number=number) for number in (9, 2, True)),
    ],
)
def test_signature_with_an_invalid_part_is_refused(signed: Signature, tamper: Callable[[Signature], Signature]) -> None:
    with pytest.raises(SignatureError):
        verify(MESSAGE, tamper(signed))


def test_the_forged_certificate_is_named(signed: Signature) -> None:
    forged = recertified(signed, 0, signature=flipped(signed.certificates[0].signature))
    with pytest.raises(SignatureError, match="identity 2"):
        verify(MESSAGE, forged)


def test_another_message_or_purpose_does_not_fit(vault: Vault, signed: Signature) -> None:
    for message, purpose in ((MESSAGE + b" ", REPORT), (b"", REPORT), (MESSAGE, b"irwm/v1/other\0")):
        with pytest.raises(SignatureError):
            verify(message, signed, purpose)
    other = vault.sign(MESSAGE, b"irwm/v1/other\0")
    assert verify(MESSAGE, other, b"irwm/v1/other\0") == signed.certificates[0].previous_public_key


@pytest.mark.parametrize(
    "purpose", [CERTIFICATE, b"", b"report\0", b"irwm/v1/report", b"irwm/v1/a\0b\0", "irwm/v1/a\0"]
)
def test_certificate_cannot_be_requested_as_signature(vault: Vault, purpose: Any) -> None:
    other = public_hex(Ed25519PrivateKey.generate())
    wanted = Certificate(vault.id, 2, other, vault.identity().public_key, "2026-03-01T12:00:00.000Z", "").signed_bytes()
    with pytest.raises(SignatureError):
        vault.sign(wanted, purpose)
    assert vault.audit_log()[-1].event == "identity made"


def test_shortened_chain_has_another_first_key(signed: Signature) -> None:
    """The chain alone is valid, so the first key must be known from another source."""
    cut = changed(signed, certificates=signed.certificates[1:])
    assert verify(MESSAGE, cut) != verify(MESSAGE, signed)
    assert verify(MESSAGE, changed(signed, certificates=())) == signed.public_key


@pytest.mark.parametrize(
    "change",
    [
        *({"scheme": "RSA"}, {"public_key": None}, {"signature": 7}, {"comment": "more"}),
        *({"certificates": value} for value in (None, [{}], ["text"])),
    ],
    ids=str,
)
def test_non_signature_json_is_refused(signed: Signature, change: dict[str, Any]) -> None:
    with pytest.raises(SignatureError):
        Signature.from_dict(signed.to_dict() | change)
    with pytest.raises(SignatureError):
        Signature.from_dict([])


# Lost and damaged


def lose(sql: Sql, flip: Callable[..., None], how: str, number: int) -> None:
    if how == "removed":
        sql("DELETE FROM identities WHERE seq = ?", number)
    else:
        flip("identities", how, "seq", number)


@pytest.mark.parametrize("how", ["meta", "body", "removed"])
def test_lost_identity_is_named_and_never_replaced_silently(vault: Vault, sql: Sql, flip: Flip, how: str) -> None:
    first = vault.identity()
    before = vault.sign(MESSAGE)
    lose(sql, flip, how, 1)
    for use in (vault.identity, lambda: vault.sign(MESSAGE)):
        with pytest.raises(IdentityLostError, match=first.id):
            use()
    assert vault.identities() == []
    assert vault.identities().damaged == (RecordName("identities", first.id),)
    check = vault.check()
    assert (*check.damaged, *check.missing) == (RecordName("identities", first.id),)
    second = vault.rotate_identity()
    assert (second.number, second.certificates) == (2, ())
    assert vault.identity() == second
    entry = vault.audit_log()[-1]
    assert entry.event == "identity restarted"
    assert (entry.details or {})["lost"] == [first.id]
    assert verify(MESSAGE, vault.sign(MESSAGE)) == second.public_key != first.public_key
    assert verify(MESSAGE, before) == first.public_key, "earlier signatures are still valid"


@pytest.mark.parametrize("how", ["meta", "body", "removed"])
def test_lost_older_identity_leaves_the_chain_complete(vault: Vault, sql: Sql, flip: Flip, how: str) -> None:
    first = vault.identity()
    vault.rotate_identity()
    lose(sql, flip, how, 1)
    third = vault.rotate_identity()
    assert third.number == 3
    assert verify(MESSAGE, vault.sign(MESSAGE)) == first.public_key
    assert vault.identities().damaged == (RecordName("identities", first.id),)


def test_altered_log_prevents_a_first_identity(vault: Vault, sql: Sql) -> None:
    vault.identity()
    sql("DELETE FROM identities")
    sql("DELETE FROM audit WHERE event = 'identity made'")
    for use in (vault.identity, lambda: vault.sign(MESSAGE)):
        with pytest.raises(AuditBrokenError):
            use()
    assert vault.rotate_identity().certificates == ()


# Secrets and processes


def test_private_key_is_never_in_clear(vault: Vault, sql: Sql, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    shown: list[Any] = [vault.identity(), vault.rotate_identity(), vault.sign(MESSAGE), vault.sign(MESSAGE).to_dict()]
    secrets = private_bytes(vault)
    assert [len(secret) for secret in secrets] == [32, 32]
    shown += [vault, vault.identities(), vault.audit_log(), vault.check(), vars(vault)]
    sql("UPDATE identities SET body = x'00'")
    with pytest.raises(IdentityLostError) as caught:
        vault.sign(MESSAGE)
    shown += [caught.value, "".join(traceback.format_exception(caught.value)), caplog.text]
    files = b"".join(path.read_bytes() for path in vault.home.rglob("*") if path.is_file())
    for secret in secrets:
        forms = (secret.hex(), repr(secret), str(list(secret)))
        assert not [form for form in forms for value in shown if form in f"{value!r} {value}"]
        assert secret not in files
        assert secret.hex().encode() not in files


def test_a_locked_vault_signs_nothing(vault: Vault) -> None:
    vault.identity()
    vault.lock()
    for use in (vault.identity, vault.identities, vault.rotate_identity, lambda: vault.sign(MESSAGE)):
        with pytest.raises(VaultLockedError):
            use()


ASK = """
from storage import Vault
vault = Vault.open(home); vault.unlock(PASSPHRASE)
print("ready", flush=True); sys.stdin.readline()
print(json.dumps(vault.identity().public_key))
"""


def test_one_of_two_processes_creates_the_first_identity(vault: Vault, spawn: Spawn) -> None:
    children = [spawn(ASK) for _ in range(2)]
    begin_together(*children)
    assert answer(children[0]) == answer(children[1]) == vault.identity().public_key
    assert len(vault.identities()) == 1
