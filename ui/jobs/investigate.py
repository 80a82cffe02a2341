"""The task behind Investigate: every chosen key on one suspect, a report for the strongest, signed and filed."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import irwm
from irwm.evidence.devices import on_device
from irwm.report.document import from_json
from irwm.report.write import write_document
from ui.jobs.device import device_of
from ui.jobs.examining import Examiner, Keys
from ui.jobs.executors import executor_for
from ui.jobs.filing import Filing, case_lines, earliest_timestamp, examiner_of, known_since, report_paths
from ui.jobs.reporter import JobReporter
from ui.jobs.vault_access import vault_of


def run(request: dict[str, Any], secrets: dict[str, Any], report: JobReporter) -> dict[str, Any]:
    """Trace the recipients of an original in one suspect, and look for the marks of the likeliest.

    Args:
        request: "suspect" and "original" (paths), "keys" (ids in the vault, or None for all of this original that fit
            the words "matching"), "seed", "statistic" and "invariant" of a reading beside the verdict's own, "case_id"
            ("" opens a new case), "case_title", "note", "device", "scheduler" (of a Dask cluster, or "");
            "examiner" and "seen_utc" (since when the suspect is known to exist, ISO 8601) may be missing.
        secrets: see `ui.jobs.vault_access`.

    Returns:
        Plain JSON: a row per key, likeliest first ("rows", of very many the first), "keys_tried", how many were "read"
        by the rank rule, "verdict", the names of the report's files in the job's folder, "case_id" and "run_id".
    """
    started = time.monotonic()
    vault = vault_of(secrets, report)
    device = device_of(request["device"])
    report.progress(0, 0, "Opening suspect and original")
    original = irwm.open_checkpoint(request["original"])
    suspect = irwm.open_checkpoint(request["suspect"], base=original)  # which only an adapter needs
    keys = Keys.chosen(vault, request, original.fingerprint, report)
    with executor_for(keys.places, request.get("scheduler", ""), report) as executor:
        examiner = Examiner(original, keys, request, executor, report.folder)
        examined, device = on_device(lambda place: examiner.examine(suspect, place, report), device, report.log)
    document = examined.document(
        suspect,
        original,
        case=case_lines(request, examiner_of(vault, request["case_id"], request.get("examiner", ""))),
        extra={"Device": device, "Seconds": f"{time.monotonic() - started:.1f}"},
        report=report,
        stamp_of=partial(earliest_timestamp, vault),
        seen_of=known_since(vault, request["case_id"], request.get("seen_utc", "")),
    )
    # Nothing is filed before all that can fail on the models has been done.
    filing = Filing.begin(vault, request)
    filing.items(document)
    report.progress(0, 0, "Writing and signing the report")
    html, json_file = write_document(report.folder, document, signer=filing.signer())
    document = from_json(json_file.read_bytes())
    word = document["verdict"]["word"]
    run_id = filing.run(document, report_paths(json_file), request["suspect"], word, request["note"])
    return {
        "rows": examined.rows(),
        "keys_tried": len(keys.keys),
        "read": len(examined.findings),
        "damaged": [name.id for name in keys.damaged],
        "verdict": word,
        "html": html.name,
        "json": json_file.name,
        "case_id": filing.case_id,
        "run_id": run_id,
    }
