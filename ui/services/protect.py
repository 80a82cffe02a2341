"""Protect: each recipient's key into the vault, their copy onto the disk, its receipt into the vault, in this order.

A key is sealed before the first byte of its copy is written: a copy whose key is lost can never be proved. All checks
that can fail come before that, so that a failure leaves no unused key in the vault.

Resuming needs only the vault and the folders: a recipient with a release is skipped, one with a sealed key but no
release gets the copy of that key, and a copy that was finished but not filed is checked and filed. So after a Stop, a
full disk or a power cut, the same request does only the remaining work. Of many recipients, an error of a single one,
such as a damaged folder, is shown in their line and does not affect the other copies. Their folders are named by the
key's fingerprint and steps by their number; names of people are only in sealed data.
"""

from __future__ import annotations

import contextlib
import csv
import io
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import irwm
from irwm.checkpoint import Checkpoint
from irwm.errors import InsertionError, IrwmError, OutputExistsError, PublishError, path_from, printable
from irwm.release import MANIFEST_NAME, SIGNATURE_NAME, STALE_SIGNATURE, Preflight, preflight, sweep_partials
from irwm.release.cloning import ClonedFrom
from irwm.release.partial import sync_folder
from irwm.scheme.invariant import Layer0
from storage.job_files import JobFiles
from storage.records import KeyRecord, MarkedBefore, Receipt, ReleaseRecord
from storage.vault import Vault
from ui.services.certifying import certificate_of
from ui.services.device import device_of
from ui.services.recipients import Recipient, checked, folder_name, same_name
from ui.services.releasing import (
    Copies,
    Issued,
    alone,
    forget_folder,
    issued,
    note_folder,
    require_margin,
    seal,
    sealed_for,
    sealed_for_one,
    secret_of,
    signer_of,
)
from ui.services.request import ProtectRequest
from ui.services.results import Example, ReceiptLine, Released, ReleasedMany
from ui.services.work import Work

CSV_NAME = "receipts.csv"
# Most receipts that a page shows; all of them are in the CSV.
SHOWN = 50
WRITTEN, SKIPPED, FAILED = "written", "already released", "failed"
COLUMNS = (
    "recipient", "note", "state", "folder", "key_fingerprint", "verdict", "positions", "of", "log10_p",
    "log10_risk", "release_fingerprint", "why",
)  # fmt: skip
# Errors that may affect the numbers or the folder of a single recipient.
_THEIRS_ALONE = (InsertionError, OutputExistsError)
# Characters at the start of a cell that a spreadsheet takes for a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def run(request: ProtectRequest, vault: Vault, work: Work) -> Released | ReleasedMany:
    """Write a copy for each recipient, or only the copies that are missing.

    Returns:
        Of one copy, its receipt. Of many, counts and the first `SHOWN` receipts in short form. All short receipts are
        in `CSV_NAME` among the files of `work`; the full receipts are in the vault.

    Raises:
        RecipientListError: a name cannot be used, or occurs twice.
        OutputExistsError: the folder is not new, or of many, is a release itself; also if no copy could be written.
        DiskSpaceError: not enough space for all remaining copies; or, later, for the next one.
        InsertionError: the first copy could not be marked; then no copy of this model can with these settings.
        SigningKeyError: the key that was chosen cannot sign.
    """
    device, recipients = device_of(request.device), request.recipients
    if request.many:
        recipients = checked((person.name, person.note) for person in recipients)
    sign = signer_of(request.sign_key, request.secret_file)
    with alone(vault.home, work):
        work.progress(0, 0, "Opening the original")
        model = irwm.open_checkpoint(request.model)
        work.progress(0, 0, "Fingerprinting the embedding and searching the vault")
        among = {same_name(person.name) for person in recipients}
        known = issued(vault, model.fingerprint, request.owner, request.parameters, among)
        copies = Copies(vault, model, device, work, Layer0(model, device), request.also, sign, request.base_model)
        place: _Place = (_FolderEach if request.many else _OneFolder)(copies, known, path_from(request.out))
        receipts = _Receipts(work.files if request.many else None)
        batch = _Batch(request, copies, known, place, receipts, copies.marked_before())
        try:
            batch.write(recipients)
        finally:
            place.leave()
    certificate = certificate_of(request.utility, model, receipts.example, device, work)
    if request.many:
        return {**batch.summary(), "utility": certificate}
    assert batch.only is not None
    return {**batch.only, "utility": certificate}


