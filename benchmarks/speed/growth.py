"""How cost grows with the vocabulary, the hidden size, the positions, the keys and the permutations."""

from __future__ import annotations

import math
import shutil
import time
from dataclasses import replace
from typing import Any

from benchmarks.speed import geometry
from benchmarks.speed.claim import SECRET, Bench, Figure
from benchmarks.speed.task import measured

NAME, TITLE = "growth", "How cost grows"
_ROWS, _COLUMNS = 16_000, 1024


def step(model: str, out: str, positions: int = 50, permutations: int = 10_000, keys: int = 1) -> dict[str, Any]:
    """Return seconds of insertion, and of detection with all keys, on a model in the page cache."""
    import irwm

    params = replace(irwm.Parameters(), positions=positions, required_positions=max(1, 3 * positions // 5),
                     permutations=permutations)  # fmt: skip
    original = irwm.open_checkpoint(model)
    made = [irwm.generate_key(original, params, secret=SECRET, recipient=str(n)) for n in range(keys)]
    began = time.perf_counter()
    irwm.insert(original, made[0], out)
    inserted = time.perf_counter()
    found = list(irwm.detect_each(irwm.Examination(irwm.open_checkpoint(out), original), made))
    return {"insert": inserted - began, "detect": time.perf_counter() - inserted, "found": found[0].verdict}


STEPS = {"step": step}


def measure(bench: Bench) -> dict[str, Any]:
    few = 1 if bench.quick else None
    axes: dict[str, list[tuple[int, dict[str, int], dict[str, Any]]]] = {
        "vocabulary s": [(n, {"rows": n}, {}) for n in (8000, 16_000, 32_000, 64_000, 128_000)[:few]],
        "hidden size d": [(n, {"columns": n}, {}) for n in (512, 1024, 2048, 4096)[:few]],
        "positions l": [(n, {}, {"positions": n}) for n in (25, 50, 100, 200, 400)[:few]],
        "keys": [(n, {}, {"keys": n}) for n in (1, 4, 16, 64)[:few]],
        "permutations N": [(n, {}, {"permutations": n}) for n in (2500, 5000, 10_000, 20_000, 40_000)[:few]],
    }
    result: dict[str, Any] = {}
    for axis, points in axes.items():
        result[axis] = []
        for value, size, arguments in points:
            model, out = bench.folder / "grown", bench.folder / "grown-out"
            sizes = {"rows": 2000 if bench.quick else _ROWS, "columns": 256 if bench.quick else _COLUMNS} | size
            shutil.rmtree(model, ignore_errors=True)
            geometry.write(model, geometry.Geometry.of_columns(**sizes))
            took = measured(NAME, "step", bench.threads, model=str(model), out=str(out), **arguments)
            shutil.rmtree(out)
            result[axis].append({"value": value, **took})
            bench.say(f"  {axis} = {value}: {took}")
        shutil.rmtree(model)
    return result


def exponent(points: list[dict[str, Any]], what: str) -> float:
    """Return the least-squares slope of the logarithms: cost grows like value ** exponent."""
    x, y = [math.log(p["value"]) for p in points], [math.log(p[what]) for p in points]
    mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
    spread = sum((a - mean_x) ** 2 for a in x)
    return sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True)) / spread if spread else float("nan")


def figures(result: dict[str, Any]) -> list[Figure]:
    return []


def details(result: dict[str, Any]) -> list[str]:
    lines = [
        f"A synthetic Llama of {_ROWS} × {_COLUMNS} with one layer, one key of 50 positions and 10 000 permutations; "
        "each axis varies alone. The exponent is fitted to all points by least squares of the logarithms. It is below "
        "1 if fixed costs dominate at small sizes.",
        "",
        "| axis | values | insertion, s | detection, s | exponent of insertion | exponent of detection |",
        "|---|---|---|---|---|---|",
    ]
    for axis, points in result.items():
        values = ", ".join(f"{p['value']:,}".replace(",", " ") for p in points)
        took = [", ".join(f"{p[what]:.2f}" for p in points) for what in ("insert", "detect")]
        slopes = [f"{exponent(points, what):.2f}" for what in ("insert", "detect")]
        lines.append(f"| {axis} | {values} | {took[0]} | {took[1]} | {slopes[0]} | {slopes[1]} |")
    return ["\n".join(lines)]
