"""Every fault on the list has a test that tries it: one named `test_fault_NN_...`, or one marked `fault(NN)`.

A test of another folder that tries a fault in full is marked and not repeated here. So the names and marks are the
map from a fault to its tests: `grep -rn 'fault_45\\|fault(45' tests`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
FAULTS = range(1, 66)
# The shorter form is that of the GGUF tests.
NAME = re.compile(r"test_(?:fault_)?(\d\d(?:_(?:and|to)_\d\d)*)_")


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
    """Whether a test may be left out somewhere, and so is no answer to a fault by itself."""
    return any(re.search(r"mark\.(skip|skipif|xfail)\b", ast.unparse(each)) for each in function.decorator_list)


@pytest.fixture(scope="module")
def tried() -> dict[int, list[str]]:
    """Of each fault, the tests that try it everywhere."""
    found: dict[int, list[str]] = {}
    for path, function in functions():
        for number in named(function) | marked(function):
            assert number in FAULTS, f"{path}: {function.name} names fault {number}, and there are {FAULTS[-1]}"
            if not skipped(function):
                found.setdefault(number, []).append(f"{path.relative_to(TESTS)}::{function.name}")
    return found


@pytest.mark.parametrize("number", FAULTS)
def test_each_fault_has_a_test(tried: dict[int, list[str]], number: int) -> None:
    assert tried.get(number), f"no test is named test_fault_{number:02}_... or marked fault({number})"
