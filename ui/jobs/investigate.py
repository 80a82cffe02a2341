"""The task behind Investigate: every chosen key on one suspect, a report for the strongest, filed in a case."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import irwm
from irwm.errors import IrwmError
from irwm.verdict import log10_risk
from storage.vault import Vault
from ui.jobs.device import device_of
from ui.jobs.reporter import JobReporter
from ui.jobs.vault_access import vault_of
from ui.report.document import from_json
from ui.report.items import ItemDescription, KeyInfo, SelfTest, installed_versions
from ui.report.write import write_report

# Keys made for the occasion and never inserted, run the same way: each must read "not found".
DECOY_KEYS = 3


def run(request: dict[str, Any], secrets: dict[str, Any], report: JobReporter) -> dict[str, Any]:
    """Look for the marks of several keys in one suspect.

    Args:
        request: "suspect" and "original" (paths), "keys" (ids in the vault), "seed", "statistic", "invariant",
            "case_id" ("" opens a new case), "case_title", "note", "device".
        secrets: see `ui.jobs.vault_access`.

    Returns:
        Plain JSON: a row per key, strongest first, and the names of the report's files in the job's folder.
    """
    started = time.monotonic()
    vault = vault_of(secrets, report)
    device = device_of(request["device"])
    report.progress(0, 0, "Opening suspect and original")
    suspect = irwm.open_checkpoint(request["suspect"])
    original = irwm.open_checkpoint(request["original"])
    ids: list[str] = request["keys"]
    if not ids:
        raise IrwmError("no key was chosen", advice="Choose at least one key that was made for this original")
    keys = [irwm.Key.from_bytes(vault.key_bytes(id)) for id in ids]
    settings = {name: request[name] for name in ("seed", "statistic", "invariant")}
    findings = _examine(suspect, original, keys, settings, device, report)
    order = sorted(range(len(keys)), key=lambda i: (findings[i].verdict != "found", log10_risk(findings[i].reading)))
    best = order[0]
    report.progress(0, 0, "Running the self-tests")
    controls = self_tests(original, suspect, keys[best], findings[best], settings, device)
    report.progress(0, 0, "Hashing the items for the report")
    paths = write_report(
        report.folder,
        findings[best],
        suspect=ItemDescription.of(suspect, hashes=_hashes(suspect, report)),
        original=ItemDescription.of(original, hashes=_hashes(original, report)),
        key_info=KeyInfo.of(keys[best]),
        case={"Case": request["case_title"] or "Not filed under a title", "Note": request["note"]},
        created_utc=datetime.now(UTC).isoformat(timespec="seconds"),
        tool_versions=installed_versions(),
        extra={"Device": device, "Seconds": f"{time.monotonic() - started:.1f}", "Keys tried": str(len(keys))},
        self_tests=controls,
    )
    rows = [_row(ids[i], keys[i], findings[i]) for i in order]
    case_id = _file(vault, request, paths[1], findings[best])
    return {"rows": rows, "html": paths[0].name, "json": paths[1].name, "case_id": case_id}


def _examine(
    suspect: irwm.Checkpoint,
    original: irwm.Checkpoint,
    keys: Sequence[irwm.Key],
    settings: dict[str, Any],
    device: str,
    report: JobReporter,
) -> list[irwm.Finding]:
    findings = []
    report.progress(0, len(keys), "Aligning the suspect and ranking its marked rows")
    for finding in irwm.detect_each(suspect, original, keys, device=device, **settings):
        findings.append(finding)
        report.progress(len(findings), len(keys), "Aligning the suspect and ranking its marked rows")
    return findings


def self_tests(
    original: irwm.Checkpoint,
    suspect: irwm.Checkpoint,
    key: irwm.Key,
    finding: irwm.Finding,
    settings: dict[str, Any],
    device: str,
) -> list[SelfTest]:
    """Controls beside every report: the same key on the unmarked original, and keys that were never inserted."""
    # `difference` compares with the original, so on the original itself it is undefined and says so.
    expected = "inconclusive" if settings["statistic"] == "difference" else "not found"
    unmarked = irwm.detect(original, original, key, device, **settings)
    tests = [SelfTest.of("this key on the unmarked original", unmarked, expected)]
    for number in range(1, DECOY_KEYS + 1):
        decoy = irwm.decoy_key(original, key.parameters, number, settings["seed"], key.owner, device)
        missed = irwm.detect(suspect, original, decoy, device, **settings)
        # A suspect that no key can be judged on must be inconclusive for a decoy too.
        expected = "not found" if finding.judgeable else "inconclusive"
        tests.append(SelfTest.of(f"decoy key {number}, never inserted, on the suspect", missed, expected))
    return tests


def _hashes(checkpoint: irwm.Checkpoint, report: JobReporter) -> dict[str, str]:
    """SHA-256 of the weight files as received."""
    total = sum(shard.stat().st_size for shard in checkpoint.shards)
    done, hashes = 0, {}
    for shard in checkpoint.shards:
        digest = hashlib.sha256()
        with open(shard, "rb") as stream:
            while block := stream.read(8 << 20):
                digest.update(block)
                done += len(block)
                report.progress(done, total, "Hashing the items for the report")
        hashes[Path(shard).name] = digest.hexdigest()
    return hashes


def _row(id: str, key: irwm.Key, finding: irwm.Finding) -> dict[str, Any]:
    return {
        "key_id": id,
        "owner": key.owner,
        "recipient": key.recipient,
        "commitment": key.commitment,
        "verdict": finding.verdict,
        "reason": finding.reason,
        "count": finding.count,
        "present": finding.present,
        "positions": key.parameters.positions,
        "log10_p": finding.log10_p,
        "log10_risk": log10_risk(finding.reading, finding.keys_tried),
        "lineage": finding.lineage.status,
    }


def _file(vault: Vault, request: dict[str, Any], document: Path, finding: irwm.Finding) -> str:
    """File the whole document in the case, so that the evidence survives the job's folder; returns the case's id."""
    case_id: str = request["case_id"] or vault.add_case(request["case_title"] or "Untitled case", request["note"]).id
    vault.add_run(case_id, from_json(document.read_bytes()), request["suspect"], finding.verdict, note=request["note"])
    return case_id
