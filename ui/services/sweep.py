"""Investigate for a folder: many suspects times many keys, one case, a run per suspect.

The results are written after each suspect, to the files of the work and to the vault. So Stop, a crash or a damaged
suspect loses no results, and another run continues where this one ended.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import irwm
from irwm.checkpoint.candidates import Candidates, SweepFolderError, find_checkpoints
from irwm.errors import CancelledError, IrwmError, NotACheckpointError, path_from, printable, shown_path
from irwm.evidence.devices import on_device
from irwm.report import schema
from irwm.report.answer import word_of
from irwm.report.document import ReportError, from_json, to_json
from irwm.report.items import SETTINGS, installed_versions
from irwm.report.signature_file import Signer, sign_report
from irwm.report.structure import plain
from irwm.report.sweep import (
    FOUND_AT,
    OVERVIEW_HTML,
    OVERVIEW_JSON,
    OVERVIEW_SIGNATURE,
    json_name,
    keys_digest,
    overview,
    overview_html,
    summary,
)
from irwm.report.translation import in_language
from irwm.report.write import signed_files
from storage.errors import StorageError
from storage.job_files import JobFiles
from storage.vault import Vault
from ui.services.device import device_of
from ui.services.examining import Examiner, Keys
from ui.services.filing import CaseFiling, case_lines, earliest_timestamp, known_since, report_names
from ui.services.outcomes import error_parts
from ui.services.request import SweepRequest
from ui.services.results import Overview
from ui.services.stored_results import jobs_of, overview_of
from ui.services.work import Work


def run(request: SweepRequest, vault: Vault, work: Work) -> Overview:
    """Examine every checkpoint in a folder.

    Returns:
        The overview (`irwm.report.sweep`) without its rows' documents; the same is among the files of the work after
        the first suspect.

    Raises:
        SweepFolderError: the folder has no checkpoint.
    """
    device = device_of(request.device)
    work.progress(0, 0, "Looking for checkpoints in the folder")
    found = _suspects(request.folder)
    original = irwm.open_checkpoint(request.original)
    keys = Keys.chosen(vault, request, original, work)
    tried = keys_digest(key.commitment for key in keys.keys)
    resumed = _resumed(request, vault)
    earlier = _earlier(request, resumed, original.fingerprint, tried)
    filing = CaseFiling.begin(vault, request, request.case_id or (earlier["case_id"] if earlier else ""))
    sweep = _Sweep(
        resumed,
        work,
        overview(
            folder=request.folder,
            original=original.fingerprint,
            keys=len(keys.keys),
            keys_held=keys.held,
            keys_sha256=tried,
            case_id=filing.case_id,
            settings=request.way,
            suspects=len(found.paths),
            refused=found.refused,
            too_deep=found.too_deep,
            cut=found.cut,
            tool_versions=installed_versions(),
        ),
    )
    done = {row["path"]: row for row in earlier["rows"] if row["error"] is None} if earlier else {}
    with work.executor(keys.places, request.scheduler) as executor:
        examiner = Examiner(original, keys, request, executor, work.folder)
        of_suspects = _SuspectExaminer(request, original, examiner, filing, device)
        for number, path in enumerate(found.paths, 1):
            name, stamp = found.name_of(path), stamp_of(path, found.files[path])
            what = f"Suspect {number} of {len(found.paths)}: {printable(name, 80)}"
            work.progress(number - 1, len(found.paths), what)
            row, before = _row(name, stamp), done.get(name)
            if before is not None and before["stamp"] == stamp and sweep.take_over(before, row):
                continue
            try:
                document = of_suspects.document(path, name, _Inner(work, number - 1, len(found.paths)))
            except CancelledError:
                raise
            except (IrwmError, OSError) as caught:
                error = caught if isinstance(caught, IrwmError) else _unreadable(path, caught)
                work.log(f"{printable(name, 80)}: {error}")
                failed: schema.SweptError = plain(error_parts(error))
                sweep.add({**row, "error": failed})
                continue
            filing.items(document)
            document, files = sweep.publish(row, document, filing.signer())
            # Filed before it is listed: after a crash between the two, a resumed sweep files it twice instead of never.
            filing.run(document, files, shown_path(path), word_of(document), request.note)
            sweep.add({**row, "error": None, **summary(document)})
    work.progress(len(found.paths), len(found.paths), "Writing the overview")
    return sweep.close(filing.signer())


def _suspects(folder: str) -> Candidates:
    """The checkpoints in a folder.

    Raises:
        SweepFolderError: there is none.
    """
    found = find_checkpoints(path_from(folder))
    if not found.paths:
        raise SweepFolderError(
            "this folder contains no checkpoints",
            file=folder,
            found=f"links leading out of the folder that were not followed: {len(found.refused)}"
            if found.refused
            else None,
            advice="Choose a folder that contains model folders or weights files",
        )
    return found


@dataclass(frozen=True, slots=True)
class _SuspectExaminer:
    """Examines one suspect after another, all of them with the same settings."""

    request: SweepRequest
    original: irwm.Checkpoint
    examiner: Examiner
    filing: CaseFiling
    device: str

    def document(self, path: Path, name: str, work: Work) -> schema.Report:
        """The document on one suspect.

        Raises:
            IrwmError, OSError: it cannot be opened or examined.
        """
        began, vault, filing = time.monotonic(), self.filing.vault, self.filing
        suspect = irwm.open_suspect(path, self.original)
        look = partial(self.examiner.examine, suspect, work=work)
        examined, used = on_device(look, self.device, work.log)
        return examined.document(
            suspect,
            self.original,
            case=case_lines(self.request, filing.examiner),
            extra={"Device": used, "Seconds": f"{time.monotonic() - began:.1f}", FOUND_AT: name},
            work=work,
            stamp_of=partial(earliest_timestamp, vault),
            seen_of=known_since(vault, filing.case_id, filing.seen_utc),
        )


class _Sweep:
    """The results so far, which are always on the disk."""

    def __init__(self, resumed: JobFiles | None, work: Work, begun: schema.Sweep) -> None:
        self._files, self._resumed, self._language = work.files, resumed, work.language
        self._overview = begun
        self._write()

    def add(self, row: schema.SweepRow) -> None:
        self._overview["rows"].append(row)
        self._write()

    def publish(
        self, row: schema.Suspect, document: schema.Report, signer: Signer
    ) -> tuple[schema.Report, dict[str, bytes]]:
        """Writes a suspect's report next to the overview: numbers, PDF and the signature over both.

        Not the HTML, which a page draws from the numbers and which has five megabytes for each suspect.

        Returns:
            The document as written, and the files.
        """
        stem = row["json"].removesuffix(".json")
        files = signed_files(document, signer, stem, without=(".html",), language=self._language)
        for name, content in files.items():
            self._files.write(name, content)
        return from_json(files[f"{stem}.json"]), files

    def take_over(self, before: schema.Swept, row: schema.Suspect) -> bool:
        """Adds a suspect from an earlier sweep with its report; False if that is missing or another suspect's."""
        if self._resumed is None or before["json"] != row["json"]:
            return False
        try:
            document = from_json(self._resumed.read(row["json"]))
            if document["items"]["suspect"]["fingerprint"] != before["fingerprint"]:
                return False
            for name in report_names(self._resumed, row["json"]):
                self._files.write(name, self._resumed.read(name))
        except (StorageError, ReportError):
            return False
        self.add({**before, **row})
        return True

    def close(self, signer: Signer) -> Overview:
        """Signs the overview, which names every report by its SHA-256."""
        self._overview["complete"] = True
        files = self._write()
        signature = sign_report(files, signer)
        self._files.write(OVERVIEW_SIGNATURE, signature)
        return {**self._overview, "html": OVERVIEW_HTML, "json": OVERVIEW_JSON}

    def _write(self) -> dict[str, bytes]:
        document = plain(self._overview)
        page = in_language(overview_html(document), self._language)
        files = {OVERVIEW_JSON: to_json(document), OVERVIEW_HTML: page.encode("utf-8")}
        for name, content in files.items():
            self._files.write(name, content)
        return files


