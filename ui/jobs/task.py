"""One task: the use case of its kind, with the stored request and, if it needs one, the unlocked vault."""

from __future__ import annotations

import importlib
from collections.abc import Mapping

from irwm.errors import IrwmError
from ui.jobs import KINDS
from ui.jobs.reporter import JobReporter
from ui.jobs.vault_access import vault_of
from ui.services import request as requests


def run(kind: str, request: Mapping[str, object], secrets: Mapping[str, str], report: JobReporter) -> dict[str, object]:
    """The result of a task as plain JSON.

    Args:
        kind: one of `ui.jobs.KINDS`.
        request: as `ui.services.request.Request.to_json` wrote it.
        secrets: see `ui.jobs.vault_access`.

    Raises:
        IrwmError: there is no such kind; also the errors of the use case.
    """
    # A fixed list: the kind comes from a file, and a file must not choose what is imported.
    if kind not in KINDS:
        raise IrwmError("this version does not support this task", expected=", ".join(KINDS), found=kind)
    service = importlib.import_module(f"ui.services.{kind}")
    asked = getattr(requests, f"{kind.capitalize()}Request").from_json(request)
    vault = vault_of(secrets, report) if KINDS[kind].opens_vault else None
    result: dict[str, object] = service.run(asked, vault, report)
    return result