def room_for(model: Checkpoint, out: Path, copies: int, also: Sequence[str] = ()) -> Preflight:
    """The space for `copies` more copies in the folder `out`, which need not exist.

    Raises:
        OutputExistsError: `out` is a release itself.
        DiskSpaceError, PublishError: as `irwm.release.preflight`.
    """
    if not os.path.lexists(out):
        return preflight(model, out, copies, also)
    if (out / MANIFEST_NAME).exists() or not out.is_dir():
        raise OutputExistsError(
            "This is a release or a file, not a folder of copies for many recipients",
            file=out,
            advice="Choose a new name, or the folder with the earlier copies",
        )
    return preflight(model, out / folder_name(os.urandom(8).hex()), copies, also)


class _Place(Protocol):
    """Where the copies go, and which of the vault's copies and keys belong to this request."""

    def released(self, recipient: Recipient) -> ReleaseRecord | None:
        """The copy that the recipient already has."""

    def waiting(self, recipient: Recipient) -> Sequence[KeyRecord]:
        """The recipient's sealed keys without a filed copy that this request may use."""

    def require_room(self, copies: int) -> int:
        """Bytes of each of this number of copies; errors as `irwm.release.preflight`."""

    def folder(self, key: irwm.Key) -> Path:
        """The folder of a key's copy."""

    def finished(self, key: irwm.Key) -> irwm.Release | None:
        """A key's copy, if an earlier run finished it without filing it."""

    def before_sealing(self, key: irwm.Key) -> None:
        """Checks and notes that must come before a new key is in the vault."""

    def after_filing(self, key: irwm.Key) -> None:
        """Removes the notes on a key whose copy is filed."""

    def leave(self) -> None:
        """Removes the folder that this run made, if it holds no copy: a refused request leaves nothing behind."""


@dataclass(frozen=True, slots=True)
class _OneFolder:
    """The release of one request. The folder is part of the request: a recipient may have other copies elsewhere."""

    copies: Copies
    known: Issued
    out: Path

    @property
    def _resolved(self) -> Path:
        return self.out.parent.resolve() / self.out.name

    def released(self, recipient: Recipient) -> ReleaseRecord | None:
        """The copy that is already complete and filed in this folder, for a request with the same name and note."""
        pairs = self.known.filed.get(same_name(recipient.name), ())
        there = {record.id: release for record, release in pairs if release.path == str(self._resolved)}
        for record in self._requested([record for record, _ in pairs if record.id in there], recipient):
            copy = self.finished(self.copies.key(record))
            if copy is not None and dict(copy.manifest.files) == there[record.id].manifest:
                return there[record.id]
        return None

    def waiting(self, recipient: Recipient) -> Sequence[KeyRecord]:
        """Keys that were sealed for this folder, with the same name and note."""
        waiting, home = self.known.waiting.get(same_name(recipient.name), ()), self.copies.vault.home
        here = [record for record in waiting if sealed_for(home, record.commitment, self._resolved)]
        return self._requested(here, recipient)

    def require_room(self, copies: int) -> int:
        return 0  # checked before a new key is sealed, because the copy may be finished already

    def folder(self, key: irwm.Key) -> Path:
        return self.out

    def finished(self, key: irwm.Key) -> irwm.Release | None:
        try:
            return self.copies.finished(key, self._resolved)
        except OutputExistsError:
            return None  # another folder or another copy: `preflight` reports it with a suitable message

    def before_sealing(self, key: irwm.Key) -> None:
        preflight(self.copies.model, self.out, also=self.copies.also)
        # No run can resume a key that is sealed without this note.
        note_folder(self.copies.vault.home, key.commitment, self._resolved)

    def after_filing(self, key: irwm.Key) -> None:
        forget_folder(self.copies.vault.home, key.commitment)

    def leave(self) -> None:
        pass  # `irwm.insert` makes the folder, and removes it if it fails

    def _requested(self, records: Sequence[KeyRecord], recipient: Recipient) -> list[KeyRecord]:
        """The records with this name and note, as they were filed: the note may have changed later."""
        ids = {record.id for record in records}
        wanted = recipient.name, recipient.note
        return [r for r in self.copies.vault.keys() if r.id in ids and (r.recipient, r.label) == wanted] if ids else []


