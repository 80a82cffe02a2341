"""The task behind Verify if models are given: computes every number of a report again, without the vault."""

from __future__ import annotations

from typing import Any

from irwm.errors import path_from
from irwm.report.brought import Brought, opened_keys
from irwm.report.judged import judge_report, to_json
from ui.jobs.device import device_of
from ui.jobs.reporter import JobReporter


def run(request: dict[str, Any], secrets: dict[str, Any], report: JobReporter) -> dict[str, Any]:
    """Check a report and run its examination again, in a process with limits.

    Args:
        request: "report" (one of its files, or their folder), "identity" (the expected public key, or ""), "device",
            "roots" (trusted certificates, PEM; may be missing), and, if given, "suspect", "original",
            "models", "keys" (a file or a folder) and "audit_log" (paths) and "seen" (a time).
        secrets: none; the vault is not needed.

    Returns:
        The verification as `irwm.report.judged.to_json` writes it, and its "ok" and "exit_code".

    Raises:
        IrwmError: a key cannot be read.
    """
    given = {name: path_from(request[name]) for name in ("suspect", "original", "audit_log") if name in request}
    brought = Brought(
        identity=request["identity"] or None,
        roots_pem=request.get("roots", "").encode("ascii") or None,
        models=(path_from(request["models"]),) if "models" in request else (),
        keys=opened_keys(path_from(request["keys"])) if "keys" in request else (),
        seen_utc=request.get("seen"),
        device=device_of(request["device"]),
        **given,
    )
    report.progress(0, 0, "Reading the report, then examining again and comparing every number")
    found = judge_report(path_from(request["report"]), brought=brought)
    return {**to_json(found), "ok": found.ok, "exit_code": found.exit_code}
