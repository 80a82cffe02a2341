"""The task behind Investigate for a folder: many suspects times many keys, one case, a run per suspect.

What is done is written down after each suspect, in the job's folder and in the vault. Stop, a crash or a broken suspect
therefore loses nothing, and another job goes on where this one ended.
"""

from __future__ import annotations

import contextlib
import hashlib
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import irwm
from irwm.errors import CancelledError, IrwmError, NotACheckpointError, printable
from irwm.evidence.devices import on_device
from irwm.report.document import ReportError, from_json, plain, to_json
from irwm.report.signature_file import ENDING, Signer, announced, sign_report
from irwm.report.sweep import OVERVIEW_HTML, OVERVIEW_JSON, overview, overview_html, read_overview
from irwm.report.write import report_files
from storage.files import replace_private
from ui.candidates import SweepFolderError, candidates
from ui.jobs.child import error_parts
from ui.jobs.device import device_of
from ui.jobs.examining import Examiner, Keys
from ui.jobs.executors import executor_for
from ui.jobs.filing import Filing, case_lines, earliest_timestamp, known_since, report_paths
from ui.jobs.reporter import JobReporter
from ui.jobs.vault_access import vault_of


def run(request: dict[str, Any], secrets: dict[str, Any], report: JobReporter) -> dict[str, Any]:
    """Examine every checkpoint in a folder.

    Args:
        request: as of `ui.jobs.investigate`, with "folder" for "suspect", and "resume", the id of an earlier sweep
            whose suspects need not be examined again where they are unchanged ("" for none).
        secrets: see `ui.jobs.vault_access`.

    Returns:
        The overview (`irwm.report.sweep`) without its rows' documents; the same stands in the job's folder from the
        first suspect on.

    Raises:
        SweepFolderError: the folder holds no checkpoint.
    """
    vault = vault_of(secrets, report)
    device = device_of(request["device"])
    report.progress(0, 0, "Looking for checkpoints in the folder")
    found = candidates(Path(request["folder"]))
    if not found.paths:
        raise SweepFolderError(
            "this folder holds no checkpoint",
            file=request["folder"],
            found=f"{len(found.refused)} links that lead out of it were not followed" if found.refused else None,
            advice="Pick a folder with models' folders or weights files in it",
        )
    original = irwm.open_checkpoint(request["original"])
    keys = Keys.chosen(vault, request, original.fingerprint, report)
    tried = hashlib.sha256("".join(sorted(key.commitment for key in keys.keys)).encode("ascii")).hexdigest()
    earlier = _earlier(request, report, original.fingerprint, tried)
    filing = Filing.begin(vault, request, request["case_id"] or (earlier or {}).get("case_id") or "")
    sweep = _Sweep(
        request,
        report,
        overview(
            folder=str(request["folder"]),
            original=original.fingerprint,
            keys=len(keys.keys),
            keys_sha256=tried,
            case_id=filing.case_id,
            settings=_settings(request),
            suspects=len(found.paths),
            refused=found.refused,
            too_deep=found.too_deep,
            cut=found.cut,
        ),
    )
    done = {row["path"]: row for row in (earlier or {}).get("rows", []) if row["error"] is None}
    with executor_for(keys.places, request.get("scheduler", ""), report) as executor:
        examiner = Examiner(original, keys, request, executor, report.folder)
        for number, path in enumerate(found.paths, 1):
            name, stamp = found.name_of(path), _stamp(path)
            what = f"Suspect {number} of {len(found.paths)}: {printable(name, 80)}"
            report.progress(number - 1, len(found.paths), what)
            before = done.get(name)
            if before is not None and before["stamp"] == stamp and sweep.take_over(before, _row(name, stamp)):
                continue
            inner = _Inner(report, number - 1, len(found.paths))
            began = time.monotonic()
            try:
                suspect = irwm.open_checkpoint(path, base=original)
                look = partial(examiner.examine, suspect, report=inner)
                examined, used = on_device(look, device, report.log)
                document = examined.document(
                    suspect,
                    original,
                    case=case_lines(request, filing.examiner),
                    extra={"Device": used, "Seconds": f"{time.monotonic() - began:.1f}", "Found at": name},
                    report=inner,
                    stamp_of=partial(earliest_timestamp, vault),
                    seen_of=known_since(vault, filing.case_id, filing.seen_utc),
                )
            except CancelledError:
                raise
            except (IrwmError, OSError) as caught:
                error = caught if isinstance(caught, IrwmError) else _unreadable(path, caught)
                report.log(f"{printable(name, 80)}: {error}")
                sweep.add(_row(name, stamp) | {"error": error_parts(error)})
                continue
            filing.items(document)
            row = _row(name, stamp)
            document, files = sweep.publish(row, document, filing.signer())
            # Filed before it is listed: a crash between the two files it twice when resumed, and never not at all.
            filing.run(document, files, str(path), document["verdict"]["word"], request["note"])
            sweep.add(row | summary(document))
    report.progress(len(found.paths), len(found.paths), "Writing the overview")
    return sweep.close()


