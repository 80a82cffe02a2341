"""Every fault of docs/faults.md has a test that tries it: one named `test_fault_NN_...`, or one marked `fault(NN)`.

A test of another folder that covers a fault fully is marked and not repeated here. So the names and marks map faults to
tests, and the list's last column must repeat them: if it differs, the failure shows the text that belongs there.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
LIST = TESTS.parent / "docs" / "faults.md"
# The shorter form is that of the GGUF tests.
NAME = re.compile(r"test_(?:fault_)?(\d\d(?:_and_\d\d)*)_")


def listed() -> list[tuple[int, list[str]]]:
    """The list's rows: each number with the cells behind it, in the order of the page."""
    lines = re.findall(r"^\|\s*(\d+)\s*\|(.*)$", LIST.read_text(encoding="utf-8"), re.MULTILINE)
    return [(int(number), [cell.strip() for cell in rest.split("|")]) for number, rest in lines]


ROWS = listed()
FAULTS = [number for number, _ in ROWS]


def functions() -> Iterator[tuple[Path, ast.FunctionDef]]:
    """Every test function of the suite, without importing it."""
    for path in sorted(TESTS.rglob("test_*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                yield path, node


def named(function: ast.FunctionDef) -> set[int]:
    """The faults in a test's name: `test_fault_04_and_05_...` has two."""
    found = NAME.match(function.name)
    return {int(number) for number in re.findall(r"\d\d", found[1])} if found else set()


def marked(function: ast.FunctionDef) -> set[int]:
    """The faults in a test's mark; what the mark says must be plain numbers of the list."""
    numbers: set[int] = set()
    for decorator in function.decorator_list:
        if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "pytest.mark.fault":
            numbers |= {ast.literal_eval(argument) for argument in decorator.args}
    return numbers


def skipped(function: ast.FunctionDef) -> bool:
    """Whether a mark excludes a test somewhere, so that the test alone does not cover a fault."""
    return any(re.search(r"mark\.(skip|skipif|xfail)\b", ast.unparse(each)) for each in function.decorator_list)


@dataclass(frozen=True)
class Trial:
    """A test of a fault: its file, its name, and whether no mark excludes it anywhere."""

    file: str
    name: str
    everywhere: bool


@pytest.fixture(scope="module")
def trials() -> dict[int, list[Trial]]:
    """The tests of each fault."""
    found: dict[int, list[Trial]] = {}
    for path, function in functions():
        for number in named(function) | marked(function):
            trial = Trial(path.relative_to(TESTS).as_posix(), function.name, not skipped(function))
            found.setdefault(number, []).append(trial)
    return found


def test_the_list_is_numbered_from_1_without_a_gap() -> None:
    assert list(range(1, len(ROWS) + 1)) == FAULTS


def test_no_test_names_a_fault_that_is_not_listed(trials: dict[int, list[Trial]]) -> None:
    unknown = {number: [f"{trial.file}::{trial.name}" for trial in trials[number]] for number in trials.keys() - FAULTS}
    assert not unknown, "docs/faults.md has no row for these"


@pytest.mark.parametrize("number", FAULTS)
def test_each_fault_has_a_test(trials: dict[int, list[Trial]], number: int) -> None:
    everywhere = [trial for trial in trials.get(number, []) if trial.everywhere]
    assert everywhere, f"no test that runs everywhere is named test_fault_{number:02}_... or marked fault({number})"


@pytest.mark.parametrize(("number", "cells"), ROWS, ids=map(str, FAULTS))
def test_each_row_names_the_test_files_of_its_fault(
    trials: dict[int, list[Trial]], number: int, cells: list[str]
) -> None:
    assert len(cells) == 4, f"row {number} of docs/faults.md: a number and three texts without |, each followed by |"
    fault, answer, files, after = cells
    assert fault
    assert answer
    assert not after
    expected = ", ".join(f"`{file}`" for file in sorted({trial.file for trial in trials.get(number, [])}))
    assert files == expected, f"the last cell of row {number} of docs/faults.md should be:\n{expected}"


@pytest.mark.parametrize(("page", "least"), [("security.md", 20), ("verifying.md", 8)])
def test_tests_named_by_claims_pages_exist(page: str, least: int) -> None:
    text = (LIST.parent / page).read_text(encoding="utf-8")
    paths = set(re.findall(r"`(tests/[\w/.]+?)(?:::\w+)?`", text))
    assert len(paths) >= least
    assert [path for path in sorted(paths) if not (TESTS.parent / path).exists()] == []
    known = {(path.relative_to(TESTS.parent).as_posix(), function.name) for path, function in functions()}
    assert set(re.findall(r"`(tests/[\w/.]+)::(\w+)`", text)) <= known
    assert set(re.findall(r"`(test_\w+)`", text)) <= {name for _, name in known}
