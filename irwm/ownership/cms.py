"""The signature on a time-stamp token (CMS, RFC 5652): who signed which content, checked against the very certificate.

A token may hold several certificates. The one that counts is the one whose key verifies the signature and whose digest
stands among the signed attributes (RFC 5035, RFC 5816), so that a certificate cannot be swapped for a namesake.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa

from irwm.ownership import der

SIGNED_DATA = "1.2.840.113549.1.7.2"
TST_INFO = "1.2.840.113549.1.9.16.1.4"
SHA256 = "2.16.840.1.101.3.4.2.1"
# SHA-1 and MD5 signatures can be made to fit two contents, so a date signed with them dates nothing.
_HASHES: Mapping[str, Any] = {
    SHA256: hashes.SHA256,
    "2.16.840.1.101.3.4.2.2": hashes.SHA384,
    "2.16.840.1.101.3.4.2.3": hashes.SHA512,
}
_CONTENT_TYPE, _MESSAGE_DIGEST = "1.2.840.113549.1.9.3", "1.2.840.113549.1.9.4"
_SIGNING_CERTIFICATE, _SIGNING_CERTIFICATE_V2 = "1.2.840.113549.1.9.16.2.12", "1.2.840.113549.1.9.16.2.47"
_RSA_PSS = "1.2.840.113549.1.1.10"


@dataclass(frozen=True, slots=True)
class Token:
    """A time-stamp token taken apart; nothing of it is checked yet.

    Attributes:
        content: the signed TSTInfo, DER.
        certificates: DER of each certificate inside, in order of their bytes.
        signer: the one SignerInfo's fields.
        sorted: the token with its certificates in DER's order. Authorities write them in any, which strict readers
            refuse; the signature does not cover their order.
    """

    content: bytes
    certificates: tuple[bytes, ...]
    signer: tuple[der.Value, ...]
    sorted: bytes


def take_apart(token: der.Value) -> Token:
    """A ContentInfo's parts.

    Raises:
        ValueError: it is not signed data over one TSTInfo with one signer.
    """
    kind, wrapped = token.expect(der.SEQUENCE).children()
    if kind.oid() != SIGNED_DATA:
        raise ValueError("the token is not signed data")
    (signed,) = wrapped.expect(der.TAG_0).children()
    version, digests, content, *others = signed.expect(der.SEQUENCE).children()
    content_kind, octets = content.expect(der.SEQUENCE).children()
    if content_kind.oid() != TST_INFO:
        raise ValueError("what is signed is not a time-stamp")
    (inner,) = octets.expect(der.TAG_0).children()
    signers = others[-1].expect(der.SET).children() if others else ()
    if len(signers) != 1:
        raise ValueError(f"{len(signers)} signers where one was expected")
    certificates: tuple[bytes, ...] = ()
    rest = []
    for other in others:
        if other.tag == der.TAG_0:
            certificates = tuple(sorted(each.raw for each in other.children()))
            rest.append(der.encode(der.TAG_0, *certificates))
        else:
            rest.append(other.raw)
    ordered = der.encode(der.SEQUENCE, version.raw, digests.raw, content.raw, *rest)
    return Token(
        content=inner.expect(der.OCTETS).content,
        certificates=certificates,
        signer=signers[0].expect(der.SEQUENCE).children(),
        sorted=der.encode(der.SEQUENCE, kind.raw, der.encode(der.TAG_0, ordered)),
    )


def signing_certificate(token: Token) -> x509.Certificate:
    """The certificate inside the token that verifiably signed its content.

    Raises:
        ValueError: the content was not signed by a certificate inside, or the signature does not say by which.
    """
    _, _, digest_kind, attributes, signature_kind, signature, *_ = token.signer
    algorithm = _hash(digest_kind.children()[0].oid())
    signed = _attributes(attributes.expect(der.TAG_0))
    if der.value(signed[_CONTENT_TYPE], der.OID).oid() != TST_INFO:
        raise ValueError("the signature is over another kind of content")
    digest = hashlib.new(algorithm.name, token.content).digest()
    if not hmac.compare_digest(der.value(signed[_MESSAGE_DIGEST], der.OCTETS).content, digest):
        raise ValueError("the content was changed after it was signed")
    # Signed as a SET, though stored under an implicit tag (RFC 5652, 5.4).
    message = bytes((der.SET,)) + attributes.raw[1:]
    for raw in token.certificates:
        if not _names(signed, raw):
            continue
        certificate = x509.load_der_x509_certificate(raw)
        try:
            _verify(certificate, signature_kind, signature.expect(der.OCTETS).content, message, algorithm)
        except InvalidSignature as error:
            raise ValueError("the signature does not fit what was signed") from error
        return certificate
    raise ValueError("the certificate of the signer is not inside")


def _attributes(found: der.Value) -> dict[str, bytes]:
    """Signed attributes, each with its one value; a name that stands twice is nobody's to choose from."""
    attributes: dict[str, bytes] = {}
    for each in found.children():
        kind, held = each.expect(der.SEQUENCE).children()
        (only,) = held.expect(der.SET).children()
        if attributes.setdefault(kind.oid(), only.raw) is not only.raw:
            raise ValueError("a signed attribute stands twice")
    if not {_CONTENT_TYPE, _MESSAGE_DIGEST} <= set(attributes):
        raise ValueError("the signature leaves out what it is over")
    if not {_SIGNING_CERTIFICATE, _SIGNING_CERTIFICATE_V2} & set(attributes):
        raise ValueError("the signature does not say by which certificate it was made")
    return attributes