class _Sweep:
    """What is done so far, on the disk at every moment."""

    def __init__(self, request: Mapping[str, Any], report: JobReporter, begun: dict[str, Any]) -> None:
        self._folder = report.folder
        self._home = report.home
        self._resumed = Path(request.get("resume") or "none").name
        self._overview = begun
        self._write()

    def add(self, row: dict[str, Any]) -> None:
        self._overview["rows"].append(row)
        self._write()

    def publish(
        self, row: Mapping[str, Any], document: Mapping[str, Any], signer: Signer
    ) -> tuple[dict[str, Any], list[Path]]:
        """Writes a suspect's report beside the overview: numbers, PDF and the signature over both.

        Not the HTML, which a page draws from the numbers and which is five megabytes for each suspect.

        Returns:
            The document as written, and the files.
        """
        stem = str(row["json"]).removesuffix(".json")
        files = report_files(announced(document, signer), stem)
        del files[f"{stem}.html"]
        signature = sign_report(files, signer.sign, signer.signed_utc, signer.audit_head, signer.audit_count)
        for name, content in {**files, stem + ENDING: signature}.items():
            replace_private(self._folder / name, content)
        return from_json(files[f"{stem}.json"]), report_paths(self._folder / row["json"])

    def take_over(self, before: dict[str, Any], row: dict[str, Any]) -> bool:
        """Adds a suspect from an earlier sweep with its report; False where that is gone or another suspect's."""
        source = self._home / "jobs" / self._resumed / Path(before["json"]).name
        if source.name != row["json"]:
            return False
        try:
            document = from_json(source.read_bytes())
            if document["items"]["suspect"]["fingerprint"] != before["fingerprint"]:
                return False
            for path in report_paths(source):
                replace_private(self._folder / path.name, path.read_bytes())
        except (OSError, ReportError):
            return False
        self.add(before | row)
        return True

    def close(self) -> dict[str, Any]:
        self._overview["complete"] = True
        self._write()
        return dict(self._overview) | {"html": OVERVIEW_HTML, "json": OVERVIEW_JSON}

    def _write(self) -> None:
        replace_private(self._folder / OVERVIEW_JSON, to_json(plain(self._overview)))
        replace_private(self._folder / OVERVIEW_HTML, overview_html(plain(self._overview)).encode("utf-8"))


class _Inner(JobReporter):
    """A suspect's own steps: they name the step and ask for Stop, while the bar counts suspects."""

    def __init__(self, outer: JobReporter, done: int, total: int) -> None:
        self.folder, self.home = outer.folder, outer.home
        self._outer, self._done, self._total = outer, done, total
        self._prefix = f"Suspect {done + 1} of {total}"

    def progress(self, done: int, total: int, what: str) -> None:
        self._outer.progress(self._done, self._total, f"{self._prefix}: {what[:1].lower()}{what[1:]}")

    def log(self, line: str) -> None:
        self._outer.log(line)

    def cancelled(self) -> bool:
        return self._outer.cancelled()


def summary(document: Mapping[str, Any]) -> dict[str, Any]:
    """What the table of a sweep says of one suspect."""
    found = document["tracing"]
    named = [] if found is None else [row["recipient"] or row["owner"] for row in found["ranked"] if row["named"]]
    by_tracing = document["verdict"]["rests_on"] == "tracing"
    return {
        "verdict": document["verdict"]["word"],
        "rests_on": document["verdict"]["rests_on"],
        "whose": named if by_tracing else [document["key"]["recipient"] or document["key"]["owner"]],
        "log10_risk": found["log10_risk"] if by_tracing and found else document["evaluation"]["log10_risk"],
        "copies_estimated": found["copies_estimated"] if found else None,
        "lineage": document["lineage"]["status"],
        "fingerprint": document["items"]["suspect"]["fingerprint"],
        "bytes": document["items"]["suspect"]["bytes_total"],
    }


def _row(name: str, stamp: str) -> dict[str, Any]:
    # Named after the suspect's path and not its place, which files added later would move: the signature names them.
    return {"path": name, "stamp": stamp, "json": f"suspect-{_short_digest(name)}.json", "error": None}


def _short_digest(name: str) -> str:
    return hashlib.sha256(name.encode("utf-8")).hexdigest()[:12]


def _earlier(request: Mapping[str, Any], report: JobReporter, original: str, tried: str) -> dict[str, Any] | None:
    """The overview of the sweep to go on with, if it asked the same of the same folder, original and keys."""
    if not request.get("resume"):
        return None
    try:
        found = read_overview(report.home / "jobs" / Path(request["resume"]).name)
    except ReportError:
        return None
    asked = str(request["folder"]), original, tried, _settings(request), request["case_id"] or found["case_id"]
    then = tuple(found[name] for name in ("folder", "original", "keys_sha256", "settings", "case_id"))
    return found if then == asked else None


def _settings(request: Mapping[str, Any]) -> dict[str, Any]:
    return {name: request[name] for name in ("statistic", "invariant", "seed")}


def _unreadable(path: Path, error: OSError) -> NotACheckpointError:
    """One suspect of many that went away, or cannot be read, while it was examined."""
    return NotACheckpointError(
        "the suspect cannot be read",
        file=path,
        found=error.strerror or type(error).__name__,
        advice="Check that it is still there and may be read, then sweep again",
    )


def _stamp(path: Path) -> str:
    """What changes when a suspect changes: sizes and times of its files."""
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    parts = []
    for file in files:
        with contextlib.suppress(OSError):
            status = file.stat()
            parts.append(f"{file.name}:{status.st_size}:{status.st_mtime_ns}")
    return "|".join(parts)
