"""A signed report as an in-toto statement in a DSSE envelope, which tools of the supply chain read.

subject         the suspect's files that the original does not have too, each with its SHA-256
predicateType   `PREDICATE_TYPE`
predicate       verdict, key commitment, log10 p, and the SHA-256 of the report's JSON; no names, and no rows
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from irwm.canonical import canonical_json
from irwm.errors import AttestationError
from irwm.extras import release_libraries
from irwm.report import schema
from irwm.report.checks import Check
from irwm.report.document import SCHEMA, from_json
from irwm.report.reader_inputs import Brought
from irwm.report.received import SIGNATURE, Received, receive
from irwm.report.signature_file import read_signature
from irwm.report.verify import verified

STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PAYLOAD_TYPE = "application/vnd.in-toto+json"
PREDICATE_TYPE = "urn:irwm:report:v1"

EnvelopeKey: TypeAlias = EllipticCurvePrivateKey | Ed25519PrivateKey


def report_statement(report: str | Path, signer: str = "") -> bytes:
    """The statement of a signed report, as canonical JSON.

    The report is verified first, without models and keys (`irwm.report.verify`): a failed check is an error.

    Args:
        report: any of its files, its folder, or its archive.
        signer: the expected first public key of its signer, hex; "" for any.

    Raises:
        AttestationError: there is no report, it is of another kind, it is not signed by this signer, a check fails or
            cannot be made, or a file of the suspect was not hashed.
        ReportError: the report or its signature is malformed.
        SignatureError: the report's signature does not hold.
    """
    received = receive(Path(report))
    if isinstance(received, Check):
        raise AttestationError("there is no report to attest", file=Path(report), found=received.said)
    document, identity, signed_utc = _signed(received)
    if signer and identity != signer:
        raise AttestationError(
            "the report was signed by another vault",
            file=received.folder / received.file(SIGNATURE),
            expected=signer,
            found=identity,
            advice="Attest it with a key file or a token (irwm attest), or in the vault that signed it",
        )
    verification = verified(received, Brought(identity=signer or None))
    if not verification.ok:
        failed = [check for check in verification.checks if check.ok is False]
        wrong = failed or [check for check in verification.checks if check.ok is None and check.asked]
        raise AttestationError(
            "the report fails verification"
            if failed
            else "the report cannot be verified completely with this installation",
            file=received.folder / received.file(".json"),
            found="; ".join(f"{check.name}: {check.said}" for check in wrong[:3]),
            advice="Run irwm verify on the report to see all checks"
            if failed
            else "Attest it with the versions that made it, or make and sign the report again with these",
        )
    files = {file["name"]: file["sha256"] for file in document["items"]["suspect"]["files"]}
    # A subject is matched by its digest alone. Settings and tokenizer are often the original's, so without the weights
    # the statement would be about the original as well.
    if not files or not all(files.values()):
        raise AttestationError(
            "the report lacks the SHA-256 of some of the suspect's files",
            file=received.folder / received.file(".json"),
            found=", ".join(name for name, digest in files.items() if not digest) or "no files",
            advice="Examine a suspect whose files are on this computer",
        )
    originals = {file["sha256"] for file in document["items"]["original"]["files"]}
    own = {name: digest for name, digest in files.items() if digest not in originals}
    evaluation, verdict = document["evaluation"], document["verdict"]
    statement = {
        "_type": STATEMENT_TYPE,
        "subject": [{"name": name, "digest": {"sha256": digest}} for name, digest in sorted((own or files).items())],
        "predicateType": PREDICATE_TYPE,
        "predicate": {
            "verdict": verdict["mark"],
            "keyCommitment": document["key"]["commitment"],
            "log10P": evaluation["log10_p"],
            "log10Risk": evaluation["log10_risk"],
            "keysTried": evaluation["keys_tried"],
            "original": {"fingerprint": document["items"]["original"]["fingerprint"]},
            "report": {
                "name": received.file(".json"),
                "digest": {"sha256": hashlib.sha256(received.parts[".json"]).hexdigest()},
                "createdUtc": document["created_utc"],
                "signedUtc": signed_utc,
                "identity": identity,
            },
        },
    }
    return canonical_json(statement)


def _signed(received: Received) -> tuple[schema.Report, str, str]:
    """The document, its signer's first public key, and when it was signed."""
    json_name = received.folder / received.file(".json")
    if SIGNATURE not in received.parts or ".json" not in received.parts:
        raise AttestationError(
            "the report is not signed, or not complete",
            file=json_name,
            expected=f"{received.file('.json')} and {received.file(SIGNATURE)}",
            found=", ".join(received.file(ending) for ending in received.parts) or "neither",
            advice="Export the report from its case in the app, which signs it",
        )
    if received.schema != SCHEMA:
        raise AttestationError(
            "this is not a report on a single suspect",
            file=json_name,
            expected=SCHEMA,
            found=received.schema or received.refused,
            advice="Attest the report of each suspect; sweeps, disputes and labs have no statement",
        )
    signature = read_signature(received.parts[SIGNATURE])
    identity, content = signature.holds(), received.parts[".json"]
    if signature.files.get(received.file(".json")) != hashlib.sha256(content).hexdigest():
        raise AttestationError(
            "the report's numbers are not those that were signed",
            file=json_name,
            advice="Ask the sender for the report again; irwm verify gives the details",
        )
    return from_json(content), identity, signature.signed_utc


def enveloped(statement: bytes, key: EnvelopeKey) -> bytes:
    """A DSSE envelope around a statement, signed with the key, as JSON.

    Raises:
        MissingExtraError: the extra `release` is not installed.
        SigningKeyError, VaultLockedError, ...: the key cannot sign.
    """
    with release_libraries():
        from securesystemslib.dsse import Envelope
        from securesystemslib.signer import CryptoSigner
    envelope = Envelope(statement, PAYLOAD_TYPE, {})
    envelope.sign(CryptoSigner(key))
    return _json(envelope.to_dict())


def _json(value: Mapping[str, object]) -> bytes:
    return (json.dumps(value, ensure_ascii=True, indent=1) + "\n").encode("ascii")
