"""Insertion compared with copying and hashing the folder: `cp -r`, then `sha256sum`, alternating, on one disk."""

from __future__ import annotations

import shutil
import statistics
import subprocess
import time
from pathlib import Path
from typing import Any

from benchmarks.speed.claim import GIB, MIB, SECRET, Bench, Figure, median, seconds, spread
from benchmarks.speed.task import forget, measured

NAME, TITLE = "insertion", "Insertion"
MOST_RATIO, MOST_MEMORY = 1.25, GIB


def insert(model: str, out: str) -> dict[str, Any]:
    """Make a release, from the files to the verified folder. Making the key is timed separately."""
    import irwm

    began = time.perf_counter()
    original = irwm.open_checkpoint(model)
    key = irwm.generate_key(original, secret=SECRET)
    made = time.perf_counter()
    release = irwm.insert(original, key, out)
    return {"key": made - began, "insert": time.perf_counter() - made, "bytes": release.bytes_written}


STEPS = {"insert": insert}


def measure(bench: Bench) -> dict[str, Any]:
    model, copy, out = bench.model(), bench.folder / "copy", bench.folder / "inserted"
    ours: list[dict[str, Any]] = []
    theirs: list[dict[str, Any]] = []
    for number in range(bench.repeats):
        for side in (theirs, ours) if number % 2 else (ours, theirs):
            forget(model)
            side.append(measured(NAME, "insert", bench.threads, model=str(model), out=str(out)) if side is ours
                        else _copied(model, copy))  # fmt: skip
            shutil.rmtree(out, ignore_errors=True)
            shutil.rmtree(copy, ignore_errors=True)
            bench.say(f"  {'insert' if side is ours else 'cp and sha256sum'}: {side[-1]}")
    return {"ours": ours, "theirs": theirs}


def _copied(model: Path, copy: Path) -> dict[str, float]:
    began = time.perf_counter()
    subprocess.run(["cp", "-r", model, copy], check=True)
    copied = time.perf_counter()
    files = sorted(str(file) for file in copy.iterdir())
    subprocess.run(["sha256sum", *files], check=True, stdout=subprocess.DEVNULL)
    hashed = time.perf_counter()
    subprocess.run(["sync", "-f", copy], check=True)
    return {"copy": copied - began, "hash": hashed - copied, "sync": time.perf_counter() - hashed,
            "seconds": hashed - began}  # fmt: skip


def figures(result: dict[str, Any]) -> list[Figure]:
    ours, theirs = result["ours"], result["theirs"]
    ratios = [a["insert"] / b["seconds"] for a, b in zip(ours, theirs, strict=True)]
    ratio, peak = statistics.median(ratios), max(run["peak"] for run in ours)
    return [
        Figure(
            f"insert {ours[0]['bytes'] / 1e9:.1f} GB, verified and synced, relative to `cp -r` and `sha256sum`",
            f"at most {MOST_RATIO} ×",
            f"{spread(ratios)} ×: {seconds(ours, 'insert', 1)} against {seconds(theirs, digits=1)}",
            ratio <= MOST_RATIO,
        ),
        Figure("peak memory of the whole process", "below 1 GiB", f"{peak / MIB:.0f} MiB", peak < MOST_MEMORY),
    ]


def details(result: dict[str, Any]) -> list[str]:
    theirs, ours = result["theirs"], result["ours"]
    return [
        f"`cp -r` took {seconds(theirs, 'copy', 1)} and `sha256sum` {seconds(theirs, 'hash', 1)}. Syncing the copy to "
        f"the disk ({seconds(theirs, 'sync', 1)} more, `sync -f`) is not counted for them but is counted for "
        "insertion. The files are dropped from the page cache before each run.",
        f"Making the key, which reads and hashes the whole embedding once, took {seconds(ours, 'key', 1)}. Starting "
        f"Python and importing took {median(ours, 'started'):.1f} s.",
    ]
