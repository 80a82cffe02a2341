"""Cases: the items, notes and findings of each, in the order in which they were filed.

Every entry of the audit log about a case names it under "case", which separates a case's own log from the rest.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import sqlite_utils

from storage.canonical import (
    checked_manifest,
    checked_time,
    json_bytes,
    limited_text,
    optional_text,
    required_text,
    utc_text,
)
from storage.case_file import CaseFile, read_case, read_cases
from storage.encryption import Sealer
from storage.errors import DamagedRecordError, RecordNotFoundError, RecordValueError
from storage.filing import Filing
from storage.records import (
    CaseRecord,
    ItemRecord,
    NoteRecord,
    RecordName,
    Records,
    RunEntry,
    RunRecord,
    added_together,
    build,
    content_digest,
    open_body,
    open_meta,
    run_entry,
)
from storage.schema import CASES, ITEMS, LABELS, NOTES, RUN_FILES, RUNS
from storage.tables import insert_logged, new_id, next_sequence, read_table, require, row_of, sealed_row

# A report with figures is a few MB in each of its forms; models are not filed here.
MOST_RUN_FILES = 100
MOST_RUN_FILE_BYTES = 64 * 1024 * 1024
# A checkpoint of a trillion parameters has a few hundred shards.
MOST_ITEM_FILES = 10_000
LONGEST_NOTE = 100_000
LONGEST_TITLE = 200
# Names that mean the same on every system, also where an archive is unpacked years later.
_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,126}[A-Za-z0-9]|[A-Za-z0-9]")
_DEVICE = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)
# The archive of a case writes each run's finding under this name.
FINDING_NAME = "finding.json"


class CaseFiles(Filing):
    """A vault's cases."""

    def add_case(self, title: str, note: str = "") -> CaseRecord:
        """Opens a case.

        Raises:
            RecordValueError, VaultLockedError, AuditBrokenError, StorageError
        """
        required_text(title=title)
        record: CaseRecord = self._add(CASES, "case opened", {"title": title, "note": note})
        return record

    def rename_case(self, case_id: str, title: str) -> None:
        """Gives a case another title. The earlier ones stay filed, and the log says when it was renamed.

        Raises:
            RecordNotFoundError: no such case.
            RecordValueError: the title is empty or too long.
            VaultLockedError, AuditBrokenError, StorageError
        """
        required_text(title=title)
        limited_text("title", title, LONGEST_TITLE)
        meta = {"table": CASES, "record": case_id, "text": title}
        self._add(LABELS, "case renamed", meta, refers_to=(CASES, case_id), noted={"case": case_id})

    def cases(self) -> Records[CaseRecord]:
        """All cases in order, each with the title that it has now; see `Vault.keys`."""
        with self._reading() as (db, sealer):
            return read_cases(db, sealer)

    def add_item(
        self,
        case_id: str,
        name: str,
        files: Mapping[str, tuple[int, str]],
        received_from: str = "",
        note: str = "",
        added_by: str = "",
        seen_utc: str = "",
    ) -> ItemRecord:
        """Records that an item was received for a case; the record's time says when.

        Args:
            files: file name to size in bytes and SHA-256, hex.
            seen_utc: since when it is known to exist, ISO 8601 with its zone, or "".

        Raises:
            RecordNotFoundError: no such case.
            RecordValueError, VaultLockedError, AuditBrokenError, StorageError
        """
        required_text(name=name)
        optional_text(received_from=received_from, note=note, added_by=added_by)
        body = json_bytes(_checked_files(files), "the item's files")
        meta = {
            "case_id": case_id,
            "name": name,
            "received_from": received_from,
            "note": note,
            "added_by": added_by,
            "seen_utc": checked_time("seen_utc", seen_utc),
        }
        # The digest of the list of files as the record holds it: an archive of the case shows both.
        noted = {"case": case_id, "name": name, "files_sha256": hashlib.sha256(body).hexdigest()}
        record: ItemRecord = self._add(ITEMS, "item received", meta, body, refers_to=(CASES, case_id), noted=noted)
        return record

    def case_items(self, case_id: str) -> Records[ItemRecord]:
        """The items received for one case, in order. `.damaged` names the damaged items of all cases."""
        return self._all(ITEMS, lambda meta: meta.get("case_id") == case_id)

    def add_note(self, case_id: str, text: str, added_by: str = "") -> NoteRecord:
        """Adds a note to a case; it cannot be changed later.

        Raises:
            RecordNotFoundError: no such case.
            RecordValueError, VaultLockedError, AuditBrokenError, StorageError
        """
        required_text(text=text)
        optional_text(added_by=added_by)
        limited_text("note", text, LONGEST_NOTE)
        meta = {"case_id": case_id, "text": text, "added_by": added_by}
        noted = {"case": case_id}
        record: NoteRecord = self._add(NOTES, "note added", meta, refers_to=(CASES, case_id), noted=noted)
        return record

    def case_notes(self, case_id: str) -> Records[NoteRecord]:
        """The notes of one case in order. `.damaged` names the damaged notes of all cases."""
        return self._all(NOTES, lambda meta: meta.get("case_id") == case_id)

    def add_run(
        self,
        case_id: str,
        finding_json: Mapping[str, object],
        suspect: str | Path,
        verdict: str,
        note: str = "",
        files: Mapping[str, bytes] | None = None,
    ) -> RunRecord:
        """Files an investigation in a case, with the files of its report: all of it, or none.

        Args:
            files: plain file name to content; at most `MOST_RUN_FILES`, and `MOST_RUN_FILE_BYTES` in all.

        Raises:
            RecordNotFoundError: no such case.
            RecordValueError: the finding holds NaN or another value that is not JSON, no verdict is given, a file has
                no plain name, or the files are too many or too large.
            VaultLockedError, AuditBrokenError, StorageError
        """
        required_text(suspect=str(suspect), verdict=verdict)
        contents = _checked_contents(files or {})
        digests = {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
        id, file_ids = new_id(), {name: new_id() for name in contents}
        meta = {
            "case_id": case_id,
            "suspect": str(suspect),
            "verdict": verdict,
            "note": note,
            "files": {name: [len(content), digests[name]] for name, content in contents.items()},
            "file_ids": file_ids,
        }
        plain, body = json_bytes(meta, "the record"), json_bytes(dict(finding_json), "the finding")
        with self._writing() as (db, sealer):
            require(db, CASES, case_id)
            created = utc_text(self._now())
            parts, first = {}, next_sequence(db, RUN_FILES, len(contents))
            for number, (name, content) in enumerate(contents.items(), start=first):
                part = json_bytes({"run_id": id, "name": name, "sha256": digests[name]})
                sealed = sealed_row(sealer, RUN_FILES, number, created, part, content, file_ids[name])
                db.table(RUN_FILES).insert(sealed)
                parts[sealed["id"]] = content_digest(part, content)
            noted: dict[str, object] = {"case": case_id, "finding": hashlib.sha256(body).hexdigest(), "files": digests}
            if parts:
                noted["with"] = added_together(RUN_FILES, parts)
            row = insert_logged(db, sealer, RUNS, created, "investigation filed", plain, body, noted, id)
        record: RunRecord = build(RUNS, row, json.loads(plain), body)
        return record

    def case_file(self, case_id: str) -> CaseFile:
        """All records of one case without findings and files of runs, and the log's entries about it.

        Raises:
            RecordNotFoundError, DamagedRecordError, VaultLockedError, AuditBrokenError, StorageError
        """
        with self._reading() as (db, sealer):
            return read_case(db, sealer, case_id)

    def run_finding(self, run_id: str) -> bytes:
        """An investigation's finding as the canonical JSON that was sealed.

        Raises:
            RecordNotFoundError, DamagedRecordError, VaultLockedError, StorageError
        """
        with self._reading() as (db, sealer):
            return open_body(sealer, RUNS, row_of(db, RUNS, run_id, "body"))

    def runs_of(self, case_id: str) -> Records[RunEntry]:
        """The investigations of one case in order, without their findings; see `case_runs`."""
        with self._reading() as (db, sealer):
            return read_table(db, sealer, RUNS, lambda meta: meta.get("case_id") == case_id, run_entry)

    def case_runs(self, case_id: str) -> Records[RunRecord]:
        """The investigations of one case in order, with their findings.

        `.damaged` names the runs of all cases whose names do not authenticate, and those of this case whose finding
        does not.
        """
        return self._all(RUNS, lambda meta: meta.get("case_id") == case_id)

    def run_files(self, run_id: str, *, damaged: list[RecordName] | None = None) -> dict[str, bytes]:
        """The files that were filed with an investigation, by name.

        Args:
            damaged: if given, files that do not authenticate or are gone are added to it and skipped.

        Raises:
            RecordNotFoundError: no such run.
            DamagedRecordError: the run or one of its files is damaged, or a file is gone.
            VaultLockedError, StorageError
        """
        found: dict[str, bytes] = {}
        with self._reading() as (db, sealer):
            row = row_of(db, RUNS, run_id, "meta")
            for name, id in run_entry(row, open_meta(sealer, RUNS, row)).file_ids.items():
                try:
                    found[name] = _file_content(db, sealer, id)
                except DamagedRecordError:
                    if damaged is None:
                        raise
                    damaged.append(RecordName(RUN_FILES, id))
        return found


def _file_content(db: sqlite_utils.Database, sealer: Sealer, id: str) -> bytes:
    try:
        return open_body(sealer, RUN_FILES, row_of(db, RUN_FILES, id, "body"))
    except RecordNotFoundError:  # its run names it
        raise DamagedRecordError(RUN_FILES, id) from None


def _checked_files(files: Mapping[str, tuple[int, str]]) -> dict[str, list[Any]]:
    if not files or len(files) > MOST_ITEM_FILES:
        raise RecordValueError(
            "an item needs at least one file", expected=f"1 to {MOST_ITEM_FILES}", found=str(len(files))
        )
    checked: dict[str, list[Any]] = {}
    for name, pair in files.items():
        if not isinstance(name, str) or not name:
            raise RecordValueError("a file in the item has no name", found=repr(name))
        if not isinstance(pair, (tuple, list)) or len(pair) != 2 or type(pair[0]) is not int or pair[0] < 0:
            raise RecordValueError(
                "the size of a file in the item is missing", file=name, expected="size in bytes and SHA-256"
            )
        checked[name] = [pair[0], checked_manifest({name: pair[1]})[name]]
    return checked


def _checked_contents(files: Mapping[str, bytes]) -> dict[str, bytes]:
    if len(files) > MOST_RUN_FILES:
        raise RecordValueError("too many files", expected=f"at most {MOST_RUN_FILES}", found=str(len(files)))
    seen, total = {FINDING_NAME}, 0
    for name, content in files.items():
        if not plain_name(name) or name.lower() in seen:
            raise RecordValueError(
                "each file attached to an investigation must have a unique file name without a folder",
                expected=f"letters, digits, dots, dashes and underscores, but not {FINDING_NAME}",
                found=repr(name),
            )
        if not isinstance(content, (bytes, bytearray)):
            raise RecordValueError("a file's content must be bytes", file=name, found=type(content).__name__)
        seen.add(name.lower())
        total += len(content)
    if total > MOST_RUN_FILE_BYTES:
        raise RecordValueError(
            "the files attached to an investigation are too large",
            expected=f"at most {MOST_RUN_FILE_BYTES} bytes in total",
            found=f"{total} bytes",
            advice="add only reports; leave the models where they are",
        )
    return {name: bytes(files[name]) for name in sorted(files)}


def plain_name(name: object) -> bool:
    """Whether a file's name is the same on every system: ASCII, no separators, no Windows device name."""
    return isinstance(name, str) and bool(_PLAIN_NAME.fullmatch(name)) and not _DEVICE.fullmatch(name)
