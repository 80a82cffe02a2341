"""An entry for a Rekor transparency log, as a file. This program does not submit it: a public log keeps every entry."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from irwm.attestation.signing_key import public_pem
from irwm.canonical import strict_json
from irwm.checkpoint.files import read_small
from irwm.errors import AttestationError, printable
from irwm.extras import release_libraries

_MOST_BYTES = 64 << 20


def rekor_entry(signed: str | Path, public_key: str | Path) -> bytes:
    """The proposed entry of kind dsse, version 0.0.1, as JSON.

    Args:
        signed: a DSSE envelope, or a `model.sig`, which contains one.
        public_key: PEM file with the key that checks its signature, EC or Ed25519.

    Raises:
        AttestationError: a file has another form, or the signature does not hold under this key.
        CheckpointError: a file cannot be read.
        MissingExtraError: the extra `release` is not installed.
    """
    with release_libraries():
        from rekor_types import Dsse
    envelope = _envelope(Path(signed))
    pem = _checked(Path(signed), envelope, Path(public_key))
    content = {"envelope": json.dumps(envelope), "verifiers": [base64.b64encode(pem).decode("ascii")]}
    entry = Dsse.model_validate({"apiVersion": "0.0.1", "kind": "dsse", "spec": {"proposedContent": content}})
    return (entry.model_dump_json(by_alias=True, exclude_none=True, indent=1) + "\n").encode("utf-8")


def _envelope(path: Path) -> dict[str, Any]:
    """The envelope in a file, with the fields that Rekor reads."""
    try:
        values: Any = strict_json(read_small(path, _MOST_BYTES, "signature"))
        values = values.get("dsseEnvelope", values)
        signatures = [{"keyid": each.get("keyid", ""), "sig": each["sig"]} for each in values["signatures"]]
        envelope = {"payload": values["payload"], "payloadType": values["payloadType"], "signatures": signatures}
        if not signatures or not isinstance(values["payloadType"], str):
            raise ValueError("no signature")
        values["payloadType"].encode("utf-8")
        for text in (values["payload"], *(each["sig"] for each in signatures)):
            base64.b64decode(text, validate=True)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise AttestationError(
            "this is not a signed envelope",
            file=path,
            expected="a DSSE envelope, or the model.sig of a release",
            found=printable(str(error), 200),
        ) from error
    return envelope


def _checked(path: Path, envelope: dict[str, Any], public_key: Path) -> bytes:
    """The public key as PEM, after a check of every signature with it."""
    try:
        key = load_pem_public_key(read_small(public_key, 1 << 16, "public key"))
    except ValueError as error:
        raise AttestationError(
            "this is not a public key", file=public_key, expected="a PEM file that begins with BEGIN PUBLIC KEY"
        ) from error
    payload, kind = base64.b64decode(envelope["payload"]), envelope["payloadType"].encode("utf-8")
    message = b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)
    try:
        for each in envelope["signatures"]:
            signature = base64.b64decode(each["sig"])
            if isinstance(key, Ed25519PublicKey):
                key.verify(signature, message)
            elif isinstance(key, ec.EllipticCurvePublicKey):
                key.verify(signature, message, ec.ECDSA(SHA256()))
            else:
                raise AttestationError(
                    "the public key is of another kind", file=public_key, expected="EC P-256 or Ed25519"
                )
    except InvalidSignature as error:
        raise AttestationError(
            "the signature cannot be verified with this public key",
            file=path,
            advice=f"Provide the signer's public key instead of {public_key.name}",
        ) from error
    return public_pem(key)
