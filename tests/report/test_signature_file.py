from __future__ import annotations

import hashlib
import json

import pytest

from irwm.canonical import canonical_json
from irwm.errors import IrwmError, SignatureError
from irwm.report.signature_file import announced, read_signature, sign_report
from tests.report.leaves import put
from tests.report.signers import ENTRIES, HEAD, SIGNED_UTC, Signatory

FILES = {"report.json": b"{}", "report.html": b"<p>", "report.pdf": b"%PDF"}


def signed(signatory: Signatory) -> bytes:
    return sign_report(FILES, signatory.signer())


def changed(data: bytes, *path: str, to: object) -> bytes:
    values = json.loads(data)
    put(values, path, to)
    return json.dumps(values).encode()


def test_a_signature_names_every_file_the_time_and_the_log_and_holds():
    signatory = Signatory()
    read = read_signature(signed(signatory))
    assert read.files == {name: hashlib.sha256(data).hexdigest() for name, data in FILES.items()}
    assert (read.signed_utc, read.audit_head, read.audit_count) == (SIGNED_UTC, HEAD, ENTRIES)
    assert read.holds() == signatory.first


def test_the_signature_covers_the_canonical_json_of_the_other_fields():
    data = signed(Signatory())
    body = {name: value for name, value in json.loads(data).items() if name != "signature"}
    assert read_signature(data).message == canonical_json(body)
    assert read_signature(json.dumps(json.loads(data)).encode()).holds()  # other whitespace, the same content


def test_the_same_files_signed_twice_give_the_same_bytes():
    assert signed(Signatory()) == signed(Signatory())


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("files", "report.json"), "0" * 64),
        (("signed_utc",), "2020-01-01T00:00:00Z"),
        (("audit", "head"), "cd" * 32),
        (("audit", "entries"), 16),
    ],
)
def test_any_change_breaks_the_signature(path, value):
    with pytest.raises(SignatureError):
        read_signature(changed(signed(Signatory()), *path, to=value)).holds()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"a": NaN}',
        b'{"schema": 1, "schema": 2}',
        b'{"schema": {}, "files": {}, "signed_utc": "", "audit": {}, "signature": {}}',
    ],
)
def test_other_files_than_a_signature_file_are_refused_with_a_reason(data):
    with pytest.raises(IrwmError):
        read_signature(data)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("schema", "version"), 2),
        (("files",), {}),
        (("files", "report.json"), "x"),
        (("audit", "entries"), True),
        (("audit", "head"), ""),
        (("signed_utc",), 5),
        (("signature", "public_key"), "ABC"),
        (("signature",), None),
        (("more",), 1),
    ],
)
def test_a_malformed_field_of_a_signature_file_is_refused(path, value):
    with pytest.raises(IrwmError):
        read_signature(changed(signed(Signatory()), *path, to=value))


def test_signed_report_states_signer_and_log(found):
    document = announced(found.document, Signatory().signer())
    assert document["status"]["signed"] is True
    assert document["status"]["custody"] == {
        "identity": Signatory().first,
        "audit_head": HEAD,
        "audit_entries": ENTRIES,
    }
    assert found.document["status"]["signed"] is False
