"""The vault's signing identity: Ed25519 signatures, and the chain of certificates from one identity to the next.

A signature covers `purpose || message`. A purpose is `irwm/v1/NAME` and a zero byte, which no name can hold, so a
signature for one purpose is never valid for another (`REPORT`, `CERTIFICATE`). A DSSE envelope has a form that others
prescribe: it begins with `ENVELOPE`, so it is never `purpose || message` either. When an identity is replaced, the old
one signs a certificate for the new one: `CERTIFICATE || canonical_json(...)` of the fields of `Certificate` without its
signature. Anyone who knows the vault's first public key can check a signature of any later one, offline and without the
vault.

A chain cannot show who holds the first key; that must be known from another source, such as a printed fingerprint. A
chain does not revoke an identity: an old private key that became known can still sign and certify.

A signed report also names the head of the vault's audit log. `entry_hash` chains the log's entries, and `log_lines`
exports them with hashes and times, without names or other details.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from irwm.canonical import canonical_json
from irwm.errors import SignatureError

SCHEME = "irwm vault identity, Ed25519, version 1"
LOG_SCHEMA, LOG_VERSION = "irwm-audit-log", 1
# The hash before the first entry of a log.
GENESIS = "0" * 64
REPORT = b"irwm/v1/report\0"
CERTIFICATE = b"irwm/v1/identity\0"
# The beginning of what a signature of a DSSE envelope covers (its pre-authentication encoding).
ENVELOPE = b"DSSEv1 "
_PURPOSE = re.compile(rb"irwm/v1/[a-z0-9-]{1,32}\0")
# Curve25519's prime, and d of its Edwards form (RFC 8032, section 5.1).
_P = 2**255 - 19
_D = -121665 * pow(121666, -1, _P) % _P
_HEX_32, _HEX_64 = re.compile("[0-9a-f]{64}"), re.compile("[0-9a-f]{128}")
# One rotation a week for nineteen years; a file with more certificates was not made by this program.
MOST_CERTIFICATES = 1000


@dataclass(frozen=True, slots=True)
class Certificate:
    """One identity's certificate for the next.

    Attributes:
        vault: the vault's identifier.
        number: of the new identity, within the vault.
        public_key, previous_public_key: 32 bytes each, hex.
        created_utc: when the new identity was made, ISO 8601, by the vault's clock.
        signature: 64 bytes, hex, by the previous key.
    """

    vault: str
    number: int
    public_key: str
    previous_public_key: str
    created_utc: str
    signature: str

    def signed_bytes(self) -> bytes:
        """The bytes that the previous key signs, without the purpose in front: canonical JSON without the signature."""
        values = {"scheme": SCHEME, **asdict(self)}
        del values["signature"]
        return canonical_json(values)

    def to_dict(self) -> dict[str, object]:
        """As plain JSON values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: object) -> Self:
        """The certificate that `to_dict` wrote.

        Raises:
            SignatureError: a field is missing, unknown or malformed.
        """
        texts = ("vault", "created_utc")
        fields = _fields(values, {*texts, "number", "public_key", "previous_public_key", "signature"}, "a certificate")
        sound = type(fields["number"]) is int and 0 < fields["number"] < 2**53
        if not sound or not all(type(fields[name]) is str for name in texts):
            raise SignatureError("a certificate's vault, number or time is malformed")
        for name in ("public_key", "previous_public_key"):
            _require_hex(fields[name], _HEX_32, f"a certificate's {name}")
        _require_hex(fields["signature"], _HEX_64, "a certificate's signature")
        return cls(**fields)


@dataclass(frozen=True, slots=True)
class Signature:
    """A signature and all that is needed to check it, except the public key of the first identity.

    Attributes:
        public_key: the signing identity's, 32 bytes, hex.
        signature: 64 bytes, hex.
        certificates: from the chain's first identity to the signing one.
    """

    public_key: str
    signature: str
    certificates: tuple[Certificate, ...] = ()

    def to_dict(self) -> dict[str, object]:
        """As plain JSON values."""
        return {"scheme": SCHEME, **asdict(self), "certificates": [each.to_dict() for each in self.certificates]}

    @classmethod
    def from_dict(cls, values: object) -> Self:
        """The signature that `to_dict` wrote; this checks its form, and `verify` checks the signature.

        Raises:
            SignatureError: another scheme, or a field is missing, unknown or malformed.
        """
        fields = _fields(values, {"scheme", "public_key", "signature", "certificates"}, "the signature")
        if fields["scheme"] != SCHEME:
            raise SignatureError("the signature uses an unknown scheme", expected=SCHEME, found=repr(fields["scheme"]))
        _require_hex(fields["public_key"], _HEX_32, "the public key")
        _require_hex(fields["signature"], _HEX_64, "the signature")
        certificates = fields["certificates"]
        if type(certificates) is not list or len(certificates) > MOST_CERTIFICATES:
            raise SignatureError(f"the certificates are not a list of at most {MOST_CERTIFICATES} entries")
        return cls(fields["public_key"], fields["signature"], tuple(map(Certificate.from_dict, certificates)))