def _names(signed: Mapping[str, bytes], certificate: bytes) -> bool:
    """Whether every signing-certificate attribute's first entry is this certificate."""
    answers = []
    if _SIGNING_CERTIFICATE_V2 in signed:
        first, *others = _first_entry(signed[_SIGNING_CERTIFICATE_V2])
        algorithm = hashes.SHA256.name
        if first.tag == der.SEQUENCE:  # the hash algorithm, left out when it is SHA-256
            algorithm, first = _hash(first.children()[0].oid()).name, others[0]
        answers.append(first.expect(der.OCTETS).content == hashlib.new(algorithm, certificate).digest())
    if _SIGNING_CERTIFICATE in signed:
        first, *_ = _first_entry(signed[_SIGNING_CERTIFICATE])
        digest = hashlib.sha1(certificate, usedforsecurity=False).digest()  # the only hash RFC 2634 knows here
        answers.append(first.expect(der.OCTETS).content == digest)
    return all(answers)


def _first_entry(attribute: bytes) -> tuple[der.Value, ...]:
    entries, *_ = der.value(attribute).children()
    first, *_ = entries.expect(der.SEQUENCE).children()
    return first.expect(der.SEQUENCE).children()


def _hash(oid: str) -> Any:
    if oid not in _HASHES:
        raise ValueError(f"it is signed over a hash ({oid}) that is not SHA-256, SHA-384 or SHA-512")
    return _HASHES[oid]()


def _verify(certificate: x509.Certificate, kind: der.Value, signature: bytes, message: bytes, algorithm: Any) -> None:
    key = certificate.public_key()
    if isinstance(key, rsa.RSAPublicKey):
        padded: Any = padding.PKCS1v15()
        if kind.children()[0].oid() == _RSA_PSS:
            padded = padding.PSS(mgf=padding.MGF1(algorithm), salt_length=padding.PSS.AUTO)
        key.verify(signature, message, padded, algorithm)
    elif isinstance(key, ec.EllipticCurvePublicKey):
        key.verify(signature, message, ec.ECDSA(algorithm))
    elif isinstance(key, ed25519.Ed25519PublicKey):
        key.verify(signature, message)
    else:
        raise ValueError(f"a signature of a kind that is not read ({type(key).__name__})")
