"""Reports of the current program, checked by the verifier that was written from docs/ alone.

Ranks must agree exactly, p and z as far as docs/reading.md says, and a changed number must be noticed.
"""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from irwm.attacks.equivalence import apply, read_state, write_state
from storage.vault import Vault
from tests.command.commands import CHEAP, PASSPHRASE, Desk
from tools.waiting import PATIENCE, until_ended

HERE = Path(__file__).parent
SUSPECTS = ("release", "original", "columns", "rotated")
OURS = {"irwm", "ui", "storage", "tools", "benchmarks", "tests"}


def test_verifier_imports_none_of_our_code() -> None:
    for file in (HERE / "verifier").glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
            assert not {name.split(".")[0] for name in names} & OURS, file


@dataclass(frozen=True, slots=True)
class Kit:
    """An expert's material: the key's file, the original, the suspects, and a folder of reports."""

    folder: Path
    key: Path

    def judged(self, suspect: str, *options: str, report: Path | None = None) -> subprocess.CompletedProcess[str]:
        report = report or self.folder / f"report-{suspect}"
        words = [self.key, self.folder / "original", self.folder / suspect, report, *options]
        return subprocess.run(
            [sys.executable, "-m", "verifier", *map(str, words)],
            cwd=HERE, env=without_our_path(), capture_output=True, text=True, timeout=PATIENCE,
        )  # fmt: skip


def without_our_path() -> dict[str, str]:
    """This machine's settings, which BLAS may need, without a path to our packages."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "IRWM_"))}


def command(desk: Desk, *words: str | Path) -> dict[str, object]:
    answer, said = until_ended(desk.start(*words), f"the command {words[0]}")
    found: dict[str, object] = json.loads(answer)
    assert found["error"] is None, said
    return found


@pytest.fixture(scope="module")
def kit(demo_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Kit:
    folder = tmp_path_factory.mktemp("kit")
    desk = Desk(folder / "home", folder / "work")
    desk.work.mkdir()
    desk.home.mkdir(mode=0o700)
    vault = Vault.create(desk.home, PASSPHRASE, cost=CHEAP)
    shutil.copytree(demo_path, desk.work / "original")
    names = "--owner", "Example Labs", "--recipient", "Early access 7"
    command(desk, "protect", "original", "release", *names, "--utility", "no")
    release = read_state(desk.work / "release")
    write_state(apply(release, ["permute_residual", "flip_signs", "rescale"], seed=3), desk.work / "columns")
    write_state(apply(release, ["rotate"], seed=4), desk.work / "rotated")
    for suspect in SUSPECTS:
        command(desk, "investigate", suspect, "--original", "original", "--report", f"report-{suspect}")
    vault.unlock(PASSPHRASE)
    (record,) = vault.keys()
    opened = command(desk, "open-key", record.id, ".")
    return Kit(desk.work, Path(str(opened["files"][0])))  # type: ignore[index]


@pytest.mark.slow
@pytest.mark.parametrize("suspect", SUSPECTS)
def test_every_report_agrees_with_the_independent_verifier(kit: Kit, suspect: str) -> None:
    judged = kit.judged(suspect, *(["--written"] if suspect == "release" else []))
    differing = [line for line in judged.stdout.splitlines() if line.startswith("DIFFERS")]
    assert not differing
    assert judged.returncode == 0, judged.stdout[-2000:] + judged.stderr
    made, _, all_of_them = judged.stdout.splitlines()[-1].split()[:3]
    assert made == all_of_them
    assert int(made) > 100


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changed", "noticed"),
    [("nothing", set()), ("rank", {"reading"}), ("verdict", {"verdict"}), ("z", {"tracing"})],
)
def test_a_changed_number_is_noticed(kit: Kit, tmp_path: Path, changed: str, noticed: set[str]) -> None:
    """Without its signature, which this change would break before anything is derived."""
    document = json.loads((kit.folder / "report-columns" / "report.json").read_text(encoding="utf-8"))
    if changed == "rank":
        document["reading"]["positions"][3]["rank"] += 1 / 1001
    elif changed == "verdict":
        document["verdict"]["word"] = "not found"
    elif changed == "z":
        document["tracing"]["ranked"][0]["z"] *= 1.00001
    (tmp_path / "report.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    lines = kit.judged("columns", report=tmp_path / "report.json").stdout.splitlines()
    differing = {line.split()[1].rstrip(":") for line in lines if line.startswith("DIFFERS")}
    assert differing == noticed | {"signature"}
