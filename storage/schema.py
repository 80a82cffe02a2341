"""The tables of the vault. Once a version is released, a change to them is a new migration at the end."""

from __future__ import annotations

import sqlite_utils
from sqlite_utils import Migrations

from storage.database import Schema

# Sealed records name the schema version they were written under, so that a later version still opens them.
VAULT_SCHEMA_VERSION = 4
KEYS, RELEASES, CASES, RUNS = "keys", "releases", "cases", "runs"
IDENTITIES, TIMESTAMPS, ITEMS, NOTES, RUN_FILES = "identities", "timestamps", "items", "notes", "run_files"
LABELS, JOB_KEYS = "labels", "job_keys"
RECORD_TABLES = (KEYS, RELEASES, CASES, RUNS, IDENTITIES, TIMESTAMPS, ITEMS, NOTES, RUN_FILES, LABELS, JOB_KEYS)

VAULT_MIGRATIONS = Migrations("irwm-studio vault")


@VAULT_MIGRATIONS(name="1 sealed records and audit log")
def _first(db: sqlite_utils.Database) -> None:
    db.table("vault").create(
        {
            "one": int,
            "id": str,
            "created": str,
            "key_id": str,
            "memory_kib": int,
            "passes": int,
            "lanes": int,
            "salt": bytes,
            "wrapped_key": bytes,
        },
        pk="one",
    )
    for name in RECORD_TABLES:
        # A record's content is in `meta` and `body` only. They are separate so that a list of 300 keys, or of runs with
        # a megabyte of findings each, opens only what it shows.
        table = db.table(name)
        table.create({"seq": int, "id": str, "version": int, "created": str, "meta": bytes, "body": bytes}, pk="seq")
        table.create_index(["id"], unique=True)
    db.table("audit").create(
        {
            "seq": int,
            "version": int,
            "time": str,
            "event": str,
            "details": bytes,
            "details_sha256": str,
            "sealed_sha256": str,
            "previous": str,
            "hash": str,
        },
        pk="seq",
    )
    db.table("audit_state").create({"one": int, "count": int, "head": str, "tag": bytes}, pk="one")


VAULT_SCHEMA = Schema(
    what="vault",
    application_id=int.from_bytes(b"IRWV", "big"),
    version=VAULT_SCHEMA_VERSION,
    migrations=VAULT_MIGRATIONS,
    remedy="restore a backup, where the app asks for the passphrase; the damaged file is kept in the same folder",
)
