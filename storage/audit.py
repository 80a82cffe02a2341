"""The audit log: who did what and when, as a chain in which any change, move or cut is detected.

Entry n's hash is SHA-256 over the canonical JSON of

    {"details": SHA-256 of the details, "event", "previous": hash of entry n - 1, "sequence": n, "time", "vault",
     "version"}

with 64 zeros before the first. The details that are hashed, and sealed, are the canonical JSON of

    {"details": the particulars, "salt": 16 random bytes, hex}

Their digest is in the row, and the salt prevents anyone from guessing the hashed details. So the chain can be checked
without the passphrase, and it does not change when a new passphrase seals the details again. A second digest in
the row, of the sealed bytes, shows without the passphrase that these were damaged; it is not part of the chain.

A log with its end cut off is a sound but shorter chain. Therefore the number of entries and the last hash are stored
with the log, under an HMAC that only an unlocked vault can compute and that also covers the vault's header. An entry is
written in the transaction of the change it records, and continues from that authenticated state, never from the last
row found: after a cut the gap stays visible permanently.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import sqlite_utils

from irwm.signing import GENESIS, LogEntry, entry_hash, log_lines
from storage import header
from storage.canonical import json_bytes
from storage.database import Row
from storage.encryption import Place, Sealer
from storage.errors import AuditBrokenError, DamagedRecordError, DatabaseDamagedError
from storage.schema import VAULT_SCHEMA_VERSION

TABLE = "audit"
SALT_BYTES = 16
# How many of the newest entries are tried with a key; more than would be damaged by accident.
MOST_TRIED = 1000


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One entry.

    Attributes:
        sequence: counts from 1; it gives the order, even if the clock was wrong.
        time: UTC, ISO 8601.
        event: what happened, in plain words.
        details: the particulars; None while the vault is locked, or when they do not authenticate.
        salt: what was hashed with them, hex; None when they are None.
        previous, hash: the chain, hex.
        details_sha256: of the canonical JSON of salt and details.
        version: of the schema that the entry was written under; with the vault's identifier and the others, all that
            `hash` covers (`entry_hash`).
    """

    sequence: int
    time: str
    event: str
    details: dict[str, Any] | None = field(hash=False)
    salt: str | None
    previous: str
    hash: str
    version: int
    details_sha256: str


