"""The signature of a report (docs/verifying.md)."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from .keys import strict_json
from .ledger import Ledger

SCHEME = "irwm vault identity, Ed25519, version 1"
PRIME = 2**255 - 19
SMALL = {0, 1, PRIME - 1}
SMALL |= {
    int.from_bytes(bytes.fromhex(h), "little")
    for h in (
        "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
        "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
    )
}


def holds(public: str, signature: str, domain: bytes, value: dict[str, Any]) -> bool:
    """Whether an object was signed under a key that is not of small order."""
    key = bytes.fromhex(public)
    if (int.from_bytes(key, "little") & (2**255 - 1)) % PRIME in SMALL:
        return False
    data = domain + b"\0" + json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(bytes.fromhex(signature), data)
    except (InvalidSignature, ValueError):
        return False
    return True


def check_signature(ledger: Ledger, path: Path, document: dict[str, Any], folder: Path) -> None:
    """Files, signature, certificates, and what report and signature say about each other."""
    value = strict_json(path.read_bytes())
    ledger.check("signature: schema", value["schema"], {"name": "irwm-report-signature", "version": 1})
    for name, digest in value["files"].items():
        there = folder / name
        mine = hashlib.sha256(there.read_bytes()).hexdigest() if there.exists() else "missing"
        ledger.check(f"signature: SHA-256 of {name}", mine, digest)
    signed = value.pop("signature")
    ledger.check("signature: scheme", signed["scheme"], SCHEME)
    ledger.holds(
        "signature: made by the key that it names, over the hashes that it lists",
        holds(signed["public_key"], signed["signature"], b"irwm/v1/report", value),
    )
    first = signed["public_key"]
    for number, certificate in enumerate(reversed(signed["certificates"])):
        body = {k: v for k, v in certificate.items() if k != "signature"} | {"scheme": SCHEME}
        good = certificate["public_key"] == first and holds(
            certificate["previous_public_key"], certificate["signature"], b"irwm/v1/identity", body
        )
        ledger.holds(f"signature: certificate {number} from the last", good)
        first = certificate["previous_public_key"]
    custody = document["status"].get("custody") or {}
    ledger.check("custody: identity", first, custody.get("identity"))
    ledger.check("custody: audit head", value["audit"]["head"], custody.get("audit_head"))
    ledger.check("custody: audit entries", value["audit"]["entries"], custody.get("audit_entries"))
    ledger.note(f"the first public key is {first}; that it is the signer's must be known in another way")
