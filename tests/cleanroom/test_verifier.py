"""Reports of the current program, checked by the verifier that was written from docs/ alone.

Ranks must agree exactly, p and z as far as docs/reading.md says, and a changed number must be noticed.
"""

from __future__ import annotations

import ast
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

import irwm
from irwm.attacks.equivalence import apply, read_state, write_state
from tests.cleanroom.verifier.__main__ import main
from tests.evidence.replaced import without_matrices
from tests.jobs.recipients import given_out, jobs_of, new_vault, put_in_vault, request, run_here, succeeded
from tools.waiting import PATIENCE

HERE = Path(__file__).parent
SUSPECTS = ("release", "original", "columns", "rotated")
REPLACED = "replaced"
DISGUISES = {"columns": ("permute_residual", "flip_signs", "rescale"), "rotated": ("rotate",)}
OURS = {"irwm", "ui", "storage", "tools", "benchmarks", "tests"}
Judge = Callable[..., tuple[int, list[str]]]


def test_verifier_imports_none_of_our_code() -> None:
    for file in (HERE / "verifier").glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
            assert not {name.split(".")[0] for name in names} & OURS, file


@pytest.mark.slow
def test_verifier_runs_without_our_folder() -> None:
    command = [sys.executable, "-m", "verifier", "--help"]
    said = subprocess.run(command, cwd=HERE, env={}, capture_output=True, text=True, timeout=PATIENCE, check=True)
    assert "public pages alone" in said.stdout


def make_kit(original: Path, folder: Path, parameters: irwm.Parameters, suspects: Sequence[str]) -> Path:
    """An expert's material in a new folder: the key's file, the original, these suspects and their reports."""
    vault = new_vault(folder / "home")
    jobs = jobs_of(vault)
    shutil.copytree(original, folder / "original")
    model = irwm.open_checkpoint(folder / "original")
    key = irwm.generate_key(model, parameters, owner="Example Labs", recipient="Early access 7")
    put_in_vault(vault, [key])
    (folder / "key.json").write_bytes(key.to_bytes())
    release = irwm.insert(model, key, folder / "release").path
    for suspect in suspects:
        place = folder / suspect
        if suspect in DISGUISES:
            steps = [step for step in DISGUISES[suspect] if irwm.attacks.equivalence.applicable(release)[step] is None]
            write_state(apply(read_state(release), steps, seed=3), place)
        elif suspect == REPLACED:
            without_matrices(Path(release), place)
        elif suspect == "rounded":
            irwm.attacks.quantize(release, place, 4)
        job = succeeded(run_here("investigate", request(model.path, None, suspect=str(place)), vault, jobs))
        given_out(jobs, job.id, folder / f"report-{suspect}")
    return folder


@pytest.fixture(scope="module")
def kit(demo_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    parameters = irwm.one_owner(irwm.open_checkpoint(demo_path).hidden_size)
    return make_kit(demo_path, tmp_path_factory.mktemp("kit"), parameters, (*SUSPECTS, REPLACED))


@pytest.fixture
def judge(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Judge:
    """The exit code and the printed lines of the verifier for a suspect of a kit."""

    def judge(kit: Path, suspect: str, report: Path | None = None) -> tuple[int, list[str]]:
        words = [kit / "key.json", kit / "original", kit / suspect, report or kit / f"report-{suspect}"]
        options = ["--written"] if suspect == "release" else []
        monkeypatch.setattr(sys, "argv", ["verifier", *map(str, words), *options])
        return main(), capsys.readouterr().out.splitlines()

    return judge


def assert_agrees(code: int, lines: list[str]) -> None:
    assert [line for line in lines if line.startswith("DIFFERS")] == []
    assert code == 0
    made, _, all_of_them = lines[-1].split()[:3]
    assert made == all_of_them
    assert int(made) > 100


@pytest.mark.slow
@pytest.mark.parametrize("suspect", SUSPECTS)
def test_every_report_agrees_with_the_independent_verifier(kit: Path, judge: Judge, suspect: str) -> None:
    assert_agrees(*judge(kit, suspect))


@pytest.mark.slow
def test_a_fingerprint_in_the_neurons_agrees(kit: Path, judge: Judge) -> None:
    """Everything agrees except what this verifier does not do: placing the rows of a new embedding."""
    code, lines = judge(kit, REPLACED)
    differing = [line for line in lines if line.startswith("DIFFERS")]
    assert code == 1
    assert any("which this verifier does not do" in line for line in differing)
    assert all(line.startswith("DIFFERS  alignment: ") for line in differing)
    (report,) = (kit / f"report-{REPLACED}").glob(f"report-{REPLACED}-??????.json")
    traced = json.loads(report.read_text(encoding="utf-8"))["tracing"]
    assert (traced["place"], traced["named"]) == ("neurons", 1)
    assert any(line.startswith("agrees") and "tracing: Early access 7: z" in line for line in lines)
    assert any(line.startswith("agrees") and "tracing: z of decoys" in line for line in lines)


@pytest.mark.slow
@pytest.mark.sampled(4)
@pytest.mark.parametrize("number", range(5))
@pytest.mark.parametrize("family", ["demo", "gemma", "phi3", "gpt2"])
def test_reports_of_twenty_keys_of_four_families_agree(
    family: str, number: int, demo_path: Path, tmp_path: Path, judge: Judge
) -> None:
    original = demo_path if family == "demo" else Path(__file__).parents[1] / "models" / family
    d = irwm.open_checkpoint(original).hidden_size
    parameters = irwm.many_recipients(d) if number % 2 else irwm.one_owner(d)
    kit = make_kit(original, tmp_path, parameters, (*SUSPECTS, "rounded"))
    for suspect in (*SUSPECTS, "rounded"):
        assert_agrees(*judge(kit, suspect))


@pytest.mark.slow
def test_changed_numbers_are_noticed(kit: Path, judge: Judge, tmp_path: Path) -> None:
    """Without its signature, which this change would break before anything is derived."""
    (report,) = (kit / "report-columns").glob("report-columns-??????.json")
    document = json.loads(report.read_text(encoding="utf-8"))
    document["reading"]["positions"][3]["rank"] += 1 / 1001
    document["verdict"]["word"] = "not found"
    document["tracing"]["ranked"][0]["z"] *= 1.00001
    (tmp_path / "report.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    code, lines = judge(kit, "columns", tmp_path / "report.json")
    differing = {line.split()[1].rstrip(":") for line in lines if line.startswith("DIFFERS")}
    assert (code, differing) == (1, {"reading", "verdict", "tracing", "signature"})