@dataclass(frozen=True, slots=True)
class AuditCheck:
    """Result of a check of the whole log.

    Attributes:
        ok: no fault was found.
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
    """How many entries the vault has written, the last one's hash, and the HMAC over both and the vault's header.

    Attributes:
        header: the digest of the header in the file (`storage.header.digest`).
    """

    count: int
    head: str
    tag: bytes
    header: str

    def fits(self, sealer: Sealer) -> bool:
        """Whether the vault itself recorded this count, head and header."""
        return sealer.tag_fits(_state_message(sealer.vault, self.count, self.head, self.header), self.tag)

    def require(self, sealer: Sealer) -> None:
        """Refuses a state that the vault itself did not record.

        Raises:
            AuditBrokenError
        """
        if not self.fits(sealer):
            raise AuditBrokenError(
                "the recorded end of the audit log, or the vault's header, was altered, so no new entry was added",
                advice="keep a copy of this vault as evidence and restore a backup",
            )


def state(db: sqlite_utils.Database) -> AuditState:
    """The recorded state, not yet authenticated.

    Raises:
        AuditBrokenError: there is none.
    """
    rows = list(db.query("SELECT count, head, tag FROM audit_state WHERE one = 1"))
    if len(rows) != 1 or type(rows[0]["count"]) is not int or type(rows[0]["head"]) is not str:
        raise AuditBrokenError("the audit log's recorded end is missing", advice="restore a backup")
    return AuditState(**rows[0], header=header.digest(db))


def begin(db: sqlite_utils.Database, sealer: Sealer) -> None:
    """Records that the log is empty; once, when the vault is made and has its header."""
    db.table("audit_state").insert({"one": 1, **_state_row(sealer, 0, GENESIS, header.digest(db))})


def append(
    db: sqlite_utils.Database, sealer: Sealer, time: str, event: str, details: Mapping[str, object]
) -> AuditEntry:
    """Adds an entry within the caller's transaction.

    Raises:
        AuditBrokenError: the recorded end does not authenticate, or a row already has the number of the new one.
        RecordValueError: the details are not plain JSON.
    """
    before = state(db)
    before.require(sealer)
    sequence, salt = before.count + 1, secrets.token_hex(SALT_BYTES)
    plain = json_bytes({"details": dict(details), "salt": salt}, "the details of an audit entry")
    sha256 = hashlib.sha256(plain).hexdigest()
    sealed = sealer.seal(plain, _place(VAULT_SCHEMA_VERSION, sequence, time))
    digest = entry_hash(sealer.vault, VAULT_SCHEMA_VERSION, sequence, time, event, before.head, sha256)
    try:
        db.table(TABLE).insert(
            {
                "seq": sequence,
                "version": VAULT_SCHEMA_VERSION,
                "time": time,
                "event": event,
                "details": sealed,
                "details_sha256": sha256,
                "sealed_sha256": hashlib.sha256(sealed).hexdigest(),
                "previous": before.head,
                "hash": digest,
            }
        )
    except sqlite3.IntegrityError:
        raise AuditBrokenError(
            f"the audit log already contains entry {sequence}, which the vault did not write",
            advice="keep a copy of this vault as evidence and restore a backup",
        ) from None
    db.table("audit_state").update(1, _state_row(sealer, sequence, digest, before.header))
    return AuditEntry(sequence, time, event, dict(details), salt, before.head, digest, VAULT_SCHEMA_VERSION, sha256)


def seal_again(db: sqlite_utils.Database, old: Sealer, new: Sealer, tick: Callable[[], None]) -> list[int]:
    """Seals the details of all entries under another key, and authenticates the recorded end under that key too,
    with the header that the file now holds. No hash changes.

    Args:
        tick: called after each entry.

    Returns:
        The numbers of the entries whose details do not open: they stay unchanged.
    """
    lost = []
    for (sequence,) in db.execute(f"SELECT seq FROM {TABLE} ORDER BY seq").fetchall():
        (row,) = db.query(f"SELECT * FROM {TABLE} WHERE seq = ?", [sequence])
        plain = _opened(row, old)
        if plain is None:
            lost.append(int(sequence))
        else:
            sealed = new.seal(plain, _place(row["version"], sequence, row["time"]))
            values = [sealed, hashlib.sha256(sealed).hexdigest(), sequence]
            db.execute(f"UPDATE {TABLE} SET details = ?, sealed_sha256 = ? WHERE seq = ?", values)
        tick()
    end = state(db)
    db.table("audit_state").update(1, _state_row(new, end.count, end.head, end.header))
    return lost


def require_header(db: sqlite_utils.Database, head: header.Header, sealer: Sealer, file: Path) -> None:
    """Refuses a header from another state of the vault: the data key in it opens no entry of this one.

    If the key does open an entry, an altered header is detected by the recorded end (`AuditState.fits`).

    Raises:
        DatabaseDamagedError
    """
    rows = db.query(f"SELECT * FROM {TABLE} ORDER BY seq DESC LIMIT ?", [MOST_TRIED])
    newest = next(rows, None)
    opens = newest is None or any(_opened(row, sealer) is not None for row in chain([newest], rows))
    if head.key_id != sealer.key_id or not opens:
        raise DatabaseDamagedError(
            "this passphrase matches the vault's header, but the header does not match the rest of the vault: "
            "an attacker or a restore may have replaced it with a header from an earlier passphrase",
            file=file,
            advice="keep this file as evidence and restore a backup",
        )


def entries(
    db: sqlite_utils.Database, sealer: Sealer | None, where: str = "", values: Sequence[Any] = ()
) -> Iterator[AuditEntry]:
    """All entries in order of sequence, one at a time; details only with a sealer.

    Args:
        where, values: an SQL condition, such as on the event's name, that leaves the others unopened.
    """
    for row in db.query(f"SELECT * FROM audit {where} ORDER BY seq", list(values)):
        plain = None if sealer is None else _opened(row, sealer)
        said = {"details": None, "salt": None} if plain is None else json.loads(plain)
        yield AuditEntry(
            row["seq"],
            row["time"],
            row["event"],
            said["details"],
            said["salt"],
            row["previous"],
            row["hash"],
            row["version"],
            row["details_sha256"],
        )


def exported(db: sqlite_utils.Database, vault: str) -> Iterator[bytes]:
    """The log for anyone: the lines of `irwm.signing.log_lines`, without the details of any entry."""
    found = (
        LogEntry(e.sequence, e.time, e.event, e.details_sha256, e.version, e.previous, e.hash)
        for e in entries(db, None)
    )
    yield from log_lines(vault, found)


def _place(version: int, sequence: int, time: str) -> Place:
    return Place(version, TABLE, str(sequence), "details", sequence, time)


def _opened(row: Row, sealer: Sealer) -> bytes | None:
    """The canonical JSON of an entry's details and salt; None if the chain does not cover it."""
    if type(row["version"]) is not int or type(row["time"]) is not str:
        return None
    try:
        plain = sealer.open(row["details"], _place(row["version"], row["seq"], row["time"]))
    except DamagedRecordError:
        return None
    return plain if hashlib.sha256(plain).hexdigest() == row["details_sha256"] else None


