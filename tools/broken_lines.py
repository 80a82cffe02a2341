"""Mutation test of `make test`: break one line in each of ten modules, chosen by a seed, one at a time.

    python -m tools.broken_lines [--seed 1] [--only 3] [--workers 2]

From each of ten parts of the tree it chooses one line of one module at random, and replaces a comparison, a sum or an
"and" by its opposite. The quick tier then runs on a copy of the repository until a test fails. The table shows the
broken line and the test that noticed it. A line that no test noticed is either untested, or its change has no effect.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
NO_TESTS = 5  # pytest's exit status if none of the given tests is in the tier
PARTS = (
    "irwm/scheme/*.py",
    "irwm/evidence/*.py",
    "irwm/alignment/*.py",
    "irwm/attacks/**/*.py",
    "irwm/checkpoint/**/*.py",
    "irwm/tracing/*.py",
    "irwm/ownership/*.py",
    "storage/*.py",
    "ui/jobs/*.py",
    "irwm/report/*.py",
)
OPPOSITES: dict[type[ast.AST], Any] = {
    ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.Gt: ast.LtE, ast.LtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Broken:
    """One broken line: the module, the line's number, the statement before and after."""

    module: Path
    line: int
    before: str
    after: str


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int, nargs="+", help="only these of the ten parts, counted from 1")
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    print("| module | line | before | after | noticed by | s |\n|---|---|---|---|---|---|", flush=True)
    noticed = 0
    chosen = given.only or range(1, len(PARTS) + 1)
    for number in chosen:
        broken = draw(PARTS[number - 1], random.Random(f"{given.seed} {number}"))
        began = time.monotonic()
        by = first_failure(broken, given.workers)
        noticed += by is not None
        where = broken.module.relative_to(ROOT)
        print(
            f"| {where} | {broken.line} | `{broken.before}` | `{broken.after}` | {by or '**no test**'} "
            f"| {time.monotonic() - began:.0f} |",
            flush=True,
        )
    print(f"\n{noticed} of {len(chosen)} noticed")


def draw(part: str, chance: random.Random) -> Broken:
    """Break one line of one module of a part. Modules are weighted by their number of breakable statements."""
    places = [(path, number) for path in sorted(ROOT.glob(part)) for number in range(len(list(breakable(path))))]
    path, number = chance.choice(places)
    tree = ast.parse(path.read_text(encoding="utf-8"))
    node = list(nodes(tree))[number]
    before = ast.unparse(node)
    turn(node)
    return Broken(path, node.lineno, before, ast.unparse(node))


def breakable(path: Path) -> Iterator[ast.expr]:
    yield from nodes(ast.parse(path.read_text(encoding="utf-8")))


def nodes(tree: ast.AST) -> Iterator[ast.expr]:
    """Yield expressions inside functions that `turn` can change, in source order."""
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef):
            for node in ast.walk(function):
                if isinstance(node, (ast.Compare, ast.BoolOp)) or (
                    isinstance(node, ast.BinOp) and type(node.op) in OPPOSITES
                ):
                    yield node


def turn(node: ast.expr) -> None:
    """Replace the operator by its opposite, in place."""
    if isinstance(node, ast.Compare):
        node.ops[0] = OPPOSITES[type(node.ops[0])]()
    elif isinstance(node, (ast.BoolOp, ast.BinOp)):
        node.op = OPPOSITES[type(node.op)]()


def first_failure(broken: Broken, workers: int) -> str | None:
    """Return the first quick test that fails on a copy of the repository with the broken line; None if all pass.

    One failure is enough, so tests near the module run first: those that name the module, then those in the folder with
    its package's name or that name the package, then all others.
    """
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "repository"
        shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns(".git", ".venv", ".*_cache", "__pycache__"))
        place = broken.module.relative_to(ROOT)
        target = tree / place
        target.write_text(replaced(target.read_text(encoding="utf-8"), broken), encoding="utf-8")
        for tests in rings(tree, place):
            # Without the time limit of quick tests, since a slow test has not noticed the broken line.
            command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:time-limit"]
            command += ["--tier", "quick", "--dist", "loadscope"]
            done = subprocess.run(
                [*command, "-n", str(workers), *map(str, tests)],
                cwd=tree,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode not in (0, NO_TESTS):
                found = re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
                return found[1] if found else f"exit status {done.returncode}"
    return None


def rings(tree: Path, place: Path) -> Iterator[list[Path]]:
    """Yield the test modules of a tree once, those nearest to the module at `place` first."""
    module = ".".join(place.with_suffix("").parts)
    package, _, name = module.rpartition(".")
    named = re.compile(rf"{re.escape(module)}\b|from {re.escape(package)} import [^\n]*\b{re.escape(name)}\b")
    texts = {path: path.read_text(encoding="utf-8") for path in sorted(tree.glob("tests/**/test_*.py"))}
    folder = tree / "tests" / place.parts[1] if len(place.parts) > 2 else tree / "tests" / place.parts[0]
    rules: tuple[Callable[[Path], bool], ...] = (
        lambda path: bool(named.search(texts[path])) or path.stem == f"test_{place.stem}",
        lambda path: folder in path.parents or package in texts[path],
        lambda _: True,
    )
    left = set(texts)
    for rule in rules:
        ring = [path for path in sorted(left) if rule(path)]
        left.difference_update(ring)
        if ring:
            yield ring


def replaced(text: str, broken: Broken) -> str:
    """Return the module's text with this expression broken and the other lines unchanged."""
    tree = ast.parse(text)
    for node in nodes(tree):
        if node.lineno == broken.line and ast.unparse(node) == broken.before:
            lines = text.splitlines(keepends=True)
            first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
            head = lines[first].encode("utf-8")[: node.col_offset].decode("utf-8")
            tail = lines[last].encode("utf-8")[node.end_col_offset :].decode("utf-8")
            lines[first : last + 1] = [f"{head}({broken.after}){tail}"]
            return "".join(lines)
    raise SystemExit(f"{broken.module}: line {broken.line} no longer has this expression")


if __name__ == "__main__":
    main()