@dataclass(slots=True)
class _FolderEach:
    """A folder for each of many recipients. Each of them gets one copy of a model, with any settings."""

    copies: Copies
    known: Issued
    out: Path
    made: bool = False

    def released(self, recipient: Recipient) -> ReleaseRecord | None:
        return self.known.released.get(same_name(recipient.name))

    def waiting(self, recipient: Recipient) -> Sequence[KeyRecord]:
        """Keys that were not sealed for one folder, where their copy may be finished but not filed."""
        waiting, home = self.known.waiting.get(same_name(recipient.name), ()), self.copies.vault.home
        return [record for record in waiting if not sealed_for_one(home, record.commitment)]

    def require_room(self, copies: int) -> int:
        each = room_for(self.copies.model, self.out, copies, self.copies.also).each
        self.made = not os.path.lexists(self.out)
        self.out = _made(self.out)
        return each

    def folder(self, key: irwm.Key) -> Path:
        return self.out / folder_name(key.commitment)

    def finished(self, key: irwm.Key) -> irwm.Release | None:
        return self.copies.finished(key, self.folder(key))

    def before_sealing(self, key: irwm.Key) -> None:
        pass

    def after_filing(self, key: irwm.Key) -> None:
        pass

    def leave(self) -> None:
        if self.made:
            with contextlib.suppress(OSError):  # it holds copies
                self.out.rmdir()


@dataclass(slots=True)
class _Receipts:
    """All receipts in short form, in a sealed table line by line, so that a run that ends early keeps its lines.

    Attributes:
        files: of the table; None for no table.
        counts: lines of each state.
        first: the first `SHOWN` lines.
        example: the full receipt of the first copy.
        written, cloned: bytes of all copies, and the bytes of them that use no disk space.
    """

    files: JobFiles | None
    counts: Counter[str] = field(default_factory=Counter)
    first: list[ReceiptLine] = field(default_factory=list)
    example: Receipt | None = None
    written: int = 0
    cloned: int = 0

    def __post_init__(self) -> None:
        self._write(COLUMNS, "\ufeff")  # so that a spreadsheet recognises UTF-8

    def add(self, recipient: Recipient, state: str, receipt: Receipt | None, why: str = "") -> None:
        """A recipient's line.

        Args:
            receipt: their full receipt; None if there is none.
            why: the error.
        """
        self.counts[state] += 1
        if state == WRITTEN and receipt is not None:
            self.example = self.example or receipt
            self.written += receipt["bytes"]
            self.cloned += receipt["bytes_cloned"]
        line = _line(recipient, state, receipt, why)
        if len(self.first) < SHOWN:
            self.first.append(line)
        self._write(["" if cell is None else _harmless(cell) for cell in line.values()])

    def _write(self, cells: Iterable[Any], before: str = "") -> None:
        if self.files is None:
            return
        row = io.StringIO(newline="")
        # Every cell in quotes: a program that splits at semicolons could find a formula after one.
        csv.writer(row, quoting=csv.QUOTE_ALL).writerow(cells)
        self.files.append(CSV_NAME, before + row.getvalue())


