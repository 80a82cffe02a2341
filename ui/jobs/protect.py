"""The task behind Protect: key into the vault, marked copy onto the disk, receipt into the vault - in this order.

The key is sealed before the first byte of the release is written: a release whose key is lost can never be proved.
All checks that can fail come before that, so that a failure leaves no unused key in the vault. Only the same request
resumes a run that was interrupted: its key is used, a finished copy is filed, and for a filed copy the receipt is
returned. `ui.jobs.protect_many` handles many recipients.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import irwm
from irwm.errors import CancelledError, OutputExistsError, path_from
from irwm.release import preflight
from storage.records import KeyRecord
from ui.jobs import protect_many
from ui.jobs.certifying import certificate_of
from ui.jobs.device import device_of
from ui.jobs.recipients import same_name
from ui.jobs.releasing import (
    Copies,
    Issued,
    alone,
    forget_folder,
    issued,
    note_folder,
    require_margin,
    seal,
    sealed_for,
    secret_of,
)
from ui.jobs.reporter import JobReporter
from ui.jobs.vault_access import vault_of


def run(request: dict[str, Any], secrets: dict[str, Any], report: JobReporter) -> dict[str, Any]:
    """Mark one model for one owner or recipient, or, if the request has "recipients", for many.

    Args:
        request: "model" and "out_dir" (paths), "parameters" (`irwm.Parameters.to_dict`), "owner", "recipient",
            "label", "device", optionally "also" (other files to copy) and "utility" (whether to measure the cost of
            the mark, see `ui.jobs.certifying`).
        secrets: see `ui.jobs.vault_access`.

    Returns:
        The content of the page's receipt, `ui.jobs.releasing.receipt_of`; its "utility" is the certificate or None.
    """
    if "recipients" in request:
        return protect_many.run(request, secrets, report)
    vault = vault_of(secrets, report)
    device = device_of(request["device"])
    report.progress(0, 0, "Opening the original")
    model = irwm.open_checkpoint(request["model"])
    with alone(report.home, report):
        key_id, receipt = _released(Copies(vault, model, request, device, report))
    return receipt | {"key_id": key_id, "utility": certificate_of(request, model, receipt, device, report)}


def _released(copies: Copies) -> tuple[str, dict[str, Any]]:
    """The identifier of the key and the receipt of the requested copy, which was written or already finished."""
    vault, model, request = copies.vault, copies.model, copies.request
    device, report = copies.device, copies.report
    params = irwm.Parameters.from_dict(request["parameters"])
    report.progress(0, 0, "Fingerprinting the embedding")
    owner, recipient = request["owner"], request["recipient"]
    known = issued(vault, model.fingerprint, owner, params, {same_name(recipient)})
    out = path_from(request["out_dir"])
    folder = out.parent.resolve() / out.name
    earlier = _Earlier(copies, known, folder)
    filed = earlier.filed()
    if filed is not None:
        return filed
    waiting, release = earlier.unfiled()
    if waiting is not None:
        record, key = waiting
    else:
        # Noise names a leaker only among recipients whose noise uses the same basis, which depends on the secret.
        secret = secret_of(vault, known.settled if params.noise_coordinates and recipient else None)
        report.progress(0, 0, "Generating the key")
        record, key = None, irwm.generate_key(model, params, secret, owner, recipient, device=device)
    if release is None:
        report.progress(0, 0, "Checking the target disk and the mark's margin")
        preflight(model, out, also=copies.also)
        require_margin(model, key, device)
        if record is None:
            # Before the key: no run can resume a key that was sealed without this note.
            note_folder(report.home, key.commitment, folder)
            report.progress(0, 0, "Sealing the key in the vault")
            record = seal(vault, model, key, request["label"])
            report.log(f"Generated the key {key.commitment[:16]} and sealed it in the vault")
        release = copies.write(key, out, report.progress)
    assert record is not None
    marks = vault.marks_on(model.fingerprint)
    with contextlib.suppress(CancelledError):  # the copy is complete; a Stop after this must not lose its record
        report.progress(release.bytes_written, release.bytes_written, "Filing the receipt in the vault")
    before = {"marked_before": [mark.whose for mark in marks], "damaged": len(marks.damaged)}
    receipt = copies.file(record, key, release, **before)
    forget_folder(report.home, key.commitment)
    return record.id, receipt


@dataclass(frozen=True, slots=True)
class _Earlier:
    """The output of an earlier run of exactly the same request, finished or not; the folder is part of the request."""

    copies: Copies
    known: Issued
    folder: Path

    def filed(self) -> tuple[str, dict[str, Any]] | None:
        """The key's identifier and the filed receipt of a complete copy in the target folder."""
        pairs = self.known.filed.get(same_name(self.copies.request["recipient"]), ())
        there = {record.id: release for record, release in pairs if release.path == str(self.folder)}
        for record in self._asked_for([record for record, _ in pairs if record.id in there]):
            copy = self._finished(self.copies.key(record))
            if copy is not None and dict(copy.manifest.files) == there[record.id].manifest:
                said = "is already finished and filed; its receipt is returned again"
                self.copies.report.log(f"{self.folder.name} {said}")
                return record.id, dict(there[record.id].receipt)
        return None

    def unfiled(self) -> tuple[tuple[KeyRecord, irwm.Key] | None, irwm.Release | None]:
        """The key that was sealed for this folder, if any, and its copy, if that was finished."""
        waiting = self.known.waiting.get(same_name(self.copies.request["recipient"]), ())
        home, first = self.copies.report.home, None
        here = [record for record in waiting if sealed_for(home, record.commitment, self.folder)]
        for record in self._asked_for(here):
            key = self.copies.key(record)
            copy = self._finished(key)
            if copy is not None:
                self.copies.report.log(f"{self.folder.name} was finished by an earlier run; its receipt is filed now")
                return (record, key), copy
            first = first or (record, key)
        return first, None

    def _asked_for(self, records: Sequence[KeyRecord]) -> list[KeyRecord]:
        """The records with this request's recipient and note, as they were filed: the note may have changed later."""
        wanted = self.copies.request["recipient"], self.copies.request["label"]
        ids = {record.id for record in records}
        return [r for r in self.copies.vault.keys() if r.id in ids and (r.recipient, r.label) == wanted] if ids else []

    def _finished(self, key: irwm.Key) -> irwm.Release | None:
        try:
            return self.copies.finished(key, self.folder)
        except OutputExistsError:
            return None  # another folder or another copy: `preflight` reports it with a suitable message
