"""Files in a command's working folder are data: neither the command nor a child imports them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import irwm
from irwm.checkpoint.child_process import module_command, module_environment, script_command
from irwm.report.write import archive, write_document
from tests.command.commands import Desk
from tests.jobs.recipients import put_in_vault
from tests.report.conftest import complete
from tests.report.signers import Signatory, log_of
from tools.small_models import write_llama
from tools.waiting import PATIENCE

ROOT = Path(__file__).parents[1]
# Names that Python in this folder would take for its own modules, for ours or for a library's.
PLANTED = (
    "torch", "numpy", "scipy", "safetensors", "json", "subprocess", "typing", "sitecustomize", "usercustomize",
    "ui/__init__", "storage/__init__", "irwm/__init__", "irwm/__main__", "irwm/report/__init__", "irwm/report/judged",
    "irwm/checkpoint/parser_process", "multiprocessing/__init__", "encodings/__init__",
)  # fmt: skip


def installed(folder: Path) -> Path:
    """The command as pip installs it: a script in the environment's folder for commands."""
    script = folder / "bin" / "irwm"
    script.parent.mkdir()
    script.write_text("import sys\nfrom irwm.__main__ import run\nsys.exit(run())\n", encoding="utf-8")
    return script


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A folder with modules under other programs' names, and the file that any of them makes when it runs."""
    root = tmp_path_factory.mktemp("hostile")
    folder, ran = root / "received", root / "ran"
    for name in PLANTED:
        path = folder / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"open({str(ran)!r}, 'w').close()\nraise SystemExit(0)\n", encoding="utf-8")
    (folder / "planted.pth").write_text(f"import os; open({str(ran)!r}, 'w').close()\n", encoding="utf-8")
    (folder / "pyvenv.cfg").write_text(f"home = {folder}\n", encoding="utf-8")
    return folder, ran


@pytest.fixture(scope="module")
def received(planted: tuple[Path, Path]) -> tuple[Path, Path, Path]:
    """The folder with a report, its archive, models and a key as well; the file that a module makes; the command."""
    folder, ran = planted
    model = irwm.open_checkpoint(write_llama(folder / "original"))
    key = irwm.generate_key(model, secret=b"\x01" * 32, owner="Acme Labs", recipient="Northwind")
    suspect = irwm.open_checkpoint(irwm.insert(model, key, folder / "suspect").path)
    # As PyTorch, whose header a child reads.
    other = shutil.copytree(folder / "suspect", folder / "torch suspect")
    torch.save(load_file(other / "model.safetensors"), other / "pytorch_model.bin")
    (other / "model.safetensors").unlink()
    (other / "SHA256SUMS").unlink()
    document = complete({"copy": suspect, "model": model, "key": key}).document
    write_document(folder, document, signer=Signatory().signer())
    files = {path.name: path.read_bytes() for path in folder.glob("report.*")}
    (folder / "report.zip").write_bytes(archive(files))
    (folder / "opened.key").write_bytes(key.to_bytes())
    (folder / "log.jsonl").write_bytes(log_of())
    return folder, ran, installed(folder.parent)


def run(received: tuple[Path, Path, Path], *command: str, **more: str) -> subprocess.CompletedProcess[str]:
    folder, ran, _ = received
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}
    # An empty entry means the working folder; the command itself must survive one that its children would inherit.
    environment |= {"PYTHONPATH": str(ROOT), **more}
    done = subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert not ran.exists(), done.stdout + done.stderr
    return done


MODELS = ("--suspect", "suspect", "--original", "original", "--key", "opened.key", "--audit-log", "log.jsonl")
COMMANDS = {
    "verify an archive": (("verify", "report.zip"), 2),
    "verify with everything": (("verify", "report.json", "--identity", Signatory().first, *MODELS), 0),
    "inspect a PyTorch file": (("inspect", "torch suspect"), 0),
    "detect in a folder": (("detect", ".", "--original", "original", "--key", "opened.key"), 0),
}


@pytest.mark.fault(88)
@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_commands_ignore_modules_in_the_working_folder(received: tuple[Path, Path, Path], name: str) -> None:
    words, code = COMMANDS[name]
    done = run(received, str(received[2]), *words)
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.fault(88)
@pytest.mark.slow
def test_app_and_tasks_ignore_modules_in_the_working_folder(received: tuple[Path, Path, Path], tmp_path: Path) -> None:
    folder, ran, _ = received
    made = Desk.made(tmp_path)
    put_in_vault(made.vault(), [irwm.Key.from_bytes((folder / "opened.key").read_bytes())])
    desk = Desk(made.home, folder)
    for words, status in (
        (("investigate", "suspect", "--original", "original", "--quiet"), 0),
        (("protect", "original", str(tmp_path / "out"), "--owner", "Acme Labs", "--quiet"), 0),
    ):
        out, said = desk.start(*words).communicate(timeout=PATIENCE)
        assert json.loads(out)["exit_status"] == status, said
        assert not ran.exists()


@pytest.mark.fault(88)
def test_child_processes_import_only_from_the_program(planted: tuple[Path, Path]) -> None:
    folder, ran = planted
    hostile = {**os.environ, "PYTHONPATH": os.pathsep.join(["", ".", "irwm", str(folder.parent / "none")])}
    environment = module_environment(base=hostile)
    assert environment["PYTHONPATH"].split(os.pathsep) == [str(ROOT), str(folder.parent / "none")]
    for command, its in (
        (module_command("irwm", "--version"), environment),
        (script_command(ROOT / "irwm" / "checkpoint" / "parser_process.py"), hostile),
    ):
        done = subprocess.run(command, cwd=folder, env=its, capture_output=True, text=True, check=False)
        assert "No module" not in done.stderr
        assert not ran.exists()


def test_only_one_module_starts_processes() -> None:
    """Otherwise `sys.executable` appears only where a task's pool is made, whose workers inherit the rule."""
    found = {
        path.relative_to(ROOT).as_posix()
        for top in ("irwm", "storage", "ui")
        for path in (ROOT / top).rglob("*.py")
        if "sys.executable" in path.read_text(encoding="utf-8")
    }
    assert found == {"irwm/checkpoint/child_process.py"}
