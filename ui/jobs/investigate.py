"""The task behind Investigate: every chosen key on one suspect, a report for the strongest, filed in a case."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import irwm
from storage.vault import Vault
from ui.jobs.device import device_of
from ui.jobs.examining import Keys, examine
from ui.jobs.executors import executor_for
from ui.jobs.reporter import JobReporter
from ui.jobs.vault_access import vault_of
from ui.report.document import from_json
from ui.report.write import write_document


def run(request: dict[str, Any], secrets: dict[str, Any], report: JobReporter) -> dict[str, Any]:
    """Trace the recipients of an original in one suspect, and look for the marks of the likeliest.

    Args:
        request: "suspect" and "original" (paths), "keys" (ids in the vault, or None for all of this original that fit
            the words "matching"), "seed", "statistic" and "invariant" of a reading beside the verdict's own, "case_id"
            ("" opens a new case), "case_title", "note", "device", "scheduler" (of a Dask cluster, or "").
        secrets: see `ui.jobs.vault_access`.

    Returns:
        Plain JSON: a row per key, likeliest first ("rows", of very many the first), "keys_tried", how many were "read"
        by the rank rule, "verdict", the names of the report's files in the job's folder, and "case_id".
    """
    started = time.monotonic()
    vault = vault_of(secrets, report)
    device = device_of(request["device"])
    report.progress(0, 0, "Opening suspect and original")
    original = irwm.open_checkpoint(request["original"])
    suspect = irwm.open_checkpoint(request["suspect"], base=original)  # which only an adapter needs
    keys = Keys.chosen(vault, request, original.fingerprint, report)
    with executor_for(keys.places, request.get("scheduler", ""), report) as executor:
        examined = examine(suspect, original, keys, request, device, executor, report)
    document = examined.document(
        suspect,
        original,
        case={"Case": request["case_title"] or "Not filed under a title", "Note": request["note"]},
        extra={"Device": device, "Seconds": f"{time.monotonic() - started:.1f}"},
        report=report,
    )
    html, json_file = write_document(report.folder, document)
    document = from_json(json_file.read_bytes())
    case_id = request["case_id"] or open_case(vault, request)
    file_run(vault, case_id, document, request["suspect"], request["note"])
    return {
        "rows": examined.rows(),
        "keys_tried": len(keys.keys),
        "read": len(examined.findings),
        "damaged": [name.id for name in keys.damaged],
        "verdict": document["verdict"]["word"],
        "html": html.name,
        "json": json_file.name,
        "case_id": case_id,
    }


def open_case(vault: Vault, request: Mapping[str, Any]) -> str:
    """A new case under the title asked for; its id."""
    return vault.add_case(request["case_title"] or "Untitled case", request["note"]).id


def file_run(vault: Vault, case_id: str, document: Mapping[str, Any], suspect: str, note: str) -> None:
    """File the whole document in the case, so that the evidence survives the job's folder."""
    vault.add_run(case_id, document, suspect, document["verdict"]["word"], note=note)
