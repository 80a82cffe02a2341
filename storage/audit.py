"""The audit log: who did what when, as a chain in which nothing can be changed, moved or cut off unseen.

Entry n's hash is SHA-256 over the canonical JSON of

    {"details": SHA-256 of the sealed details, "event", "previous": hash of entry n - 1, "sequence": n, "time",
     "vault", "version"}

with 64 zeros before the first. The sealed bytes are hashed, not what they say, so the chain can be checked without the
passphrase. A cut-off tail leaves a sound but shorter chain; therefore the number of entries and the last hash are kept
beside the log under an HMAC that only an unlocked vault can make. An entry is written in the transaction of the
change it records, and continues from that authenticated state, never from the last row found: after a cut the gap
stays visible for good.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import sqlite_utils

from storage.canonical import json_bytes
from storage.encryption import Place, Sealer
from storage.errors import AuditBrokenError, DamagedRecordError
from storage.schema import VAULT_SCHEMA_VERSION

GENESIS = "0" * 64
TABLE = "audit"


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One entry.

    Attributes:
        sequence: counts from 1; the order, whatever the clock said.
        time: UTC, ISO 8601.
        event: what happened, in plain words.
        details: the particulars; None while the vault is locked, or when they do not authenticate.
        previous, hash: the chain, hex.
        version, details_sha256: of the sealed details; with the vault's identifier and the others, all that `hash`
            covers (`entry_hash`).
    """

    sequence: int
    time: str
    event: str
    details: dict[str, Any] | None = field(hash=False)
    previous: str
    hash: str
    version: int
    details_sha256: str


@dataclass(frozen=True, slots=True)
class AuditCheck:
    """What a check of the whole log found.

    Attributes:
        ok: nothing is wrong.
        entries: rows present.
        head: hash of the last entry the vault recorded.
        broken: sequence number of the first entry that is wrong or missing; None when ok.
        reason: what is wrong, in one sentence; empty when ok.
        authenticated: whether number and head were checked against their HMAC; False while the vault is locked,
            when only the chain itself could be checked.
    """

    ok: bool
    entries: int
    head: str
    broken: int | None
    reason: str
    authenticated: bool


@dataclass(frozen=True, slots=True)
class AuditState:
    """How many entries the vault has written, the last one's hash, and the HMAC over both."""

    count: int
    head: str
    tag: bytes

    def fits(self, sealer: Sealer) -> bool:
        """Whether count and head are what the vault itself recorded."""
        return sealer.tag_fits(_state_message(sealer.vault, self.count, self.head), self.tag)


def state(db: sqlite_utils.Database) -> AuditState:
    """The recorded state, not yet authenticated.

    Raises:
        AuditBrokenError: there is none.
    """
    rows = list(db.query("SELECT count, head, tag FROM audit_state WHERE one = 1"))
    if len(rows) != 1 or type(rows[0]["count"]) is not int or type(rows[0]["head"]) is not str:
        raise AuditBrokenError("the audit log's recorded end is missing", advice="restore a backup")
    return AuditState(**rows[0])


def begin(db: sqlite_utils.Database, sealer: Sealer) -> None:
    """Records that the log is empty; once, when the vault is made."""
    db.table("audit_state").insert(_state_row(sealer, 0, GENESIS))


def append(db: sqlite_utils.Database, sealer: Sealer, time: str, event: str, details: Mapping[str, Any]) -> AuditEntry:
    """Adds an entry within the caller's transaction.

    Raises:
        AuditBrokenError: the recorded end does not authenticate, or a row stands where the new one belongs.
        RecordValueError: the details are not plain JSON.
    """
    before = state(db)
    if not before.fits(sealer):
        raise AuditBrokenError(
            "the audit log's recorded end was altered, so nothing is written on top of it",
            advice="keep a copy of this vault as evidence and restore a backup",
        )
    sequence = before.count + 1
    where = Place(VAULT_SCHEMA_VERSION, TABLE, str(sequence), "details", sequence, time)
    sealed = sealer.seal(json_bytes(dict(details), "the details of an audit entry"), where)
    digest = entry_hash(sealer.vault, VAULT_SCHEMA_VERSION, sequence, time, event, before.head, sealed)
    try:
        db.table(TABLE).insert(
            {
                "seq": sequence,
                "version": VAULT_SCHEMA_VERSION,
                "time": time,
                "event": event,
                "details": sealed,
                "previous": before.head,
                "hash": digest,
            }
        )
    except sqlite3.IntegrityError:
        raise AuditBrokenError(
            f"the audit log already has an entry {sequence} that the vault did not write",
            advice="keep a copy of this vault as evidence and restore a backup",
        ) from None
    row = _state_row(sealer, sequence, digest)
    db.table("audit_state").update(1, {name: row[name] for name in ("count", "head", "tag")})
    sha256 = hashlib.sha256(sealed).hexdigest()
    return AuditEntry(sequence, time, event, dict(details), before.head, digest, VAULT_SCHEMA_VERSION, sha256)


