"""Coverage-guided fuzzing of one parser with atheris.

    python -m tests.fuzz.run TARGET [-runs=100000] [-max_total_time=60] [any other option of libFuzzer]

Ends with a crash and the bytes that cause it where a parser raises anything but a typed error, takes longer than ten
seconds over one input or more than 2 GiB of memory. `make fuzz` runs every target for a while.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import atheris

# torch before instrumentation: its own lines are not what is looked into, and there are millions of them.
import torch

torch.set_num_threads(1)
with atheris.instrument_imports(include=["irwm.checkpoint", "irwm.families"]):
    from tests.fuzz.targets import TARGETS, tried

LIMITS = ("-timeout=10", "-rss_limit_mb=2048", "-max_len=8192")


def main() -> None:
    name, options = sys.argv[1], sys.argv[2:]
    target = TARGETS[name]
    with tempfile.TemporaryDirectory() as corpus:
        for number, seed in enumerate(target.seeds()):
            (Path(corpus) / f"seed-{number}").write_bytes(seed)
        atheris.Setup([sys.argv[0], *LIMITS, *options, corpus], lambda content: tried(target, content))
        atheris.Fuzz()


if __name__ == "__main__":
    main()
