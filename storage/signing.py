"""The vault's signing identities: created, replaced, and used to sign, with private keys that stay sealed.

A private key is a record's sealed body and is in memory only while it signs. The log has the number of identities, so
a damaged or removed one is noticed and never replaced silently.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import sqlite_utils
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from irwm.errors import SignatureError
from irwm.signing import ENVELOPE, REPORT, Certificate, Signature, certify, check_purpose, public_hex
from storage import audit
from storage.canonical import json_bytes, utc_text
from storage.encryption import Sealer
from storage.errors import AuditBrokenError, DamagedRecordError, IdentityLostError
from storage.filing import Filing
from storage.records import Identity, RecordName, Records, added_in, build, open_body, open_meta
from storage.schema import IDENTITIES
from storage.tables import insert_logged

MADE, ROTATED, RESTARTED = "identity made", "identity rotated", "identity restarted"


@dataclass(frozen=True, slots=True)
class _Known:
    """The identities in one state of the vault.

    Attributes:
        sound: those that open, including the private key, in order.
        lost: those that do not open, or that are gone although the log names them.
        number: how many there were, including lost ones.
        latest: the newest one, with its private key; None if there is none or it is lost.
    """

    sound: tuple[Identity, ...]
    lost: tuple[RecordName, ...]
    number: int
    latest: tuple[Identity, Ed25519PrivateKey] | None


class Signing(Filing):
    """A vault's signing identities."""

    def identity(self) -> Identity:
        """The present signing identity; the first one is created, and logged, at the first call.

        Raises:
            IdentityLostError: its record is damaged or gone; `rotate_identity` makes a new one.
            AuditBrokenError: there is none, and an altered log cannot say whether there was one.
            VaultLockedError, StorageError
        """
        with self._reading() as (db, sealer):
            known = _known(db, sealer)
        if known.number:
            return _present(known)[0]
        with self._writing() as (db, sealer):
            known = _known(db, sealer)  # another process may have been faster
            return self._present_or_first(db, sealer, known)[0]

    def identities(self) -> Records[Identity]:
        """All signing identities in order; `.damaged` names those that are damaged or gone."""
        with self._reading() as (db, sealer):
            known = _known(db, sealer)
        return Records(known.sound, known.lost)

    def rotate_identity(self) -> Identity:
        """Makes a new signing identity, certified by the present one.

        A lost identity cannot certify: the new one then has no certificates, and the log says that its chain starts
        again. Reports signed before stay valid under the public key that they name.

        Raises:
            VaultLockedError, AuditBrokenError, StorageError
        """
        with self._writing() as (db, sealer):
            return self._new(db, sealer, _known(db, sealer))[0]

    def sign(self, message: bytes, purpose: bytes = REPORT) -> Signature:
        """Signs a message for one purpose, and logs its digest; see `irwm.signing.verify`.

        Raises:
            SignatureError: the bytes are not a purpose.
            IdentityLostError: see `identity`.
            VaultLockedError, AuditBrokenError, StorageError
        """
        check_purpose(purpose)
        return self._signature(purpose, bytes(message), purpose.rstrip(b"\0").decode("ascii"))

    def sign_envelope(self, encoded: bytes) -> Signature:
        """Signs a DSSE envelope, and logs its digest.

        Args:
            encoded: the envelope's pre-authentication encoding, exactly as the signature covers it.

        Raises:
            SignatureError: the bytes are not of this form.
            IdentityLostError: see `identity`.
            VaultLockedError, AuditBrokenError, StorageError
        """
        if not encoded.startswith(ENVELOPE):
            raise SignatureError("this is not the encoding of a DSSE envelope", expected=repr(ENVELOPE))
        return self._signature(b"", encoded, ENVELOPE.decode("ascii").strip())

    def _signature(self, purpose: bytes, message: bytes, named: str) -> Signature:
        with self._writing() as (db, sealer):
            identity, private = self._present_or_first(db, sealer, _known(db, sealer))
            signature = private.sign(purpose + message).hex()
            details = {
                "purpose": named,
                "message_sha256": hashlib.sha256(message).hexdigest(),
                "identity": identity.number,
                "public_key": identity.public_key,
            }
            audit.append(db, sealer, utc_text(self._now()), "signature made", details)
        return Signature(identity.public_key, signature, identity.certificates)

    def _present_or_first(
        self, db: sqlite_utils.Database, sealer: Sealer, known: _Known
    ) -> tuple[Identity, Ed25519PrivateKey]:
        if known.number:
            return _present(known)
        log = audit.verify(db, sealer.vault, sealer)
        if not log.ok:
            raise AuditBrokenError(
                "there is no signing identity, but the audit log was altered, so there may have been one",
                found=log.reason,
                advice="restore a backup, or make a new identity, which starts a new chain of certificates",
            )
        return self._new(db, sealer, known)

    def _new(self, db: sqlite_utils.Database, sealer: Sealer, known: _Known) -> tuple[Identity, Ed25519PrivateKey]:
        private, created = Ed25519PrivateKey.generate(), utc_text(self._now())
        number, public = known.number + 1, public_hex(private)
        certificates: tuple[Certificate, ...] = ()
        event, noted = (RESTARTED if known.number else MADE), {"number": number, "public_key": public}
        if known.latest is not None:
            before, its_private = known.latest
            certificate = certify(its_private, sealer.vault, number, public, created)
            certificates = (*before.certificates, certificate)
            event, noted = ROTATED, {**noted, "previous_public_key": before.public_key}
        elif known.lost:
            noted["lost"] = [name.id for name in known.lost]
        meta = {
            "number": number,
            "public_key": public,
            "certificates": [certificate.to_dict() for certificate in certificates],
        }
        plain, body = json_bytes(meta, "the identity"), private.private_bytes_raw()
        row = insert_logged(db, sealer, IDENTITIES, created, event, plain, body, noted)
        identity: Identity = build(IDENTITIES, row, meta)
        return identity, private


