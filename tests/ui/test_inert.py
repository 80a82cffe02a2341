"""Names, notes and errors from files, users and packages are shown as text on every card, list and table."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from irwm.errors import CorruptCheckpointError
from irwm.report.checks import Check, Verification
from storage import RecordName
from storage.audit import AuditEntry
from storage.records import CaseRecord, FileDigest, NoteRecord
from tests.jobs.recipients import JOB
from tests.report.conftest import found, world
from tests.ui.test_case_file import TIME, item, run
from ui.components import case_file, notices
from ui.components.job_card import job_html, log_html
from ui.components.job_list import jobs_html
from ui.components.paged_table import damage_html, nothing_found_html
from ui.components.path_picker import recent_html
from ui.components.recognition_card import recognition_html
from ui.components.verification_card import checks_html
from ui.licences import Library
from ui.pages.about import libraries_html

__all__ = ["found", "world"]
NASTY = "<img src=x onerror=alert(1)><script>\u202e\x1b[31m"
NOW = datetime(2026, 1, 1, tzinfo=UTC)
ERROR = CorruptCheckpointError(NASTY, file=f"/a{NASTY}", tensor=f"t\n{NASTY}", found=NASTY, advice=NASTY)
BAD = replace(JOB, title=NASTY, kind=NASTY, what=NASTY, error={"problem": NASTY, "file": NASTY})
PAGES: dict[str, Callable[[], str]] = {
    "cases": lambda: case_file.cases_html([case_file.CaseLine("c1", NASTY, TIME, 0, 0, NASTY)], None),
    "head of a case": lambda: case_file.case_head_html(CaseRecord("c1", 1, TIME, NASTY, NASTY)),
    "items": lambda: case_file.items_html(
        [item(name=NASTY, received_from=NASTY, note=NASTY, files={NASTY: FileDigest(1, NASTY)})]
    ),
    "runs": lambda: case_file.runs_html([run(suspect=NASTY, verdict=NASTY, note=NASTY)]),
    "notes": lambda: case_file.notes_html([NoteRecord("n1", 1, TIME, "c1", NASTY, NASTY)]),
    "log": lambda: case_file.custody_html([AuditEntry(1, TIME, NASTY, {}, "ab" * 16, "0" * 64, "1" * 64, 1, "2" * 64)]),
    "checks": lambda: checks_html(Verification((Check(NASTY, False, NASTY),))),
    "running job": lambda: job_html(BAD, speed=None, unit="bytes", now=NOW),
    "failed job": lambda: job_html(replace(BAD, state="failed"), speed=None, unit="bytes", now=NOW),
    "log of a job": lambda: log_html(f"{NASTY}\n\x1b[31m"),
    "jobs": lambda: jobs_html([BAD, replace(BAD, state="failed")], None, NOW),
    "result of a job": lambda: jobs_html(
        [replace(JOB, kind="investigate", state="done", result={"word": NASTY})], None, NOW
    ),
    "error": lambda: notices.error_html(ERROR),
    "toast": lambda: str(notices.alarm(ERROR).message),
    "empty": lambda: notices.empty_html(NASTY, NASTY),
    "note": lambda: notices.note_html(NASTY),
    "nothing found": lambda: nothing_found_html(NASTY, "keys"),
    "damage": lambda: damage_html([RecordName("keys", NASTY)]),
    "recent paths": lambda: recent_html([f"/models/{NASTY}"]),
    "libraries": lambda: libraries_html([Library(NASTY, NASTY, NASTY)]),
}

# The path that a button stands for is the value of an attribute, unchanged.
WITH_CONTROL_CHARACTERS = {"recent paths"}


@pytest.mark.fault(64)
@pytest.mark.parametrize("page", PAGES)
def test_untrusted_text_is_inert(page: str) -> None:
    html = PAGES[page]()
    assert "&lt;img" in html
    for active in ("<img", "<script", *(() if page in WITH_CONTROL_CHARACTERS else ("\u202e", "\x1b"))):
        assert active not in html


def test_lineage_of_a_hostile_report_is_inert(found) -> None:
    document = copy.deepcopy(found.document)
    document["lineage"] |= {"status": "<img src=x>", "reason": "<img src=x>"}
    assert "<img" not in recognition_html(document)
