"""`action.yml`: its steps, run by bash as a runner would."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography.hazmat.primitives.asymmetric import ec

from tests.attestation.commands import verifies
from tests.attestation.conftest import write_key
from tests.command.commands import PASSPHRASE, Desk
from tests.report.conftest import found, world
from tests.report.signers import Signatory, sign_alone
from tools.small_models import write_llama

__all__ = ["found", "world"]
ROOT = Path(__file__).resolve().parents[1]
ACTION = yaml.safe_load((ROOT / "action.yml").read_text("utf-8"))


def run(folder: Path, **given: str | Path) -> subprocess.CompletedProcess[str]:
    """The step of the action that runs the command, with these inputs; the step before it only installs."""
    inputs = {name: about.get("default", "") for name, about in ACTION["inputs"].items()}
    inputs |= {name.replace("_", "-"): str(value) for name, value in given.items()} | {"python": sys.executable}
    step = next(step for step in ACTION["runs"]["steps"] if step.get("id") == "run")
    context = {f"inputs.{name}": value for name, value in inputs.items()} | {"github.action_path": str(ROOT)}

    def value(expression: str) -> str:
        return re.sub(r"\$\{\{ (\S+) \}\}", lambda match: context[match[1]], expression)

    kept = {name: text for name, text in os.environ.items() if not name.startswith("IRWM_")}
    environment = kept | {name: value(text) for name, text in step["env"].items()}
    (folder / "github-output").touch()
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]], cwd=folder, capture_output=True,
        text=True, timeout=600, check=False, env=environment | {"GITHUB_OUTPUT": str(folder / "github-output")},
    )  # fmt: skip


def test_inputs_reach_the_script_through_the_environment_only() -> None:
    steps: list[dict[str, Any]] = ACTION["runs"]["steps"]
    assert [step for step in steps if "${{" in step["run"]] == []
    used = {name for step in steps for text in step["env"].values() for name in re.findall(r"inputs\.([\w-]+)", text)}
    assert used == set(ACTION["inputs"])
    assert {step["shell"] for step in steps} == {"bash"}


def test_install_step_names_files_of_the_repository() -> None:
    (install,) = (step for step in ACTION["runs"]["steps"] if step["name"] == "Install")
    assert subprocess.run(["bash", "-n", "-c", install["run"]], check=False).returncode == 0
    for name in re.findall(r"\$ACTION/([\w.-]+\.txt)", install["run"]):
        assert (ROOT / name).is_file()
    assert re.search(r"^\$\(VENV\)/\.app:", (ROOT / "Makefile").read_text(), re.MULTILINE)


def test_other_commands_are_refused(tmp_path: Path) -> None:
    done = run(tmp_path, command="$(touch broken)")
    assert (done.returncode, done.stdout.count("::error::")) == (2, 1)
    assert not (tmp_path / "broken").exists()


@pytest.mark.slow
def test_action_protects_and_signs(tmp_path: Path) -> None:
    desk = Desk.made(tmp_path)
    write_llama(desk.work / "model")
    keys = write_key(desk.work / "keys", ec.generate_private_key(ec.SECP256R1()))
    done = run(
        desk.work, command="protect", model="model", out="release", owner='Example "Labs"; $HOME', home=desk.home,
        recipient="--recipients", sign_key="keys/key.pem", passphrase=PASSPHRASE,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert (desk.work / "github-output").read_text() == "answer=irwm-answer.json\n"
    result = json.loads((desk.work / "irwm-answer.json").read_text())["result"]
    assert (result["owner"], result["recipient"]) == ('Example "Labs"; $HOME', "--recipients")
    assert verifies(desk.work / "release", keys.public)
    assert PASSPHRASE not in done.stdout + done.stderr


@pytest.mark.slow
def test_action_verifies_a_report(found: Any, tmp_path: Path) -> None:
    report = sign_alone(tmp_path / "report", found.document)
    first = Signatory().first
    done = run(tmp_path, command="verify", report="report", identity=first)
    answer = json.loads((tmp_path / "irwm-answer.json").read_text())
    signature = next(check for check in answer["checks"] if check["name"] == "signature")
    assert (signature["ok"], done.returncode) == (True, answer["exit_code"])
    (report / "report.json").write_bytes((report / "report.json").read_bytes() + b"\n")
    assert run(tmp_path, command="verify", report="report", identity=first).returncode == 1