class _Inner:
    """Progress of a suspect's own steps: shows their names and checks for Stop, while the bar counts suspects."""

    def __init__(self, outer: Work, done: int, total: int) -> None:
        self.folder, self.files = outer.folder, outer.files
        self.log, self.cancelled, self.executor, self.pool = outer.log, outer.cancelled, outer.executor, outer.pool
        self.language = outer.language
        self._outer, self._done, self._total = outer, done, total
        self._prefix = f"Suspect {done + 1} of {total}"

    def progress(self, done: int, total: int, what: str) -> None:
        self._outer.progress(self._done, self._total, f"{self._prefix}: {what[:1].lower()}{what[1:]}")


def _row(name: str, stamp: str) -> schema.Suspect:
    return {"path": name, "stamp": stamp, "json": json_name(name)}


def _resumed(request: SweepRequest, vault: Vault) -> JobFiles | None:
    """The files of the sweep to continue; None if there is none."""
    if not request.resume:
        return None
    with contextlib.suppress(StorageError):  # it is no longer in the list
        return jobs_of(vault).files(request.resume)
    return None


def _earlier(request: SweepRequest, resumed: JobFiles | None, original: str, tried: str) -> schema.Sweep | None:
    """The overview of the sweep to continue, if it has the same settings, folder, original and keys."""
    if resumed is None:
        return None
    try:
        found = overview_of(resumed)
    except ReportError:
        return None
    asked = request.folder, original, tried, request.way, request.case_id or found["case_id"]
    then = tuple(found[name] for name in ("folder", "original", "keys_sha256", "settings", "case_id"))
    return found if then == asked else None


def _unreadable(path: Path, error: OSError) -> NotACheckpointError:
    """The error for one suspect of many that disappeared or became unreadable while it was examined."""
    return NotACheckpointError(
        "the suspect cannot be read",
        file=path,
        found=error.strerror or type(error).__name__,
        advice="Check that it still exists and can be read, then run the sweep again",
    )


def stamp_of(path: Path, weights: Iterable[Path]) -> str:
    """A stamp that changes with the suspect: sizes and times of its files."""
    files = {*weights, path}
    with contextlib.suppress(OSError):
        files |= set(path.iterdir() if path.is_dir() else (path.parent / name for name in SETTINGS))
    parts = []
    for file in sorted(files):
        with contextlib.suppress(OSError):
            status = file.stat()
            parts.append(f"{shown_path(file.name)}:{status.st_size}:{status.st_mtime_ns}")
    return "|".join(parts)