@dataclass(slots=True)
class _Batch:
    """The copies of one request.

    Attributes:
        before: the marks that the original already carries, see `Copies.marked_before`.
        only: of a request for one copy, the result.
    """

    request: ProtectRequest
    copies: Copies
    known: Issued
    place: _Place
    receipts: _Receipts
    before: MarkedBefore
    only: Released | None = None

    def write(self, recipients: Sequence[Recipient]) -> None:
        """Makes the remaining copies, and a line for every recipient, in their order."""
        work, receipts = self.copies.work, self.receipts
        done = {person.name: self.place.released(person) for person in recipients}
        left = [person for person in recipients if done[person.name] is None]
        work.progress(0, 0, "Checking the target disk")
        each = self.place.require_room(len(left)) if left else 0
        secret = self._shared_secret(recipients)
        shared: Mapping[str, ClonedFrom] = {}
        number, first = 0, None
        for recipient in recipients:
            release = done[recipient.name]
            if release is not None:
                self._skip(recipient, release)
                continue
            number += 1
            what = f"Copy {number} of {len(left)}"
            mine = _Progress(work, (number - 1) * each, each, len(left) * each, what) if self.request.many else None
            try:
                record, key = self._key(recipient, secret)
                secret = key.secret
                shared = self._copy(recipient, record, key, mine, shared)
            except _THEIRS_ALONE as error:
                # One recipient's numbers may leave too little margin; if the first copy fails, it is the model or the
                # settings.
                if isinstance(error, InsertionError) and not receipts.counts[WRITTEN]:
                    raise
                first = first or error
                work.log(f"{what}: {error}")
                receipts.add(recipient, FAILED, None, _why(error))
        failed = receipts.counts[FAILED]
        if first is not None and not receipts.counts[WRITTEN]:
            raise first
        if failed:
            work.log(f"{failed} of {len(left)} copies could not be written; see {CSV_NAME} for the reasons")

    def _shared_secret(self, recipients: Sequence[Recipient]) -> bytes | None:
        """The secret of the next recipients: noise names one of several only if all of it uses the same basis."""
        traceable = self.request.many or bool(self.request.parameters.noise_coordinates and recipients[0].name)
        return secret_of(self.copies.vault, self.known.settled if traceable else None)

    def _skip(self, recipient: Recipient, release: ReleaseRecord) -> None:
        """Returns the receipt of a filed copy again, after signing the copy if that was requested."""
        signature = self.copies.signature_of(release)
        if not self.request.many:
            self.copies.work.log(
                f"{Path(release.path).name} was already finished and filed; returning its receipt again"
            )
            self.receipts.example = release.receipt
            self.only = {**release.receipt, "signature": signature, "key_id": release.key_id, "utility": None}
        self.receipts.add(recipient, SKIPPED, release.receipt)

    def _key(self, recipient: Recipient, secret: bytes | None) -> tuple[KeyRecord, irwm.Key]:
        """The recipient's sealed key: one without a filed copy, best one with a finished copy; else a new one."""
        copies, request = self.copies, self.request
        waiting = [(record, copies.key(record)) for record in self.place.waiting(recipient)]
        for pair in waiting:
            if len(waiting) == 1 or self.place.finished(pair[1]) is not None:
                return pair
        if waiting:
            return waiting[0]
        if not request.many:
            copies.work.progress(0, 0, "Generating the key")
        key = irwm.generate_key(
            copies.model, request.parameters, secret, request.owner, recipient.name, copies.device, copies.layer0
        )
        require_margin(copies.model, key, copies.layer0)
        self.place.before_sealing(key)
        return seal(copies.vault, copies.model, key, recipient.note), key

    def _copy(
        self,
        recipient: Recipient,
        record: KeyRecord,
        key: irwm.Key,
        mine: _Progress | None,
        shared: Mapping[str, ClonedFrom],
    ) -> Mapping[str, ClonedFrom]:
        """Writes and files a key's copy; the files that the next copy may be cloned from."""
        copies = self.copies
        if mine is not None:
            mine.start()
        folder = self.place.folder(key)
        release = self.place.finished(key)
        if release is not None:
            copies.work.log(f"{folder.name} was finished by an earlier run; filing its receipt now")
            release = copies.signed(release)
        else:
            release = copies.write(key, folder, mine or copies.work.progress, shared)
        if SIGNATURE_NAME in release.left_out and not self.receipts.counts[WRITTEN]:
            copies.work.log(f"Warning: {STALE_SIGNATURE}")
        receipt = copies.file(record, key, release, self.before)
        self.place.after_filing(key)
        self.receipts.add(recipient, WRITTEN, receipt)
        self.only = {**receipt, "key_id": record.id, "utility": None}
        if mine is not None:
            mine.end()
        # Always the newest: earlier copies may already have been moved to their recipients.
        return release.shared or shared

    def summary(self) -> ReleasedMany:
        """The result of a request for many copies, without its certificate."""
        model, receipts, request = self.copies.model, self.receipts, self.request
        return {
            "many": True,
            "model": str(model.path),
            "model_fingerprint": model.fingerprint,
            "vocab_size": model.vocab_size,
            "owner": request.owner,
            "path": str(path_from(request.out).resolve()),
            "parameters": request.parameters.to_dict(),
            "recipients": len(request.recipients),
            "written": receipts.counts[WRITTEN],
            "skipped": receipts.counts[SKIPPED],
            "failed": receipts.counts[FAILED],
            "bytes": receipts.written,
            "bytes_cloned": receipts.cloned,
            "example": _example(receipts.example) if receipts.example else None,
            "rows": receipts.first,
            "csv": CSV_NAME,
            **self.before,
            "damaged": self.known.damaged,
            "irwm": irwm.__version__,
            "utility": None,
        }


