"""Time and memory of tracing among a large number of recipients of a large model.

    python -m benchmarks.trace_scale [--recipients 100000] [--rows 128256] [--columns 4096] [--processes 2]

The weights are synthetic: independent normal numbers in bfloat16, with the layer-0 q and k that the family needs. The
suspect is the mean of some recipients' copies, which are marked everywhere, with added noise of 0.3 deviations. One
real key is made. The other recipients have the same key with another name, as a vault would derive them. Time and
memory are those of `irwm.tracing.trace_each` alone, in a separate process with a pool of worker processes. Memory is
the sum of their resident memory, taken ten times a second, so shared memory is counted several times.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

import irwm
from benchmarks.alignment_scale import write
from benchmarks.written import printed_table
from irwm.scheme.parameters import many_recipients
from irwm.tracing import trace_each

ROOT = Path(__file__).resolve().parents[1]
BLOCK = 4096
SECRET = bytes(range(32))


def name(number: int) -> str:
    return f"Recipient {number:06d}"


def guilty_of(recipients: int, copies: int) -> list[int]:
    """Return the places of the guilty among all recipients, evenly spaced."""
    return [int(i) for i in np.linspace(0, recipients - 1, copies + 2)[1:-1]]


def make(folder: Path, options: argparse.Namespace) -> None:
    """Write original and suspect."""
    generator = torch.Generator().manual_seed(0)
    embedding = torch.empty(options.rows, options.columns, dtype=torch.bfloat16)
    for start in range(0, options.rows, BLOCK):
        block = embedding[start : start + BLOCK]
        block.copy_(0.02 * torch.randn(block.shape, generator=generator))
    heads = max(4, options.columns // 128)
    write(folder / "original", embedding, heads)
    model = irwm.open_checkpoint(folder / "original")
    # The real key is the last one, because tracing compares the last key with the original.
    real = irwm.generate_key(
        model, many_recipients(model.hidden_size), SECRET, "Example Labs", name(options.recipients - 1)
    )
    (folder / "key.json").write_bytes(real.to_bytes())
    guilty = guilty_of(options.recipients, options.copies)
    noises = []
    for number in guilty:
        key = replace(real, recipient=name(number))
        noises.append(key.noise(model, key.choices()))
    for start in range(0, options.rows, BLOCK):
        tokens = np.arange(start, min(start + BLOCK, options.rows))
        rows = embedding[start : start + BLOCK].double().numpy()
        mixed = sum(noise.over(rows, tokens) for noise in noises) / len(noises)
        blurred = torch.from_numpy(mixed) + 0.3 * 0.02 * torch.randn(rows.shape, generator=generator)
        embedding[start : start + BLOCK] = blurred.bfloat16()
    write(folder / "suspect", embedding, heads)


class Watch(threading.Thread):
    """Peak resident memory of this process and its workers together."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.peak, self._stop_asked = 0, threading.Event()

    def run(self) -> None:
        while not self._stop_asked.wait(0.1):
            workers = [child.pid for child in multiprocessing.active_children()]
            self.peak = max(self.peak, sum(_resident(pid) for pid in (os.getpid(), *workers) if pid))

    def stop(self) -> int:
        self._stop_asked.set()
        self.join()
        return self.peak


def _resident(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):  # it has just ended
        return 0


def trace(folder: Path, options: argparse.Namespace) -> None:
    """Trace in the measured process."""
    torch.set_num_threads(1)
    real = irwm.Key.from_bytes((folder / "key.json").read_bytes())
    keys = [replace(real, recipient=name(number)) for number in range(options.recipients)]
    model, suspect = (irwm.open_checkpoint(folder / each) for each in ("original", "suspect"))
    stages: list[tuple[str, float]] = []

    def progress(done: int, _total: int, what: str) -> None:
        if done == 0:
            stages.append((what, time.perf_counter()))

    watch = Watch()
    watch.start()
    started = time.perf_counter()
    with ProcessPoolExecutor(options.processes, multiprocessing.get_context("spawn")) as pool:
        tracing = trace_each(irwm.Examination(suspect, model), keys, executor=pool, progress=progress)
        ended = time.perf_counter()
        peak = watch.stop()
    times = [started, *(when for _, when in stages), ended]
    guilty = {name(number) for number in guilty_of(options.recipients, options.copies)}
    innocent = [each.z for each in tracing.traces if each.recipient not in guilty]
    result = {
        "stages": [
            [what, after - before]
            for what, before, after in zip(
                ["Checking the keys, aligning", *(what for what, _ in stages)], times, times[1:], strict=False
            )
        ],
        "peak": peak,
        "named": len(tracing.named),
        "right": sum(each.recipient in guilty for each in tracing.named),
        "weakest": min((each.z for each in tracing.traces if each.recipient in guilty), default=float("nan")),
        "strongest innocent": max(innocent),
        "decoys": [float(np.mean(tracing.decoys)), float(np.std(tracing.decoys))],
        "rows": [tracing.first_pass_rows, tracing.rows],
    }
    print(json.dumps(result))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--recipients", type=int, default=100_000)
    parser.add_argument("--rows", type=int, default=128_256)
    parser.add_argument("--columns", type=int, default=4096)
    parser.add_argument("--copies", type=int, default=2, help="guilty recipients")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--folder", type=Path, help="folder for the models; existing ones are reused")
    parser.add_argument("--write", action="store_true", help="put the table into docs/collusion.md")
    parser.add_argument("--trace", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.trace:
        trace(options.folder, options)
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        if not (folder / "suspect").exists():
            folder.mkdir(exist_ok=True)
            make(folder, options)
        command = [sys.executable, "-m", "benchmarks.trace_scale", *sys.argv[1:], "--trace"]
        if options.folder is None:
            command += ["--folder", str(folder)]
        done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
        result = json.loads(done.stdout)
    with printed_table("collusion.md", "very many", write=options.write):
        print_table(options, result)


def print_table(options: argparse.Namespace, result: dict[str, Any]) -> None:
    print(f"{options.recipients} recipients, {options.rows} × {options.columns}, {options.processes} processes\n")
    print("| step | seconds |")
    print("|---|---|")
    for what, seconds in result["stages"]:
        print(f"| {what} | {seconds:.1f} |")
        if what.startswith("First pass"):
            print(
                f"| recipients per second in it, over {result['rows'][0]} rows | {options.recipients / seconds:.0f} |"
            )
    print(f"| all | {sum(seconds for _, seconds in result['stages']):.1f} |")
    print(f"\nPeak resident memory of all processes together: {result['peak'] / 2**30:.2f} GiB.")
    print(
        f"Guilty {options.copies}, named {result['named']}, correctly {result['right']}; z of the weakest guilty "
        f"{result['weakest']:.1f}, of the strongest innocent {result['strongest innocent']:.1f}; "
        f"200 decoys: mean {result['decoys'][0]:.2f}, deviation {result['decoys'][1]:.2f}."
    )


if __name__ == "__main__":
    main()
