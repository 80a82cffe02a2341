"""The task behind Protect for many recipients: each gets their own key, copy, manifest and receipt.

One recipient after the other, each as in `ui.jobs.protect`. Folders are named by the key's fingerprint and steps by
their number; names of people are only in sealed data. Resuming needs only the vault and the folders' names: a recipient
with a release is skipped, one with a key but no release gets the copy of that key, and a copy that was finished but not
filed is checked and filed. So after a Stop, a full disk or a power cut, the same list (or a longer one) does only the
remaining work. An error of a single recipient, such as a damaged folder, is shown in their line and does not affect the
other copies.
"""

from __future__ import annotations

import csv
import io
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import irwm
from irwm.checkpoint import Checkpoint
from irwm.errors import InsertionError, IrwmError, OutputExistsError, PublishError, path_from, printable
from irwm.release import MANIFEST_NAME, Preflight, preflight, sweep_partials
from irwm.release.cloning import ClonedFrom
from irwm.release.partial import sync_folder
from irwm.scheme.invariant import Layer0
from storage.job_files import JobFiles
from storage.records import KeyRecord
from ui.jobs.certifying import certificate_of
from ui.jobs.device import device_of
from ui.jobs.recipients import Recipient, checked, folder_name, same_name
from ui.jobs.releasing import Copies, Issued, alone, issued, require_margin, seal, sealed_for_one, secret_of
from ui.jobs.reporter import JobReporter
from ui.jobs.vault_access import vault_of

CSV_NAME = "receipts.csv"
# Most receipts that a page shows; all of them are in the CSV.
SHOWN = 50
WRITTEN, SKIPPED, FAILED = "written", "already released", "failed"
COLUMNS = (
    "recipient", "note", "state", "folder", "key_fingerprint", "verdict", "positions", "of", "log10_p",
    "release_fingerprint", "why",
)  # fmt: skip
# Errors that may affect the numbers or the folder of a single recipient.
_THEIRS_ALONE = (InsertionError, OutputExistsError)
# Characters at the start of a cell that a spreadsheet takes for a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def run(request: dict[str, Any], secrets: dict[str, Any], report: JobReporter) -> dict[str, Any]:
    """Mark one copy of a model for each recipient who has none yet.

    Args:
        request: "model", "out_dir" (of the copies, made if it is missing), "parameters", "owner", "recipients" (pairs
            of name and note), "label" (for those without a note), "device", "utility" (`ui.jobs.certifying`).
        secrets: see `ui.jobs.vault_access`.

    Returns:
        Counts, and the first `SHOWN` receipts in short form. All short receipts are in `CSV_NAME` among the job's
        files, sealed; the full receipts are in the vault.

    Raises:
        RecipientListError: a name cannot be used, or occurs twice.
        OutputExistsError: the folder is a release itself, or another run is writing.
        DiskSpaceError: not enough space for all remaining copies; or, later, for the next one.
        InsertionError: the first copy could not be marked; then no copy of this model can with these settings.
        OutputExistsError: also that of the first copy, if no copy could be written.
    """
    vault = vault_of(secrets, report)
    device = device_of(request["device"])
    recipients = checked(request["recipients"])
    with alone(report.home):
        report.progress(0, 0, "Opening the original")
        model = irwm.open_checkpoint(request["model"])
        params = irwm.Parameters.from_dict(request["parameters"])
        report.progress(0, 0, "Fingerprinting the embedding and looking through the vault")
        among = {same_name(recipient.name) for recipient in recipients}
        known = issued(vault, model.fingerprint, request["owner"], params, among)
        out = path_from(request["out_dir"])
        left = [recipient for recipient in recipients if same_name(recipient.name) not in known.released]
        report.progress(0, 0, "Checking the target disk")
        copies = Copies(vault, model, request, device, report)
        needed = room_for(model, out, len(left), copies.also) if left else None
        out = _made(out) if left else out
        batch = _Batch(copies, params, out, known, _Receipts(report.files), Layer0(model, device))
        batch.write(recipients, left, needed.each if needed else 0)
        return batch.summary(len(recipients))


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
            "This is a release or a file, not a folder for the copies of many recipients",
            file=out,
            advice="Choose a new name, or the folder with earlier copies",
        )
    return preflight(model, out / folder_name(os.urandom(8).hex()), copies, also)


