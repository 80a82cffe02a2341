"""No function of the app or the library is too long to follow."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("ui", "storage", "irwm")
MOST_LINES = 80


def long_functions() -> dict[tuple[str, str], int]:
    """The functions of more than `MOST_LINES` lines, by path and name, with their lengths."""
    found = {}
    for file in sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                assert node.end_lineno is not None
                lines = node.end_lineno - node.lineno + 1
                if lines > MOST_LINES:
                    found[file.relative_to(ROOT).as_posix(), node.name] = lines
    return found


def test_no_function_exceeds_the_length_limit() -> None:
    assert not long_functions(), f"more than {MOST_LINES} lines: split layout, handlers and wiring"
