"""A further recipient's copy of the same model, on a disk that clones files: btrfs, XFS, bcachefs, ZFS 2.2."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.speed.claim import GIB, MIB, SECRET, Bench, Figure, median, seconds
from benchmarks.speed.task import measured
from ui.jobs.processes import MEMORY

NAME, TITLE = "copies", "A further recipient's copy"
COPIES, MOST_WRITTEN = 4, 1.01
# Seconds of a copy after the first, and in units of writing and syncing the shards with the marked matrices.
MOST_SECONDS, MOST_TIMES = 12.0, 6.0
MOST_PEAK = 1.5 * GIB


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
    shards = _marked_shards(original)
    target = Path(out) / "shards"
    target.mkdir()
    began = time.perf_counter()
    for shard in shards:
        subprocess.run(["cp", "--reflink=never", shard, target], check=True)
    subprocess.run(["sync", "-f", target], check=True)
    return {
        "copies": made,
        "shard": sum(shard.stat().st_size for shard in shards),
        "write": time.perf_counter() - began,
    }


def _marked_shards(original: Any) -> list[Path]:
    """Return the files that hold the embedding and, if it is a separate matrix, the output head."""
    matrices = [original] if original.output_head is None else [original, original.output_head]
    parts = [part for each in matrices for part in each.tensors[each.layout.embedding.name].parts]
    return sorted({Path(part.file) for part in parts})


STEPS = {"copies": copies}


def measure(bench: Bench) -> dict[str, Any]:
    model, out = bench.model(), bench.folder / "copies"
    out.mkdir()
    try:
        result = measured(NAME, "copies", bench.threads, MEMORY, model=str(model), out=str(out), count=COPIES)
    finally:
        shutil.rmtree(out)
    bench.say(f"  {result}")
    return result


def figures(result: dict[str, Any]) -> list[Figure]:
    first, *further = result["copies"]
    written = [copy["bytes"] - copy["cloned"] for copy in further]
    times = median(further, "seconds") / result["write"]
    return [
        Figure(
            f"bytes that a further copy of {first['bytes'] / 1e9:.1f} GB writes, relative to the shards of its marks",
            f"at most {MOST_WRITTEN} ×",
            f"{max(written) / result['shard']:.2f} ×: {max(written) / MIB:.0f} of {result['shard'] / MIB:.0f} MiB; the "
            f"disk has {max(copy['space'] for copy in further) / MIB:.0f} MiB less free space, and the copy's receipt "
            f"lists {further[0]['cloned'] / MIB:.0f} MiB as cloned",
            max(written) <= MOST_WRITTEN * result["shard"],
        ),
        Figure(
            "time of a further copy, compared with the first",
            f"at most {MOST_SECONDS:.0f} s",
            f"{seconds(further, digits=1)} against {first['seconds']:.1f} s",
            median(further, "seconds") <= MOST_SECONDS,
            f"It computes, hashes, writes and verifies {result['shard'] / MIB:.0f} MiB: embedding and output head",
        ),
        Figure(
            "the same, relative to `cp` and `sync` of these shards",
            f"at most {MOST_TIMES:.0f} ×",
            f"{times:.1f} ×: {result['write']:.1f} s",
            times <= MOST_TIMES,
        ),
        Figure(
            "peak memory of all copies, in a process like the app's jobs",
            "below 1.5 GiB",
            f"{result['peak'] / MIB:.0f} MiB",
            result["peak"] < MOST_PEAK,
        ),
    ]


def details(result: dict[str, Any]) -> list[str]:
    cpu, whole = result["cpu"], sum(copy["seconds"] for copy in result["copies"])
    _, *further = result["copies"]
    return [
        "Each copy has its own noise in every row of both matrices. All noise of the first copy is read back, and "
        f"that of a sample of rows of the others. The processor worked {cpu:.0f} s in the {whole:.0f} s of all "
        f"{len(result['copies'])} copies. 300 copies would take {300 * median(further, 'seconds') / 3600:.1f} hours."
    ]
