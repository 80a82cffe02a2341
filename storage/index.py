"""The search index of an unlocked vault for keys and releases; in memory only, dropped when the vault locks.

Names are sealed in the file like everything else, so the file cannot be searched: the first search after unlocking
opens every record once, and later ones search the opened records. An index is never changed; a newer one replaces it.
It is reused as long as neither the file nor the audit log's head changed. If only the vault itself wrote more records,
which an authenticated and longer log shows, reading continues after the last row of the index. In all other cases all
rows are read again, so a change by another program is noticed at the next search, as it would be without an index.
"""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, NamedTuple, TypeVar

import sqlite_utils

from storage import audit
from storage.database import Row
from storage.encryption import Sealer
from storage.errors import AuditBrokenError, DamagedRecordError, RecordValueError
from storage.records import KeyRecord, Meta, RecordName, ReleaseRecord, build, open_meta
from storage.schema import KEYS, LABELS, RELEASES

# Two hexadecimal digits are also part of many names, and begin one fingerprint in 256.
LEAST_OF_COMMITMENT = 4


class KeyEntry(NamedTuple):
    """A key and its names in their searched form."""

    record: KeyRecord
    words: str


class ReleaseEntry(NamedTuple):
    """The searched fields of a release, and the path of its original.

    Its manifest is opened only for the page that shows it, to save memory.
    """

    sequence: int
    id: str
    key_id: str
    release_fingerprint: str
    words: str
    original: str
    label: str = ""


class LabelEntry(NamedTuple):
    """The text of a label, and its record by table and identifier."""

    about: tuple[str, str]
    text: str


E = TypeVar("E", KeyEntry, ReleaseEntry, LabelEntry)
Stamp = tuple[tuple[int, ...] | None, ...]


@dataclass(frozen=True, slots=True)
class Index(Generic[E]):
    """All records of one table, in one state of the vault.

    Attributes:
        entries: in order of sequence.
        damaged: records that do not authenticate.
        last: the highest sequence number read, and the identifier of that row.
        stamp: of the file, taken before it was read.
        log: the audit log's end; None when it was damaged.
    """

    entries: tuple[E, ...] = ()
    damaged: tuple[RecordName, ...] = ()
    last: tuple[int, Any] | None = None
    stamp: Stamp = ()
    log: audit.AuditState | None = None


class Look(NamedTuple):
    """One state of the vault, open for reading.

    Attributes:
        stamp: `DatabaseFile.stamp()` from before the database was opened.
    """

    db: sqlite_utils.Database
    sealer: Sealer
    stamp: Stamp


def refreshed(known: Index[Any] | None, table: str, look: Look) -> Index[Any]:
    """The entries of keys, releases or labels as this state of the database has them, in order of sequence.

    Args:
        known: an earlier index of the same table and vault, if there is one.
    """
    try:
        log: audit.AuditState | None = audit.state(look.db)
    except AuditBrokenError:
        log = None  # readable records are still shown; the log's own check says what is wrong with it
    if known is not None and log is not None and known.log is not None:
        if known.stamp == look.stamp and known.log == log:
            return known
        if log.fits(look.sealer) and log.count > known.log.count and _goes_on(known, known.log, table, look.db):
            longer = _read(known, table, look)
            (rows,) = look.db.execute(f"SELECT COUNT(*) FROM {table}").fetchone()
            if rows == len(longer.entries) + len(longer.damaged):
                return replace(longer, stamp=look.stamp, log=log)
    return replace(_read(Index(), table, look), stamp=look.stamp, log=log)


def labelled_keys(keys: Index[KeyEntry], labels: Index[LabelEntry]) -> Index[KeyEntry]:
    """The keys with their newest labels, in place of the text they were filed with."""
    newest = {id: text for (table, id), text in labels.entries if table == KEYS}
    if not newest:
        return keys

    def put(entry: KeyEntry) -> KeyEntry:
        text = newest.get(entry.record.id)
        return entry if text is None else _key_entry(replace(entry.record, label=text))

    return replace(keys, entries=tuple(map(put, keys.entries)))


def labelled_releases(releases: Index[ReleaseEntry], labels: Index[LabelEntry]) -> Index[ReleaseEntry]:
    """The releases with their newest labels."""
    newest = {id: text for (table, id), text in labels.entries if table == RELEASES}
    if not newest:
        return releases

    def put(entry: ReleaseEntry) -> ReleaseEntry:
        text = newest.get(entry.id)
        return entry if text is None else entry._replace(label=text, words=f"{entry.words}\n{_searched(text)}")

    return replace(releases, entries=tuple(map(put, releases.entries)))


def find_keys(index: Index[KeyEntry], text: str = "", model_fingerprint: str | None = None) -> list[KeyRecord]:
    """The keys, in order of sequence, that have every word of `text` in a name or at the start of their commitment."""
    found: Iterable[KeyEntry] = index.entries
    if model_fingerprint is not None:
        found = [entry for entry in found if entry.record.model_fingerprint == model_fingerprint]
    for word in _words(text):
        start = word if len(word) >= LEAST_OF_COMMITMENT else None
        found = [
            entry
            for entry in found
            if word in entry.words or (start is not None and entry.record.commitment.startswith(start))
        ]
    return [entry.record for entry in found]