def verify(db: sqlite_utils.Database, vault: str, sealer: Sealer | None, known_head: str | None = None) -> AuditCheck:
    """Checks every entry, the chain and its end.

    Args:
        vault: the vault's identifier, part of every hash.
        sealer: authenticates the recorded end and opens the details; None checks what can be checked without the
            passphrase.
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
        broken = _entry_fault(row, vault, sealer, expected, previous)
        previous = row["hash"]
        known = known or previous == known_head
    if broken is None:
        broken = _end_fault(recorded, sealer, expected, previous)
    if broken is None and not known:
        broken = (expected + 1, "the log head stated in the earlier report does not occur in this log")
    number, reason = broken if broken is not None else (None, "")
    return AuditCheck(broken is None, total, recorded.head, number, reason, sealer is not None)


def _entry_fault(row: Row, vault: str, sealer: Sealer | None, expected: int, previous: str) -> tuple[int, str] | None:
    if row["seq"] != expected:
        return expected, f"entry {expected} is missing"
    if row["previous"] != previous:
        return expected, f"entry {expected} does not follow from the previous one"
    plain = (row["time"], row["event"], row["previous"], row["details_sha256"])
    whole = type(row["version"]) is int and type(row["details"]) is bytes and all(type(p) is str for p in plain)
    if (
        not whole
        or row["hash"] != entry_hash(vault, row["version"], expected, *plain)
        or row["sealed_sha256"] != hashlib.sha256(row["details"]).hexdigest()
        or (sealer is not None and _opened(row, sealer) is None)
    ):
        return expected, f"entry {expected} was changed"
    return None


def _end_fault(recorded: AuditState, sealer: Sealer | None, last: int, head: str) -> tuple[int, str] | None:
    if sealer is not None and not recorded.fits(sealer):
        return last + 1, "the recorded end of the log, or the header, was altered: entries may have been removed"
    if recorded.count > last:
        return (
            last + 1,
            f"the log was cut off before entry {last + 1}, but the vault recorded entries up to {recorded.count}",
        )
    if recorded.count < last:
        return recorded.count + 1, f"entry {recorded.count + 1} was not written by this vault"
    if recorded.head != head:
        return last, f"entry {last} is not the one that the vault recorded last"
    return None


def _state_row(sealer: Sealer, count: int, head: str, header: str) -> dict[str, object]:
    return {"count": count, "head": head, "tag": sealer.tag(_state_message(sealer.vault, count, head, header))}


def _state_message(vault: str, count: int, head: str, header: str) -> bytes:
    return json_bytes({"what": "end of audit log", "vault": vault, "count": count, "head": head, "header": header})