@dataclass(slots=True)
class _Receipts:
    """All receipts in short form, in a sealed table line by line, so that a run that ends early keeps its lines.

    Attributes:
        counts: lines of each state.
        first: the first `SHOWN` lines.
        example: the full receipt of the first copy that was written.
        written, cloned: bytes of all copies, and the bytes of them that use no disk space.
    """

    files: JobFiles
    counts: Counter[str] = field(default_factory=Counter)
    first: list[dict[str, Any]] = field(default_factory=list)
    example: Mapping[str, Any] | None = None
    written: int = 0
    cloned: int = 0

    def __post_init__(self) -> None:
        self._write(COLUMNS, "\ufeff")  # so that a spreadsheet recognises UTF-8

    def add(self, recipient: Recipient, state: str, receipt: Mapping[str, Any], why: str = "") -> None:
        """A recipient's line.

        Args:
            receipt: their full receipt; empty if there is none.
            why: the error.
        """
        self.counts[state] += 1
        if state == WRITTEN:
            self.example = self.example or receipt
            self.written += receipt["bytes"]
            self.cloned += receipt["bytes_cloned"]
        line = _line(recipient, state, receipt, why)
        if len(self.first) < SHOWN:
            self.first.append(line)
        self._write(["" if cell is None else _harmless(cell) for cell in line.values()])

    def _write(self, cells: Iterable[Any], before: str = "") -> None:
        row = io.StringIO(newline="")
        # Every cell in quotes: a program that splits at semicolons could find a formula after one.
        csv.writer(row, quoting=csv.QUOTE_ALL).writerow(cells)
        self.files.append(CSV_NAME, before + row.getvalue())


