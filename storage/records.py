"""The vault's records, as values for the layers above, and the conversion from a row to a value."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Generic, NamedTuple, NotRequired, TypedDict, TypeVar

from irwm.errors import SignatureError
from irwm.signing import Certificate
from storage.canonical import optional_text, required_text
from storage.database import Row
from storage.encryption import Place, Sealer
from storage.errors import DamagedRecordError, RecordValueError
from storage.schema import (
    CASES,
    IDENTITIES,
    ITEMS,
    JOB_KEYS,
    KEYS,
    LABELS,
    NOTES,
    RELEASES,
    RUN_FILES,
    RUNS,
    TIMESTAMPS,
)

T = TypeVar("T")
# The sealed metadata of a record: the fields of its class, as JSON values.
Meta = dict[str, object]


@dataclass(frozen=True, slots=True)
class Record:
    """What records of every kind have.

    Attributes:
        id: identifier within this vault.
        sequence: order of addition; clocks jump, sequences do not.
        created: UTC, ISO 8601.
    """

    id: str
    sequence: int
    created: str


@dataclass(frozen=True, slots=True)
class KeyRecord(Record):
    """The facts about a key; `Vault.key_bytes` gives the key's own bytes.

    Attributes:
        owner, recipient: the names the key was made for; no recipient means the owner's own mark.
        model_name, model_fingerprint, family: the original it belongs to.
        commitment: public fingerprint (SHA-256, hex) that may be shown and printed.
        parameters: the mark's settings as plain JSON values.
        label: the officer's own words.
    """

    owner: str
    recipient: str
    model_name: str
    model_fingerprint: str
    family: str
    commitment: str
    parameters: dict[str, object] = field(hash=False)
    label: str

    @property
    def whose(self) -> str:
        """The name of the mark's owner or recipient."""
        return f"{self.owner}, issued to {self.recipient}" if self.recipient else self.owner


@dataclass(frozen=True, slots=True)
class NewKey:
    """A key that is to be added; the names as in `KeyRecord`.

    Attributes:
        sealed: its bytes as the scheme writes them; the vault seals them and never reads them.

    Raises:
        RecordValueError: there are no bytes, a name is not text, or a required one is empty.
    """

    sealed: bytes = field(repr=False)
    owner: str
    recipient: str
    model_name: str
    model_fingerprint: str
    family: str
    commitment: str
    parameters: Mapping[str, object] = field(hash=False)
    label: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.sealed, (bytes, bytearray)) or not self.sealed:
            raise RecordValueError("a key must be a non-empty sequence of bytes", found=type(self.sealed).__name__)
        required_text(owner=self.owner, model_fingerprint=self.model_fingerprint, commitment=self.commitment)
        optional_text(recipient=self.recipient, model_name=self.model_name, family=self.family, label=self.label)

    def meta(self) -> Meta:
        """The metadata that is sealed separately from the bytes."""
        facts = {each.name: getattr(self, each.name) for each in fields(self) if each.name != "sealed"}
        return facts | {"parameters": dict(self.parameters)}


class Changes(TypedDict):
    """The differences between an original and a copy.

    `changed_values` is None if only a sample was compared; then `changed_share` is the median row's change as a share
    of its length. `head_tensor` names the output head if it is marked. `changed_layers` is the number of MLP layers
    whose neurons have a fingerprint; receipts of earlier versions lack it.
    """

    changed_rows: int
    changed_tensors: list[str]
    changed_values: int | None
    changed_share: float | None
    changed_head_rows: int
    head_tensor: str | None
    changed_layers: NotRequired[int]


class MarkedBefore(TypedDict):
    """The marks that an original already carries, and the number of unreadable records, which may be such marks."""

    marked_before: list[str]
    damaged: int


class ReadBack(TypedDict):
    """The mark that was read back from a copy. A receipt of an earlier version has no `log10_risk`."""

    count: int
    present: int
    log10_p: float
    log10_risk: float | None


class CopyFacts(Changes, ReadBack):
    """The facts about a copy that was read back; of values derived from the secret, only the commitment."""

    model: str
    model_fingerprint: str
    release_fingerprint: str
    family: str
    dtype: str
    vocab_size: int
    hidden_size: int
    owner: str
    recipient: str
    commitment: str
    parameters: Mapping[str, object]
    scale: float
    path: str
    bytes: int
    files: dict[str, str]
    left_out: list[str]
    signature: NotRequired[str]  # SHA-256 of model.sig; "" if it was not signed
    verdict: str
    paper_count: int | None
    irwm: str


class Receipt(CopyFacts, MarkedBefore):
    """The receipt of a release."""

    bytes_cloned: int


@dataclass(frozen=True, slots=True)
class ReleaseRecord(Record):
    """A published marked copy.

    Attributes:
        key_id: the key whose mark it carries.
        path: where it was written.
        manifest: file name to SHA-256 (hex).
        receipt: the facts certified by the release page.
        label: the officer's own words, "" if there are none.
    """

    key_id: str
    path: str
    manifest: dict[str, str] = field(hash=False)
    receipt: Receipt = field(hash=False)
    label: str = ""