@dataclass(slots=True)
class _Progress:
    """One copy's progress as a part of the whole: `before` bytes precede it, and it has `each` bytes."""

    work: Work
    before: int
    each: int
    total: int
    what: str
    reached: int = 0

    def __call__(self, done: int, total: int, what: str) -> None:
        # Reading a copy back, its last step, has no byte count and gets no log line: there may be thousands.
        if total > 1:
            self.reached = self.each * done // total
        self.work.progress(self.before + self.reached, self.total, self.what)

    def start(self) -> None:
        self(0, 0, "")

    def end(self) -> None:
        self(self.each, self.each, "")


def _why(error: IrwmError) -> str:
    """An error in one table cell: the problem, the folder and the advice."""
    where = f" ({printable(Path(error.file).name, 120)})" if error.file and isinstance(error, PublishError) else ""
    found = f": {printable(error.found, 120)}" if error.found else ""
    return f"{error.problem.rstrip('.')}{where}{found}" + (f". {error.advice.rstrip('.')}" if error.advice else "")


def _line(recipient: Recipient, state: str, receipt: Receipt | None, why: str) -> ReceiptLine:
    """A receipt in short form, in the order of `COLUMNS`."""
    return {
        "recipient": (receipt and receipt.get("recipient")) or recipient.name,
        "note": recipient.note,
        "state": state,
        "folder": receipt.get("path") if receipt else None,
        "key_fingerprint": receipt.get("commitment") if receipt else None,
        "verdict": receipt.get("verdict") if receipt else None,
        "positions": receipt.get("count") if receipt else None,
        "of": receipt.get("present") if receipt else None,
        "log10_p": receipt.get("log10_p") if receipt else None,
        "log10_risk": receipt.get("log10_risk") if receipt else None,
        "release_fingerprint": receipt.get("release_fingerprint") if receipt else None,
        "why": why,
    }


def _example(receipt: Receipt) -> Example:
    return {
        "changed_rows": receipt["changed_rows"],
        "changed_tensors": receipt["changed_tensors"],
        "changed_values": receipt["changed_values"],
        "changed_share": receipt["changed_share"],
        "changed_head_rows": receipt["changed_head_rows"],
        "head_tensor": receipt["head_tensor"],
        "changed_layers": receipt.get("changed_layers", 0),
        "left_out": receipt["left_out"],
        "signature": receipt.get("signature", ""),
        "bytes": receipt["bytes"],
    }


def _harmless(cell: Any) -> Any:
    """A cell that a spreadsheet shows unchanged: cells that look like formulas get an apostrophe before them."""
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(_FORMULA) else cell


def _made(out: Path) -> Path:
    """The folder of all copies, created if it is missing, without leftovers of killed runs.

    Raises:
        PublishError: it cannot be created.
    """
    try:
        if not os.path.lexists(out):
            out.mkdir()
            sync_folder(out.parent)
    except OSError as error:
        raise PublishError("The folder for the copies cannot be created", file=out, found=error.strerror) from error
    sweep_partials(out)
    return out.resolve()