def _known(db: sqlite_utils.Database, sealer: Sealer) -> _Known:
    sound: list[Identity] = []
    lost: dict[RecordName, None] = {}
    privates: dict[str, Ed25519PrivateKey] = {}
    for row in db.query(f"SELECT * FROM {IDENTITIES} ORDER BY seq"):
        try:
            identity, private = _open(sealer, row)
            sound.append(identity)
            privates[identity.id] = private
        except DamagedRecordError as error:
            lost[RecordName(IDENTITIES, error.record)] = None
    logged = _logged(db, sealer)
    here = {identity.id for identity in sound}
    lost |= {name: None for name in logged if name.id not in here}
    number = max([len(logged), *(identity.number for identity in sound)], default=0)
    newest = max(sound, key=lambda identity: identity.number, default=None)
    latest = (newest, privates[newest.id]) if newest is not None and newest.number == number else None
    return _Known(tuple(sound), tuple(lost), number, latest)


def _open(sealer: Sealer, row: Any) -> tuple[Identity, Ed25519PrivateKey]:
    identity: Identity = build(IDENTITIES, row, open_meta(sealer, IDENTITIES, row))
    try:
        private = Ed25519PrivateKey.from_private_bytes(open_body(sealer, IDENTITIES, row))
    except ValueError:
        raise DamagedRecordError(IDENTITIES, identity.id) from None
    if public_hex(private) != identity.public_key:
        raise DamagedRecordError(IDENTITIES, identity.id)
    return identity, private


def _logged(db: sqlite_utils.Database, sealer: Sealer) -> list[RecordName]:
    """The identities whose creation the log records, in order."""
    entries = audit.entries(db, sealer, "WHERE event IN (?, ?, ?)", [MADE, ROTATED, RESTARTED])
    return [name for entry in entries for name, _ in added_in(entry.details)]


def _present(known: _Known) -> tuple[Identity, Ed25519PrivateKey]:
    if known.latest is None:
        which = ", ".join(name.id for name in known.lost)
        raise IdentityLostError(
            f"the vault's signing identity {known.number} was changed after it was written, or is missing",
            found=f"record {which} in {IDENTITIES}",
            advice="restore a backup to recover the identity, or make a new one, which starts a new chain of "
            "certificates",
        )
    return known.latest
