"""The examples of docs/headless.md, run unchanged."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys

import pytest

from irwm.report.verify import verify_report
from storage.vault import Vault
from tests.command.commands import CHEAP, PASSPHRASE, REPOSITORY, Desk
from tools.running_app import start_app
from tools.waiting import PATIENCE

DOCUMENT = REPOSITORY / "docs" / "headless.md"


def example(language: str) -> str:
    """The one block of this language."""
    (block,) = re.findall(rf"^```{language}\n(.*?)^```$", DOCUMENT.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    return str(block)


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Desk:
    """A folder that looks like the repository to the commands, with `python` and a passphrase; no vault."""
    folder = tmp_path_factory.mktemp("documented")
    desk = Desk(folder / "home", folder / "models")
    for path in (desk.home, desk.work, folder / "bin"):
        path.mkdir(mode=0o700)
    (desk.work / "app.py").symlink_to(REPOSITORY / "app.py")
    shutil.copytree(REPOSITORY / "assets" / "demo", desk.work / "assets" / "demo")
    (desk.work / "passphrase.txt").write_text(PASSPHRASE + "\n")
    python = folder / "bin" / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o700)
    return desk


def run(desk: Desk, *command: str, **environment: str) -> str:
    known = desk.environment() | {"PATH": f"{desk.work.parent / 'bin'}:{os.environ['PATH']}"} | environment
    done = subprocess.run(command, cwd=desk.work, env=known, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_pipeline_marks_the_demo_and_finds_it_again(desk: Desk) -> None:
    assert "--passphrase" in example("sh")
    said = run(desk, "bash", "-euc", example("sh"))
    assert said.splitlines()[-1] == "The mark of Early access 7"
    written, found = (json.loads((desk.work / f"{name}.json").read_text()) for name in ("release", "finding"))
    assert (written["outcome"], found["outcome"], found["error"]) == ("written", "found", None)
    assert found["result"]["keys"][0]["key_id"] == written["result"]["key_id"]
    report = desk.work / "report"
    stem = next(report.glob("report-release-??????.json")).stem
    names = [f"{stem}{end}" for end in ("-without-rows.zip", ".html", ".json", ".pdf", ".signature.json")]
    assert sorted(found["files"]) == sorted(str(path) for path in report.iterdir()) == [str(report / n) for n in names]
    for name in (f"{stem}.json", f"{stem}-without-rows.zip"):
        assert not [check for check in verify_report(report / name).checks if check.ok is False]
    vault = Vault.open(desk.home)
    vault.unlock(PASSPHRASE)
    (case,) = vault.cases()
    assert (case.title, case.id) == ("Leak of 3 May", found["result"]["case_id"])
    assert [run.id for run in vault.case_runs(case.id)] == [found["result"]["run_id"]]


@pytest.mark.slow
def test_a_program_marks_the_demo_through_the_running_app(desk: Desk) -> None:
    if not Vault.exists(desk.home):  # the pipeline made it, if it ran
        Vault.create(desk.home, PASSPHRASE, cost=CHEAP).lock()
    with start_app(desk.work.parent) as app:
        said = run(desk, "python", "-c", example("python"), IRWM_PORT=str(app.port))
    assert said.splitlines()[-1] == f"written {desk.work / 'release-of-a-call'}"
    assert (desk.work / "release-of-a-call" / "SHA256SUMS").exists()