@dataclass(slots=True)
class _Batch:
    copies: Copies
    params: irwm.Parameters
    out: Path
    known: Issued
    receipts: _Receipts
    layer0: Layer0

    def write(self, recipients: Sequence[Recipient], left: Sequence[Recipient], each: int) -> None:
        """Makes the remaining copies, and a line for every recipient, in their order."""
        report, secret = self.copies.report, secret_of(self.copies.vault, self.known.settled)
        shared: Mapping[str, ClonedFrom] = {}
        number, first = 0, None
        for recipient in recipients:
            release = self.known.released.get(same_name(recipient.name))
            if release is not None:
                self.receipts.add(recipient, SKIPPED, release.receipt)
                continue
            number += 1
            what = f"Copy {number} of {len(left)}"
            progress = _Progress(report, (number - 1) * each, each, len(left) * each, what)
            try:
                record, key = self._key(recipient, secret)
                secret = key.secret
                receipt, shared = self._copy(record, key, progress, shared)
            except _THEIRS_ALONE as error:
                # One recipient's numbers may leave too little margin; if the first copy fails, it is the model or the
                # settings.
                if isinstance(error, InsertionError) and not self.receipts.counts[WRITTEN]:
                    raise
                first = first or error
                report.log(f"{what}: {error}")
                self.receipts.add(recipient, FAILED, {}, _why(error))
            else:
                self.receipts.add(recipient, WRITTEN, receipt)
        failed, written = self.receipts.counts[FAILED], self.receipts.counts[WRITTEN]
        if first is not None and not written:
            raise first
        if failed:
            report.log(f"{failed} of {len(left)} copies could not be written; {CSV_NAME} says why")

    def _key(self, recipient: Recipient, secret: bytes | None) -> tuple[KeyRecord, irwm.Key]:
        """The recipient's sealed key: one without a copy yet, else a new one."""
        vault, model, device = self.copies.vault, self.copies.model, self.copies.device
        request, home = self.copies.request, self.copies.report.home
        for waiting in self.known.waiting.get(same_name(recipient.name), ()):
            # A key that was sealed for one folder may have its copy there, finished but not filed.
            if not sealed_for_one(home, waiting.commitment):
                return waiting, self.copies.key(waiting)
        key = irwm.generate_key(model, self.params, secret, request["owner"], recipient.name, device, self.layer0)
        require_margin(model, key, device)
        return seal(vault, model, key, recipient.note or request.get("label", "")), key

    def _copy(
        self, record: KeyRecord, key: irwm.Key, progress: _Progress, shared: Mapping[str, ClonedFrom]
    ) -> tuple[dict[str, Any], Mapping[str, ClonedFrom]]:
        """The receipt of a key's copy, and the files that the next copy may be cloned from."""
        progress.start()
        folder = self.out / folder_name(key.commitment)
        release = self.copies.finished(key, folder)
        if release is not None:
            self.copies.report.log(f"{folder.name} was finished by an earlier run; its receipt is filed now")
        else:
            release = self.copies.write(key, folder, progress, shared)
        receipt = self.copies.file(record, key, release, bytes_cloned=release.bytes_cloned)
        progress.end()
        # Always the newest: earlier copies may already have been moved to their recipients.
        return receipt, release.shared or shared

    def summary(self, recipients: int) -> dict[str, Any]:
        """The result for the page."""
        copies, model, receipts = self.copies, self.copies.model, self.receipts
        marks = copies.vault.marks_on(model.fingerprint)
        fields = (
            *("changed_rows", "changed_tensors", "changed_values", "changed_share", "changed_head_rows", "head_tensor"),
            *("left_out", "bytes"),
        )
        return {
            "many": True,
            "model": str(model.path),
            "model_fingerprint": model.fingerprint,
            "vocab_size": model.vocab_size,
            "owner": copies.request["owner"],
            "path": str(self.out),
            "parameters": self.params.to_dict(),
            "recipients": recipients,
            "written": receipts.counts[WRITTEN],
            "skipped": receipts.counts[SKIPPED],
            "failed": receipts.counts[FAILED],
            "bytes": receipts.written,
            "bytes_cloned": receipts.cloned,
            "utility": certificate_of(copies.request, model, receipts.example, copies.device, copies.report),
            "example": {name: receipts.example[name] for name in fields} if receipts.example else None,
            "rows": receipts.first,
            "csv": CSV_NAME,
            "marked_before": [mark.whose for mark in marks],
            "damaged": self.known.damaged,
            "irwm": irwm.__version__,
        }


@dataclass(slots=True)
class _Progress:
    """One copy's progress as a part of the whole: `before` bytes precede it, and it has `each` bytes."""

    report: JobReporter
    before: int
    each: int
    total: int
    what: str
    reached: int = 0

    def __call__(self, done: int, total: int, what: str) -> None:
        # Reading a copy back, its last step, has no byte count and gets no log line: there may be thousands.
        if total > 1:
            self.reached = self.each * done // total
        self.report.progress(self.before + self.reached, self.total, self.what)

    def start(self) -> None:
        self(0, 0, "")

    def end(self) -> None:
        self(self.each, self.each, "")


def _why(error: IrwmError) -> str:
    """An error in one table cell: the problem, the folder and the advice."""
    where = f" ({printable(Path(error.file).name, 120)})" if error.file and isinstance(error, PublishError) else ""
    found = f": {printable(error.found, 120)}" if error.found else ""
    return f"{error.problem.rstrip('.')}{where}{found}" + (f". {error.advice.rstrip('.')}" if error.advice else "")


def _line(recipient: Recipient, state: str, receipt: Mapping[str, Any], why: str) -> dict[str, Any]:
    """A receipt in short form, in the order of `COLUMNS`."""
    return {
        "recipient": receipt.get("recipient") or recipient.name,
        "note": recipient.note,
        "state": state,
        "folder": receipt.get("path"),
        "key_fingerprint": receipt.get("commitment"),
        "verdict": receipt.get("verdict"),
        "positions": receipt.get("count"),
        "of": receipt.get("present"),
        "log10_p": receipt.get("log10_p"),
        "release_fingerprint": receipt.get("release_fingerprint"),
        "why": why,
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
