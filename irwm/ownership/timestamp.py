"""Timestamps by file (RFC 3161): an independent authority signs that a digest existed at a time.

`request` makes the file to send to an authority. `read_response` checks the answer offline: it must be granted, for
this digest and this request, and signed by the certificate in it, which must be for timestamping and valid at that
time. Anyone can make a certificate like this. Only a chain to a root that the reader provides makes a timestamp
`trusted`. Revocation is not checked.
"""

from __future__ import annotations

import contextlib
import os
import warnings
from dataclasses import dataclass
from datetime import UTC

from cryptography import x509
from cryptography.hazmat import asn1
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.utils import CryptographyDeprecationWarning
from cryptography.x509.oid import ExtendedKeyUsageOID
from rfc3161_client import (
    TimeStampResponse,
    TimeStampTokenInfo,
    VerificationError,
    VerifierBuilder,
    decode_timestamp_response,
)

from irwm.errors import IrwmError, printable
from irwm.ownership import cms

MAX_REQUEST_BYTES = 4 << 10
MAX_RESPONSE_BYTES = 256 << 10
MAX_ROOTS_BYTES = 4 << 20
NONCE_BYTES = 8
_STATUS = ("granted", "granted with changes", "rejected", "waiting", "revocation warning", "revocation notice")


class TimestampError(IrwmError):
    """A timestamp request or response that is not valid; the message states the reason."""


@dataclass(frozen=True, slots=True)
class Timestamp:
    """A verified timestamp.

    Attributes:
        time_utc: when the authority signed, ISO 8601, UTC.
        authority: the name in the signing certificate.
        trusted: whether that certificate leads to one of the roots given. If not, the time is only the statement of an
            unknown signer.
        serial: the authority's number of this timestamp.
        policy: the policy under which the authority made it, an object identifier.
        accuracy_s: the error in seconds that the authority states; 0 if it states none.
    """

    time_utc: str
    authority: str
    trusted: bool
    serial: int
    policy: str
    accuracy_s: float = 0.0


def request(digest_hex: str, nonce: int | None = None) -> bytes:
    """A timestamp request (TimeStampReq, DER) over a SHA-256, which asks for the authority's certificate.

    Args:
        digest_hex: hex SHA-256, `Commitment.digest`.
        nonce: a unique number; None for 64 random bits from the operating system.

    Raises:
        TimestampError: not a SHA-256, or a nonce that is negative or too long.
    """
    digest = _digest(digest_hex)
    if nonce is None:
        nonce = int.from_bytes(os.urandom(NONCE_BYTES), "big")
    if not 0 <= nonce < 2**160:
        raise TimestampError("the request's nonce is out of range", expected="0 to 2^160", found=str(nonce)[:60])
    # rfc3161_client's builder hashes a document and draws the nonce itself; here a digest and, in tests, a nonce is
    # given.
    imprint = cms.Imprint(algorithm=cms.Algorithm(oid=cms.SHA256, parameters=asn1.Null()), digest=digest)
    return asn1.encode_der(cms.Request(version=1, imprint=imprint, nonce=nonce, wants_certificate=True))


def read_response(request: bytes, response: bytes, digest_hex: str, roots_pem: bytes | None = None) -> Timestamp:
    """The timestamp of a digest, read from a verified response.

    Args:
        request: the request as it was sent.
        response: the authority's answer (TimeStampResp, DER).
        digest_hex: hex SHA-256 of the dated document.
        roots_pem: certificates that the reader trusts, PEM; None to skip the check of the authority.

    Raises:
        TimestampError: the answer does not belong to this request and digest, it was altered, or its certificate is
            missing, not for timestamping or was not valid at that time.
    """
    digest = _digest(digest_hex)
    asked = _read_request(request, digest)
    roots = _roots(roots_pem)
    token, parsed = _take_apart(response)
    info = parsed.tst_info
    _check_info(info, digest, asked)
    with warnings.catch_warnings():
        # Newer library versions warn about old certificates that violate rules; they are still checked here.
        warnings.simplefilter("ignore", CryptographyDeprecationWarning)
        try:
            certificate = cms.signing_certificate(token)
            _check_certificate(certificate, info)
            _check_names(certificate, parsed)
        except (KeyError, IndexError, TypeError, ValueError, x509.ExtensionNotFound) as error:
            raise _refused("its signature is not valid", found=_words(error)) from error
        trusted = bool(roots) and _leads_to(roots, parsed, digest)
    accuracy = info.accuracy
    seconds = ((accuracy.seconds or 0) + (accuracy.millis or 0) / 1e3 + (accuracy.micros or 0) / 1e6) if accuracy else 0
    return Timestamp(
        time_utc=info.gen_time.astimezone(UTC).isoformat().replace("+00:00", "Z"),
        authority=printable(certificate.subject.rfc4514_string()),
        trusted=trusted,
        serial=info.serial_number,
        policy=info.policy.dotted_string,
        accuracy_s=float(seconds),
    )


