"""The audit log of a vault as its owner exports it: hashes and times, without names or other details.

    {"schema": {"name": "irwm-audit-log", "version": 1}, "vault": identifier}
    {"sequence": 1, "time": ..., "event": ..., "details": SHA-256, "version": ..., "previous": ..., "hash": ...}
    ...

One JSON object in each line. `entry_hash` chains the entries; the vault's own log has the same hashes. The export shows
whether the head that a report names was ever that of the log. Removing an entry from a log changes every later head.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from irwm.errors import IrwmError, printable
from irwm.report.canonical import canonical_json, strict_json
from irwm.report.checks import LOG, Check, said

SCHEMA, VERSION = "irwm-audit-log", 1
ENDING = ".jsonl"
# The hash before the first entry.
GENESIS = "0" * 64
# A line has about 400 bytes; the log of a vault with 100 000 keys has 60 MB.
MOST_BYTES, MOST_LINE = 1 << 30, 4096
_ASK = "Ask the signer for the log again, as the page Vault exports it"


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One exported entry.

    Attributes:
        sequence: counts from 1.
        time: UTC, ISO 8601.
        event: what happened, one of the program's fixed phrases.
        details: SHA-256 of the details and their salt, hex.
        version: of the vault's schema.
        previous, hash: the chain, hex.
    """

    sequence: int
    time: str
    event: str
    details: str
    version: int
    previous: str
    hash: str


def entry_hash(
    vault: str, version: int, sequence: int, time: str, event: str, previous: str, details_sha256: str
) -> str:
    """The hash of one entry: SHA-256, hex, of the canonical JSON of all these values, with the digest as "details".

    Raises:
        TypeError, ValueError: a value is not plain JSON.
    """
    covered = {
        "vault": vault,
        "version": version,
        "sequence": sequence,
        "time": time,
        "event": event,
        "previous": previous,
        "details": details_sha256,
    }
    return hashlib.sha256(canonical_json(covered)).hexdigest()


def log_lines(vault: str, entries: Iterable[LogEntry]) -> Iterator[bytes]:
    """The lines of an export."""
    yield _line({"schema": {"name": SCHEMA, "version": VERSION}, "vault": vault})
    for entry in entries:
        yield _line(asdict(entry))


def _line(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=True, allow_nan=False).encode("ascii") + b"\n"


def head_at(path: Path, count: int) -> str:
    """The hash of entry number `count` of an exported log; the complete chain is checked.

    Raises:
        IrwmError: the file is not an exported log, its chain is broken, or it ends before this entry.
    """
    if path.stat().st_size > MOST_BYTES:
        raise IrwmError("the file is larger than any audit log", file=path, expected=f"at most {MOST_BYTES} bytes")
    previous, found, number = GENESIS, GENESIS if count == 0 else "", 0
    with path.open("rb") as lines:
        vault = _vault(lines.readline(MOST_LINE), path)
        while line := lines.readline(MOST_LINE):
            number += 1
            entry = _entry(line, path, number)
            covered = (vault, entry.version, entry.sequence, entry.time, entry.event, previous, entry.details)
            if (entry.sequence, entry.previous, entry.hash) != (number, previous, entry_hash(*covered)):
                raise IrwmError(
                    "the audit log's chain is broken", file=path, found=f"entry {number} does not follow", advice=_ASK
                )
            previous = entry.hash
            if number == count:
                found = entry.hash
    if not found:
        raise IrwmError(
            "the audit log ends before the report was signed",
            file=path,
            expected=f"entry {count}",
            found=f"{number} entries",
            advice=_ASK,
        )
    return found


def _vault(line: bytes, path: Path) -> str:
    try:
        header = strict_json(line)
        if header["schema"] == {"name": SCHEMA, "version": VERSION} and isinstance(header["vault"], str):
            return str(header["vault"])
    except (ValueError, LookupError, TypeError, RecursionError):
        pass
    raise IrwmError(
        "the file is not an exported audit log", file=path, expected=f"{SCHEMA}, version {VERSION}", advice=_ASK
    )


def _entry(line: bytes, path: Path, number: int) -> LogEntry:
    try:
        return LogEntry(**strict_json(line))
    except (ValueError, TypeError, RecursionError) as error:
        found = f"entry {number}: {printable(str(error), 100)}"
        raise IrwmError("the exported audit log cannot be read", file=path, found=found, advice=_ASK) from error


def check_log(path: Path, head: str, count: int) -> Check:
    """Whether the head that a signature names is that of entry `count` of an exported log."""
    try:
        recorded = head_at(path, count)
    except IrwmError as error:
        return Check(LOG, False, said(error))
    except OSError as error:
        return Check(LOG, None, f"the audit log could not be read: {error.strerror}", asked=True)
    if recorded != head:
        what = f"entry {count} of the log has the hash {recorded[:16]}…, the report names {printable(head, 16)}…"
        return Check(LOG, False, f"the report names another audit log: {what}")
    return Check(LOG, True, f"the audit log holds the {count} entries that the report names, and its chain is complete")