def verify(message: bytes, signature: Signature, purpose: bytes = REPORT) -> str:
    """Checks a signature and its chain, with no vault; returns the chain's first public key, hex.

    The caller must compare the first key with the one it knows, because anyone can make a chain.

    Raises:
        SignatureError: names the part that does not hold.
    """
    check_purpose(purpose)
    # Values that the caller made are checked as strictly as those from a file.
    signature = Signature.from_dict(signature.to_dict())
    if not _fits(signature.public_key, purpose + message, signature.signature):
        raise SignatureError(
            "the signature does not match the signed content",
            found=f"public key {signature.public_key}",
            advice="the file was changed after it was signed, or the signature belongs to another file",
        )
    key: str | None = None
    before: Certificate | None = None
    for certificate in signature.certificates:
        name = f"the certificate for identity {certificate.number}"
        if key is not None and certificate.previous_public_key != key:
            raise SignatureError(f"{name} does not follow from the previous one", expected=key)
        if before is not None and (certificate.vault != before.vault or certificate.number <= before.number):
            raise SignatureError(f"{name} belongs to another vault, or is out of order")
        signed = CERTIFICATE + certificate.signed_bytes()
        if not _fits(certificate.previous_public_key, signed, certificate.signature):
            raise SignatureError(f"{name} was not signed by the previous identity")
        key, before = certificate.public_key, certificate
    if key is not None and key != signature.public_key:
        raise SignatureError(
            "the chain of certificates does not lead to the signing identity",
            expected=signature.public_key,
            found=key,
        )
    return signature.certificates[0].previous_public_key if signature.certificates else signature.public_key


def check_purpose(purpose: bytes) -> None:
    """Raises if the bytes are not a purpose of a message; only rotations sign certificates.

    Raises:
        SignatureError
    """
    if not isinstance(purpose, bytes) or not _PURPOSE.fullmatch(purpose) or purpose == CERTIFICATE:
        raise SignatureError("this is not a valid purpose for a signature", expected=repr(REPORT), found=repr(purpose))


def public_hex(private: Ed25519PrivateKey) -> str:
    """The public key to a private one, hex."""
    return private.public_key().public_bytes_raw().hex()


def certify(private: Ed25519PrivateKey, vault: str, number: int, public_key: str, created_utc: str) -> Certificate:
    """A certificate for the next identity, signed with the private key of the present one."""
    unsigned = Certificate(vault, number, public_key, public_hex(private), created_utc, "")
    return replace(unsigned, signature=private.sign(CERTIFICATE + unsigned.signed_bytes()).hex())


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One exported entry.

    Attributes:
        sequence: counts from 1.
        time: UTC, ISO 8601.
        event: what happened, one of the program's fixed phrases.
        details: SHA-256 of the details and their salt, hex.
        version: of the vault's schema.
        previous, hash: the chain, hex.
    """

    sequence: int
    time: str
    event: str
    details: str
    version: int
    previous: str
    hash: str


def entry_hash(
    vault: str, version: int, sequence: int, time: str, event: str, previous: str, details_sha256: str
) -> str:
    """The hash of one entry: SHA-256, hex, of the canonical JSON of all these values, with the digest as "details".

    Raises:
        TypeError, ValueError: a value is not plain JSON.
    """
    covered = {
        "vault": vault,
        "version": version,
        "sequence": sequence,
        "time": time,
        "event": event,
        "previous": previous,
        "details": details_sha256,
    }
    return hashlib.sha256(canonical_json(covered)).hexdigest()


def log_lines(vault: str, entries: Iterable[LogEntry]) -> Iterator[bytes]:
    """The lines of an exported log.

        {"schema": {"name": "irwm-audit-log", "version": 1}, "vault": identifier}
        {"sequence": 1, "time": ..., "event": ..., "details": SHA-256, "version": ..., "previous": ..., "hash": ...}
        ...

    The export shows whether the head that a report names was ever that of the log. Removing an entry changes every
    later head.
    """
    yield _line({"schema": {"name": LOG_SCHEMA, "version": LOG_VERSION}, "vault": vault})
    for entry in entries:
        yield _line(asdict(entry))


def _line(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=True, allow_nan=False).encode("ascii") + b"\n"


def _fits(public_key: str, signed: bytes, signature: str) -> bool:
    try:
        if _is_weak(bytes.fromhex(public_key)):
            return False
        Ed25519PublicKey.from_public_bytes(bytes.fromhex(public_key)).verify(bytes.fromhex(signature), signed)
    except (InvalidSignature, ValueError):  # ValueError: bytes that are no point of the curve
        return False
    return True


def _is_weak(public_key: bytes) -> bool:
    """Whether an Ed25519 key (RFC 8032) has an order of 8 or less, or is encoded with a y that is not reduced.

    Such keys accept signatures that fit many messages, and making those needs no private key.
    """
    y = int.from_bytes(public_key, "little") & ((1 << 255) - 1)
    if y >= _P:
        return True
    # -x² + y² = 1 + d x² y². The y of a point's double follows from x² and y² alone, and that of the neutral one is 1.
    for _ in range(3):
        yy = y * y % _P
        xx = (yy - 1) * pow(_D * yy + 1, -1, _P) % _P
        y = (yy + xx) * pow(2 + xx - yy, -1, _P) % _P
    return y == 1


def _fields(values: object, names: set[str], what: str) -> dict[str, Any]:
    if not isinstance(values, Mapping) or set(values) != names:
        found = sorted(map(str, values)) if isinstance(values, Mapping) else type(values).__name__
        raise SignatureError(f"{what} is malformed", expected=", ".join(sorted(names)), found=str(found))
    return dict(values)


def _require_hex(value: object, form: re.Pattern[str], what: str) -> None:
    if not isinstance(value, str) or not form.fullmatch(value):
        raise SignatureError(f"{what} is malformed", expected="lower-case hexadecimal digits", found=repr(value))
