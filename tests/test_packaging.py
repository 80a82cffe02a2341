"""Requirements are in one place, and the library can be installed alone."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.report.signers import Signatory, log_of

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
MINUTES = 60


def requirements(name: str) -> list[str]:
    """The requirements in a file, without comments, hashes and included files."""
    text = (ROOT / name).read_text("utf-8").replace("\\\n", " ")
    lines = (re.sub(r"\s+--hash=\S+|(^|\s)#.*", "", line).strip() for line in text.splitlines())
    return [line for line in lines if line and not line.startswith("-")]


def pins(lines: list[str]) -> dict[str, str]:
    """Versions by normalised name."""
    found = (Requirement(line) for line in lines)
    return {re.sub(r"[-_.]+", "-", each.name).lower(): str(each.specifier) for each in found}


@pytest.mark.parametrize(
    ("name", "listed"),
    [
        ("requirements.txt", [*PROJECT["dependencies"], *EXTRAS["studio"]]),
        ("requirements-cluster.txt", EXTRAS["cluster"]),
        ("requirements-harness.txt", EXTRAS["harness"]),
        ("requirements-release.txt", EXTRAS["release"]),
        ("requirements-stores.txt", EXTRAS["stores"]),
        ("requirements-tools.txt", EXTRAS["tools"]),
    ],
)
def test_a_requirements_file_repeats_the_project(name: str, listed: list[str]) -> None:
    assert sorted(requirements(name)) == sorted(listed)


def test_pinned_versions_equal_the_constraints() -> None:
    known = pins(requirements("constraints.txt"))
    asked = [*PROJECT["dependencies"], *(each for extra in EXTRAS.values() for each in extra)]
    assert {
        name: version
        for name, version in pins([*asked, *requirements("requirements-dev.txt")]).items()
        if version.startswith("==") and known.get(name, version) != version
    } == {}


def test_lock_has_the_requirements_in_constraint_versions() -> None:
    locked, known = pins(requirements("requirements.lock")), pins(requirements("constraints.txt"))
    for name, version in pins(requirements("requirements.txt")).items():
        assert Requirement(f"{name}{version}").specifier.contains(locked[name].removeprefix("=="))
    assert {name: version for name, version in locked.items() if known.get(name, version) != version} == {}


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of programs in an environment with only this project's wheel and its requirements."""
    work = tmp_path_factory.mktemp("wheel")
    source = work / "source"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    shutil.copytree(ROOT / "irwm", source / "irwm", ignore=shutil.ignore_patterns("__pycache__"))
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    told(*pip, "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", work, source)
    (wheel,) = work.glob("irwm-*.whl")
    told(sys.executable, "-m", "venv", "--without-pip", work / "venv")
    bin_ = work / "venv" / ("Scripts" if os.name == "nt" else "bin")
    constraints = ROOT / "constraints.txt"
    told(*pip, "--python", bin_ / "python", "install", "--quiet", "--constraint", constraints, wheel, cwd=work)
    return bin_


def run(*command: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    # Neither this checkout nor this environment may help.
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    return subprocess.run(
        [*map(str, command)], cwd=cwd, env=environment, capture_output=True, text=True, timeout=10 * MINUTES,
        check=False,
    )  # fmt: skip


def told(*command: object, cwd: Path | None = None) -> str:
    done = run(*command, cwd=cwd)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_wheel_alone_verifies_inspects_and_detects_from_any_folder(
    installed: Path, demo_path: Path, tmp_path: Path
) -> None:
    """The checkout makes a report here, and the wheel checks it there: page and PDF byte for byte."""
    import irwm
    from irwm.report.write import write_document
    from tests.report.conftest import complete

    model = irwm.open_checkpoint(demo_path)
    key = irwm.generate_key(model, secret=b"\x01" * 32, owner="Example Labs", recipient="Early access 7")
    copy = irwm.open_checkpoint(irwm.insert(model, key, tmp_path / "copy").path)
    document = complete({"copy": copy, "model": model, "key": key}).document
    write_document(tmp_path / "report", document, signer=Signatory().signer())
    (tmp_path / "opened.key").write_bytes(key.to_bytes())
    (tmp_path / "log.jsonl").write_bytes(log_of())
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()

    checked = told(
        installed / "irwm", "verify", tmp_path / "report", "--identity", Signatory().first, "--suspect", copy.path,
        "--original", demo_path, "--key", tmp_path / "opened.key", "--audit-log", tmp_path / "log.jsonl", cwd=elsewhere,
    ).splitlines()  # fmt: skip
    checks = [line.split()[:2] for line in checked if line.split()[0] in ("holds", "fails", "not")]
    assert {state for state, _ in checks} == {"holds"}
    assert {"signature:", "page:", "pdf:", "examination:", "controls:"} <= {name for _, name in checks}

    about = json.loads(told(installed / "irwm", "inspect", demo_path, "--json", cwd=elsewhere))
    assert about["fingerprint"] == model.fingerprint
    found = told(
        installed / "irwm", "detect", copy.path, "--original", demo_path, "--key", tmp_path / "opened.key",
        cwd=elsewhere,
    )  # fmt: skip
    assert found.splitlines()[0].endswith(": found")


@pytest.mark.slow
def test_wheel_without_the_extra_names_it(installed: Path, tmp_path: Path) -> None:
    told("openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", tmp_path / "key.pem")
    (tmp_path / "SHA256SUMS").write_text("")
    done = run(installed / "irwm", "sign", ".", "--key", "key.pem", cwd=tmp_path)
    assert done.returncode == 2
    assert "the libraries of the extra “release”" in done.stderr
    code = "from importlib.metadata import *; print(*metadata('irwm').get_all('Provides-Extra'))"
    names = told(installed / "python", "-c", code, cwd=tmp_path)
    assert set(names.split()) == set(EXTRAS)
    assert told(installed / "irwm", "--version", cwd=tmp_path).startswith("irwm ")


@pytest.mark.slow
def test_wheel_does_not_contain_the_app(installed: Path, tmp_path: Path) -> None:
    code = """
import importlib.util, irwm
for name in ("gradio", "sqlite_utils", "ui", "storage", "app"):
    assert importlib.util.find_spec(name) is None, name
assert "site-packages" in irwm.__file__
for name in irwm.__all__:
    getattr(irwm, name)
print(len(irwm.inference.default_text()))
"""
    assert int(told(installed / "python", "-c", code, cwd=tmp_path)) > 10_000


@pytest.mark.parametrize("name", ["requirements.lock", "requirements-cuda.lock"])
def test_every_line_of_a_lock_is_one_version_with_hashes(name: str) -> None:
    entries = [line for line in re.sub(r"\\\n", " ", (ROOT / name).read_text("utf-8")).splitlines() if line[0] != "#"]
    assert entries
    for entry in entries:
        assert re.match(r"[A-Za-z0-9_.-]+==[A-Za-z0-9.]+ ", entry), entry
        assert re.search(r"--hash=sha256:[0-9a-f]{64}( |$)", entry), entry
    if name == "requirements-cuda.lock":
        assert all("sys_platform == 'linux'" in entry for entry in entries)
