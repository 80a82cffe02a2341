"""Checks the reports next to a sweep's overview: whether its signer signed them, and whether they are reproduced."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import irwm
from irwm import Key
from irwm.canonical import MOST_JSON_BYTES
from irwm.checkpoint import Checkpoint
from irwm.checkpoint.candidates import Candidates
from irwm.checkpoint.files import read_small
from irwm.errors import IrwmError, SignatureError, printable
from irwm.report import consistency, schema, stamps
from irwm.report.audit_log import check_log
from irwm.report.checks import (
    EXAMINATION,
    FOLDER,
    IDENTITY,
    KEYS,
    ORIGINAL,
    TIME_STAMP,
    Check,
    held,
    listed,
    of_document,
    said,
)
from irwm.report.document import from_json
from irwm.report.reader_inputs import Brought, Model
from irwm.report.received import SIGNATURE
from irwm.report.signature_file import SignedReport, read_signature
from irwm.report.sweep import keys_digest
from irwm.report.value_states import States, states
from irwm.report.verify_examination import examined_again, opened


class SweepReports(Mapping[str, bytes]):
    """The reports next to an overview, by name. Each is read on access: together they may be of any size."""

    def __init__(self, rows: Sequence[schema.SweepRow], folder: Path) -> None:
        names = [row["json"] for row in rows if row["error"] is None]
        self.folder = folder
        self._files = {
            name: folder / name for name in names if Path(name).name == name and os.path.isfile(folder / name)
        }

    def __getitem__(self, name: str) -> bytes:
        return _small(self._files[name])

    def __contains__(self, name: object) -> bool:
        return name in self._files  # the usual one would read it

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)


def check_sweep(reports: SweepReports, signed: SignedReport | None, roots_pem: bytes | None) -> Iterator[Check]:
    """The checks of a sweep apart from its numbers: the files next to the overview, and the timestamps in them."""

    def time_stamps() -> Check:
        # What each report says about its own timestamp is checked with its numbers.
        return stamps.check([], relied_on, roots_pem)

    yield of_document("report_files", lambda: _files_of_reports(reports, signed))
    relied_on = []
    with contextlib.suppress(IrwmError):  # the check of the numbers reports it
        given = (from_json(data)["time_stamp"] for data in reports.values())
        relied_on = [stamp for stamp in given if stamp is not None]
    if relied_on or roots_pem is not None:
        yield of_document(TIME_STAMP, time_stamps)


def _files_of_reports(reports: SweepReports, signed: SignedReport | None) -> Check:
    """Whether the existing page, PDF and signature of each report of a sweep are those of the overview's signer."""
    signer = None
    with contextlib.suppress(SignatureError):  # the check of the overview's signature reports it
        signer = signed.holds() if signed is not None else None
    wrong, seen = [], 0
    for name in reports:
        stem = name.removesuffix(".json")
        signature = f"{stem}{SIGNATURE}"
        there = [each for each in (f"{stem}.html", f"{stem}.pdf", signature) if (reports.folder / each).is_file()]
        seen += len(there)
        if signature not in there:
            wrong += [f"{each} is not signed" for each in there]
            continue
        there.remove(signature)
        own = read_signature(_small(reports.folder / signature))
        try:
            by = own.holds()
            if signer is not None and by != signer:
                wrong.append(f"{signature} was not made by the overview’s signer")
        except SignatureError as error:
            wrong.append(f"{signature} is not valid: {said(error)}")
        for each in (name, *there):
            if own.files.get(each) != hashlib.sha256(_small(reports.folder / each)).hexdigest():
                wrong.append(f"{each} is not the file that was signed")
    good = f"the files next to the reports ({seen}) are those that were signed with them"
    return Check("report_files", not wrong, listed(wrong, 6) if wrong else good)


