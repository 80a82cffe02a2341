"""A job's outcome as one word and as plain JSON; the exit status depends on the word."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from irwm.report.tracing import TRACING
from storage.job_table import Job
from tests.jobs.recipients import JOB
from ui.jobs.results import _TRACING, error_of, names_somebody, outcome_of, result_of, whose

OVERVIEW = {"case_id": "c", "keys": 1, "refused": [], "too_deep": [], "cut": False}


def ended(kind: str, state: str = "done", result: Any = None, error: Any = None) -> Job:
    return replace(JOB, kind=kind, state=state, result=result, error=error)


def suspect(verdict: str | None) -> dict[str, Any]:
    if verdict is None:
        return {"path": "s", "error": {"problem": "torn", "type": "NotACheckpointError"}}
    return {"path": "s", "error": None, "verdict": verdict}


@pytest.mark.parametrize(
    ("verdicts", "outcome"),
    [
        (["not found", "not found"], "not found"),
        (["not found", None], "inconclusive"),
        (["not found", "inconclusive"], "inconclusive"),
        (["inconclusive", None, "found"], "found"),
        ([None], "inconclusive"),
    ],
)
def test_folder_with_unexamined_suspects_is_not_cleared(verdicts: list[str | None], outcome: str) -> None:
    job = ended("sweep", result={**OVERVIEW, "rows": [suspect(verdict) for verdict in verdicts]})
    assert outcome_of(job) == outcome
    result = result_of(job)
    assert result is not None
    assert [row["verdict"] for row in result["suspects"]] == verdicts


@pytest.mark.parametrize(
    ("state", "outcome"),
    [("queued", None), ("running", None), ("stopped", "stopped"), ("failed", "error"), ("interrupted", "error")],
)
@pytest.mark.parametrize("kind", ["protect", "investigate", "sweep", "lab"])
def test_job_without_result_claims_no_outcome(kind: str, state: str, outcome: str | None) -> None:
    job = ended(kind, state, error={"type": "DiskSpaceError", "problem": "the disk is full"})
    assert outcome_of(job) == outcome
    assert result_of(job) is None
    error = error_of(job)
    assert (error is not None) == (outcome == "error")
    if error is not None:
        assert list(error) == ["type", "problem", "file", "tensor", "expected", "found", "advice"]
        assert (error["type"], error["problem"], error["file"]) == ("DiskSpaceError", "the disk is full", None)


def test_some_of_many_copies_that_failed_are_an_error() -> None:
    done = ended("protect", result={"many": True, "failed": 0, "recipients": 3, "path": "/copies"})
    some = ended("protect", result={"many": True, "failed": 2, "recipients": 3, "path": "/copies"})
    assert (outcome_of(done), error_of(done)) == ("written", None)
    assert outcome_of(some) == "error"
    error = error_of(some)
    assert error is not None
    assert error["problem"] == "2 of 3 copies could not be written"
    result = result_of(some)
    assert result is not None
    assert result["failed"] == 2


def test_names_that_a_finding_points_to() -> None:
    ada = {"recipient": "Ada", "owner": "Labs", "named": True, "verdict": "not read"}
    ben = {"recipient": "Ben", "owner": "Labs", "named": False, "verdict": "found"}
    own = {"recipient": "", "owner": "Labs", "named": False, "verdict": "found"}
    assert whose("found", [ada, ben]) == ["Ada"]
    assert whose("found", [own, ben]) == ["Labs"]
    assert whose("inconclusive", [ada, ben]) == []


@pytest.mark.parametrize("passed_over", [{"refused": ["link"]}, {"too_deep": ["a/b"]}, {"cut": True}])
def test_folder_with_unread_subfolders_is_not_cleared(passed_over: dict[str, Any]) -> None:
    clean = ended("sweep", result={**OVERVIEW, **passed_over, "rows": [suspect("not found")]})
    assert outcome_of(clean) == "inconclusive"
    result = result_of(clean)
    assert result is not None
    assert result["verdict"] == "inconclusive"
    marked = ended("sweep", result={**OVERVIEW, **passed_over, "rows": [suspect("not found"), suspect("found")]})
    assert outcome_of(marked) == "found"


def test_finding_by_mark_alone_names_no_recipient() -> None:
    rows = [{"named": named, "verdict": "found"} for named in (True, False)]
    assert names_somebody(ended("investigate", result={"verdict": "found", "rows": rows}))
    assert not names_somebody(ended("investigate", result={"verdict": "found", "rows": rows[1:]}))
    assert not names_somebody(ended("investigate", result={"verdict": "inconclusive", "rows": rows}))
    by_mark, by_noise = (suspect("found") | {"rests_on": on, "whose": ["Ada"]} for on in ("mark", TRACING))
    torn = suspect(None)
    assert names_somebody(ended("sweep", result={**OVERVIEW, "rows": [torn, by_mark, by_noise]}))
    assert not names_somebody(ended("sweep", result={**OVERVIEW, "rows": [torn, by_mark]}))
    assert _TRACING == TRACING
