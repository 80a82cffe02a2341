"""The signature of a report: a small JSON next to the files, which names each by its SHA-256.

    {"schema": {"name": "irwm-report-signature", "version": 1},
     "files": {"report.html": SHA-256, "report.json": SHA-256, "report.pdf": SHA-256},
     "signed_utc": ISO 8601, "audit": {"head": SHA-256, "entries": count}, "signature": {...}}

The signature covers the canonical bytes (keys sorted, no spaces, ASCII: `irwm.canonical`) of all but
"signature", under the purpose "irwm/v1/report" (`irwm.signing`). So the files can be checked with this file
alone, without vault or network. "audit" is the head of the vault's audit log at the time of signing: removing an
earlier entry from the log would contradict the report.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass
from typing import TypeVar

from irwm.canonical import canonical_json, strict_json
from irwm.errors import printable
from irwm.report import schema, wording
from irwm.report.document import ReportError
from irwm.report.received import SIGNATURE
from irwm.signing import Signature, verify

SCHEMA, VERSION = "irwm-report-signature", 1
ENDING = SIGNATURE
_FIELDS = {"schema", "files", "signed_utc", "audit", "signature"}
_DIGEST = re.compile("[0-9a-f]{64}")


# A document that can be signed.
_Signed = TypeVar("_Signed", bound=schema.Framed)


@dataclass(frozen=True, slots=True)
class Signer:
    """Who signs a report, and what the report says about it.

    Attributes:
        sign: signs a message, as `Vault.sign` does.
        identity: the first public key of the signer's chain, hex; it identifies the vault.
        signed_utc: when, ISO 8601 in UTC; a parameter, because this package does not read the clock.
        audit_head, audit_count: hash of the last entry of the vault's audit log, and how many there are.
    """

    sign: Callable[[bytes], Signature]
    identity: str
    signed_utc: str
    audit_head: str
    audit_count: int


@dataclass(frozen=True, slots=True)
class SignedReport:
    """A signature file as read; `holds` checks it.

    Attributes:
        files: SHA-256 by file name.
        signed_utc: when, by the signer's clock.
        audit_head, audit_count: of the signer's audit log at that time.
        signature: with its certificates.
        message: the bytes that were signed.
    """

    files: Mapping[str, str]
    signed_utc: str
    audit_head: str
    audit_count: int
    signature: Signature
    message: bytes

    def holds(self) -> str:
        """The first public key of the signer's chain, hex, after a check of the signature and the chain.

        Raises:
            SignatureError: names what does not hold.
        """
        return verify(self.message, self.signature)


def announced(document: _Signed, signer: Signer) -> _Signed:
    """The document of a report that will be signed: its status names the signer and the audit log's head.

    So a report contradicts itself if its signature file is removed or replaced with another vault's.
    """
    custody: schema.Custody = {
        "identity": signer.identity,
        "audit_head": signer.audit_head,
        "audit_entries": signer.audit_count,
    }
    signed = copy(document)
    signed["status"] = {**document["status"], "signed": True, "note": wording.SIGNED, "custody": custody}
    return signed


def sign_report(names_to_bytes: Mapping[str, bytes], signer: Signer) -> bytes:
    """The bytes of NAME.signature.json over the files of a report.

    Raises:
        TypeError, ValueError: a value is not plain JSON.
        VaultLockedError, IdentityLostError, ...: as `signer.sign` raises them.
    """
    body = {
        "schema": {"name": SCHEMA, "version": VERSION},
        "files": {name: hashlib.sha256(data).hexdigest() for name, data in sorted(names_to_bytes.items())},
        "signed_utc": signer.signed_utc,
        "audit": {"head": signer.audit_head, "entries": signer.audit_count},
    }
    signed = body | {"signature": signer.sign(canonical_json(body)).to_dict()}
    return (json.dumps(signed, ensure_ascii=True, allow_nan=False, indent=1) + "\n").encode("ascii")


def read_signature(data: bytes) -> SignedReport:
    """Reads a file that `sign_report` wrote.

    Raises:
        ReportError: it is not of this form, or of another version; says what is wrong.
        SignatureError: the signature inside is malformed.
    """
    try:
        values = strict_json(data)
    except (ValueError, RecursionError) as error:
        raise ReportError("the signature file is not JSON", found=printable(str(error))) from error
    if not isinstance(values, dict) or set(values) != _FIELDS:
        found = ", ".join(sorted(values)) if isinstance(values, dict) else type(values).__name__
        raise ReportError("the signature file is malformed", expected=", ".join(sorted(_FIELDS)), found=found)
    if values["schema"] != {"name": SCHEMA, "version": VERSION}:
        raise ReportError("the signature file has an unknown schema", expected=f"{SCHEMA}, version {VERSION}")
    files, audit = values["files"], values["audit"]
    if not isinstance(files, dict) or not files or not all(_is_digest(d) for d in files.values()):
        raise ReportError("the signature file does not list files with their SHA-256 hashes")
    entries = audit.get("entries") if isinstance(audit, dict) else None
    if type(entries) is not int or set(audit) != {"head", "entries"} or not _is_digest(audit["head"]):
        raise ReportError("the signature file does not give the audit log’s head and number of entries")
    if not isinstance(values["signed_utc"], str):
        raise ReportError("the signature file does not give the time of signing")
    body = {name: values[name] for name in values if name != "signature"}
    signature = Signature.from_dict(values["signature"])
    try:
        message = canonical_json(body)
    except (TypeError, ValueError, RecursionError) as error:
        raise ReportError(
            "the signature file contains values that cannot have been signed", found=printable(str(error))
        ) from error
    return SignedReport(files, values["signed_utc"], audit["head"], entries, signature, message)


def _is_digest(value: object) -> bool:
    return isinstance(value, str) and _DIGEST.fullmatch(value) is not None
