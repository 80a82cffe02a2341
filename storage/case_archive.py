"""A case as one file that anyone can check with `sha256sum` and a JSON reader.

    case.json        the case, its items, notes and investigations, and the entries of the audit log about it
    case.jsonld      the same without the log, for tools that read CASE and UCO (`storage.case_ontology`)
    README.txt       what this is and how to check it
    run-N/...        the Nth investigation: its finding as JSON, and the files that were filed with it
    SHA256SUMS       over all of these, written last

The hashed content of each audit entry is given in full (`storage.audit`), including its details and their salt, so that
anyone can compute its hash again. The archive contains no key and nothing that opens one: keys appear as the
commitments that findings name.

Equal states of a case give equal archives, byte for byte: no compression, sorted names, fixed times.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from storage.canonical import utc_text
from storage.case_file import CaseFile
from storage.case_ontology import NAME as ONTOLOGY_NAME
from storage.case_ontology import as_json_ld
from storage.casebook import FINDING_NAME, CaseFiles, plain_name
from storage.errors import DamagedRecordError, StorageError, StorageFullError, VaultExistsError
from storage.files import new_private_file, partial_name, publish_new, sweep
from storage.records import FileDigest, RecordName, RunEntry
from storage.schema import RUNS

SCHEMA = "irwm case archive, version 1"
SUMS_NAME = "SHA256SUMS"
# The earliest time that a ZIP can hold: the archive's own times have no meaning, those in case.json do.
ZIP_TIME = (1980, 1, 1, 0, 0, 0)
README = """\
This archive contains a case from IRWM Studio, as it was in the vault at the time given in case.json.

To check that no file has been damaged since the archive was made, unpack it and run this command in its folder:

    sha256sum -c SHA256SUMS

SHA256SUMS is in the same archive as the files it lists, so anyone who changes a file can change SHA256SUMS, too. Two
other records reveal such a change: the vault's audit log, whose entry about this export contains the SHA-256 of
SHA256SUMS, and the signature of each report.
{reports}
case.jsonld has the items, runs and notes in the ontologies CASE 1.4 and UCO 1.4, which other forensic tools import.

Each run's finding.json is the vault's own copy of the finding. Its formatting differs from that in the report.

case.json lists the items, notes and findings in the order in which they were filed, with times in UTC, and the
entries of the vault's audit log about this case. The log's head and number of entries are those at the time of export.
case.json and case.jsonld also contain the names of people, models and folders on the examiner's computer, as they were
filed.
"""
REPORTS = """
Each report can be checked without the vault (docs/verifying.md). A second examiner's review is checked together with
the report that it names: copy the files of both into one folder. Use the installed command irwm. Never run
python -m irwm in this folder: Python would then run files in this folder that have the same names as its modules.