def dated_digest(response: bytes) -> str:
    """The hex digest that a response says it dates, to find its document; `read_response` verifies it.

    Raises:
        TimestampError: these bytes are not a granted response.
    """
    _, parsed = _take_apart(response)
    return bytes(parsed.tst_info.message_imprint.message).hex()


def _digest(digest_hex: str) -> bytes:
    try:
        digest = bytes.fromhex(digest_hex)
    except (TypeError, ValueError):
        digest = b""
    if len(digest) != 32 or digest.hex() != digest_hex:
        raise TimestampError(
            "this is not a digest", expected="a SHA-256 hash in lower-case hex", found=str(digest_hex)[:80]
        )
    return digest


def _read_request(request: bytes, digest: bytes) -> cms.Request:
    """The request, after checking that it is for `digest`."""
    try:
        if len(request) > MAX_REQUEST_BYTES:
            raise ValueError(f"{len(request)} bytes")
        sent = asn1.decode_der(cms.Request, request)
        if sent.version != 1 or sent.imprint.algorithm.oid != cms.SHA256:
            raise ValueError("a different version or a different hash algorithm")
    except ValueError as error:
        raise TimestampError(
            "this is not a timestamp request for a SHA-256 hash",
            found=_words(error),
            advice="Provide the request file that was sent to the authority",
        ) from error
    asked = sent.imprint.digest
    if asked != digest:
        raise TimestampError(
            "the timestamp request was made for a different document",
            expected=f"SHA-256 {digest.hex()}",
            found=f"SHA-256 {asked.hex()}",
            advice="Choose the request that was made from this commitment",
        )
    return sent


def _take_apart(response: bytes) -> tuple[cms.Token, TimeStampResponse]:
    """The token as we read it, and as the library reads the same bytes."""
    if len(response) > MAX_RESPONSE_BYTES:
        raise _refused("it is too large", f"at most {MAX_RESPONSE_BYTES} bytes", f"{len(response)} bytes")
    try:
        answer = asn1.decode_der(cms.Response, response)
    except ValueError as error:
        raise _refused("these bytes are not a timestamp response", found=_words(error)) from error
    number, token = answer.status.code, answer.token
    if number != 0:
        said = _STATUS[number] if 0 <= number < len(_STATUS) else f"status {number}"
        raise _refused("the authority did not grant the request", "granted", said + _why(response))
    try:
        if token is None:
            raise ValueError("the token is missing")
        cms.sort_certificates(token)
        parsed = decode_timestamp_response(asn1.encode_der(answer))
        _ = parsed.tst_info
    except (TypeError, ValueError, OverflowError) as error:
        raise _refused("its token cannot be read", found=_words(error)) from error
    return token, parsed


def _why(response: bytes) -> str:
    """The authority's text about its refusal."""
    try:
        said = decode_timestamp_response(response).status_string
    except (TypeError, ValueError):
        return ""
    return "".join(f"; {printable(str(each), 100)}" for each in said[:3])


def _check_info(info: TimeStampTokenInfo, digest: bytes, asked: cms.Request) -> None:
    nonce = asked.nonce
    imprint = info.message_imprint
    if imprint.hash_algorithm != cms.SHA256 or imprint.message != digest:
        raise _refused("it is for a different document", f"SHA-256 {digest.hex()}", imprint.message.hex()[:128])
    if nonce is not None and info.nonce != nonce:
        raise _refused(
            "it responds to a different request",
            f"nonce {nonce:x}",
            "none" if info.nonce is None else f"{info.nonce:x}",
        )
    if asked.policy is not None and info.policy != asked.policy:
        raise _refused("it was issued under a different policy", asked.policy.dotted_string, info.policy.dotted_string)


