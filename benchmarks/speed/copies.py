"""A further recipient's copy of the same model, on a disk that clones files: btrfs, XFS, bcachefs, ZFS 2.2."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.speed.claim import MIB, SECRET, Bench, Figure, median, seconds
from benchmarks.speed.task import measured

NAME, TITLE = "copies", "A further recipient's copy"
COPIES, MOST_WRITTEN = 4, 1.01


def missing(bench: Bench) -> str:
    """Return why this machine cannot measure the claim, or ""."""
    from irwm.release.cloning import clones_in

    return "" if clones_in(bench.folder) else f"the disk of {bench.folder} cannot clone files"


def copies(model: str, out: str, count: int) -> dict[str, Any]:
    """Make copies for `count` recipients in one run, like the page Protect."""
    import irwm
    from irwm.release.cloning import ClonedFrom
    from irwm.scheme.parameters import many_recipients

    original = irwm.open_checkpoint(model)
    shared: Mapping[str, ClonedFrom] = {}
    made = []
    for number in range(count):
        key = irwm.generate_key(
            original, many_recipients(original.hidden_size), secret=SECRET, recipient=f"Recipient {number}"
        )
        free, began = shutil.disk_usage(out).free, time.perf_counter()
        release = irwm.insert(original, key, Path(out) / str(number), shared=shared)
        took = time.perf_counter() - began
        shared = release.shared
        made.append(
            {
                "seconds": took,
                "bytes": release.bytes_written,
                "cloned": release.bytes_cloned,
                "space": free - shutil.disk_usage(out).free,
            }
        )
    shard = max(Path(part.file).stat().st_size for part in original.tensors[original.layout.embedding.name].parts)
    return {"copies": made, "shard": shard}


STEPS = {"copies": copies}


def measure(bench: Bench) -> dict[str, Any]:
    model, out = bench.model(), bench.folder / "copies"
    out.mkdir()
    try:
        result = measured(NAME, "copies", bench.threads, model=str(model), out=str(out), count=COPIES)
    finally:
        shutil.rmtree(out)
    bench.say(f"  {result}")
    return result


def figures(result: dict[str, Any]) -> list[Figure]:
    first, *further = result["copies"]
    written = [copy["bytes"] - copy["cloned"] for copy in further]
    return [
        Figure(
            f"bytes that a further copy of {first['bytes'] / 1e9:.1f} GB writes, relative to the embedding's shard",
            f"at most {MOST_WRITTEN} ×",
            f"{max(written) / result['shard']:.2f} ×: {max(written) / MIB:.0f} of {result['shard'] / MIB:.0f} MiB; the "
            f"disk has {max(copy['space'] for copy in further) / MIB:.0f} MiB less free space, and the copy's receipt "
            f"lists {further[0]['cloned'] / MIB:.0f} MiB as cloned",
            max(written) <= MOST_WRITTEN * result["shard"],
        ),
        Figure(
            "time of a further copy, compared with the first",
            "less",
            f"{seconds(further, digits=1)} against {first['seconds']:.1f} s",
            median(further, "seconds") < first["seconds"],
        ),
    ]


def details(result: dict[str, Any]) -> list[str]:
    cpu, whole = result["cpu"], sum(copy["seconds"] for copy in result["copies"])
    return [
        "Each copy has its own noise in every row. A further copy spends its time on computing this noise and reading "
        f"it back: the processor worked {cpu:.0f} s in the {whole:.0f} s of all {len(result['copies'])} copies. "
        f"Peak memory of the process: {result['peak'] / MIB:.0f} MiB."
    ]
