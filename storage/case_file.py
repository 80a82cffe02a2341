"""One case with everything in it, read in one state of the vault, and the audit log's entries about it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

import sqlite_utils

from storage import audit
from storage.encryption import Sealer
from storage.records import (
    CaseRecord,
    ItemRecord,
    Meta,
    NoteRecord,
    RecordName,
    Records,
    RunEntry,
    added_in,
    build,
    open_meta,
    run_entry,
)
from storage.schema import CASES, ITEMS, LABELS, NOTES, RUN_FILES, RUNS
from storage.tables import exists, read_table, row_of

OF_CASES = (CASES, ITEMS, NOTES, RUNS, RUN_FILES)


@dataclass(frozen=True, slots=True)
class CaseFile:
    """All records of one case, in one state of the vault.

    Attributes:
        vault: the vault's identifier.
        items, notes, runs: in the order in which they were filed.
        damaged: table and identifier of records that do not authenticate and may belong to this case.
        missing: records that are gone although the audit log recorded their addition to this case.
        entries: of the audit log, about this case.
        count: how many entries the whole log has.
        log: the whole log's check.
    """

    vault: str
    case: CaseRecord
    items: tuple[ItemRecord, ...]
    notes: tuple[NoteRecord, ...]
    runs: tuple[RunEntry, ...]
    damaged: tuple[RecordName, ...]
    missing: tuple[RecordName, ...]
    entries: tuple[audit.AuditEntry, ...]
    count: int
    log: audit.AuditCheck


def read_cases(db: sqlite_utils.Database, sealer: Sealer) -> Records[CaseRecord]:
    """All cases in order, each with the title that it has now."""
    found, given = read_table(db, sealer, CASES, lambda meta: True), _titles(db, sealer)
    titles = {label.record: label.text for label in given}
    named = (replace(case, title=titles.get(case.id, case.title)) for case in found)
    return Records(named, (*found.damaged, *given.damaged))


def _titles(db: sqlite_utils.Database, sealer: Sealer) -> Records[Any]:
    """What cases were called after they were opened, oldest first."""
    return read_table(db, sealer, LABELS, lambda meta: meta.get("table") == CASES)


def read_case(db: sqlite_utils.Database, sealer: Sealer, case_id: str) -> CaseFile:
    """Everything of one case.

    Raises:
        RecordNotFoundError: no such case.
        DamagedRecordError: the case's own record.
        AuditBrokenError: the log's recorded end is missing.
    """
    row = row_of(db, CASES, case_id, "meta")

    def of_case(meta: Meta) -> bool:
        return bool(meta.get("case_id") == case_id)

    case: CaseRecord = build(CASES, row, open_meta(sealer, CASES, row))
    for label in _titles(db, sealer):
        case = replace(case, title=label.text) if label.record == case_id else case
    items, notes = (read_table(db, sealer, table, of_case) for table in (ITEMS, NOTES))
    runs = read_table(db, sealer, RUNS, of_case, run_entry)
    entries: list[audit.AuditEntry] = []
    ours: set[RecordName] = set()
    others: set[RecordName] = set()
    for entry in audit.entries(db, sealer):
        named = {name for name, _ in added_in(entry.details)}
        of = (entry.details or {}).get("case")
        if of == case_id or RecordName(CASES, case_id) in named:  # the case's own entry came before its identifier
            entries.append(entry)
            ours |= named
        elif of is not None:
            others |= named
    damaged = [name for name in (*items.damaged, *notes.damaged, *runs.damaged) if name not in others]
    named_here = [name for name in sorted(ours, key=attrgetter("table", "id")) if name.table in OF_CASES]
    missing = [name for name in named_here if not exists(db, name.table, name.id)]
    return CaseFile(
        vault=sealer.vault,
        case=case,
        items=tuple(items),
        notes=tuple(notes),
        runs=tuple(runs),
        damaged=tuple(damaged),
        missing=tuple(missing),
        entries=tuple(entries),
        count=audit.state(db).count,
        log=audit.verify(db, sealer.vault, sealer),
    )