def swept_again(
    document: schema.Sweep, reports: SweepReports, brought: Brought, hold: Collection[str]
) -> tuple[list[Check], States]:
    """Each report of a sweep, examined again in the folder that was swept, and the values that are merely stated.

    Args:
        hold: names of the overview's checks that hold.
    """
    swept = _Swept.at(brought.suspect)
    checks, found, open_states = [], [], States()
    if swept is not None:
        original = None if brought.original is None else opened(ORIGINAL, brought.original)[0]
        checks.append(of_document(FOLDER, lambda: swept.check(document, original)))
    if brought.keys:
        checks.append(of_document(KEYS, lambda: _check_keys(document, brought.keys)))
    for row in document["rows"]:
        try:
            if row["error"] is not None or row["json"] not in reports:
                continue
            report, assigned = from_json(reports[row["json"]]), set[str]()
            there = None if swept is None else swept.places.get(row["path"])
            of_report = examined_again(report, replace(brought, suspect=there))
            custody = report["status"].get("custody")
            if brought.audit_log is not None and custody is not None:
                of_report.append(check_log(brought.audit_log, custody["audit_head"], custody["audit_entries"]))
            consistency.contradictions(report, assigned)
            stamps.contradictions(report, assigned)
            found += [replace(check, said=f"{printable(row['path'])}: {check.said}") for check in of_report]
            shown = held(of_report) | ({IDENTITY, TIME_STAMP} & set(hold))
            open_states = open_states.and_of(
                states(report, assigned, consistency.inputs(report), consistency.SHOWN, shown)
            )
        except IrwmError as error:
            what = f"a report could not be examined again: {printable(str(error), 200)}"
            found.append(Check(EXAMINATION, None, what, asked=True))
    return [*checks, *_summed_up(found)], open_states


@dataclass(frozen=True, slots=True)
class _Swept:
    """A folder that was swept, as it is now.

    Attributes:
        found: its models.
        places: the suspects' paths by the names that an overview has for them.
    """

    found: Candidates
    places: Mapping[str, Path]

    @classmethod
    def at(cls, folder: Model | None) -> _Swept | None:
        if folder is None or isinstance(folder, Checkpoint) or not Path(folder).is_dir():
            return None
        found = irwm.find_checkpoints(folder)
        return cls(found, {found.name_of(path): path for path in found.paths})

    def check(self, document: schema.Sweep, original: Checkpoint | None) -> Check:
        """Whether the folder holds the suspects of an overview and no others, and those that could not be examined
        cannot be opened now either."""
        rows = {row["path"]: row["error"] for row in document["rows"]}
        wrong = [f"{printable(name)} is missing" for name in rows if name not in self.places]
        wrong += [f"{printable(name)} is not in the overview" for name in self.places if name not in rows]
        if sorted(document["refused"]) != sorted(self.found.refused):
            wrong.append("the links that were not followed have changed")
        if sorted(document["too_deep"]) != sorted(self.found.too_deep):
            wrong.append("the folders that are nested too deeply have changed")
        if document["cut"] != self.found.cut:
            wrong.append("the overview is wrong about whether the search was complete")
        if wrong:
            return Check(FOLDER, False, f"the folder differs from the one that was swept: {listed(wrong)}")
        unclear = [name for name, error in rows.items() if error is not None and not self._fails(name, error, original)]
        if unclear:
            return Check(
                FOLDER,
                None,
                f"these suspects can now be opened, or fail to open for a different reason: {listed(unclear)}",
                asked=True,
            )
        return Check(FOLDER, True, f"the folder contains the suspects in the overview ({len(rows)}) and no others")

    def _fails(self, name: str, error: schema.SweptError, original: Checkpoint | None) -> bool:
        """Whether opening a suspect fails for the reason that the overview gives."""
        try:
            irwm.open_suspect(self.places[name], original)
        except IrwmError as again:
            return printable(again.problem) == error["problem"]
        return False


def _check_keys(document: schema.Sweep, keys: Sequence[Key]) -> Check:
    """Whether the keys given are all that a sweep tried."""
    if keys_digest(each.commitment for each in keys) != document["keys_sha256"]:
        return Check(
            KEYS, None, f"the keys provided ({len(keys)}) are not the keys that were tried ({document['keys']})"
        )
    return Check(KEYS, True, f"the keys provided ({len(keys)}) are those that were tried")


def _summed_up(checks: Sequence[Check]) -> list[Check]:
    """One check for each name: the failures, else what is open, else how many hold."""
    by_name: dict[str, list[Check]] = {}
    for check in checks:
        by_name.setdefault(check.name, []).append(check)
    found = []
    for name, of_name in by_name.items():
        worst = [check for check in of_name if check.ok is False] or [check for check in of_name if check.ok is None]
        if worst:
            asked = any(check.asked for check in worst)
            found.append(Check(name, worst[0].ok, listed([check.said for check in worst], 4), asked))
        else:
            found.append(Check(name, True, f"confirmed for every report (reports: {len(of_name)})"))
    return found


def _small(path: Path) -> bytes:
    """The bytes of a file next to an overview.

    Raises:
        IrwmError: it is larger than the largest report, or cannot be read.
    """
    return read_small(path, MOST_JSON_BYTES, "report file")
