"""Imports run downwards only: the house of docs/architecture.md, held by a test."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import irwm

ROOT = Path(__file__).parents[1]
# Floor of every package, from the ground up; a module imports only from its own floor's package or a lower floor.
FLOORS = [
    ("irwm.errors", 0),
    ("irwm.families", 1),
    ("irwm.checkpoint", 2),
    ("irwm.attacks", 4),
    ("irwm", 3),
    ("storage", 5),
    ("ui.report", 6),
    ("ui.jobs", 7),
    ("ui.command", 8),
    ("ui.components", 9),
    ("ui.pages", 10),
    ("ui.frame", 11),
    ("ui", 6),
    ("app", 12),
]
RUNS_MODELS = ("irwm.utility", "irwm.attacks")
BESIDE = ("benchmarks", "tools", "tests")
SEARCH_PATH = re.compile(r"\bsys\.path\.(insert|append)\b")
GRADIO_ALLOWED = ("ui.pages", "ui.components", "ui.frame", "ui.server", "ui.theme", "app")


def modules() -> list[Path]:
    found = [ROOT / "app.py"]
    for top in ("irwm", "storage", "ui"):
        found += sorted((ROOT / top).rglob("*.py"))
    return found


def every_file() -> list[Path]:
    """All Python files of the repository."""
    return modules() + [path for top in BESIDE for path in sorted((ROOT / top).rglob("*.py"))]


def name_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names |= {f"{node.module}.{alias.name}" for alias in node.names} | {node.module}
        elif isinstance(node, ast.ImportFrom) and node.level:
            raise AssertionError(f"{path}: relative import")
    return names


def floor(name: str) -> int | None:
    for prefix, level in FLOORS:  # longer prefixes stand first
        if name == prefix or name.startswith(prefix + "."):
            return level
    return None


@pytest.mark.parametrize("path", modules(), ids=name_of)
def test_a_module_imports_only_downwards(path: Path) -> None:
    own = floor(name_of(path))
    assert own is not None, f"{path} stands on no floor"
    if name_of(path) in ("irwm", "ui"):  # a package's front door re-exports what is inside
        own = 4 if name_of(path) == "irwm" else 12
    if name_of(path) == "irwm.__main__":  # an entry point beside app.py, which nothing imports
        own = 12
    above = {other for other in imported(path) if (floor(other) or 0) > own}
    assert not above


@pytest.mark.parametrize("path", modules(), ids=name_of)
def test_each_library_stays_in_its_place(path: Path) -> None:
    name, names = name_of(path), imported(path)
    tops = {other.split(".")[0] for other in names}
    if not name.startswith(GRADIO_ALLOWED):
        assert "gradio" not in tops
    if not name.startswith("ui.jobs"):  # a task runs in its own process, which the runner alone starts
        tasks = ("protect", "investigate", "sweep", "item", "dispute", "verify", "lab")
        assert not names & {f"ui.jobs.{task}" for task in tasks}
    if not name.startswith("storage"):
        assert not tops & {"sqlite3", "sqlite_utils"}
    if name.startswith("irwm"):
        assert not tops & {"time", "random", "logging", "plotly"}
        # A verdict reads tensors and never runs a model; what measures or trains one opens it through irwm.utility.
        if not name.startswith("irwm.utility"):
            assert "transformers" not in tops
        if not name.startswith(RUNS_MODELS):
            assert not [other for other in names if other.startswith("irwm.utility")]
        calls = [
            node.func.id if isinstance(node.func, ast.Name) else node.func.attr
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
            if isinstance(node, ast.Call) and isinstance(node.func, (ast.Name, ast.Attribute))
        ]
        if name != "irwm.__main__":  # the command line: it talks to a person
            assert "print" not in calls
        # Times may be read from documents and compared; the clock is never asked.
        assert not {"now", "utcnow", "today"} & set(calls)


@pytest.mark.parametrize("path", modules(), ids=name_of)
def test_a_module_holds_one_idea(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 400


def test_benchmarks_and_tools_need_no_tests() -> None:
    """Tests take from them what both need, never the other way round."""
    files = [path for top in ("benchmarks", "tools") for path in sorted((ROOT / top).rglob("*.py"))]
    assert len(files) > 50, "they are where they were"
    needing = {name_of(path) for path in files if any(name.split(".")[0] == "tests" for name in imported(path))}
    assert not needing


def test_no_file_changes_where_modules_are_found() -> None:
    """What is run is run as a module from the root; neither a call nor a script in a string changes the search path."""
    changing = set()
    for path in every_file():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                text = ast.unparse(node.func)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                text = node.value
            else:
                continue
            if SEARCH_PATH.search(text):
                changing.add(f"{name_of(path)}, line {node.lineno}")
    assert not changing


@pytest.mark.parametrize("module", ["storage", "storage.vault", "storage.jobs", "irwm.errors", "ui.settings"])
def test_what_needs_no_tensors_starts_without_torch(module: str) -> None:
    said = subprocess.run(
        [sys.executable, "-c", f"import {module}, sys; print('torch' in sys.modules)"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert said.stdout.strip() == "False"


def test_the_front_door_opens_every_room_and_no_other() -> None:
    assert set(irwm._HOMES) | {"attacks"} == set(irwm.__all__)
    for name in irwm.__all__:
        assert getattr(irwm, name) is not None
        assert name in dir(irwm)
    assert irwm.lineage.__name__ == "irwm.lineage"
    with pytest.raises(AttributeError, match="nothing_of_the_kind"):
        irwm.nothing_of_the_kind  # noqa: B018
    with pytest.raises(ImportError):
        from irwm import nothing_else_either  # noqa: F401
