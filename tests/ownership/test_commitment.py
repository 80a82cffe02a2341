"""The public document of a key: what it binds, what it keeps secret, and invalid documents."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import irwm
from irwm.ownership import Commitment, CommitmentError
from irwm.scheme.derivation import canonical

RECIPIENT = "Recipient Ltd"


@pytest.fixture(scope="module")
def key(demo_path: Path) -> irwm.Key:
    model = irwm.open_checkpoint(demo_path)
    return irwm.generate_key(model, secret=bytes(range(32)), owner="Ünïcode Owner", recipient=RECIPIENT)


@pytest.fixture(scope="module")
def document(key: irwm.Key) -> Commitment:
    return Commitment.of(key, family="llama", made_utc="2026-11-21T12:00:00.000Z")


def test_key_opens_its_commitment_after_file_round_trip(key: irwm.Key, document: Commitment) -> None:
    read = Commitment.from_bytes(document.to_bytes())
    assert read == document
    assert read.opens(key)
    assert read.digest == document.digest


def test_the_document_is_canonical_json_of_version_2(document: Commitment) -> None:
    values = json.loads(document.to_bytes())
    assert (values["format"], values["version"], values["scheme"]) == ("irwm-commitment", 2, "irwm/v3")
    assert values["family"] == "llama"
    assert values["owner"] == "Ünïcode Owner"
    assert document.to_bytes() == canonical(values)
    assert len(document.to_bytes()) < 2048


def test_neither_the_secret_nor_the_recipient_can_be_read_from_it(key: irwm.Key, document: Commitment) -> None:
    public = document.to_bytes()
    assert key.secret.hex().encode() not in public
    assert RECIPIENT.encode() not in public
    assert b"excluded_rows" not in public
    assert b"rows_digest" not in public


CHANGES = {
    "secret": {"secret": bytes(32)},
    "recipient": {"recipient": "Another"},
    "owner": {"owner": "Another"},
    "attempt": {"attempt": 7},
    "scale": {"scale": 3.0},
    "fingerprint": {"model_fingerprint": "0" * 64},
    "layer 0": {"layer0_digest": "0" * 64},
    "rows": {"rows_digest": "0" * 64},
    "parameters": {"parameters": irwm.Parameters(positions=51)},
}


@pytest.mark.parametrize("change", CHANGES)
def test_no_other_key_opens_it(key: irwm.Key, document: Commitment, change: str) -> None:
    assert not document.opens(replace(key, **CHANGES[change]))


@pytest.mark.parametrize(
    "change",
    [
        {"owner": "Attacker"},
        {"model_fingerprint": "1" * 64},
        {"layer0_digest": "1" * 64},
        {"vocab_size": 7},
        {"hidden_size": 7},
        {"parameters": irwm.Parameters(positions=51)},
        {"commitment": "1" * 64},
    ],
    ids=lambda change: next(iter(change)),
)
def test_document_that_contradicts_the_key_is_not_opened(key: irwm.Key, document: Commitment, change: dict) -> None:
    edited = replace(document, **change)
    assert Commitment.from_bytes(edited.to_bytes()) == edited
    assert not edited.opens(key)
    assert edited.digest != document.digest


EDITS = {
    "another format": {"format": "irwm-key"},
    "version 1": {"version": 1},
    "version true": {"version": True},
    "version 2.0": {"version": 2.0},
    "another scheme": {"scheme": "irwm/v2"},
    "a short hash": {"commitment": "ab"},
    "a hash in capitals": {"model_fingerprint": "AB" * 32},
    "a hash with spaces": {"layer0_digest": "ab " * 32},
    "a hash that is a number": {"commitment": 7},
    "no rows": {"vocab_size": 0},
    "rows as text": {"vocab_size": "4096"},
    "rows as truth": {"hidden_size": True},
    "too many rows": {"vocab_size": 2**31},
    "unknown parameters": {"parameters": {"positions": 50, "luck": 1}},
    "parameters out of range": {"parameters": {"positions": 0}},
    "parameters as a list": {"parameters": []},
    "a long owner": {"owner": "x" * 201},
    "an owner that is none": {"owner": None},
    "a long family": {"family": "x" * 101},
    "a time without a zone": {"made_utc": "2026-11-21T12:00:00"},
    "a time that is none": {"made_utc": "yesterday"},
    "a time that is a number": {"made_utc": 5},
    "one name more": {"note": "x"},
}


@pytest.mark.parametrize("edit", EDITS)
def test_invalid_commitment_is_refused(document: Commitment, edit: str) -> None:
    with pytest.raises(CommitmentError):
        Commitment.from_bytes(canonical(json.loads(document.to_bytes()) | EDITS[edit]))


@pytest.mark.parametrize("name", ["format", "version", "scheme", "commitment", "parameters", "owner", "made_utc"])
def test_a_missing_name_is_refused(document: Commitment, name: str) -> None:
    values = json.loads(document.to_bytes())
    del values[name]
    with pytest.raises(CommitmentError):
        Commitment.from_bytes(canonical(values))


def test_non_canonical_encoding_is_refused(document: Commitment) -> None:
    """The digest is over bytes: with two encodings of one document its owner could choose between two dates."""
    public = document.to_bytes()
    values = json.loads(public)
    spellings = [
        json.dumps(values, indent=1).encode(),
        json.dumps(values, sort_keys=True, separators=(",", ":")).encode(),  # ASCII escapes
        public + b"\n",
        b"\xef\xbb\xbf" + public,
        public.replace(b'"version":2', b'"version":2,"version":2'),
        public.replace(b'"condition_limit":30.0', b'"condition_limit":3e1'),
    ]
    for spelling in spellings:
        assert spelling != public
        with pytest.raises(CommitmentError):
            Commitment.from_bytes(spelling)


@pytest.mark.parametrize(
    "hostile",
    [b"", b"null", b"[]", b"{}", b"\xff", b"[" * 10_000, b'{"format":' * 1600, b"NaN", b"9" * 5000, bytes(1 << 20)],
    ids=range(10),
)
def test_hostile_bytes_are_refused(hostile: bytes) -> None:
    with pytest.raises(CommitmentError):
        Commitment.from_bytes(hostile)


@given(st.binary(max_size=200))
def test_any_bytes_end_in_one_kind_of_error(hostile: bytes) -> None:
    with pytest.raises(CommitmentError):
        Commitment.from_bytes(hostile)


@given(st.data())
def test_changed_byte_gives_another_or_invalid_document(document: Commitment, data: st.DataObject) -> None:
    public = bytearray(document.to_bytes())
    place = data.draw(st.integers(0, len(public) - 1))
    public[place] = data.draw(st.integers(0, 255).filter(lambda byte: byte != public[place]))
    try:
        read = Commitment.from_bytes(bytes(public))
    except CommitmentError:
        return
    assert read.digest != document.digest


def test_commitment_with_invalid_family_or_time_is_refused(key: irwm.Key) -> None:
    for bad in ({"made_utc": "soon"}, {"made_utc": "2026-01-01"}, {"family": "x" * 101}, {"family": "\ud800"}):
        with pytest.raises(CommitmentError):
            Commitment.of(key, **bad)
