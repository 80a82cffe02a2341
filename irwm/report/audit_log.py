"""Whether a report's signature names a head of the audit log that a vault's owner exported (`irwm.signing`)."""

from __future__ import annotations

from pathlib import Path

from irwm.canonical import strict_json
from irwm.errors import IrwmError, printable
from irwm.report.checks import LOG, Check, said
from irwm.signing import GENESIS, LOG_SCHEMA, LOG_VERSION, LogEntry, entry_hash

ENDING = ".jsonl"
# A line has about 400 bytes; the log of a vault with 100 000 keys has 60 MB.
MOST_BYTES, MOST_LINE = 1 << 30, 4096
_ASK = "Ask the signer to export the log again on the Vault page"


def head_at(path: Path, count: int) -> str:
    """The hash of entry number `count` of an exported log; the complete chain is checked.

    Raises:
        IrwmError: the file is not an exported log, its chain is broken, or it ends before this entry.
    """
    if path.stat().st_size > MOST_BYTES:
        raise IrwmError("the file is too large to be an audit log", file=path, expected=f"at most {MOST_BYTES} bytes")
    previous, found, number = GENESIS, GENESIS if count == 0 else "", 0
    with path.open("rb") as lines:
        vault = _vault(lines.readline(MOST_LINE), path)
        while line := lines.readline(MOST_LINE):
            number += 1
            entry = _entry(line, path, number)
            covered = (vault, entry.version, entry.sequence, entry.time, entry.event, previous, entry.details)
            if (entry.sequence, entry.previous, entry.hash) != (number, previous, entry_hash(*covered)):
                raise IrwmError(
                    "the audit log's chain is broken",
                    file=path,
                    found=f"entry {number} does not follow from the previous one",
                    advice=_ASK,
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
        if header["schema"] == {"name": LOG_SCHEMA, "version": LOG_VERSION} and isinstance(header["vault"], str):
            return str(header["vault"])
    except (ValueError, LookupError, TypeError, RecursionError):
        pass
    raise IrwmError(
        "the file is not an exported audit log", file=path, expected=f"{LOG_SCHEMA}, version {LOG_VERSION}", advice=_ASK
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
        what = f"entry {count} of the log has the hash {recorded[:16]}…, but the report states {printable(head, 16)}…"
        return Check(LOG, False, f"the report refers to a different audit log: {what}")
    return Check(
        LOG, True, f"the audit log contains the entries that the report refers to ({count}), and its chain is complete"
    )
