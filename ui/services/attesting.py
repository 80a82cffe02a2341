"""A signed report as an attestation, signed with the vault's identity."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NoReturn

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from irwm.attestation import enveloped, public_pem, report_statement
from irwm.errors import SignatureError
from storage.vault import Vault


def attest(vault: Vault, report: Path) -> tuple[bytes, bytes]:
    """The DSSE envelope of a report of this vault, and the public key that checks it, as PEM.

    Raises:
        AttestationError, ReportError, SignatureError: as `irwm.attestation.report_statement`; also for a report that
            another vault signed.
        MissingExtraError: the extra `release` is not installed.
        VaultLockedError, IdentityLostError, AuditBrokenError, StorageError: the vault cannot sign.
    """
    statement = report_statement(report, vault.identity().first_public_key)
    key = _IdentityKey(vault)
    return enveloped(statement, key), public_pem(key.public_key())


class _IdentityKey(Ed25519PrivateKey):
    """The vault's present identity as a key of `cryptography`. It signs envelopes only, and each is logged."""

    def __init__(self, vault: Vault) -> None:
        self._vault, self._public = vault, vault.identity().public_key

    def public_key(self) -> Ed25519PublicKey:
        return Ed25519PublicKey.from_public_bytes(bytes.fromhex(self._public))

    def sign(self, data: Any) -> bytes:
        signature = self._vault.sign_envelope(bytes(data))
        if signature.public_key != self._public:
            raise SignatureError("the vault's identity was replaced in the meantime", advice="Start the command again")
        return bytes.fromhex(signature.signature)

    def private_bytes(self, encoding: Any, format: Any, encryption_algorithm: Any) -> NoReturn:
        raise SignatureError("the private key cannot leave the vault")

    def private_bytes_raw(self) -> NoReturn:
        raise SignatureError("the private key cannot leave the vault")

    def __copy__(self) -> _IdentityKey:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> _IdentityKey:
        return self
