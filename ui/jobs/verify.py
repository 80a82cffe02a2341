"""The task behind Verify where models are given: every number of a report run again, without the vault."""

from __future__ import annotations

from typing import Any

import irwm
from irwm.errors import path_from
from irwm.report.checks import Verification, in_words
from irwm.report.judged import judge_report
from irwm.report.verify import verify_report
from ui.jobs.device import device_of
from ui.jobs.opened_key import read_key
from ui.jobs.reporter import JobReporter


def run(request: dict[str, Any], secrets: dict[str, Any], report: JobReporter) -> dict[str, Any]:
    """Check a report and run its examination again.

    Args:
        request: "report" (one of its files, or their folder), "identity" (the expected public key, or ""), "device",
            "roots" (trusted certificates, PEM; may be missing), and as far as they are given "suspect", "original" and
            "key_file" (paths).
        secrets: none; nothing of the vault is needed.

    Returns:
        "checks", each its name, whether it holds (None where it was not checked) and its sentence; "unchecked", what
        none of them shows, in sentence parts; "ok".

    Raises:
        IrwmError: the report, a model or the key cannot be read.
    """
    device = device_of(request["device"])
    report.progress(0, 0, "Reading the report")
    roots = request.get("roots", "").encode("ascii") or None
    judged = judge_report(request["report"], request["identity"] or None, roots_pem=roots)
    # A stranger's file is read in this process only once one with limits could read it.
    if not any(check.name == "document" and check.ok for check in judged.checks):
        return _answer(judged)
    original = irwm.open_checkpoint(request["original"]) if "original" in request else None
    suspect = irwm.open_suspect(request["suspect"], original) if "suspect" in request else None
    key = read_key(path_from(request["key_file"])) if "key_file" in request else None
    report.progress(0, 0, "Examining again and comparing every number")
    found = verify_report(
        path_from(request["report"]),
        suspect=suspect,
        original=original,
        key=key,
        identity=request["identity"] or None,
        device=device,
        roots_pem=roots,
    )
    return _answer(found)


def _answer(found: Verification) -> dict[str, Any]:
    return {
        "checks": [[check.name, check.ok, check.said] for check in found.checks],
        "unchecked": in_words(found.unchecked),
        "ok": found.ok,
    }
