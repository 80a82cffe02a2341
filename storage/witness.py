"""A small file beside the vault that remembers how far its audit log had come.

An old copy of the vault put in the place of the new one is sound in itself; so is a vault whose write-ahead log was
deleted before it was folded in. Both end earlier than the witness remembers. The witness is written after each commit,
so it can lag behind the vault (harmless) and never runs ahead of it by itself. Whoever exchanges both files together is
caught by the heads printed in reports, not here.
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path

import sqlite_utils

from storage import audit
from storage.canonical import json_bytes
from storage.files import replace_private

WITNESS_NAME = "vault.witness.json"
# Ours is about 150 bytes; anything larger is not ours and is not read.
LARGEST = 4096


@dataclass(frozen=True, slots=True)
class Witness:
    """The vault's identifier, the number of audit entries and the last one's hash."""

    vault: str
    count: int
    head: str


def read(home: Path) -> Witness | str | None:
    """What the witness remembers; a sentence when it cannot be read; None when there is none yet."""
    path = home / WITNESS_NAME
    try:
        with path.open("rb") as stream:
            values = json.loads(stream.read(LARGEST))
        seen = Witness(**values)
        if type(seen.vault) is str and type(seen.count) is int and type(seen.head) is str:
            return seen
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, RecursionError):
        pass
    return f"{path} cannot be read, so an exchange of the vault for an older one would go unnoticed."


def write(home: Path, vault: str, state: audit.AuditState) -> None:
    """Remembers a state that has been committed.

    Raises:
        OSError: the file cannot be written; the commit stands all the same.
    """
    replace_private(home / WITNESS_NAME, json_bytes(asdict(Witness(vault, state.count, state.head))))


def mismatch(seen: Witness | str | None, db: sqlite_utils.Database, vault: str) -> str | None:
    """What is suspicious, as a sentence, or None.

    Args:
        seen: from `read`, called before the transaction of `db` began, or a commit in between looks like a gap.
    """
    if seen is None or isinstance(seen, str):
        return seen
    if seen.vault != vault:
        return f"Another vault stood here before: {seen.vault}, with {seen.count} audit entries."
    now = audit.state(db)
    if seen.count > now.count:
        return (
            f"This is an older state of the vault: its audit log ends at entry {now.count}, "
            f"but entry {seen.count} had been written ({seen.head[:16]}…)."
        )
    with contextlib.closing(db.execute("SELECT hash FROM audit WHERE seq = ?", [seen.count])) as rows:
        row = rows.fetchone()
    if seen.count and (row is None or row[0] != seen.head):
        return f"The audit log's entry {seen.count} is not the one that was written here earlier."
    return None
