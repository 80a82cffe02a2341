"""Timestamps by file, answered by a real authority's program, and invalid responses that must be rejected."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography.hazmat import asn1
from cryptography.x509 import ObjectIdentifier

from irwm.ownership import TimestampError, cms, read_response, request
from tests.ownership.authority import (
    ANY_USE,
    CODE_SIGNING,
    SERVER,
    TIME_STAMPING,
    YEAR,
    Authority,
    make_authority,
    response,
)

DIGEST = hashlib.sha256(b"a commitment").hexdigest()
OTHER = hashlib.sha256(b"another").hexdigest()
QUERY = request(DIGEST, nonce=0x1234567890ABCDEF)


@pytest.fixture(scope="module")
def answer(authority: Authority) -> bytes:
    return authority.answer(QUERY)


def token_of(response: bytes) -> cms.Token:
    token = asn1.decode_der(cms.Response, response).token
    assert token is not None
    return token


def with_token(token: cms.Token) -> bytes:
    return asn1.encode_der(cms.Response(status=cms.Status(code=0), token=token))


def test_time_stamp_states_time_and_authority(authority: Authority, answer: bytes) -> None:
    stamp = read_response(QUERY, answer, DIGEST, authority.root)
    assert stamp.trusted
    assert stamp.authority == "CN=Test Timestamps"
    assert stamp.serial > 0
    assert stamp.accuracy_s == 1.0
    assert abs(datetime.fromisoformat(stamp.time_utc) - datetime.now(UTC)) < timedelta(hours=1)


def test_only_a_matching_root_makes_an_authority_trusted(authority: Authority, answer: bytes, tmp_path: Path) -> None:
    other, namesake = make_authority(tmp_path / "other", "Another"), make_authority(tmp_path / "namesake")
    for roots, trusted in (
        (None, False),
        (namesake.root, False),
        (other.root + authority.root + authority.root, True),
    ):
        assert read_response(QUERY, answer, DIGEST, roots).trusted == trusted


def test_an_answer_with_its_chain_in_any_order_is_read(tmp_path: Path) -> None:
    """The openssl program writes the chain as given, which is not DER's order; both orders must be accepted."""
    authority = make_authority(tmp_path / "chain", with_root=True)
    response = authority.answer(QUERY)
    token = token_of(response)
    certificates = sorted(token.signed.certificates or (), key=asn1.encode_der)
    assert len(certificates) == 2
    for each in (certificates, certificates[::-1]):
        token.signed.certificates = each
        assert read_response(QUERY, with_token(token), DIGEST, authority.root).trusted


DIGESTS = ("", "ab", DIGEST.upper(), DIGEST + "00", "zz" * 32, " " + DIGEST, None)


@pytest.mark.parametrize(("digest", "nonce"), [*((digest, 1) for digest in DIGESTS), (DIGEST, -1), (DIGEST, 2**160)])
def test_request_with_invalid_digest_or_nonce_is_refused(digest: str, nonce: int) -> None:
    with pytest.raises(TimestampError):
        request(digest, nonce)


@pytest.mark.parametrize("nonce", [0, 127, 128, 255, 256, 2**64 - 1, 2**160 - 1])
def test_every_nonce_is_returned(authority: Authority, nonce: int) -> None:
    query = request(DIGEST, nonce=nonce)
    assert read_response(query, authority.answer(query), DIGEST, authority.root).trusted


def test_an_answer_fits_only_its_document_and_its_request(authority: Authority, answer: bytes) -> None:
    with pytest.raises(TimestampError):
        read_response(QUERY, answer, OTHER, authority.root)
    with pytest.raises(TimestampError) as caught:
        read_response(request(OTHER), answer, OTHER, authority.root)
    assert (caught.value.expected, caught.value.found) == (f"SHA-256 {OTHER}", DIGEST)
    with pytest.raises(TimestampError) as caught:
        read_response(request(DIGEST, nonce=99), answer, DIGEST, authority.root)
    assert caught.value.expected == "nonce 63"


def test_flipped_bits_never_change_a_verified_time_stamp(authority: Authority, answer: bytes) -> None:
    """Outside the signed content a bit may have no meaning; the result must then be exactly the same."""
    said = read_response(QUERY, answer, DIGEST, authority.root)
    refused = 0
    for place in range(len(answer)):
        forged = bytearray(answer)
        forged[place] ^= 1 << place % 8
        try:
            stamp = read_response(QUERY, bytes(forged), DIGEST, authority.root)
        except TimestampError:
            refused += 1
        else:
            assert stamp == said or not stamp.trusted, place
            assert stamp.time_utc == said.time_utc, place
    assert refused > 0.95 * len(answer)