def find_releases(index: Index[ReleaseEntry], keys: Index[KeyEntry], text: str = "") -> list[ReleaseEntry]:
    """The releases, in order of sequence, that have every word of `text` in their path or in a name of their key."""
    found = list(index.entries)
    words = _words(text)
    names = {entry.record.id: entry.words for entry in keys.entries} if words else {}
    for word in words:
        found = [entry for entry in found if word in entry.words or word in names.get(entry.key_id, "")]
    return found


def one_page(found: Sequence[Any], newest_first: bool, offset: int, limit: int) -> Sequence[Any]:
    """The entry at `offset` and the `limit` - 1 entries after it.

    Raises:
        RecordValueError: `offset` is negative or `limit` less than 1.
    """
    for name, value, least in (("offset", offset, 0), ("limit", limit, 1)):
        if type(value) is not int or value < least:
            raise RecordValueError(
                f"the page's {name} is out of range", expected=f"at least {least}", found=repr(value)
            )
    if newest_first:
        return [found[at] for at in range(len(found) - 1 - offset, max(-1, len(found) - 1 - offset - limit), -1)]
    return found[offset : offset + limit]


def own_copy(record: KeyRecord) -> KeyRecord:
    """The record with its own copy of the settings: in the index, keys with equal settings share them."""
    return replace(record, parameters=dict(record.parameters))


def open_releases(look: Look, entries: Sequence[ReleaseEntry]) -> tuple[list[ReleaseRecord], list[RecordName]]:
    """The releases of one page, and those of them that were changed or removed since the search."""
    places = ",".join("?" * len(entries))
    query = f"SELECT seq, id, version, created, meta FROM releases WHERE seq IN ({places})"
    rows = {row["seq"]: row for row in look.db.query(query, [entry.sequence for entry in entries])}
    records, damaged = [], []
    for entry in entries:
        try:
            row = rows[entry.sequence]
            record: ReleaseRecord = build(RELEASES, row, open_meta(look.sealer, RELEASES, row))
            records.append(replace(record, label=entry.label))
        except (KeyError, DamagedRecordError):
            damaged.append(RecordName(RELEASES, entry.id))
    return records, damaged


def _goes_on(known: Index[Any], log: audit.AuditState, table: str, db: sqlite_utils.Database) -> bool:
    """Whether the log, and the table's last row, are still where the index ended."""
    head = db.execute("SELECT hash FROM audit WHERE seq = ?", [log.count]).fetchone()
    if head is None or head[0] != log.head:
        return False
    if known.last is None:
        return True
    # If the last row was removed, the next one gets its number.
    row = db.execute(f"SELECT id FROM {table} WHERE seq = ?", [known.last[0]]).fetchone()
    return row is not None and bool(row[0] == known.last[1])


def _read(known: Index[Any], table: str, look: Look) -> Index[Any]:
    entries, damaged, last = list(known.entries), list(known.damaged), known.last
    makers: dict[str, Callable[[Row, Meta], Any]]
    makers = {KEYS: _KeyEntries(), RELEASES: _release_entry, LABELS: _label_entry}
    entry_of = makers[table]
    newer, values = ("", []) if last is None else ("WHERE seq > ?", [last[0]])
    for row in look.db.query(f"SELECT seq, id, version, created, meta FROM {table} {newer} ORDER BY seq", values):
        last = row["seq"], row["id"]
        try:
            entries.append(entry_of(row, open_meta(look.sealer, table, row)))
        except DamagedRecordError as error:
            damaged.append(RecordName(error.table, error.record))
    return Index(tuple(entries), tuple(damaged), last)


class _KeyEntries:
    """Makes entries of keys that store repeated values once: a release for 100 000 recipients repeats most of them."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._parameters: Any = None

    def __call__(self, row: Row, meta: Meta) -> KeyEntry:
        if meta.get("parameters") == self._parameters:
            meta["parameters"] = self._parameters
        else:
            self._parameters = meta.get("parameters")
        for name in ("owner", "model_name", "model_fingerprint", "family", "label"):
            if type(text := meta.get(name)) is str:
                meta[name] = self._texts.setdefault(text, text)
        created = self._texts.setdefault(row["created"], row["created"])
        return _key_entry(build(KEYS, {**row, "created": created}, meta))


def _key_entry(record: KeyRecord) -> KeyEntry:
    return KeyEntry(record, _searched(f"{record.owner}\n{record.recipient}\n{record.model_name}\n{record.label}"))


def _label_entry(row: Row, meta: Meta) -> LabelEntry:
    record = build(LABELS, row, meta)
    if not all(isinstance(part, str) for part in (record.table, record.record, record.text)):
        raise DamagedRecordError(LABELS, row["id"])
    return LabelEntry((record.table, record.record), record.text)


def _release_entry(row: Row, meta: Meta) -> ReleaseEntry:
    record = build(RELEASES, row, meta)
    marked = str(record.receipt.get("release_fingerprint", ""))
    original = sys.intern(str(record.receipt.get("model", "")))  # the same in many records
    return ReleaseEntry(record.sequence, record.id, record.key_id, marked, _searched(record.path), original)


def _words(text: str) -> list[str]:
    return _searched(text).split()


def _searched(text: str) -> str:
    """Text in the form that is compared: case and the several ways to write a character make no difference."""
    if text.isascii():
        return text.lower()
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
