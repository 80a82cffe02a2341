"""The vault: keys, releases, cases and their runs, each record sealed on its own.

A `Vault` object is one session's view. Its lock state is its own: a second browser session gets a second object,
which is locked until it is given the passphrase itself. Threads may share an object. Records are only ever added;
evidence is not edited or deleted.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import sqlite_utils

from storage import audit
from storage.canonical import checked_manifest, json_bytes, required_text, utc_text
from storage.checks import VaultCheck, check_records
from storage.errors import DamagedRecordError, DatabaseDamagedError, RecordNotFoundError, RecordValueError
from storage.records import (
    CaseRecord,
    KeyRecord,
    RecordName,
    Records,
    ReleaseRecord,
    RunRecord,
    build,
    open_body,
    open_meta,
    place,
    sealed_digest,
)
from storage.schema import CASES, KEYS, RELEASES, RUNS, VAULT_SCHEMA_VERSION
from storage.session import VaultSession

# 64 random bits: short enough to read out, and a collision is refused by the table's index.
RECORD_ID_BYTES = 8


class Vault(VaultSession):
    """One session's view of the vault in a folder; from `Vault.create` or `Vault.open`."""

    # Keys and releases

    def add_key(
        self,
        sealed: bytes,
        *,
        owner: str,
        recipient: str,
        model_name: str,
        model_fingerprint: str,
        family: str,
        commitment: str,
        parameters: Mapping[str, Any],
        label: str = "",
    ) -> KeyRecord:
        """Adds a key; `sealed` are its bytes as the scheme writes them, which the vault seals and never looks into.

        Raises:
            RecordValueError, VaultLockedError, AuditBrokenError, StorageError
        """
        if not isinstance(sealed, (bytes, bytearray)) or not sealed:
            raise RecordValueError("a key is a non-empty string of bytes", found=type(sealed).__name__)
        required_text(owner=owner, model_fingerprint=model_fingerprint, commitment=commitment)
        meta = {
            "owner": owner,
            "recipient": recipient,
            "model_name": model_name,
            "model_fingerprint": model_fingerprint,
            "family": family,
            "commitment": commitment,
            "parameters": dict(parameters),
            "label": label,
        }
        record: KeyRecord = self._add(KEYS, "key added", meta, bytes(sealed))
        return record

    def keys(self) -> Records[KeyRecord]:
        """All keys in order of addition; `.damaged` names those that do not authenticate.

        Raises:
            VaultLockedError, StorageError
        """
        return self._all(KEYS)

    def keys_for(self, model_fingerprint: str) -> Records[KeyRecord]:
        """The keys of one original. `.damaged` names every damaged key: any of them may have been this model's."""
        records = self.keys()
        return Records((r for r in records if r.model_fingerprint == model_fingerprint), records.damaged)

    def key_bytes(self, id: str) -> bytes:
        """The bytes that `add_key` was given.

        Raises:
            RecordNotFoundError, DamagedRecordError, VaultLockedError, StorageError
        """
        sealer = self._use()
        with self._file.reading() as db:
            rows = list(db.query("SELECT * FROM keys WHERE id = ?", [id]))
        if not rows:
            raise _not_found(KEYS, id)
        return open_body(sealer, KEYS, rows[0])

    def add_release(
        self, key_id: str, path: str | Path, manifest: Mapping[str, str], receipt: Mapping[str, Any]
    ) -> ReleaseRecord:
        """Records that a marked copy was published.

        Args:
            manifest: file name to SHA-256, hex.

        Raises:
            RecordNotFoundError: no such key.
            RecordValueError, VaultLockedError, AuditBrokenError, StorageError
        """
        meta = {"key_id": key_id, "path": str(path), "manifest": checked_manifest(manifest), "receipt": dict(receipt)}
        record: ReleaseRecord = self._add(RELEASES, "release recorded", meta, refers_to=(KEYS, key_id))
        return record

    def releases(self) -> Records[ReleaseRecord]:
        """All releases in order; see `keys`."""
        return self._all(RELEASES)

    # Cases

    def add_case(self, title: str, note: str = "") -> CaseRecord:
        """Opens a case.

        Raises:
            RecordValueError, VaultLockedError, AuditBrokenError, StorageError
        """
        required_text(title=title)
        record: CaseRecord = self._add(CASES, "case opened", {"title": title, "note": note})
        return record

    def cases(self) -> Records[CaseRecord]:
        """All cases in order; see `keys`."""
        return self._all(CASES)

    def add_run(
        self, case_id: str, finding_json: Mapping[str, Any], suspect: str | Path, verdict: str, note: str = ""
    ) -> RunRecord:
        """Files an investigation in a case.

        Raises:
            RecordNotFoundError: no such case.
            RecordValueError: the finding holds NaN or another value that is not JSON, or no verdict is given.
            VaultLockedError, AuditBrokenError, StorageError
        """
        required_text(suspect=str(suspect), verdict=verdict)
        meta = {"case_id": case_id, "suspect": str(suspect), "verdict": verdict, "note": note}
        body = json_bytes(dict(finding_json), "the finding")
        record: RunRecord = self._add(RUNS, "investigation filed", meta, body, refers_to=(CASES, case_id))
        return record

    def case_runs(self, case_id: str) -> Records[RunRecord]:
        """The investigations of one case in order. `.damaged` names every damaged run, whichever case it was of."""
        return self._all(RUNS, lambda meta: meta.get("case_id") == case_id)

    def check(self) -> VaultCheck:
        """Opens every record and compares all with the audit log.

        Raises:
            VaultLockedError, DatabaseDamagedError, StorageError
        """
        sealer = self._use()
        with self._file.reading() as db:
            return check_records(db, sealer)

    def _add(
        self,
        table: str,
        event: str,
        meta: dict[str, Any],
        body: bytes = b"",
        refers_to: tuple[str, str] | None = None,
    ) -> Any:
        plain = json_bytes(meta, "the record")
        with self._writing() as (db, sealer):
            if refers_to is not None:
                _require(db, *refers_to)
            row: dict[str, Any] = {
                "seq": _next_sequence(db, table),
                "id": secrets.token_hex(RECORD_ID_BYTES),
                "version": VAULT_SCHEMA_VERSION,
                "created": utc_text(self._now()),
            }
            row["meta"] = sealer.seal(plain, place(table, row, "meta"))
            row["body"] = sealer.seal(body, place(table, row, "body"))
            db.table(table).insert(row)
            details = {"table": table, "id": row["id"], "sha256": sealed_digest(row)}
            audit.append(db, sealer, row["created"], event, details)
        # Read back from the bytes that were sealed: the caller's own dictionaries may change later.
        return build(table, row, json.loads(plain), body)

    def _all(self, table: str, wanted: Callable[[dict[str, Any]], bool] = lambda meta: True) -> Records[Any]:
        sealer = self._use()
        records, damaged = [], []
        columns = "*" if table == RUNS else "seq, id, version, created, meta"
        with self._file.reading() as db:
            for row in db.query(f"SELECT {columns} FROM {table} ORDER BY seq"):
                try:
                    meta = open_meta(sealer, table, row)
                    if wanted(meta):
                        body = open_body(sealer, table, row) if table == RUNS else b""
                        records.append(build(table, row, meta, body))
                except DamagedRecordError as error:
                    damaged.append(RecordName(error.table, error.record))
        return Records(records, damaged)


def _require(db: sqlite_utils.Database, table: str, id: str) -> None:
    if not db.execute(f"SELECT 1 FROM {table} WHERE id = ?", [id]).fetchall():
        raise _not_found(table, id)


def _not_found(table: str, id: str) -> RecordNotFoundError:
    return RecordNotFoundError(f"there is no record {id!r} in {table}")


def _next_sequence(db: sqlite_utils.Database, table: str) -> int:
    (last,) = db.execute(f"SELECT COALESCE(MAX(seq), 0) FROM {table}").fetchall()[0]
    # The largest number SQLite can hold; only an edited file comes near it.
    if not 0 <= last < 2**63 - 1:
        raise DatabaseDamagedError(f"a sequence number in {table} was edited", advice="restore a backup")
    return int(last) + 1