def entry_hash(
    vault: str, version: int, sequence: int, time: str, event: str, previous: str, sealed_details: bytes
) -> str:
    """The hash of one entry, hex; see the module's description for the bytes it covers."""
    return hashlib.sha256(
        json_bytes(
            {
                "vault": vault,
                "version": version,
                "sequence": sequence,
                "time": time,
                "event": event,
                "previous": previous,
                "details": hashlib.sha256(sealed_details).hexdigest(),
            }
        )
    ).hexdigest()


def entries(
    db: sqlite_utils.Database, sealer: Sealer | None, where: str = "", values: Sequence[Any] = ()
) -> Iterator[AuditEntry]:
    """All entries in order of sequence, one at a time; details only with a sealer.

    Args:
        where, values: an SQL condition, such as on the event's name, that leaves the others unopened.
    """
    for row in db.query(f"SELECT * FROM audit {where} ORDER BY seq", list(values)):
        sealed = row["details"] if isinstance(row["details"], bytes) else b""  # anything else breaks the chain
        yield AuditEntry(
            row["seq"],
            row["time"],
            row["event"],
            _details(row, sealer),
            row["previous"],
            row["hash"],
            row["version"],
            hashlib.sha256(sealed).hexdigest(),
        )


def _details(row: Mapping[str, Any], sealer: Sealer | None) -> dict[str, Any] | None:
    if sealer is None or type(row["version"]) is not int or type(row["time"]) is not str:
        return None
    where = Place(row["version"], TABLE, str(row["seq"]), "details", row["seq"], row["time"])
    try:
        details: dict[str, Any] = json.loads(sealer.open(row["details"], where))
    except DamagedRecordError:
        return None
    return details


def verify(db: sqlite_utils.Database, vault: str, sealer: Sealer | None, known_head: str | None = None) -> AuditCheck:
    """Checks every entry, the chain and its end.

    Args:
        vault: the vault's identifier, part of every hash.
        sealer: authenticates the recorded end; None checks what can be checked without the passphrase.
        known_head: a head printed in an earlier report; it must occur in the log.
    """
    recorded = state(db)
    previous, expected, known = GENESIS, 0, known_head in (None, GENESIS)
    broken: tuple[int, str] | None = None
    total = 0
    for row in db.query("SELECT * FROM audit ORDER BY seq"):
        total += 1
        if broken is not None:
            continue
        expected += 1
        broken = _entry_fault(row, vault, expected, previous)
        previous = row["hash"]
        known = known or previous == known_head
    if broken is None:
        broken = _end_fault(recorded, sealer, expected, previous)
    if broken is None and not known:
        broken = (expected + 1, "the head of the earlier report does not occur in this log")
    number, reason = broken if broken is not None else (None, "")
    return AuditCheck(broken is None, total, recorded.head, number, reason, sealer is not None)


def _entry_fault(row: Mapping[str, Any], vault: str, expected: int, previous: str) -> tuple[int, str] | None:
    if row["seq"] != expected:
        return expected, f"entry {expected} is missing"
    if row["previous"] != previous:
        return expected, f"entry {expected} does not follow from the one before it"
    plain = (row["time"], row["event"], row["previous"])
    whole = type(row["version"]) is int and type(row["details"]) is bytes and all(type(p) is str for p in plain)
    if not whole or row["hash"] != entry_hash(vault, row["version"], expected, *plain, row["details"]):
        return expected, f"entry {expected} was changed"
    return None


def _end_fault(recorded: AuditState, sealer: Sealer | None, last: int, head: str) -> tuple[int, str] | None:
    if sealer is not None and not recorded.fits(sealer):
        return last + 1, "the recorded end of the log was altered: entries may have been cut off"
    if recorded.count > last:
        return last + 1, f"entry {last + 1} and what followed it, up to entry {recorded.count}, were cut off"
    if recorded.count < last:
        return recorded.count + 1, f"entry {recorded.count + 1} was not written by this vault"
    if recorded.head != head:
        return last, f"entry {last} is not the one the vault recorded as its last"
    return None


def _state_row(sealer: Sealer, count: int, head: str) -> dict[str, Any]:
    return {"one": 1, "count": count, "head": head, "tag": sealer.tag(_state_message(sealer.vault, count, head))}


def _state_message(vault: str, count: int, head: str) -> bytes:
    return json_bytes({"what": "end of audit log", "vault": vault, "count": count, "head": head})
