"""Each fault of docs/faults.md has a test that is marked `fault(NN)` and runs everywhere."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
DOCS = TESTS.parent / "docs"
LISTED = re.findall(r"^\| (\d+) \|", (DOCS / "faults.md").read_text(encoding="utf-8"), re.MULTILINE)


def functions() -> Iterator[tuple[Path, ast.FunctionDef]]:
    """Every test function of the suite, without importing it."""
    for path in sorted(TESTS.rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                yield path, node


def faults_of(function: ast.FunctionDef) -> set[str]:
    # Some tests have the number in their names instead: test_fault_04_and_05_..., or test_21_... of GGUF files.
    named = re.match(r"test_(?:fault_)?(\d\d(?:_and_\d\d)*)_", function.name)
    numbers = {str(int(number)) for number in named[1].split("_and_")} if named else set()
    for mark in function.decorator_list:
        if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.fault":
            numbers |= {ast.unparse(number) for number in mark.args}
    return numbers


def test_the_listed_faults_are_those_with_tests() -> None:
    assert list(map(str, range(1, len(LISTED) + 1))) == LISTED
    marked, everywhere = set(), set()
    for _, function in functions():
        marked |= faults_of(function)
        if not re.search(r"mark\.(skip|skipif|xfail)\b", " ".join(map(ast.unparse, function.decorator_list))):
            everywhere |= faults_of(function)
    assert marked == everywhere == set(LISTED)


@pytest.mark.parametrize(("page", "least"), [("security.md", 20), ("verifying.md", 8), ("features.md", 40)])
def test_tests_named_by_claims_pages_exist(page: str, least: int) -> None:
    text = (DOCS / page).read_text(encoding="utf-8")
    paths = set(re.findall(r"`(tests/[\w/.]+?)(?:::\w+)?`", text))
    assert len(paths) >= least
    assert [path for path in sorted(paths) if not (TESTS.parent / path).exists()] == []
    known = {(path.relative_to(TESTS.parent).as_posix(), function.name) for path, function in functions()}
    assert set(re.findall(r"`(tests/[\w/.]+)::(\w+)`", text)) <= known
    assert set(re.findall(r"`(test_\w+)`", text)) <= {name for _, name in known}