def test_a_moved_time_is_refused(authority: Authority, answer: bytes) -> None:
    year = str(datetime.now(UTC).year).encode()
    content = token_of(answer).signed.content.octets
    forged = content.replace(b"\x18\x0f" + year, b"\x18\x0f2001")
    assert forged != content
    with pytest.raises(TimestampError):
        read_response(QUERY, answer.replace(content, forged), DIGEST, authority.root)


def test_an_answer_without_its_certificate_is_refused(authority: Authority, answer: bytes, tmp_path: Path) -> None:
    other = make_authority(tmp_path / "other")
    for certificates in (None, token_of(other.answer(QUERY)).signed.certificates):
        token = token_of(answer)
        token.signed.certificates = certificates
        with pytest.raises(TimestampError):
            read_response(QUERY, with_token(token), DIGEST, authority.root + other.root)


@pytest.mark.parametrize("starts", [datetime.now(UTC) - 3 * YEAR, datetime.now(UTC) + YEAR], ids=["past", "future"])
def test_certificate_not_valid_at_the_time_is_rejected(tmp_path: Path, starts: datetime) -> None:
    authority = make_authority(tmp_path / "tsa", starts=starts)
    with pytest.raises(TimestampError):
        read_response(QUERY, authority.answer(QUERY), DIGEST, authority.root)


@pytest.mark.parametrize(
    ("usages", "critical"),
    [((CODE_SIGNING,), True), ((TIME_STAMPING, CODE_SIGNING), True), ((TIME_STAMPING,), False)],
    ids=["other use", "second use", "not critical"],
)
def test_certificate_for_another_usage_is_rejected(
    answer: bytes, tmp_path: Path, usages: tuple, critical: bool
) -> None:
    content = token_of(answer).signed.content.octets
    wrong = make_authority(tmp_path / "wrong", usages=usages, critical=critical)
    with pytest.raises(TimestampError):
        read_response(QUERY, wrong.sign(content), DIGEST, wrong.root)
    right = make_authority(tmp_path / "right")  # signs in the same way, so only the certificate can be the cause
    assert read_response(QUERY, right.sign(content), DIGEST, right.root).trusted


@pytest.mark.parametrize(
    ("usages", "trusted"),
    [((), True), ((TIME_STAMPING,), True), ((ANY_USE,), True), ((SERVER,), False), ((SERVER, CODE_SIGNING), False)],
    ids=["unsaid", "time-stamping", "any", "servers", "servers and code"],
)
@pytest.mark.parametrize("at", ["between", "root"])
def test_authority_for_another_usage_is_not_trusted(
    answer: bytes, tmp_path: Path, usages: tuple, trusted: bool, at: str
) -> None:
    content = token_of(answer).signed.content.octets
    between, root = (usages, ()) if at == "between" else ((), usages)
    authority = make_authority(tmp_path / "long", between=between, root_usages=root)
    stamp = read_response(QUERY, authority.sign(content), DIGEST, authority.root)
    assert stamp.trusted == trusted
    assert stamp.authority == "CN=Test Timestamps"


def test_a_refusal_is_named_with_the_authority_s_words(authority: Authority) -> None:
    sha1 = cms.Algorithm(oid=ObjectIdentifier("1.3.14.3.2.26"), parameters=asn1.Null())
    query = cms.Request(version=1, imprint=cms.Imprint(algorithm=sha1, digest=bytes(20)))
    refused = authority.answer(asn1.encode_der(query))
    with pytest.raises(TimestampError) as caught:
        read_response(QUERY, refused, DIGEST, authority.root)
    assert caught.value.found is not None
    assert caught.value.found.startswith("rejected; Message digest algorithm")


@pytest.mark.parametrize("status", [1, 2, 3, 4, 5, 6, -1])
def test_anything_but_granted_is_refused(answer: bytes, status: int) -> None:
    token = asn1.decode_der(asn1.TLV, asn1.encode_der(token_of(answer)))
    other = response(token, status)
    with pytest.raises(TimestampError):
        read_response(QUERY, other, DIGEST)


@pytest.mark.parametrize(
    "response", [b"", b"0", b"\x30\x80\x00\x00", b"<html>502</html>", b"0\x84\xff\xff\xff\xff", bytes(1 << 20)]
)
def test_invalid_response_is_refused(response: bytes) -> None:
    with pytest.raises(TimestampError) as caught:
        read_response(QUERY, response, DIGEST)
    assert "ParseError" not in str(caught.value)


@pytest.mark.parametrize("query", [b"", b"hello", QUERY[:-1], QUERY + b"\0", b"\x30\x03\x02\x01\x01", bytes(5000)])
def test_invalid_request_is_refused(answer: bytes, query: bytes) -> None:
    with pytest.raises(TimestampError):
        read_response(query, answer, DIGEST)


@pytest.mark.parametrize("roots", [b"", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", b"\0"])
def test_invalid_root_is_refused(answer: bytes, roots: bytes) -> None:
    with pytest.raises(TimestampError):
        read_response(QUERY, answer, DIGEST, roots)
