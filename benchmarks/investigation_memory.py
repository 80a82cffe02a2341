"""Peak memory and time of investigating a checkpoint of 8B geometry, from the files to the verdict.

    python -m benchmarks.investigation_memory [--rows 128256] [--columns 4096] [--device cpu]

The original's weights are synthetic, as in benchmarks/alignment_scale.py, and truncated to layer 0. The release is
marked by `irwm.insert` and disguised. Each investigation runs in a separate process. Its peak resident memory includes
the interpreter and torch.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

from benchmarks.alignment_scale import BLOCK, peak, synthetic, write
from benchmarks.written import printed_table

SECRET = bytes(range(32))
SUSPECTS = ("release", "noise of 0.3 deviations", "columns reordered", "rotated")


def make(folder: Path, rows: int, columns: int) -> None:
    """Write the original, its release, and copies that an attacker changed."""
    import irwm

    heads = columns // 128
    write(folder / "original", synthetic(rows, columns), heads)
    model = irwm.open_checkpoint(folder / "original")
    key = irwm.generate_key(model, secret=SECRET)
    release = irwm.insert(model, key, folder / "release").path
    marked = irwm.open_checkpoint(release)
    generator = torch.Generator().manual_seed(3)
    spread = float(marked.embedding(slice(0, BLOCK)).std())
    order = torch.randperm(columns, generator=generator)
    turn = torch.linalg.qr(torch.randn(columns, columns, generator=generator)).Q
    for name in SUSPECTS[1:]:
        made = torch.empty(rows, columns, dtype=torch.bfloat16)
        for start in range(0, rows, BLOCK):
            block = marked.embedding(slice(start, start + BLOCK))
            if name == "columns reordered":
                block = block[:, order]
            elif name == "rotated":
                block = 1.7 * block @ turn
            else:
                block = block + 0.3 * spread * torch.randn(block.shape, generator=generator)
            made[start : start + BLOCK] = block.bfloat16()
        write(folder / name, made, heads)


def investigate(folder: Path, suspect: str, device: str) -> None:
    """Investigate in a separate process."""
    import irwm

    started = time.perf_counter()
    model = irwm.open_checkpoint(folder / "original")
    key = irwm.generate_key(model, secret=SECRET, device=device)
    found = irwm.detect(irwm.open_checkpoint(folder / suspect), model, key, device=device)
    said = {"seconds": time.perf_counter() - started, "peak": peak(), "verdict": found.verdict}
    print(json.dumps(said | {"count": found.count, "lineage": found.lineage.status}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=128256)
    parser.add_argument("--columns", type=int, default=4096)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--suspects", nargs="*", help=f"one of {', '.join(SUSPECTS)}; default: all")
    parser.add_argument("--folder", type=Path, help="folder for the models; existing ones are reused")
    parser.add_argument("--write", action="store_true", help="put the table into docs/formats.md")
    parser.add_argument("--investigate", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.investigate:
        investigate(options.folder, options.investigate, options.device)
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        if not (folder / SUSPECTS[-1]).exists():
            folder.mkdir(exist_ok=True)
            make(folder, options.rows, options.columns)
        with printed_table("formats.md", "memory", write=options.write):
            print_table(folder, options)


def print_table(folder: Path, options: argparse.Namespace) -> None:
    print(f"{options.rows} × {options.columns}, bfloat16, {options.device}, {torch.get_num_threads()} threads\n")
    print("| suspect | verdict | positions | lineage | seconds | peak GiB |")
    print("|---|---|---|---|---|---|", flush=True)
    for suspect in options.suspects or SUSPECTS:
        command = [sys.executable, "-m", "benchmarks.investigation_memory", "--investigate", suspect]
        command += ["--folder", str(folder), "--device", options.device]
        run = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        said = json.loads(run.stdout)
        print(
            f"| {suspect} | {said['verdict']} | {said['count']} | {said['lineage']} | {said['seconds']:.0f} |"
            f" {said['peak'] / 2**30:.2f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