@dataclass(frozen=True, slots=True)
class OriginalRecord:
    """A model that keys were made for.

    Attributes:
        fingerprint, name: as in its keys.
        keys: their number.
        paths: where it was when releases were made from it, the latest first. It may be elsewhere by now, or be another
            model with the same embedding.
    """

    fingerprint: str
    name: str
    keys: int
    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TimestampRecord(Record):
    """A timestamp on a key's public commitment, with the data needed to check it again without the vault.

    Attributes:
        key_id: the key whose commitment it is.
        digest: SHA-256, hex, of the commitment's document.
        time_utc: the time that the authority signed, ISO 8601.
        authority: the authority's name, as its certificate says.
        trusted: whether the authority's certificate led to a root that the officer trusted when it was added.
        commitment_document, request, response: the bytes themselves.
    """

    key_id: str
    digest: str
    time_utc: str
    authority: str
    trusted: bool
    commitment_document: bytes = field(repr=False)
    request: bytes = field(repr=False)
    response: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class LabelRecord(Record):
    """Text added to a key or a release after it was filed, or a new title of a case.

    A record's newest label is the current one.

    Attributes:
        table, record: the labelled record; a plain table's name and an identifier in it.
        text: the officer's own words; "" removes earlier ones.
    """

    table: str
    record: str
    text: str


@dataclass(frozen=True, slots=True)
class JobsKeyRecord(Record):
    """A key of the job list; its bytes are the record's body.

    Attributes:
        made_under: HMAC, hex, that shows whether the vault still has the data key under which it was made.
    """

    made_under: str


@dataclass(frozen=True, slots=True)
class CaseRecord(Record):
    """A group of investigations that belong together."""

    title: str
    note: str


