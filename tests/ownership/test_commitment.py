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


def test_neither_the_secret_nor_the_recipient_can_be_read_from_it(key: irwm.Key, document: Commitment) -> None:
    public = document.to_bytes()
    assert len(public) < 2048
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


EDITED = {
    "owner": "Attacker",
    "model_fingerprint": "1" * 64,
    "layer0_digest": "1" * 64,
    "vocab_size": 7,
    "hidden_size": 7,
    "parameters": irwm.Parameters(positions=51),
    "commitment": "1" * 64,
}


@pytest.mark.parametrize("name", EDITED)
def test_document_that_contradicts_the_key_is_not_opened(key: irwm.Key, document: Commitment, name: str) -> None:
    assert document.opens(key)
    edited = replace(document, **{name: EDITED[name]})
    assert Commitment.from_bytes(edited.to_bytes()) == edited
    assert not edited.opens(key)
    assert edited.digest != document.digest


INVALID: dict[str, tuple[object, ...]] = {
    "format": ("irwm-key",),
    "version": (1, True, 2.0),
    "scheme": ("irwm/v2",),
    "commitment": ("ab", 7),
    "model_fingerprint": ("AB" * 32,),
    "layer0_digest": ("ab " * 32,),
    "vocab_size": (0, "4096", 2**31),
    "hidden_size": (True,),
    "parameters": ({"positions": 50, "luck": 1}, {"positions": 0}, []),
    "owner": ("x" * 201, None),
    "family": ("x" * 101,),
    "made_utc": ("2026-11-21T12:00:00", "yesterday", 5),
}


@pytest.mark.parametrize("name", INVALID)
def test_invalid_or_missing_value_is_refused(document: Commitment, name: str) -> None:
    values = json.loads(document.to_bytes())
    without = {other: value for other, value in values.items() if other != name}
    for invalid in (without, *(values | {name: value} for value in INVALID[name])):
        with pytest.raises(CommitmentError):
            Commitment.from_bytes(canonical(invalid))


def test_additional_name_is_refused(document: Commitment) -> None:
    with pytest.raises(CommitmentError):
        Commitment.from_bytes(canonical(json.loads(document.to_bytes()) | {"note": "x"}))


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
    [b"", b"null", b"{}", b"\xff", b"[" * 10_000, b'{"format":' * 1600, b"NaN", b"9" * 5000, bytes(1 << 20)],
    ids=range(9),
)
def test_hostile_bytes_are_refused(hostile: bytes) -> None:
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
