"""The vault's case records, as values for the layers above."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple


@dataclass(frozen=True, slots=True)
class CaseRecord:
    """A group of investigations that belong together."""

    id: str
    sequence: int
    created: str
    title: str
    note: str


class FileDigest(NamedTuple):
    """A file by its size in bytes and its SHA-256, 64 hexadecimal digits."""

    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class RunRecord:
    """One investigation filed in a case.

    Attributes:
        suspect: name or path of the examined model.
        verdict: the finding's word.
        note: the officer's own words.
        finding: the whole finding as plain JSON values.
        files: the files filed with it, such as its report, by name; `Vault.run_files` gives their bytes.
        file_ids: the records of these files, by name.
    """

    id: str
    sequence: int
    created: str
    case_id: str
    suspect: str
    verdict: str
    note: str
    finding: dict[str, Any] = field(hash=False)
    files: dict[str, FileDigest] = field(default_factory=dict, hash=False)
    file_ids: dict[str, str] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class RunEntry:
    """A line of a list of investigations: a `RunRecord` without its finding, which may be a megabyte."""

    id: str
    sequence: int
    created: str
    case_id: str
    suspect: str
    verdict: str
    note: str
    files: dict[str, FileDigest] = field(default_factory=dict, hash=False)
    file_ids: dict[str, str] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class RunFileRecord:
    """One file filed with an investigation; its bytes are the record's body."""

    id: str
    sequence: int
    created: str
    run_id: str
    name: str
    sha256: str


@dataclass(frozen=True, slots=True)
class ItemRecord:
    """An item received for a case, such as a suspect checkpoint; the item itself is not moved.

    Attributes:
        created: when it was received, by the vault's clock.
        name: its name in this case.
        files: file name to size and SHA-256.
        received_from: the person or place it came from.
        note, added_by: the officer's own words, and who added it.
        seen_utc: since when it is known to exist, ISO 8601 in UTC; "" if unknown.
    """

    id: str
    sequence: int
    created: str
    case_id: str
    name: str
    received_from: str
    note: str
    added_by: str
    seen_utc: str
    files: dict[str, FileDigest] = field(hash=False)


@dataclass(frozen=True, slots=True)
class NoteRecord:
    """A note in a case, and who wrote it."""

    id: str
    sequence: int
    created: str
    case_id: str
    text: str
    added_by: str
