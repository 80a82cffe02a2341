"""A command that waits for its job survives short failures of the list, and otherwise names the job."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from irwm.errors import IrwmError
from storage.backup import back_up
from storage.errors import RecordNotFoundError, StorageBusyError
from storage.job_table import Job
from storage.vault import Vault
from tests.command.commands import CHEAP, PASSPHRASE, Desk
from tests.jobs.recipients import JOB as A_JOB
from ui.command import run as running
from ui.command import words
from ui.command.progress import Progress
from ui.command.stop import Stop

JOB = replace(A_JOB, kind="investigate")
ROW: dict[str, Any] = {"recipient": "Ada", "owner": "Labs", "named": False, "verdict": "found", "commitment": "c"}
RESULT = {"verdict": "found", "rows": [ROW], "damaged": [], "case_id": "c", "run_id": "r", "keys_tried": 1}
OVER = replace(JOB, state="done", result=RESULT)


class List:
    """A list of jobs that raises the given errors first."""

    def __init__(self, errors: list[Exception]) -> None:
        self.errors, self.over = errors, OVER

    def get(self, _: str) -> Job:
        if self.errors:
            raise self.errors.pop()
        return self.over

    def ahead(self, _: str) -> list[Job]:
        return []


@pytest.fixture
def progress(monkeypatch: pytest.MonkeyPatch) -> Progress:
    monkeypatch.setattr(running, "SECONDS_BETWEEN_LOOKS", 0.0)
    return Progress(running.sys.stderr, quiet=True)


def test_busy_job_list_is_retried(progress: Progress) -> None:
    jobs: Any = List([StorageBusyError("busy") for _ in range(3)])
    assert running._ended(JOB, jobs, Stop(), progress) is OVER


def test_stop_request_is_retried(progress: Progress, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs: Any = List([StorageBusyError("busy")])

    def stopping(id: str, jobs: List) -> None:
        jobs.over = replace(jobs.get(id), state="stopped")

    monkeypatch.setattr(running.runner, "stop", stopping)
    stop = Stop()
    stop.asked = True
    assert running._ended(JOB, jobs, stop, progress).state == "stopped"


def test_busy_list_and_missing_job_are_errors(progress: Progress, monkeypatch: pytest.MonkeyPatch) -> None:
    gone: Any = List([RecordNotFoundError("no such job")])
    with pytest.raises(RecordNotFoundError):
        running._ended(JOB, gone, Stop(), progress)
    monkeypatch.setattr(running, "SECONDS_OF_TROUBLE", 0.0)
    busy: Any = List([StorageBusyError("busy") for _ in range(3)])
    with pytest.raises(StorageBusyError):
        running._ended(JOB, busy, Stop(), progress)


def test_job_that_cannot_be_followed_is_named() -> None:
    answer = words.of_lost("investigate", JOB, StorageBusyError("busy"))
    assert (answer["outcome"], answer["exit_status"], answer["job"]["id"]) == ("error", 2, JOB.id)
    assert "continues without this command" in words.sentence(answer)
    assert words.of_lost("investigate", JOB, ValueError("secret"))["error"]["type"] == "ValueError"


def test_a_report_that_cannot_be_copied_keeps_job_and_result() -> None:
    answer = words.of_uncopied("investigate", OVER, IrwmError("it cannot be copied"))
    assert (answer["outcome"], answer["exit_status"], answer["job"]["state"]) == ("error", 2, "done")
    assert (answer["result"]["verdict"], answer["error"]["problem"]) == ("found", "it cannot be copied")
    stopped = words.of_uncopied("investigate", replace(JOB, state="stopped"), IrwmError("it cannot be copied"))
    assert (stopped["outcome"], stopped["error"]) == ("stopped", None)


def test_trace_names_only_recipients_named_by_noise() -> None:
    answer = words.of_job("trace", OVER)
    assert (answer["outcome"], answer["exit_status"], answer["result"]["whose"]) == ("found", 0, ["Ada"])
    assert words.sentence(answer) == "Found: the mark made for Ada; its noise names no one."
    noisy = replace(JOB, state="done", result=RESULT | {"rows": [ROW | {"named": True}]})
    assert words.sentence(words.of_job("trace", noisy)) == "Named: Ada."
    assert words.of_job("investigate", noisy)["outcome"] == "found"


def test_folder_trace_names_only_recipients_named_by_noise() -> None:
    row = {"path": "s", "error": None, "verdict": "found", "rests_on": "mark", "whose": ["Ada"]}
    overview = {"case_id": "c", "keys": 1, "refused": [], "too_deep": [], "cut": True}

    def traced(rests_on: str) -> dict[str, Any]:
        rows = [row | {"rests_on": rests_on}]
        return words.of_job("trace", replace(OVER, kind="sweep", result=overview | {"rows": rows}))

    assert (traced("mark")["outcome"], traced("tracing")["outcome"]) == ("found", "named")
    assert words.sentence(traced("mark")) == "Found in 1 of 1 suspects; not all of the folder was examined."


def test_lost_vault_with_backup_is_not_created_again(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    desk = Desk(tmp_path / "home", tmp_path)
    desk.home.mkdir(mode=0o700)
    Vault.create(desk.home, PASSPHRASE, cost=CHEAP).lock()
    back_up(desk.home)
    for path in desk.home.glob("vault.sqlite3*"):
        path.unlink()
    for arguments in (("init",), ("protect", "model", "out", "--owner", "x")):
        refused = desk.here(capfd, *arguments)
        assert (refused.status, refused.answer["error"]["type"]) == (2, "VaultMissingError")
        assert "Restore it" in refused.answer["error"]["advice"]
    assert not Vault.exists(desk.home)
