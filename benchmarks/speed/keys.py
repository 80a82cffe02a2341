"""Key generation with its condition search, many keys on one suspect, and large numbers of permutations."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.speed.claim import MIB, SECRET, Bench, Figure, median, seconds, spread
from benchmarks.speed.task import ROOT, measured

NAME, TITLE = "keys", "Keys, many keys and permutations"
CONSTRAINTS, MOST_SEARCH = 20, 1.0
KEYS, KEYS_AT_SCALE, LEAST_FASTER = 1000, 50, 200.0
SCREENED, MOST_SCREENED = 300, 20.0
DEMO = ROOT / "assets" / "demo"
PERMUTATIONS, MOST_NULL = 100_000, 10.0


def search(columns: int, constraints: int) -> dict[str, Any]:
    """Run the condition search of Algorithm 2 on standardised normal rows, and count its tries."""
    import numpy as np

    from irwm.scheme import keystream
    from irwm.scheme.condition import well_conditioned
    from irwm.scheme.permutations import permutations

    rows = np.random.default_rng(0).standard_normal((constraints, columns))
    rows = (rows - rows.mean(axis=1, keepdims=True)) / rows.std(axis=1, keepdims=True)
    tries = []
    began = time.perf_counter()
    for number in range(5):
        key = keystream.derive(SECRET, b"benchmark", b"%d" % number)
        draw = lambda attempt, key=key: permutations(  # noqa: E731
            keystream.derive(key, b"try", b"%d" % attempt), constraints, columns
        )
        tries.append(well_conditioned(rows, draw, 50.0)[0] + 1)
    return {"search": (time.perf_counter() - began) / 5, "tries": tries}


def generate(model: str, constraints: int) -> dict[str, Any]:
    """Make a key from an open checkpoint with a known fingerprint."""
    import irwm

    original = irwm.open_checkpoint(model)
    began = time.perf_counter()
    assert original.fingerprint
    hashed = time.perf_counter()
    params = irwm.Parameters(constraints=constraints)
    irwm.generate_key(original, params, secret=SECRET)
    first = time.perf_counter()
    irwm.generate_key(original, params, secret=SECRET, recipient="Recipient 2")
    return {"hash": hashed - began, "generate": first - hashed, "further": time.perf_counter() - first}


def one(model: str, suspect: str, number: int) -> dict[str, Any]:
    """Run one key without a batch: open, make the key, detect."""
    return _many(model, suspect, number, 1)


def many(model: str, suspect: str, count: int, screen: bool = False) -> dict[str, Any]:
    """Detect all keys on one suspect."""
    return _many(model, suspect, 0, count, screen)


def _many(model: str, suspect: str, first: int, count: int, screen: bool = False) -> dict[str, Any]:
    import irwm

    original = irwm.open_checkpoint(model)
    keys = [
        irwm.generate_key(original, secret=SECRET, recipient=f"Recipient {number}" if number else "")
        for number in range(first, first + count)
    ]
    began = time.perf_counter()
    found = [
        finding.verdict == "found"
        for finding in irwm.detect_each(irwm.Examination(irwm.open_checkpoint(suspect), original), keys, screen=screen)
    ]
    return {"detect": time.perf_counter() - began, "found": sum(found)}


def null(model: str, suspect: str, permutations: int) -> dict[str, Any]:
    """Run a detection with many permutations."""
    import irwm

    original = irwm.open_checkpoint(model)
    key = irwm.generate_key(original, replace(irwm.Parameters(), permutations=permutations), secret=SECRET)
    assert original.fingerprint
    began = time.perf_counter()
    finding = irwm.detect(irwm.open_checkpoint(suspect), original, key)
    return {"detect": time.perf_counter() - began, "count": finding.count}


def product(columns: int) -> dict[str, Any]:
    """Return seconds per key of the matrix products of its permutation test, with keys in parallel as in `detect_each`.

    It multiplies the two maps of the default parameters under 1000 orders by 50 rows, in the pieces of
    `irwm.scheme.statistic`, without gathering, ranking or reading.
    """
    import torch

    from irwm import Parameters
    from irwm.evidence.parallel import in_order
    from irwm.scheme.statistic import _CHUNK_FLOATS, _COORDINATES

    parameters = Parameters()
    outputs, height = parameters.constraints + 1, min(columns, _COORDINATES)
    rows = torch.randn(parameters.positions, height, dtype=torch.float64)
    most = max(1, _CHUNK_FLOATS["cpu"] // (outputs * height))
    parts = [min(most, parameters.permutations - at) for at in range(0, parameters.permutations, most)]
    gathered = {size: torch.randn(height, size * outputs, dtype=torch.float64) for size in set(parts)}
    keys = 40

    def each(_: int) -> None:
        for size in parts:
            found = torch.zeros(parameters.positions, size * outputs, dtype=torch.float64)
            for _ in range(columns // height):
                found.addmm_(rows, gathered[size])

    each(0)
    began = time.perf_counter()
    for _ in in_order(each, range(keys), "cpu"):
        pass
    flop = 2 * parameters.positions * columns * outputs * parameters.permutations
    return {"product": (time.perf_counter() - began) / keys, "flop": flop}


STEPS = {"product": product, "search": search, "generate": generate, "one": one, "many": many, "null": null}


def measure(bench: Bench) -> dict[str, Any]:
    def run(name: str, **arguments: Any) -> dict[str, Any]:
        return measured(NAME, name, bench.threads, **arguments)

    large = {"model": str(bench.model()), "suspect": str(bench.release())}
    small = {"model": str(DEMO), "suspect": str(_demo_release(bench))}
    count, few = (10, 2) if bench.quick else (KEYS, KEYS_AT_SCALE)
    permutations = 1000 if bench.quick else PERMUTATIONS
    result: dict[str, Any] = {
        "columns": bench.size.columns,
        "permutations": permutations,
        "search": [run("search", columns=bench.size.columns, constraints=CONSTRAINTS) for _ in range(bench.repeats)],
        "generate": [run("generate", model=large["model"], constraints=CONSTRAINTS) for _ in range(bench.repeats)],
        "null": [run("null", **small, permutations=permutations) for _ in range(bench.repeats)],
        "null at scale": run("null", **large, permutations=permutations // 10),
    }
    for name, pair, keys in (("demo", small, count), ("at scale", large, few)):
        one = [run("one", **pair, number=i) for i in range(bench.repeats)]
        bare = run("product", columns=_columns(Path(pair["model"])))
        result[name] = {"count": keys, "one": one, "many": run("many", **pair, count=keys), "product": bare}
    customers = 10 if bench.quick else SCREENED
    result["screened"] = [run("many", **large, count=customers, screen=True) for _ in range(bench.repeats)]
    result["customers"] = customers
    bench.say(f"  {result}")
    return result


def _columns(model: Path) -> int:
    return int(json.loads((model / "config.json").read_text(encoding="utf-8"))["hidden_size"])


def _demo_release(bench: Bench) -> Path:
    import irwm

    path = bench.folder / "demo-release"
    if not path.exists():
        model = irwm.open_checkpoint(DEMO)
        irwm.insert(model, irwm.generate_key(model, secret=SECRET), path)
    return path


def _faster(pair: dict[str, Any]) -> tuple[float, float, float]:
    """Return the speed-up, seconds of one separate run from its process's start, and seconds per key in a batch."""
    one = median(pair["one"], "detect") + median(pair["one"], "started")
    each = pair["many"]["detect"] / pair["count"]
    return one / each, one, each


