"""The vault: keys, releases, their labels and timestamps here, cases in `storage.casebook`, identities in
`storage.signing`, keys of the job list in `storage.job_keys`.

A `Vault` object is one session's view with its own lock state: a second browser session gets a second object, which
is locked until it gets the passphrase itself. Threads may share an object. Each record is sealed separately,
and records are only ever added; evidence is not edited or deleted.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from storage import audit
from storage.canonical import (
    checked_manifest,
    checked_time,
    json_bytes,
    limited_text,
    optional_text,
    required_text,
    utc_text,
)
from storage.casebook import CaseFiles
from storage.errors import DamagedRecordError, RecordValueError
from storage.index import (
    Index,
    KeyEntry,
    Look,
    ReleaseEntry,
    find_keys,
    find_releases,
    labelled_keys,
    labelled_releases,
    one_page,
    open_releases,
    own_copy,
)
from storage.integrity import VaultCheck, check_records
from storage.job_keys import JobKeyring
from storage.records import (
    KeyRecord,
    LabelRecord,
    NewKey,
    OriginalRecord,
    Page,
    Receipt,
    RecordName,
    Records,
    ReleaseRecord,
    TimestampRecord,
    added_together,
    build,
    content_digest,
    open_body,
    timestamp_body,
)
from storage.schema import KEYS, LABELS, RELEASES, TIMESTAMPS
from storage.signing import Signing
from storage.tables import next_sequence, not_found, sealed_row

# Limits an entry of the audit log to about 90 kB, for any number of keys added at once.
KEYS_PER_ENTRY = 1000
# Number of bodies opened at a time; far below the 32 766 values that one SQLite statement accepts.
KEYS_PER_QUERY = 500
PAGE_SIZE = 50
# A response contains a few certificates of a few kB each.
MOST_TIMESTAMP_BYTES = 1024 * 1024
LABELLED = (KEYS, RELEASES)
# A line or two; longer text belongs in the notes of a case.
LONGEST_LABEL = 500
_WITH_LABELS = "with labels"


class Vault(CaseFiles, Signing, JobKeyring):
    """One session's view of the vault in a folder; from `Vault.create` or `Vault.open`."""

    # Keys and releases

    def add_key(
        self,
        sealed: bytes,
        *,
        owner: str,
        recipient: str,
        model_name: str,
        model_fingerprint: str,
        family: str,
        commitment: str,
        parameters: Mapping[str, object],
        label: str = "",
    ) -> KeyRecord:
        """Adds a key; `sealed` are its bytes as the scheme writes them, which the vault seals and never reads.

        Raises:
            RecordValueError, VaultLockedError, AuditBrokenError, StorageError
        """
        new = NewKey(sealed, owner, recipient, model_name, model_fingerprint, family, commitment, parameters, label)
        record: KeyRecord = self._add(KEYS, "key added", new.meta(), bytes(new.sealed))
        return record

    def add_keys(self, keys: Iterable[NewKey]) -> list[KeyRecord]:
        """Adds many keys at once: all of them, or none.

        The log gets one entry for every `KEYS_PER_ENTRY` keys, with the digest of each. All keys are checked before
        the first is written; then no other process can write until the last one is in, about 60 µs for each.

        Raises:
            RecordValueError, VaultLockedError, AuditBrokenError, StorageError
        """
        self._use()
        new = [(json_bytes(key.meta(), f"key {n}"), bytes(key.sealed)) for n, key in enumerate(keys, start=1)]
        records: list[KeyRecord] = []
        if not new:
            return records
        with self._writing() as (db, sealer):
            first, created = next_sequence(db, KEYS, len(new)), utc_text(self._now())
            for start in range(0, len(new), KEYS_PER_ENTRY):
                part = new[start : start + KEYS_PER_ENTRY]
                rows = [sealed_row(sealer, KEYS, first + start + n, created, *key) for n, key in enumerate(part)]
                db.table(KEYS).insert_all(rows)
                digests = {row["id"]: content_digest(*key) for row, key in zip(rows, part, strict=True)}
                audit.append(db, sealer, created, "keys added", added_together(KEYS, digests))
                records += [build(KEYS, row, json.loads(plain)) for row, (plain, _) in zip(rows, part, strict=True)]
        return records

    def keys(self) -> Records[KeyRecord]:
        """All keys in order of addition, as they were filed; `.damaged` names those that do not authenticate.

        `labels`, `find_keys` and `key_records` give the labels that were added later.

        Raises:
            VaultLockedError, StorageError
        """
        return self._all(KEYS)

    def find_keys(
        self,
        text: str = "",
        *,
        model_fingerprint: str | None = None,
        newest_first: bool = True,
        offset: int = 0,
        limit: int = PAGE_SIZE,
    ) -> Page[KeyRecord]:
        """One page of the keys that have every word of `text` in their owner, recipient, model's name or label.

        Case is ignored. A word of `LEAST_OF_COMMITMENT` characters or more may also be the beginning of
        the commitment. Past the last page there are no records, and the same total.

        Raises:
            RecordValueError: `offset` is negative or `limit` less than 1.
            VaultLockedError, StorageError
        """
        with self._looking() as look:
            keys, labels = self._keys_at_hand(look), self._index(look, LABELS)
        found = find_keys(keys, text, model_fingerprint)
        records = one_page(found, newest_first, offset, limit)
        return Page(tuple(own_copy(record) for record in records), len(found), (*keys.damaged, *labels.damaged))

    def key_ids(self, text: str = "", *, model_fingerprint: str | None = None) -> list[str]:
        """The identifiers of all keys that `find_keys` finds, in order of addition; for `keys_bytes`."""
        with self._looking() as look:
            keys = self._keys_at_hand(look)
        return [record.id for record in find_keys(keys, text, model_fingerprint)]

    def key_records(self, ids: Iterable[str]) -> Records[KeyRecord]:
        """The keys with these identifiers, in their order; `.damaged` names those of them that do not authenticate.

        An identifier without a key is skipped.
        """
        with self._looking() as look:
            keys = self._keys_at_hand(look)
        known = {entry.record.id: entry.record for entry in keys.entries}
        wanted = list(ids)
        damaged = {name.id: name for name in keys.damaged}
        return Records(
            (own_copy(known[id]) for id in wanted if id in known), (damaged[id] for id in wanted if id in damaged)
        )

    def keys_for(self, model_fingerprint: str) -> Records[KeyRecord]:
        """The keys of one original. `.damaged` names every damaged key: any of them may have been this model's."""
        with self._looking() as look:
            keys = self._keys_at_hand(look)
        return Records(map(own_copy, find_keys(keys, model_fingerprint=model_fingerprint)), keys.damaged)

    def marks_on(self, release_fingerprint: str) -> Records[KeyRecord]:
        """The keys that marked the release with this model fingerprint; see `keys_for` on damaged ones."""
        with self._looking() as look:
            keys, releases = self._keys_at_hand(look), self._releases_at_hand(look)
        with_it = {entry.key_id for entry in releases.entries if entry.release_fingerprint == release_fingerprint}
        marks = (entry.record for entry in keys.entries if entry.record.id in with_it)
        return Records(map(own_copy, marks), keys.damaged)

    def originals(self) -> tuple[OriginalRecord, ...]:
        """The models that keys were made for, those of the latest keys first."""
        with self._looking() as look:
            keys, releases = self._keys_at_hand(look), self._releases_at_hand(look)
        of_key = {entry.record.id: entry.record for entry in keys.entries}
        paths: dict[str, dict[str, None]] = {}
        for release in reversed(releases.entries):
            if release.original and (key := of_key.get(release.key_id)) is not None:
                paths.setdefault(key.model_fingerprint, {})[release.original] = None
        counts = Counter(record.model_fingerprint for record in of_key.values())
        latest = {record.model_fingerprint: record.model_name for record in of_key.values()}
        latest_first = dict.fromkeys(record.model_fingerprint for record in reversed(of_key.values()))
        return tuple(
            OriginalRecord(each, latest[each], counts[each], tuple(paths.get(each, ()))) for each in latest_first
        )

    def key_bytes(self, id: str) -> bytes:
        """The bytes that were passed to `add_key`.

        Raises:
            RecordNotFoundError, DamagedRecordError, VaultLockedError, StorageError
        """
        ((_, body),) = self.keys_bytes([id])
        return body

    def keys_bytes(self, ids: Iterable[str], *, damaged: list[RecordName] | None = None) -> Iterator[tuple[str, bytes]]:
        """The bytes of many keys with their identifiers, in the order of the identifiers, a few hundred in memory.

        Args:
            damaged: if given, keys that do not authenticate are added to it and skipped; otherwise the first one
                is an error.

        Raises:
            RecordNotFoundError: no key has this identifier; those before it have been yielded.
            DamagedRecordError, VaultLockedError, StorageError
        """
        left = iter(ids)
        # A separate connection for each part: a long-lived one would block the write-ahead log during the loop.
        while part := list(itertools.islice(left, KEYS_PER_QUERY)):
            places = ",".join("?" * len(part))
            with self._reading() as (db, sealer):
                query = f"SELECT seq, id, version, created, body FROM keys WHERE id IN ({places})"
                rows = {row["id"]: row for row in db.query(query, part)}
            for id in part:
                if id not in rows:
                    raise not_found(KEYS, id)
                try:
                    body = open_body(sealer, KEYS, rows[id])
                except DamagedRecordError as error:
                    if damaged is None:
                        raise
                    damaged.append(RecordName(error.table, error.record))
                else:
                    yield id, body

    def add_release(
        self, key_id: str, path: str | Path, manifest: Mapping[str, str], receipt: Receipt
    ) -> ReleaseRecord:
        """Records the publication of a marked copy.

        Args:
            manifest: file name to SHA-256, hex.

        Raises:
            RecordNotFoundError: no such key.
            RecordValueError, VaultLockedError, AuditBrokenError, StorageError
        """
        meta = {"key_id": key_id, "path": str(path), "manifest": checked_manifest(manifest), "receipt": dict(receipt)}
        record: ReleaseRecord = self._add(RELEASES, "release recorded", meta, refers_to=(KEYS, key_id))
        return record

    def releases(self) -> Records[ReleaseRecord]:
        """All releases in order, as they were filed; see `keys`."""
        return self._all(RELEASES)

    def find_releases(
        self, text: str = "", *, newest_first: bool = True, offset: int = 0, limit: int = PAGE_SIZE
    ) -> Page[ReleaseRecord]:
        """One page of the releases that have every word of `text` in their path, label or a name of their key.

        Raises:
            RecordValueError, VaultLockedError, StorageError: see `find_keys`.
        """
        with self._looking() as look:
            releases = self._releases_at_hand(look)
            found = find_releases(releases, self._keys_at_hand(look), text) if text.strip() else releases.entries
            records, damaged = open_releases(look, one_page(found, newest_first, offset, limit))
            lost = (*releases.damaged, *damaged, *self._index(look, LABELS).damaged)
        return Page(tuple(records), len(found), tuple(dict.fromkeys(lost)))

    def release_records(self, ids: Iterable[str]) -> Records[ReleaseRecord]:
        """The releases with these identifiers, in order of addition; see `key_records`."""
        wanted = set(ids)
        with self._looking() as look:
            releases = self._releases_at_hand(look)
            found, damaged = open_releases(look, [entry for entry in releases.entries if entry.id in wanted])
        return Records(found, (*(name for name in releases.damaged if name.id in wanted), *damaged))

    # Labels, each in a separate record: filed records never change

    def set_label(self, table: str, record: str, text: str) -> LabelRecord:
        """Sets the label of a key or a release, in place of an earlier one; "" removes it. Earlier ones stay filed.

        Args:
            table: "keys" or "releases".
            record: the identifier there.

        Raises:
            RecordNotFoundError: there is no such record.
            RecordValueError: the table has no labels, or the text is too long.
            VaultLockedError, AuditBrokenError, StorageError
        """
        optional_text(text=text)
        if table not in LABELLED:
            raise RecordValueError(
                "this kind of record cannot have a label", expected=" or ".join(LABELLED), found=repr(table)
            )
        limited_text("note", text, LONGEST_LABEL)
        meta = {"table": table, "record": record, "text": text}
        noted = {"about": {"table": table, "id": record}}
        label: LabelRecord = self._add(LABELS, "note changed", meta, refers_to=(table, record), noted=noted)
        return label

    def labels(self, table: str, record: str) -> Records[LabelRecord]:
        """All labels of this record since it was filed, oldest first. `.damaged` names every damaged label."""
        return self._all(LABELS, lambda meta: (meta.get("table"), meta.get("record")) == (table, record))

    # Timestamps

    def add_timestamp(
        self,
        key_id: str,
        commitment_document: bytes,
        request: bytes,
        response: bytes,
        time_utc: str,
        authority: str,
        trusted: bool,
    ) -> TimestampRecord:
        """Adds a timestamp on a key's commitment; the caller has checked it and read its time.

        Args:
            commitment_document: the bytes whose SHA-256 was stamped.
            request, response: RFC 3161, DER, at most `MOST_TIMESTAMP_BYTES` each.

        Raises:
            RecordNotFoundError: no such key.
            RecordValueError, VaultLockedError, AuditBrokenError, StorageError
        """
        for name, part in (("document", commitment_document), ("request", request), ("response", response)):
            if not isinstance(part, bytes) or not 0 < len(part) <= MOST_TIMESTAMP_BYTES:
                raise RecordValueError(f"the timestamp's {name} is missing or too large")
        required_text(time_utc=time_utc, authority=authority)
        digest = hashlib.sha256(commitment_document).hexdigest()
        meta = {
            "key_id": key_id,
            "digest": digest,
            "time_utc": checked_time("time_utc", time_utc),
            "authority": authority,
            "trusted": bool(trusted),
        }
        body = timestamp_body(commitment_document, request, response)
        noted = {"key": key_id, "digest": digest, "time_utc": meta["time_utc"]}
        record: TimestampRecord = self._add(
            TIMESTAMPS, "timestamp added", meta, body, refers_to=(KEYS, key_id), noted=noted
        )
        return record

    def timestamps(self, key_id: str | None = None) -> Records[TimestampRecord]:
        """The timestamps of one key, or all; `.damaged` names the damaged ones of all keys."""
        return self._all(TIMESTAMPS, lambda meta: key_id in (None, meta.get("key_id")))

    def check(self) -> VaultCheck:
        """Opens every record and compares all with the audit log.

        Raises:
            VaultLockedError, DatabaseDamagedError, StorageError
        """
        with self._reading() as (db, sealer):
            return check_records(db, sealer)

    def _keys_at_hand(self, look: Look) -> Index[KeyEntry]:
        """The keys with their newest labels; cached, because adding labels is slow if there are many keys."""
        keys, labels = self._index(look, KEYS), self._index(look, LABELS)
        known = self._at_hand.get(_WITH_LABELS)
        if known is not None and known[0] is keys and known[1] is labels:
            found: Index[KeyEntry] = known[2]
            return found
        found = labelled_keys(keys, labels)
        self._keep(look.sealer, _WITH_LABELS, (keys, labels, found))
        return found

    def _releases_at_hand(self, look: Look) -> Index[ReleaseEntry]:
        return labelled_releases(self._index(look, RELEASES), self._index(look, LABELS))