def _check_certificate(certificate: x509.Certificate, info: TimeStampTokenInfo) -> None:
    usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage)
    if not usage.critical or list(usage.value) != [ExtendedKeyUsageOID.TIME_STAMPING]:
        raise ValueError("its certificate is not restricted to timestamping (RFC 3161, 2.3)")
    first, last = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if not first <= info.gen_time.astimezone(UTC) <= last:
        raise ValueError(
            f"its certificate is valid from {first:%Y-%m-%d} to {last:%Y-%m-%d}, but the timestamp is dated "
            f"{info.gen_time}"
        )


def _check_names(certificate: x509.Certificate, parsed: TimeStampResponse) -> None:
    """The library finds the chain by issuer and number, which must identify the certificate that was checked here."""
    name = (certificate.issuer, certificate.serial_number)
    inside = [x509.load_der_x509_certificate(each) for each in parsed.signed_data.certificates]
    signers = [(each.issuer, each.serial_number) for each in parsed.signed_data.signer_infos]
    if signers != [name] or [(each.issuer, each.serial_number) for each in inside].count(name) != 1:
        raise ValueError("the signature identifies a certificate other than the one it was made with")


def _leads_to(roots: list[x509.Certificate], parsed: TimeStampResponse, digest: bytes) -> bool:
    """Whether the signing certificate leads to one of the roots, all valid at the time."""
    # All certificates in it, not only those that seem to form the chain: there are several ways to compare names.
    inside = [x509.load_der_x509_certificate(each) for each in parsed.signed_data.certificates]
    roots = [each for each in roots if _may_lead_to_dates(each)]
    if not roots or not all(map(_may_lead_to_dates, inside)):
        return False
    # Together, since one may be between another and the signer; and each alone, since the library uses only the first
    # of two with the same name.
    return any(_verified(some, parsed, digest) for some in (roots, *([each] for each in roots)))


def _verified(roots: list[x509.Certificate], parsed: TimeStampResponse, digest: bytes) -> bool:
    try:
        return VerifierBuilder(roots=roots).build().verify(parsed, digest)
    except (VerificationError, KeyError, TypeError, ValueError):
        return False


def _may_lead_to_dates(authority: x509.Certificate) -> bool:
    """Whether an authority's certificate allows timestamping below it, or does not restrict its purposes."""
    try:
        usage = authority.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except x509.ExtensionNotFound:
        return True
    except ValueError:
        return False
    return not {ExtendedKeyUsageOID.TIME_STAMPING, ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE}.isdisjoint(usage)


def root_certificates(data: bytes) -> bytes:
    """Certificates that a reader trusts, as pure PEM, from a file that holds some as PEM, or one as DER.

    Raises:
        TimestampError: it contains no certificate.
    """
    with contextlib.suppress(ValueError):
        if len(data) <= MAX_ROOTS_BYTES:
            return x509.load_der_x509_certificate(data).public_bytes(Encoding.PEM)
    return b"".join(each.public_bytes(Encoding.PEM) for each in _roots(data))


def _roots(pem: bytes | None) -> list[x509.Certificate]:
    if pem is None:
        return []
    try:
        if len(pem) > MAX_ROOTS_BYTES:
            raise ValueError(f"{len(pem)} bytes")
        return list(dict.fromkeys(x509.load_pem_x509_certificates(pem)))
    except ValueError as error:
        raise TimestampError(
            "no certificates found",
            expected="one or more certificates in PEM format",
            found=_words(error),
            advice="Provide the root certificate that the authority publishes",
        ) from error


def _refused(problem: str, expected: str | None = None, found: str | None = None) -> TimestampError:
    return TimestampError(
        f"the timestamp response cannot be used: {problem}",
        expected=expected,
        found=found,
        advice="Provide the response as the authority sent it, together with its request",
    )


def _words(error: Exception) -> str:
    """An error of a library in words; a parser's dump of its state becomes one sentence."""
    said = str(error) or type(error).__name__
    return "bytes that are not in this format" if "ParseError" in said else printable(said, 200)
