"""Verify, if models are given: computes every number of a report again, without the vault."""

from __future__ import annotations

from irwm.errors import path_from
from irwm.report.reader_inputs import Brought, opened_keys
from irwm.report.sandbox import judge_report, to_json
from storage.vault import Vault
from ui.services.device import device_of
from ui.services.request import VerifyRequest
from ui.services.results import Verified
from ui.services.work import Work


def run(request: VerifyRequest, _vault: Vault | None, work: Work) -> Verified:
    """Check a report and run its examination again.

    Raises:
        IrwmError: a key cannot be read.
    """
    brought = Brought(
        identity=request.identity or None,
        roots_pem=request.roots.encode("ascii") or None,
        models=(path_from(request.models),) if request.models else (),
        keys=opened_keys(path_from(request.keys)) if request.keys else (),
        seen_utc=request.seen or None,
        device=device_of(request.device),
        suspect=path_from(request.suspect) if request.suspect else None,
        original=path_from(request.original) if request.original else None,
        audit_log=path_from(request.audit_log) if request.audit_log else None,
    )
    work.progress(0, 0, "Reading the report, then repeating the examination and comparing every number")
    found = judge_report(path_from(request.report), brought=brought)
    return {**to_json(found), "ok": found.ok, "exit_code": found.exit_code}