def _bound(pair: dict[str, Any], one: float) -> str:
    """Describe the lower bound of a batch's time; both models have a separate output head, so a key has two tests."""
    bare, flop = 2 * pair["product"]["product"], 2 * pair["product"]["flop"]
    return (
        "Keys cannot share their permutation tests: the matrix products of a key's two tests, in embedding and output "
        f"head, {flop / 1e9:.2g} Gflop in float64, take {1000 * bare:.1f} ms of all cores at "
        f"{flop / bare / 1e9:.0f} Gflop/s, so a batch is at most {one / bare:.0f} × faster "
        "here. The rest is reading the rows, and choosing, gathering and ranking 100 000 values. float32 would halve "
        "the time of the products, but the report contains the null values, and a verifier computes them again"
    )


def figures(result: dict[str, Any]) -> list[Figure]:
    faster, one, each = _faster(result["demo"])
    scaled, one_scaled, each_scaled = _faster(result["at scale"])
    return [
        Figure(
            f"condition search of a key at hidden size {result['columns']}, t = {CONSTRAINTS}",
            f"below {MOST_SEARCH:.0f} s",
            f"{spread([1000 * r['search'] for r in result['search']], 0)} ms",
            median(result["search"], "search") < MOST_SEARCH,
        ),
        Figure(
            "a further key of an open model",
            f"below {MOST_SEARCH:.0f} s",
            seconds(result["generate"], "further"),
            median(result["generate"], "further") < MOST_SEARCH,
        ),
        Figure(
            "the first key, with the original's hash known",
            f"below {MOST_SEARCH:.0f} s",
            seconds(result["generate"], "generate"),
            median(result["generate"], "generate") < MOST_SEARCH,
            "It reads every row of the embedding, a gigabyte, to exclude duplicate rows and rows near zero. It also "
            "hashes the rows and layer 0's q and k that the key is bound to, 0.2 GB as float32",
        ),
        Figure(
            f"{result['demo']['count']} keys on one suspect, the demo model (256 columns), compared with separate runs",
            f"at least {LEAST_FASTER:.0f} × faster",
            f"{faster:.0f} ×: {1000 * each:.1f} ms per key against {one:.2f} s",
            faster >= LEAST_FASTER,
            _bound(result["demo"], one),
        ),
        Figure(
            f"the same at {result['columns']} columns, {result['at scale']['count']} keys",
            f"at least {LEAST_FASTER:.0f} × faster",
            f"{scaled:.0f} ×: {1000 * each_scaled:.0f} ms per key against {one_scaled:.2f} s",
            scaled >= LEAST_FASTER,
            _bound(result["at scale"], one_scaled),
        ),
        Figure(
            f"{result['customers']} keys of recipients on one suspect at {result['columns']} columns, screened",
            f"at most {MOST_SCREENED:.0f} s",
            f"{seconds(result['screened'], 'detect', 1)}; found: {max(run['found'] for run in result['screened'])} key",
            median(result["screened"], "detect") <= MOST_SCREENED
            and {run["found"] for run in result["screened"]} == {1},
            "The functions that take its time are listed below",
        ),
        Figure(
            f"detection with {result['permutations']} permutations, the demo model",
            f"below {MOST_NULL:.0f} s",
            seconds(result["null"], "detect", 1) + f", {max(r['peak'] for r in result['null']) / MIB:.0f} MiB",
            median(result["null"], "detect") < MOST_NULL,
        ),
    ]


def details(result: dict[str, Any]) -> list[str]:
    tries = [str(number) for run in result["search"][:1] for number in run["tries"]]
    scaled = result["null at scale"]
    return [
        f"Tries of the condition search: {', '.join(tries)}. Hashing the original's embedding took "
        f"{seconds(result['generate'], 'hash')} (the hash is cached while the file does not change). A separate run is "
        "timed from its process's start.",
        f"At {result['columns']} columns a detection with {result['permutations'] // 10} permutations took "
        f"{scaled['detect']:.1f} s and {scaled['peak'] / MIB:.0f} MiB; both are proportional to this number.",
    ]
