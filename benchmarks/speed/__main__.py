"""Measure the claims about speed and memory, and write docs/speed.

    python -m benchmarks.speed [--only CLAIM ...] [--folder FOLDER] [--repeats 3] [--quick] [--write] [--out docs/speed]

Synthetic models with the geometry of Llama-3-8B are written to FOLDER, by default a temporary one: an original, its
release, a disguised copy and one more at a time, about 6 GB each. With --write, results are stored in docs/speed and
the page is written from all results there.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from benchmarks.sources import digest
from benchmarks.speed import (
    copies,
    detection,
    functions,
    geometry,
    gpu,
    growth,
    insertion,
    interface,
    keys,
    page,
    peers,
    text,
)
from benchmarks.speed.claim import Bench, Figure

ROOT = Path(__file__).resolve().parents[2]
CLAIMS: dict[str, ModuleType] = {
    module.NAME: module
    for module in (insertion, copies, detection, keys, text, functions, gpu, interface, peers, growth)
}
OUT = ROOT / "docs" / "speed"
_QUICK = geometry.Geometry(rows=3000, columns=512, inner=1024, heads=4, key_heads=2, layers=1)


def main() -> None:
    options = _options()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with tempfile.TemporaryDirectory() as temporary:
        folder = (options.folder or Path(temporary)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        size = _QUICK if options.quick else geometry.LLAMA_8B
        bench = Bench(folder, 1 if options.quick else options.repeats, size, options.quick, cores)
        for name in options.only or CLAIMS:
            module = CLAIMS[name]
            bench.say(module.TITLE)
            missing = getattr(module, "missing", lambda bench: "")(bench)
            if missing:
                print(f"not measured: {missing}")
                continue
            before = _pace()
            result = module.measure(bench)
            after = _pace()
            for figure in module.figures(result):
                print(_line(figure), flush=True)
            for text in module.details(result):
                print(text, flush=True)
            if options.write:
                options.out.mkdir(parents=True, exist_ok=True)
                kept = {"about": _about(bench, name, before, after), "result": result}
                (options.out / f"{name}.json").write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    if options.write:
        print(page.write(options.out, CLAIMS))


def _line(figure: Figure) -> str:
    return f"{'met' if figure.met else 'NOT MET'}: {figure.what}: {figure.reached} (required: {figure.asked})"


def _pace() -> tuple[float, float]:
    """The machine's speed, as other programs on it may change it: Gflop/s of a float32 product, MB/s of SHA-256."""
    values = np.random.default_rng(0).standard_normal((2048, 2048), dtype=np.float32)
    content = values.tobytes()

    def least(task: Callable[[], object]) -> float:
        taken = []
        for _ in range(5):
            began = time.perf_counter()
            task()
            taken.append(time.perf_counter() - began)
        return min(taken)

    return 2e-9 * 2048**3 / least(lambda: values @ values), 1e-6 * len(content) / least(lambda: sha256(content))


def _about(bench: Bench, name: str, before: tuple[float, float], after: tuple[float, float]) -> dict[str, Any]:
    processor = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="ascii").splitlines()
        processor = next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
        flags = next(line for line in lines if line.startswith("flags")).split()
        processor += ", with SHA instructions" if "sha_ni" in flags else ", without SHA instructions"
    except (OSError, StopIteration):
        pass
    packages = []
    for package in ("torch", "numpy", "safetensors", "gradio"):
        with suppress(PackageNotFoundError):  # a machine with a GPU may lack the app's
            packages.append(f"{package} {version(package)}")
    return {
        "command": f"python -m benchmarks.speed --only {name}{' --quick' if bench.quick else ''} --write",
        "model": f"{bench.size.rows} × {bench.size.columns}, {bench.size.layers} layers",
        "date": datetime.now(UTC).date().isoformat(),
        "machine": f"{bench.threads} cores, {processor}; Python {platform.python_version()}, {', '.join(packages)}; "
        f"before and after, a matrix product ran at {before[0]:.0f} and {after[0]:.0f} Gflop/s, SHA-256 at "
        f"{before[1]:.0f} and {after[1]:.0f} MB/s",
        "repeats": bench.repeats,
        "sources": digest(CLAIMS[name].__name__),
    }


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=CLAIMS, help="these claims; default: all")
    parser.add_argument("--folder", type=Path, help="folder for the models, on the disk to measure; not deleted")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="the smallest sizes, as a smoke test")
    parser.add_argument("--write", action="store_true", help="store the results and write the page")
    parser.add_argument("--out", type=Path, default=OUT, help="where to write them")
    return parser.parse_args()


if __name__ == "__main__":
    main()
