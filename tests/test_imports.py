"""Imports point downwards only: tests the layers of docs/architecture.md."""

from __future__ import annotations

import ast
import functools
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import irwm

ROOT = Path(__file__).parents[1]
# The level of each package, lowest first. A module imports only from its own package or from a lower level; the parts
# of `ui` on the same level may import each other.
FLOORS = [
    ("irwm.errors", 0),
    ("irwm.canonical", 0),
    ("irwm.signing", 1),
    ("irwm.families", 1),
    ("irwm.checkpoint", 2),
    ("irwm.running", 3),
    ("irwm.scheme", 3),
    ("irwm.alignment", 4),
    ("irwm.keys", 4),
    ("irwm.evidence", 5),
    ("irwm.ownership", 6),
    ("irwm.tracing", 6),
    ("irwm.answers", 7),
    ("irwm.explore", 7),
    ("irwm.release", 7),
    ("irwm.attacks", 8),
    ("irwm", 9),
    ("irwm.report", 10),  # above `irwm/__init__.py`, which exports what it describes
    ("irwm.__main__", 11),  # the command of the package
    ("storage", 11),
    ("ui.services", 12),
    ("ui.jobs", 13),
    ("ui.command", 14),
    ("ui.components", 15),
    ("ui.pages", 16),
    ("ui.frame", 17),
    ("ui", 13),
    ("app", 18),
]
RUNS_MODELS = ("irwm.running", "irwm.attacks", "irwm.answers")
OTHER_FOLDERS = ("benchmarks", "tools", "tests")
SEARCH_PATH = re.compile(r"\bsys\.path\.(insert|append)\b")
GRADIO_ALLOWED = ("ui.pages", "ui.components", "ui.frame", "ui.server", "ui.theme", "app")


def modules() -> list[Path]:
    found = [ROOT / "app.py"]
    for top in ("irwm", "storage", "ui"):
        found += sorted((ROOT / top).rglob("*.py"))
    return found


def every_file() -> list[Path]:
    """All Python files of the repository."""
    return modules() + [path for top in OTHER_FOLDERS for path in sorted((ROOT / top).rglob("*.py"))]


def name_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@functools.cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@functools.cache
def imported(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names |= {f"{node.module}.{alias.name}" for alias in node.names} | {node.module}
        elif isinstance(node, ast.ImportFrom) and node.level:
            raise AssertionError(f"{path}: relative import")
    return names


def place(name: str) -> tuple[str, int] | None:
    """The package and the level of a module; a new package of `irwm` has no level until it is listed."""
    for prefix, level in FLOORS:  # longer prefixes come first
        if name == prefix or (prefix != "irwm" and name.startswith(prefix + ".")):
            return prefix, level
    return None


@pytest.mark.quick("reads every module once, for all the rules")
def test_modules_import_only_from_lower_levels() -> None:
    wrong = {name_of(path): above for path in modules() if (above := imports_from_above(path))}
    assert not wrong


def imports_from_above(path: Path) -> set[str]:
    own = place(name_of(path))
    assert own is not None, f"{path} has no level"
    if name_of(path) == "ui":  # a package's `__init__` re-exports its content
        own = ("ui", 18)
    return {other for other in imported(path) if (found := place(other)) is not None and is_above(found, own)}


def is_above(other: tuple[str, int], own: tuple[str, int]) -> bool:
    """Whether the other package is on a higher level; packages of `irwm` on one level may not import each other."""
    if other[1] == own[1]:
        return other[0] != own[0] and own[0].startswith("irwm")
    return other[1] > own[1]


def test_libraries_are_used_only_in_their_packages() -> None:
    wrong = {name_of(path): found for path in modules() if (found := list(out_of_place(path)))}
    assert not wrong


def out_of_place(path: Path) -> Iterator[str]:
    """A module's imports and calls that belong to another part, each as a phrase."""
    name, names = name_of(path), imported(path)
    tops = {other.split(".")[0] for other in names}
    if not name.startswith(GRADIO_ALLOWED) and "gradio" in tops:
        yield "gradio outside the pages"
    if not name.startswith("storage") and tops & {"sqlite3", "sqlite_utils"}:
        yield "a database outside storage"
    below = ("irwm.errors", "irwm.canonical", "irwm.signing")
    if name.startswith("storage") and (found := {o for o in names if o.startswith("irwm") and not o.startswith(below)}):
        yield f"parts of irwm above the three that storage needs: {sorted(found)}"
    if not name.startswith("irwm"):
        return
    drawing = {"plotly", "logging"} if name.startswith("irwm.report") else set()  # matplotlib only writes a log
    if found := tops & {"time", "random", "logging", "plotly"} - drawing:
        yield f"what a pure library does not need: {sorted(found)}"
    # A verdict reads tensors and never runs a suspect; code that runs a model opens it through irwm.running.
    if not name.startswith("irwm.running") and "transformers" in tops:
        yield "transformers outside irwm.running"
    if not name.startswith(RUNS_MODELS) and [other for other in names if other.startswith("irwm.running")]:
        yield "irwm.running outside the attacks and the answers"
    calls = {
        node.func.id if isinstance(node.func, ast.Name) else node.func.attr
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Call) and isinstance(node.func, (ast.Name, ast.Attribute))
    }
    if name != "irwm.__main__" and "print" in calls:  # the command line prints for a user
        yield "print"
    # Times may be read from documents and compared; the clock is never read.
    if found := {"now", "utcnow", "today"} & calls:
        yield f"the clock: {sorted(found)}"


