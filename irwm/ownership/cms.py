"""The structures of a timestamp (RFC 3161, RFC 5652), and the check of its signature.

`cryptography`'s strict DER reads and writes them: definite lengths, and no trailing bytes. A token may hold several
certificates. The signing certificate verifies the signature with its key and has its digest among the signed attributes
(RFC 5035, RFC 5816), so that it cannot be replaced by another one of the same name.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from typing import Annotated, Any

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat import asn1
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.x509 import ObjectIdentifier

SIGNED_DATA = ObjectIdentifier("1.2.840.113549.1.7.2")
TST_INFO = ObjectIdentifier("1.2.840.113549.1.9.16.1.4")
SHA256 = ObjectIdentifier("2.16.840.1.101.3.4.2.1")
# A SHA-1 or MD5 signature can be forged to fit two contents, so it proves no date.
_HASHES: Mapping[ObjectIdentifier, Any] = {
    SHA256: hashes.SHA256,
    ObjectIdentifier("2.16.840.1.101.3.4.2.2"): hashes.SHA384,
    ObjectIdentifier("2.16.840.1.101.3.4.2.3"): hashes.SHA512,
}
_CONTENT_TYPE = ObjectIdentifier("1.2.840.113549.1.9.3")
_MESSAGE_DIGEST = ObjectIdentifier("1.2.840.113549.1.9.4")
_SIGNING_CERTIFICATE = ObjectIdentifier("1.2.840.113549.1.9.16.2.12")
_SIGNING_CERTIFICATE_V2 = ObjectIdentifier("1.2.840.113549.1.9.16.2.47")
_RSA_PSS = ObjectIdentifier("1.2.840.113549.1.1.10")
_SEQUENCE, _SET = b"\x30", b"\x31"


@asn1.sequence
class Algorithm:
    oid: ObjectIdentifier
    parameters: asn1.Null | None = None


@asn1.sequence
class Imprint:
    algorithm: Algorithm
    digest: bytes


@asn1.sequence
class Request:
    """TimeStampReq."""

    version: int
    imprint: Imprint
    policy: ObjectIdentifier | None = None
    nonce: int | None = None
    wants_certificate: Annotated[bool, asn1.Default(False)] = False
    extensions: Annotated[list[asn1.TLV] | None, asn1.Implicit(0)] = None


@asn1.sequence
class Content:
    kind: ObjectIdentifier
    octets: Annotated[bytes, asn1.Explicit(0)]


@asn1.sequence
class Attribute:
    kind: ObjectIdentifier
    values: asn1.SetOf[asn1.TLV]


@asn1.sequence
class Signer:
    """SignerInfo; the signature is over the bytes of the attributes."""

    version: int
    identifier: asn1.TLV
    digest_algorithm: list[asn1.TLV]
    attributes: asn1.TLV
    signature_algorithm: list[asn1.TLV]
    signature: bytes
    unsigned: Annotated[list[asn1.TLV] | None, asn1.Implicit(1)] = None


@asn1.sequence
class SignedData:
    """The certificates are a SET. Authorities write them in any order, which a strict SET OF would reject."""

    version: int
    digest_algorithms: asn1.TLV
    content: Content
    certificates: Annotated[list[asn1.TLV] | None, asn1.Implicit(0)] = None
    revocations: Annotated[list[asn1.TLV] | None, asn1.Implicit(1)] = None
    signers: asn1.SetOf[Signer]


@asn1.sequence
class Token:
    """TimeStampToken, a ContentInfo."""

    kind: ObjectIdentifier
    signed: Annotated[SignedData, asn1.Explicit(0)]


@asn1.sequence
class Status:
    code: int
    text: list[asn1.TLV] | None = None
    failure: asn1.BitString | None = None


@asn1.sequence
class Response:
    """TimeStampResp."""

    status: Status
    token: Token | None = None


@asn1.sequence
class _Attributes:
    each: Annotated[list[Attribute], asn1.Implicit(0)]


@asn1.sequence
class _Only:
    value: asn1.TLV


@asn1.sequence
class _SigningCertificate:
    entries: list[list[asn1.TLV]]
    policies: list[asn1.TLV] | None = None


def sort_certificates(token: Token) -> None:
    """Sorts a token's certificates into DER's order, which strict readers require and the signature does not cover."""
    if token.signed.certificates is not None:
        token.signed.certificates.sort(key=asn1.encode_der)


def signing_certificate(token: Token) -> x509.Certificate:
    """The certificate in the token that verifiably signed its content.

    Raises:
        ValueError: it is not signed data over one TSTInfo with one signer, no certificate in it signed the content, or
            the signature does not identify the certificate that did.
    """
    if token.kind != SIGNED_DATA or token.signed.content.kind != TST_INFO:
        raise ValueError("the signed content is not a timestamp")
    signers = token.signed.signers.as_list()
    if len(signers) != 1:
        raise ValueError(f"{len(signers)} signers instead of one")
    (signer,) = signers
    algorithm = _hash(signer.digest_algorithm[0].parse(ObjectIdentifier))
    signed = _attributes(signer.attributes)
    if signed[_CONTENT_TYPE].parse(ObjectIdentifier) != TST_INFO:
        raise ValueError("the signature covers a different kind of content")
    digest = hashlib.new(algorithm.name, token.signed.content.octets).digest()
    if not hmac.compare_digest(signed[_MESSAGE_DIGEST].parse(bytes), digest):
        raise ValueError("the content was changed after it was signed")
    # Signed as a SET, though stored under an implicit tag (RFC 5652, 5.4).
    message = _SET + asn1.encode_der(signer.attributes)[1:]
    for each in token.signed.certificates or ():
        raw = asn1.encode_der(each)
        if not _names(signed, raw):
            continue
        certificate = x509.load_der_x509_certificate(raw)
        kind = signer.signature_algorithm[0].parse(ObjectIdentifier)
        try:
            _verify(certificate, kind, signer.signature, message, algorithm)
        except InvalidSignature as error:
            raise ValueError("the signature does not match the signed content") from error
        return certificate
    raise ValueError("the signer's certificate is missing")


def _attributes(found: asn1.TLV) -> dict[ObjectIdentifier, asn1.TLV]:
    """Signed attributes, each with a single value; duplicates are rejected as ambiguous."""
    attributes: dict[ObjectIdentifier, asn1.TLV] = {}
    for each in asn1.decode_der(_Attributes, asn1.encode_der(_Only(value=found))).each:
        (only,) = each.values.as_list()
        if attributes.setdefault(each.kind, only) is not only:
            raise ValueError("a signed attribute is duplicated")
    if not {_CONTENT_TYPE, _MESSAGE_DIGEST} <= set(attributes):
        raise ValueError("the signature does not identify the signed content")
    if not {_SIGNING_CERTIFICATE, _SIGNING_CERTIFICATE_V2} & set(attributes):
        raise ValueError("the signature does not identify its certificate")
    return attributes


def _names(signed: Mapping[ObjectIdentifier, asn1.TLV], certificate: bytes) -> bool:
    """Whether every signing-certificate attribute's first entry is this certificate."""
    answers = []
    if _SIGNING_CERTIFICATE_V2 in signed:
        first, *others = signed[_SIGNING_CERTIFICATE_V2].parse(_SigningCertificate).entries[0]
        algorithm = hashes.SHA256.name
        if first.tag_bytes == _SEQUENCE:  # the hash algorithm, left out when it is SHA-256
            algorithm, first = _hash(first.parse(Algorithm).oid).name, others[0]
        answers.append(first.parse(bytes) == hashlib.new(algorithm, certificate).digest())
    if _SIGNING_CERTIFICATE in signed:
        first, *_ = signed[_SIGNING_CERTIFICATE].parse(_SigningCertificate).entries[0]
        digest = hashlib.sha1(certificate, usedforsecurity=False).digest()  # the only hash that RFC 2634 allows here
        answers.append(first.parse(bytes) == digest)
    return all(answers)


def _hash(oid: ObjectIdentifier) -> Any:
    if oid not in _HASHES:
        raise ValueError(f"it uses a hash algorithm ({oid.dotted_string}) other than SHA-256, SHA-384 or SHA-512")
    return _HASHES[oid]()


def _verify(
    certificate: x509.Certificate, kind: ObjectIdentifier, signature: bytes, message: bytes, algorithm: Any
) -> None:
    key = certificate.public_key()
    if isinstance(key, rsa.RSAPublicKey):
        padded: Any = padding.PKCS1v15()
        if kind == _RSA_PSS:
            padded = padding.PSS(mgf=padding.MGF1(algorithm), salt_length=padding.PSS.AUTO)
        key.verify(signature, message, padded, algorithm)
    elif isinstance(key, ec.EllipticCurvePublicKey):
        key.verify(signature, message, ec.ECDSA(algorithm))
    elif isinstance(key, ed25519.Ed25519PublicKey):
        key.verify(signature, message)
    else:
        raise ValueError(f"unsupported signature type ({type(key).__name__})")
