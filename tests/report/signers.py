"""Signing identities without a vault, so that tests can make and rotate any number of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from irwm.report import to_json
from irwm.report.signature_file import Signer, announced, sign_report
from irwm.signing import GENESIS, REPORT, Certificate, LogEntry, Signature, certify, entry_hash, log_lines, public_hex

SIGNED_UTC, ENTRIES = "2026-11-21T03:00:00.000Z", 17


@dataclass
class Signatory:
    """A chain of identities as a vault keeps it; the same `seed` gives the same keys."""

    seed: int = 1
    certificates: list[Certificate] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._key = self._private(1)
        self.first = public_hex(self._key)

    def rotate(self) -> None:
        number = len(self.certificates) + 2
        key = self._private(number)
        self.certificates.append(certify(self._key, "vault", number, public_hex(key), "2026-11-20T00:00:00.000Z"))
        self._key = key

    def sign(self, message: bytes) -> Signature:
        return Signature(public_hex(self._key), self._key.sign(REPORT + message).hex(), tuple(self.certificates))

    def signer(self, head: str | None = None) -> Signer:
        return Signer(self.sign, self.first, SIGNED_UTC, head or HEAD, ENTRIES)

    def _private(self, number: int) -> Ed25519PrivateKey:
        return Ed25519PrivateKey.from_private_bytes(bytes([self.seed, number]) * 16)


def sign_alone(folder: Path, document: Mapping[str, Any], signer: Signer | None = None) -> Path:
    """A folder with the document alone, signed. Its pages would show nothing more: a forger can draw them again."""
    s = signer or Signatory().signer()
    files = {"report.json": to_json(announced(document, s))}
    files["report.signature.json"] = sign_report(files, s)
    folder.mkdir()
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return folder


def log_of(entries: int = ENTRIES) -> bytes:
    """An audit log with this number of entries, as a vault exports it; `head_of` is the hash of the last one."""
    return b"".join(log_lines("vault", _entries(entries)))


def head_of(entries: int = ENTRIES) -> str:
    return list(_entries(entries))[-1].hash


def _entries(number: int) -> Iterator[LogEntry]:
    previous = GENESIS
    for sequence in range(1, number + 1):
        covered = (1, sequence, SIGNED_UTC, "vault unlocked", previous, "cd" * 32)
        own = entry_hash("vault", *covered)
        yield LogEntry(sequence, SIGNED_UTC, "vault unlocked", "cd" * 32, 1, previous, own)
        previous = own


HEAD = head_of()