class FileDigest(NamedTuple):
    """A file by its size in bytes and its SHA-256, 64 hexadecimal digits."""

    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class RunEntry(Record):
    """A line of a list of investigations: a `RunRecord` without its finding, which may be a megabyte.

    Attributes:
        suspect: name or path of the examined model.
        verdict: the finding's word.
        note: the officer's own words.
        files: the files filed with it, such as its report, by name; `Vault.run_files` gives their bytes.
        file_ids: the records of these files, by name.
    """

    case_id: str
    suspect: str
    verdict: str
    note: str
    files: dict[str, FileDigest] = field(default_factory=dict, hash=False)
    file_ids: dict[str, str] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class RunRecord(RunEntry):
    """One investigation filed in a case.

    Attributes:
        finding: the whole finding as plain JSON values.
    """

    finding: dict[str, object] = field(hash=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class RunFileRecord(Record):
    """One file filed with an investigation; its bytes are the record's body."""

    run_id: str
    name: str
    sha256: str


@dataclass(frozen=True, slots=True)
class ItemRecord(Record):
    """An item received for a case, such as a suspect checkpoint; the item itself is not moved.

    Attributes:
        created: when it was received, by the vault's clock.
        name: its name in this case.
        files: file name to size and SHA-256.
        received_from: the person or place it came from.
        note, added_by: the officer's own words, and who added it.
        seen_utc: since when it is known to exist, ISO 8601 in UTC; "" if unknown.
    """

    case_id: str
    name: str
    received_from: str
    note: str
    added_by: str
    seen_utc: str
    files: dict[str, FileDigest] = field(hash=False)


@dataclass(frozen=True, slots=True)
class NoteRecord(Record):
    """A note in a case, and who wrote it."""

    case_id: str
    text: str
    added_by: str


@dataclass(frozen=True, slots=True)
class Identity(Record):
    """A signing identity of the vault; its private key stays sealed in the vault (`irwm.signing` signs and checks).

    Attributes:
        number: counts the vault's identities from 1, including lost ones.
        public_key: 32 bytes, hex.
        certificates: from the first identity of its chain to this one; none for the first.
    """

    number: int
    public_key: str
    certificates: tuple[Certificate, ...] = ()

    @property
    def first_public_key(self) -> str:
        """The public key at the beginning of the chain, which identifies the vault."""
        return self.certificates[0].previous_public_key if self.certificates else self.public_key


@dataclass(frozen=True, slots=True)
class RecordName:
    """A record by its table and identifier; for lists of damaged or missing records."""

    table: str
    id: str


class Records(list[T], Generic[T]):
    """A list of the records that could be read; `damaged` names the others, so that no record is left out silently."""

    damaged: tuple[RecordName, ...]

    def __init__(self, records: Iterable[T] = (), damaged: Iterable[RecordName] = ()) -> None:
        super().__init__(records)
        self.damaged = tuple(damaged)


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """One page of a longer list.

    Attributes:
        records: those of this page, in the requested order.
        total: how many records there are on all pages together.
        damaged: the records of the whole table that do not authenticate; each may belong to any page.
    """

    records: tuple[T, ...]
    total: int
    damaged: tuple[RecordName, ...]


_KINDS: dict[str, type[Record]] = {
    KEYS: KeyRecord,
    RELEASES: ReleaseRecord,
    CASES: CaseRecord,
    RUNS: RunRecord,
    RUN_FILES: RunFileRecord,
    ITEMS: ItemRecord,
    NOTES: NoteRecord,
    TIMESTAMPS: TimestampRecord,
    IDENTITIES: Identity,
    LABELS: LabelRecord,
    JOB_KEYS: JobsKeyRecord,
}
# The body of these is part of the record; that of keys, identities and files of runs is separate bytes.
WITH_BODY = frozenset({RUNS, ITEMS, TIMESTAMPS})
_TIMESTAMP_PARTS = ("commitment_document", "request", "response")


def place(table: str, row: Row, part: str) -> Place:
    """The place of a row's column.

    Raises:
        DamagedRecordError: a plain column has the wrong type; in SQLite, an edit can put any value there.
    """
    version, record, sequence, created = row["version"], row["id"], row["seq"], row["created"]
    if type(version) is not int or type(record) is not str or type(sequence) is not int or type(created) is not str:
        raise DamagedRecordError(table, str(record))
    return Place(version, table, record, part, sequence, created)


def open_meta(sealer: Sealer, table: str, row: Row) -> Meta:
    """The content of a row's sealed metadata.

    Raises:
        DamagedRecordError
    """
    meta: Meta = json.loads(open_part(sealer, table, row, "meta"))
    return meta


def open_body(sealer: Sealer, table: str, row: Row) -> bytes:
    """A row's sealed body.

    Raises:
        DamagedRecordError
    """
    return open_part(sealer, table, row, "body")


def open_part(sealer: Sealer, table: str, row: Row, part: str) -> bytes:
    """The bytes that were sealed in a row's "meta" or "body".

    Raises:
        DamagedRecordError
    """
    return sealer.open(row[part], place(table, row, part))


def build(table: str, row: Row, meta: Meta, body: bytes = b"") -> Any:
    """The record of a row whose parts have been opened; the body matters for the tables in `WITH_BODY` only.

    Raises:
        DamagedRecordError: the fields do not fit this kind of record; only another program could have sealed them.
    """
    try:
        return _KINDS[table](id=row["id"], sequence=row["seq"], created=row["created"], **_fields(table, meta, body))
    except (TypeError, ValueError, KeyError, SignatureError):
        raise DamagedRecordError(table, row["id"]) from None


def run_entry(row: Row, meta: Meta) -> RunEntry:
    """The list entry of a run whose metadata has been opened.

    Raises:
        DamagedRecordError: see `build`.
    """
    try:
        fields: dict[str, Any] = dict(meta)
        fields["files"] = file_digests(fields["files"])
        return RunEntry(id=row["id"], sequence=row["seq"], created=row["created"], **fields)
    except (TypeError, ValueError, KeyError):
        raise DamagedRecordError(RUNS, row["id"]) from None


def file_digests(files: Mapping[str, Any]) -> dict[str, FileDigest]:
    """Sizes and digests, which come as lists from JSON."""
    return {name: FileDigest(*pair) for name, pair in files.items()}


def timestamp_body(commitment_document: bytes, request: bytes, response: bytes) -> bytes:
    """The body of a timestamp's record."""
    parts = (commitment_document, request, response)
    return json.dumps([base64.b64encode(part).decode("ascii") for part in parts]).encode("ascii")


def _fields(table: str, meta: Meta, body: bytes) -> dict[str, Any]:
    fields: dict[str, Any] = dict(meta)
    if table == RUNS:
        fields |= {"finding": json.loads(body), "files": file_digests(fields["files"])}
    elif table == ITEMS:
        fields["files"] = file_digests(json.loads(body))
    elif table == TIMESTAMPS:
        parts = [base64.b64decode(part, validate=True) for part in json.loads(body)]
        fields |= dict(zip(_TIMESTAMP_PARTS, parts, strict=True))
    elif table == IDENTITIES:
        fields["certificates"] = tuple(map(Certificate.from_dict, fields["certificates"]))
    return fields


def content_digest(meta: bytes, body: bytes) -> str:
    """SHA-256, hex, over the SHA-256 of both parts of a record before they are sealed.

    The audit log keeps it, sealed like all its details. It stays the same when a change of passphrase seals the record
    again.
    """
    return hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in (meta, body))).hexdigest()


def added(table: str, id: str, meta: bytes, body: bytes) -> dict[str, object]:
    """The audit log's details for a record that is added."""
    return {"table": table, "id": id, "sha256": content_digest(meta, body)}


def added_together(table: str, digests: Mapping[str, str]) -> dict[str, object]:
    """The audit log's details for records that are added at once: the digest of each, so that each can be named.

    Args:
        digests: identifier to `content_digest`.
    """
    return {"table": table, "records": dict(digests)}


def added_in(details: Mapping[str, Any] | None) -> Iterator[tuple[RecordName, str]]:
    """The records whose addition an audit entry records, with their digests; empty for other entries."""
    if details is None:
        return
    if {"table", "id", "sha256"} <= details.keys():
        yield RecordName(details["table"], details["id"]), details["sha256"]
    elif {"table", "records"} <= details.keys():
        for id, digest in details["records"].items():
            yield RecordName(details["table"], id), digest
    if "with" in details:
        yield from added_in(details["with"])
