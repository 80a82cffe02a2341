"""A small file in the vault's folder that records how long its audit log is.

An old copy of the vault in place of the new one passes all checks; so does a vault whose write-ahead log was
deleted before it was folded in. Both end earlier than the witness records. The witness is written after each commit,
so it can lag behind the vault (harmless) but is never ahead of it unless a file was replaced. It has an HMAC under the
vault's data key, so a forged one is noticed at the next unlocking; a missing one causes a warning. An attacker who
replaces both files by old copies is detected by the heads printed in reports, not here.

While the passphrase is changed the witness has two tags: if that process is killed, it fits the vault under either key.
"""

from __future__ import annotations

import contextlib
import hmac
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

import sqlite_utils

from storage import audit
from storage.canonical import json_bytes
from storage.encryption import Sealer
from storage.files import replace_private
from storage.header import Header

WITNESS_NAME = "vault.witness.json"
# Ours is about 300 bytes; anything larger is not ours and is not read.
LARGEST = 4096
# The names of the audit log's entries about a doubt.
EXCHANGED, FORGED, MISSING = "exchange noticed", "witness not authentic", "witness missing"
MISSING_WARNING = (
    f"{WITNESS_NAME} is missing from the vault's folder, so an older copy of the vault would not be detected here. "
    "This is normal if the vault was just restored or moved here. Otherwise, compare the vault's audit log with the "
    "latest report."
)


@dataclass(frozen=True, slots=True)
class Witness:
    """The recorded end of a vault's audit log.

    Attributes:
        vault: the vault's identifier.
        count, head: the number of audit entries and the last one's hash.
        tags: identifier of a data key (`Sealer.key_id`) to the HMAC over the others under it, hex.
    """

    vault: str
    count: int
    head: str
    tags: dict[str, str] = field(hash=False)

    def signed(self, *sealers: Sealer) -> Witness:
        """The same witness, authenticated under these keys and no others."""
        message = self._message()
        return Witness(self.vault, self.count, self.head, {each.key_id: each.tag(message).hex() for each in sealers})

    def fits(self, sealer: Sealer) -> bool:
        """Whether the vault itself wrote it under this key."""
        # As bytes: text that is not ASCII cannot be compared in constant time.
        found = self.tags.get(sealer.key_id, "").encode("utf-8", "replace")
        return hmac.compare_digest(found, sealer.tag(self._message()).hex().encode("ascii"))

    def remembered(self) -> dict[str, str | int]:
        """Its content, without the authentication codes."""
        return {"vault": self.vault, "count": self.count, "head": self.head}

    def _message(self) -> bytes:
        return json_bytes({"what": "witness", **self.remembered()})


@dataclass(frozen=True, slots=True)
class Doubt:
    """Why the vault may not be in its latest state.

    Attributes:
        event: its name in the audit log.
        warning: one or two whole sentences.
    """

    event: str
    warning: str


def read(home: Path) -> Witness | str | None:
    """The content of the witness; a sentence if it cannot be read; None if there is none."""
    path = home / WITNESS_NAME
    try:
        with path.open("rb") as stream:
            values = json.loads(stream.read(LARGEST))
        seen = Witness(**values)
        sound = type(seen.vault) is str and type(seen.count) is int and type(seen.head) is str
        if sound and type(seen.tags) is dict and all(type(tag) is str for tag in seen.tags.values()):
            return seen
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, RecursionError):
        pass
    return f"{path} cannot be read, so an older copy of the vault in place of this one would not be detected."


def write(home: Path, vault: str, state: audit.AuditState, *sealers: Sealer) -> None:
    """Records a committed state, authenticated under these keys.

    Raises:
        OSError: the file cannot be written; the commit is not affected.
    """
    seen = Witness(vault, state.count, state.head, {}).signed(*sealers)
    replace_private(home / WITNESS_NAME, json_bytes(asdict(seen)))


def doubt(
    seen: Witness | str | None, db: sqlite_utils.Database, head: Header, sealer: Sealer | None = None
) -> Doubt | None:
    """A suspicious difference, or None.

    Args:
        seen: from `read`, called before the transaction of `db` began; otherwise a commit in between looks like a gap.
        head: the vault's header.
        sealer: authenticates the witness; None while the vault is locked.
    """
    now = audit.state(db)
    if seen is None:
        return Doubt(MISSING, MISSING_WARNING) if now.count else None
    if isinstance(seen, str):
        return Doubt(EXCHANGED, seen)
    if seen.vault != head.id:
        return Doubt(EXCHANGED, f"Another vault was here before: {seen.vault} (audit entries: {seen.count}).")
    if sealer is not None and sealer.key_id in seen.tags and not seen.fits(sealer):
        return Doubt(
            FORGED,
            f"{WITNESS_NAME} was not written by this vault: its authentication code is wrong. Someone may have put an "
            "older copy of the vault here and changed that file to match it.",
        )
    if seen.count > now.count:
        return Doubt(
            EXCHANGED,
            f"This is an older state of the vault: its audit log ends at entry {now.count}, "
            f"but entry {seen.count} had already been written ({seen.head[:16]}…).",
        )
    with contextlib.closing(db.execute("SELECT hash FROM audit WHERE seq = ?", [seen.count])) as rows:
        row = rows.fetchone()
    if seen.count and (row is None or row[0] != seen.head):
        return Doubt(EXCHANGED, f"Entry {seen.count} of the audit log is not the one that was written here earlier.")
    if head.key_id not in seen.tags:
        return Doubt(
            FORGED,
            f"{WITNESS_NAME} and the vault's header refer to different data keys: a header from an earlier passphrase "
            "was restored, or that file is not the one that the vault wrote last.",
        )
    return None