{commands}
"""
# The file of a report that names the other files.
SIGNATURE = ".signature.json"


def export_case(vault: CaseFiles, case_id: str, target: Path) -> Path:
    """Writes a case to a new archive, records that in the audit log, and returns the path.

    Damaged or missing records are not written; case.json names them. If the log is broken, its check says so.

    Raises:
        RecordNotFoundError: no such case.
        DamagedRecordError: the case's own record.
        VaultExistsError: the target exists; it is untouched.
        StorageFullError: the disk is full; the partial archive was removed.
        StorageError: the target cannot be written.
        VaultLockedError, AuditBrokenError
    """
    target = Path(os.path.abspath(target))
    if os.path.lexists(target):
        raise _exists(target)
    case = vault.case_file(case_id)
    partial, published = partial_name(target), False
    try:
        with _explained(target):
            sweep(target.parent, re.compile(re.escape(target.name) + r"\.[0-9a-f]{16}\.partial"))
            with os.fdopen(new_private_file(partial), "w+b") as stream:
                sums = _write(vault, case, stream)
                stream.flush()
                os.fsync(stream.fileno())
        details = {"case": case_id, "path": str(target), "sha256sums": hashlib.sha256(sums).hexdigest()}
        with vault.logged("case exported", details), _explained(target):
            publish_new(partial, target)
            published = True
    except BaseException:
        if published:  # but no audit entry could be written
            _remove(target)
        raise
    finally:
        _remove(partial)
    return target


def _write(vault: CaseFiles, case: CaseFile, stream: BinaryIO) -> bytes:
    """Writes the archive and returns its list of digests."""
    damaged = list(case.damaged)
    contents, findings = [], {}
    for run in case.runs:
        found = _contents(vault, run, damaged)
        contents.append(sorted(found))
        if FINDING_NAME in found:
            findings[run.id] = json.loads(found[FINDING_NAME])
    document = _document(case, contents, damaged, utc_text(vault._now()))
    of_run = {
        f"run-{number}/{name}": (run, name)
        for number, (run, names) in enumerate(zip(case.runs, contents, strict=True), start=1)
        for name in names
    }
    readme, graph = _readme(of_run).encode("utf-8"), as_json_ld(case, findings)
    files = {"README.txt": readme, "case.json": document, ONTOLOGY_NAME: graph}
    sums = []
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:
        opened: tuple[str, dict[str, bytes]] = ("", {})
        for path in sorted({*files, *of_run}):
            if path in of_run:
                run, name = of_run[path]
                if opened[0] != run.id:  # the paths of one run are adjacent; one run is in memory at a time
                    opened = run.id, _contents(vault, run, [])
                content = opened[1][name]
            else:
                content = files[path]
            archive.writestr(_zip_entry(path), content)
            sums.append(f"{hashlib.sha256(content).hexdigest()}  {path}\n")
        listed = "".join(sums).encode("ascii")
        archive.writestr(_zip_entry(SUMS_NAME), listed)
    return listed


def _readme(paths: Iterable[str]) -> str:
    """The readme, with the command for each signed report in it."""
    signed = [path.removesuffix(SIGNATURE) + ".json" for path in paths if path.endswith(SIGNATURE)]
    commands = "\n".join(f"    irwm verify {path}" for path in signed)
    return README.format(reports=REPORTS.format(commands=commands) if signed else "")


def _contents(vault: CaseFiles, run: RunEntry, damaged: list[RecordName]) -> dict[str, bytes]:
    """The files written for a run, by name; those that do not authenticate are added to `damaged`."""
    contents = vault.run_files(run.id, damaged=damaged)
    try:
        contents[FINDING_NAME] = vault.run_finding(run.id)
    except DamagedRecordError:
        damaged.append(RecordName(RUNS, run.id))
    # The vault accepts no other names; if one got in anyway, it must not leave the folder it is unpacked to.
    return {name: content for name, content in contents.items() if plain_name(name)}


def _document(case: CaseFile, contents: list[list[str]], damaged: list[RecordName], exported: str) -> bytes:
    items = [
        {
            "id": item.id,
            "received_utc": item.created,
            "name": item.name,
            "received_from": item.received_from,
            "added_by": item.added_by,
            "note": item.note,
            "known_to_exist_since_utc": item.seen_utc,
            "files": _files(item.files),
        }
        for item in case.items
    ]
    notes = [
        {"id": note.id, "written_utc": note.created, "added_by": note.added_by, "text": note.text}
        for note in case.notes
    ]
    runs = [
        {
            "id": run.id,
            "folder": f"run-{number}",
            "filed_utc": run.created,
            "suspect": run.suspect,
            "verdict": run.verdict,
            "note": run.note,
            "files": _files(run.files),
            "in_this_archive": names,
        }
        for number, (run, names) in enumerate(zip(case.runs, contents, strict=True), start=1)
    ]
    entries = [
        {
            "sequence": entry.sequence,
            "time_utc": entry.time,
            "event": entry.event,
            "details": entry.details,
            "salt": entry.salt,
            "details_sha256": entry.details_sha256,
            "version": entry.version,
            "previous": entry.previous,
            "hash": entry.hash,
        }
        for entry in case.entries
    ]
    document = {
        "schema": SCHEMA,
        "vault": case.vault,
        "exported_utc": exported,
        "case": {
            "id": case.case.id,
            "opened_utc": case.case.created,
            "title": case.case.title,
            "note": case.case.note,
        },
        "items": items,
        "notes": notes,
        "investigations": runs,
        "damaged": _names(dict.fromkeys(damaged)),
        "missing": _names(case.missing),
        "audit_log": {
            "entries": case.count,
            "head": case.log.head,
            "sound": case.log.ok,
            "reason": case.log.reason,
            "about_this_case": entries,
        },
    }
    return json.dumps(document, indent=1, ensure_ascii=True, allow_nan=False).encode("ascii") + b"\n"


def _files(files: dict[str, FileDigest]) -> list[dict[str, object]]:
    return [{"name": name, "bytes": file.bytes, "sha256": file.sha256} for name, file in sorted(files.items())]


def _names(names: Any) -> list[dict[str, str]]:
    return [{"table": name.table, "id": name.id} for name in names]


def _zip_entry(path: str) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(path, ZIP_TIME)
    # `zipfile` would otherwise take these values from the system it runs on.
    entry.create_system, entry.external_attr = 3, 0o600 << 16
    return entry


@contextlib.contextmanager
def _explained(target: Path) -> Iterator[None]:
    try:
        yield
    except FileExistsError:
        raise _exists(target) from None
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StorageFullError(
                "the disk is full",
                file=target,
                advice="free up some space and try again; the partial archive was removed",
            ) from error
        raise StorageError("the archive cannot be written", file=target, found=str(error)) from error


def _remove(path: Path) -> None:
    # Already removed, or the folder is not a folder; the earlier error is the one to report.
    with contextlib.suppress(OSError):
        path.unlink()


def _exists(target: Path) -> VaultExistsError:
    return VaultExistsError("a file with the archive's name already exists", file=target, advice="choose another name")