def test_examinations_keep_no_state_in_modules() -> None:
    """A module's cache outlives the examination that filled it, and hides who shares it."""
    packages = ("irwm.alignment", "irwm.evidence", "irwm.tracing", "irwm.scheme.invariant")
    assert not [name_of(path) for path in modules() if name_of(path).startswith(packages) and memo_caches(path)]
    assert memo_caches(ROOT / "irwm" / "keys" / "digests.py"), "the rule recognises a cache"


def memo_caches(path: Path) -> list[str]:
    """A module's uses of functools' caches, as decorators or on its own functions."""
    used = (ast.unparse(node) for node in ast.walk(tree_of(path)) if isinstance(node, (ast.Name, ast.Attribute)))
    return [each for each in used if each.removeprefix("functools.") in ("cache", "lru_cache")]


@pytest.mark.parametrize("module", ["storage", "storage.vault", "storage.jobs", "irwm.errors", "ui.settings"])
def test_imports_without_tensors_do_not_load_torch(module: str) -> None:
    said = subprocess.run(
        [sys.executable, "-c", f"import {module}, sys; print('torch' in sys.modules)"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert said.stdout.strip() == "False"


# Adding or removing one changes what users of the library can rely on.
PUBLIC = [
    "Alignment",
    "Answers",
    "Checkpoint",
    "Examination",
    "Finding",
    "IrwmError",
    "Key",
    "Lineage",
    "Manifest",
    "Parameters",
    "Reading",
    "RecordedAnswers",
    "Release",
    "Trace",
    "Tracing",
    "align",
    "attacks",
    "decoy_key",
    "detect",
    "detect_answers",
    "detect_each",
    "find_checkpoints",
    "generate_key",
    "insert",
    "many_recipients",
    "one_owner",
    "open_checkpoint",
    "open_suspect",
    "random_user_probability",
    "read_answers",
    "success_probability",
    "suspect_from_answers",
    "trace",
    "trace_answers",
    "wrong_user_probability",
]


def test_irwm_exports_exactly_its_public_names() -> None:
    assert sorted(irwm.__all__) == sorted(PUBLIC)
    for name in irwm.__all__:
        assert getattr(irwm, name) is not None
        assert name in dir(irwm)
    assert irwm.evidence.__name__ == "irwm.evidence"
    with pytest.raises(AttributeError, match="nothing_of_the_kind"):
        irwm.nothing_of_the_kind  # noqa: B018
    with pytest.raises(ImportError):
        from irwm import nothing_else_either  # noqa: F401
