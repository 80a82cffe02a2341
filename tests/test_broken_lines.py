"""The tool that breaks a line and checks whether `make test` notices; it runs every test once, the nearest first."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tools.broken_lines import PARTS, ROOT, draw, replaced, rings


@pytest.mark.parametrize(
    ("module", "first"),
    [
        ("irwm/scheme/permutations.py", "tests/keys/test_keys.py"),
        ("storage/case_file.py", "tests/storage/test_case_archive.py"),
        ("ui/presets.py", "tests/ui/test_protect_words.py"),
    ],
)
def test_every_test_module_runs_once_nearest_first(module: str, first: str) -> None:
    found = list(rings(ROOT, Path(module)))
    every = [path for ring in found for path in ring]
    assert len(every) == len(set(every))
    assert set(every) == set(ROOT.glob("tests/**/test_*.py"))
    assert ROOT / first in {path for ring in found[:2] for path in ring}


@pytest.mark.parametrize("part", PARTS)
def test_mutation_changes_one_expression_only(part: str) -> None:
    broken = draw(part, random.Random("7"))
    before = broken.module.read_text(encoding="utf-8")
    after = replaced(before, broken)
    assert before != after
    compile(after, str(broken.module), "exec")
    lines, broken_lines = before.splitlines(), after.splitlines()
    assert lines[: broken.line - 1] == broken_lines[: broken.line - 1]
    assert broken.before != broken.after
