"""Labels of keys and releases, each in a separate record: filed records never change."""

from __future__ import annotations

from storage.canonical import optional_text
from storage.errors import RecordValueError
from storage.filing import Filing
from storage.index import Index, KeyEntry, LabelEntry, ReleaseEntry, label_index, labelled_keys, labelled_releases
from storage.records import LabelRecord, Records
from storage.schema import KEYS, LABELS, RELEASES
from storage.tables import Look

LABELLED = (KEYS, RELEASES)
# A line or two; longer text belongs in the notes of a case.
LONGEST_LABEL = 500
_WITH_LABELS = "with labels"


class Labelling(Filing):
    """A session that can label keys and releases."""

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
                "this kind of record has no label", expected=" or ".join(LABELLED), found=repr(table)
            )
        if len(text) > LONGEST_LABEL:
            raise RecordValueError(
                "the note is too long", expected=f"at most {LONGEST_LABEL} characters", found=f"{len(text)} characters"
            )
        meta = {"table": table, "record": record, "text": text}
        noted = {"about": {"table": table, "id": record}}
        label: LabelRecord = self._add(LABELS, "note changed", meta, refers_to=(table, record), noted=noted)
        return label

    def labels(self, table: str, record: str) -> Records[LabelRecord]:
        """All labels of this record since it was filed, oldest first. `.damaged` names every damaged label."""
        return self._all(LABELS, lambda meta: (meta.get("table"), meta.get("record")) == (table, record))

    def _labels_at_hand(self, look: Look) -> Index[LabelEntry]:
        with self._opening:
            index = label_index(self._at_hand.get(LABELS), *look)
            self._keep(look.sealer, LABELS, index)
        return index

    def _with_key_labels(self, look: Look, keys: Index[KeyEntry]) -> Index[KeyEntry]:
        """The keys with their newest labels; cached, because adding labels is slow if there are many keys."""
        labels = self._labels_at_hand(look)
        known = self._at_hand.get(_WITH_LABELS)
        if known is not None and known[0] is keys and known[1] is labels:
            found: Index[KeyEntry] = known[2]
            return found
        found = labelled_keys(keys, labels)
        self._keep(look.sealer, _WITH_LABELS, (keys, labels, found))
        return found

    def _with_release_labels(self, look: Look, releases: Index[ReleaseEntry]) -> Index[ReleaseEntry]:
        return labelled_releases(releases, self._labels_at_hand(look))
