"""Key generation with its condition search, many keys on one suspect, and very many permutations."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from benchmarks.speed.claim import MIB, SECRET, Bench, Figure, median, seconds, spread
from benchmarks.speed.task import measured

NAME, TITLE = "keys", "Keys, many keys and permutations"
CONSTRAINTS, MOST_SEARCH = 20, 1.0
KEYS, LEAST_FASTER = 1000, 200.0
PERMUTATIONS, MOST_NULL = 100_000, 10.0


def search(columns: int, constraints: int) -> dict[str, Any]:
    """The condition search of Algorithm 2 on standardised normal rows; the tries it took."""
    import numpy as np

    from irwm import keystream
    from irwm.condition import well_conditioned

    rows = np.random.default_rng(0).standard_normal((constraints, columns))
    rows = (rows - rows.mean(axis=1, keepdims=True)) / rows.std(axis=1, keepdims=True)
    tries = []
    began = time.perf_counter()
    for number in range(5):
        key = keystream.derive(SECRET, b"benchmark", b"%d" % number)
        draw = lambda attempt, key=key: keystream.permutations(  # noqa: E731
            keystream.derive(key, b"try", b"%d" % attempt), constraints, columns
        )
        tries.append(well_conditioned(rows, draw, 50.0)[0] + 1)
    return {"search": (time.perf_counter() - began) / 5, "tries": tries}


def generate(model: str, constraints: int) -> dict[str, Any]:
    """A key from a checkpoint that was opened, its fingerprint known."""
    import irwm

    original = irwm.open_checkpoint(model)
    began = time.perf_counter()
    assert original.fingerprint
    hashed = time.perf_counter()
    irwm.generate_key(original, irwm.Parameters(constraints=constraints), secret=SECRET)
    return {"hash": hashed - began, "generate": time.perf_counter() - hashed}


def one(model: str, suspect: str, number: int) -> dict[str, Any]:
    """A run for one key, as without the batch: open, make the key, detect."""
    return _many(model, suspect, number, 1)


def many(model: str, suspect: str, count: int) -> dict[str, Any]:
    """All keys on one suspect."""
    return _many(model, suspect, 0, count)


def _many(model: str, suspect: str, first: int, count: int) -> dict[str, Any]:
    import irwm

    original = irwm.open_checkpoint(model)
    keys = [
        irwm.generate_key(original, secret=SECRET, recipient=f"Recipient {number}" if number else "")
        for number in range(first, first + count)
    ]
    began = time.perf_counter()
    found = [finding.verdict == "found" for finding in irwm.detect_each(irwm.open_checkpoint(suspect), original, keys)]
    return {"detect": time.perf_counter() - began, "found": sum(found)}


def null(model: str, suspect: str, permutations: int) -> dict[str, Any]:
    """A detection with very many permutations."""
    import irwm

    original = irwm.open_checkpoint(model)
    key = irwm.generate_key(original, replace(irwm.Parameters(), permutations=permutations), secret=SECRET)
    assert original.fingerprint
    began = time.perf_counter()
    finding = irwm.detect(irwm.open_checkpoint(suspect), original, key)
    return {"detect": time.perf_counter() - began, "count": finding.count}


STEPS = {"search": search, "generate": generate, "one": one, "many": many, "null": null}


def measure(bench: Bench) -> dict[str, Any]:
    model, suspect = str(bench.model()), str(bench.release())
    run = lambda name, **arguments: measured(NAME, name, bench.threads, **arguments)  # noqa: E731
    count = 10 if bench.quick else KEYS
    permutations = 1000 if bench.quick else PERMUTATIONS
    result = {
        "columns": bench.size.columns,
        "count": count,
        "permutations": permutations,
        "search": [run("search", columns=bench.size.columns, constraints=CONSTRAINTS) for _ in range(bench.repeats)],
        "generate": [run("generate", model=model, constraints=CONSTRAINTS) for _ in range(bench.repeats)],
        "one": [run("one", model=model, suspect=suspect, number=i) for i in range(bench.repeats)],
        "null": [run("null", model=model, suspect=suspect, permutations=permutations) for _ in range(bench.repeats)],
        "many": [run("many", model=model, suspect=suspect, count=count)],
    }
    bench.say(f"  {result}")
    return result


def figures(result: dict[str, Any]) -> list[Figure]:
    one, many = median(result["one"], "detect") + median(result["one"], "started"), median(result["many"], "detect")
    faster = one * result["count"] / many
    return [
        Figure(
            f"condition search of a key at hidden size {result['columns']}, t = {CONSTRAINTS}",
            f"below {MOST_SEARCH:.0f} s",
            f"{spread([1000 * r['search'] for r in result['search']], 0)} ms",
            median(result["search"], "search") < MOST_SEARCH,
        ),
        Figure(
            "the whole key, the original's hash known",
            f"below {MOST_SEARCH:.0f} s",
            seconds(result["generate"], "generate"),
            median(result["generate"], "generate") < MOST_SEARCH,
        ),
        Figure(
            f"{result['count']} keys on one suspect, against as many separate runs",
            f"at least {LEAST_FASTER:.0f} × faster",
            f"{faster:.0f} ×: {many:.1f} s against {one:.2f} s each",
            faster >= LEAST_FASTER,
        ),
        Figure(
            f"detection with {result['permutations']} permutations",
            f"below {MOST_NULL:.0f} s",
            seconds(result["null"], "detect", 1) + f", {max(r['peak'] for r in result['null']) / MIB:.0f} MiB",
            median(result["null"], "detect") < MOST_NULL,
        ),
    ]


def details(result: dict[str, Any]) -> list[str]:
    tries = [str(number) for run in result["search"][:1] for number in run["tries"]]
    return [
        f"Tries of the condition search: {', '.join(tries)}. Hashing the original's embedding, once, took "
        f"{seconds(result['generate'], 'hash')}; a separate run is counted from the process's start, but without it.",
    ]
