"""A finding appears in seconds, marked as not yet controlled; the report follows when the controls are done."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import irwm
from irwm.report import from_json
from irwm.report.controls import Controls
from tests.jobs.recipients import put_in_vault, request, run_here
from tests.ui.handlers import Pages, value
from tools.officer import place
from ui.components.finding_view import STILL_RUNNING
from ui.services.filing import report_names
from ui.services.stored_results import FIRST


@pytest.mark.slow
def test_finding_appears_before_controls_and_is_replaced_by_the_report(
    pages: Pages, tiny_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = place(tiny_path, pages.root, "original")
    model = irwm.open_checkpoint(original)
    key = irwm.generate_key(model, owner="Example Labs", recipient="Ada")
    put_in_vault(pages.vault, [key])
    leaked = irwm.insert(model, key, pages.root / "leaked").path
    jobs, seen = pages.jobs, []
    show_first, show = (pages.handler(name, "first-verdict").fn for name in ("show_first", "show"))
    run_controls = Controls.run

    def look_first(self: Controls, *args: Any) -> Any:
        job = jobs.recent(1)[0]
        seen.append(show_first(job.id, "Running the self-tests", pages.request))
        assert job.state == "running"
        return run_controls(self, *args)

    monkeypatch.setattr(Controls, "run", look_first)
    job = run_here("investigate", request(original, None, suspect=str(leaked)), pages.vault, jobs)
    assert job.state == "done", job.error
    (first,) = seen
    assert first.visible
    assert STILL_RUNNING in value(first)
    assert "“Ada”" in value(first)
    files = jobs.files(job.id)
    before, after = (from_json(files.read(name)) for name in (FIRST, job.result["json"]))
    assert before["verdict"] == after["verdict"]
    assert before["evaluation"] == after["evaluation"]
    assert before["self_tests"] == []
    assert after["self_tests"] != []
    assert not before["status"]["signed"]
    assert FIRST not in report_names(files, job.result["json"])
    assert FIRST not in pages.vault.run_files(job.result["run_id"])
    taken_away, *_ = show(job.id, False, None, pages.request)
    assert not taken_away.visible
    assert STILL_RUNNING not in files.read(job.result["html"]).decode()


def test_first_finding_is_hidden_before_a_result(pages: Pages) -> None:
    jobs = pages.jobs
    job = jobs.create("investigate", "Investigate", {})
    show_first = pages.handler("show_first", "first-verdict").fn
    assert not show_first(job.id, "Opening the suspect and the original", pages.request).visible
    jobs.files(job.id).write(FIRST, b"not a document")
    assert not show_first(job.id, "Running the self-tests", pages.request).visible
