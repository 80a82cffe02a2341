"""Coverage-guided fuzzing of parsers with atheris.

    python -m tests.fuzz.run TARGET [-runs=100000] [-max_total_time=60] [any other option of libFuzzer]
    python -m tests.fuzz.run --logs TARGET [TARGET ...] [any option of libFuzzer]

Ends with a crash and the bytes that cause it if a parser raises anything but a typed error, hangs for minutes on
one input, or takes more than 2 GiB of memory. `make fuzz` runs every target for a while.

With --logs targets run one after the other, each in its own process that need not load everything again. Output goes to
TARGET.log in the working folder, TARGET.code has the exit code, and other files are called TARGET-...
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import NoReturn

import atheris

# torch before instrumentation: its own lines are not under test, and there are millions of them.
import torch

torch.set_num_threads(1)
OURS = ["irwm.checkpoint", "irwm.families", "irwm.ownership", "irwm.report", "storage", "ui.services.recipients"]
with atheris.instrument_imports(include=OURS):
    from tests.fuzz.target import tried
    from tests.fuzz.targets import TARGETS
    from tools.waiting import PATIENCE

LIMITS = (f"-timeout={PATIENCE}", "-rss_limit_mb=2048")


def main() -> None:
    if sys.argv[1] != "--logs":
        fuzz(sys.argv[1], sys.argv[2:])
    options = [word for word in sys.argv[2:] if word.startswith("-")]
    for name in (word for word in sys.argv[2:] if not word.startswith("-")):
        child = os.fork()
        if child == 0:
            log = os.open(f"{name}.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(log, 1)
            os.dup2(log, 2)
            fuzz(name, [*options, f"-artifact_prefix={name}-"])
        _, status = os.waitpid(child, 0)
        Path(f"{name}.code").write_text(str(os.waitstatus_to_exitcode(status)))


def fuzz(name: str, options: list[str]) -> NoReturn:
    """Ends the process."""
    target = TARGETS[name]
    with tempfile.TemporaryDirectory() as corpus:
        for number, seed in enumerate(target.seeds()):
            (Path(corpus) / f"seed-{number}").write_bytes(seed)
        most = f"-max_len={target.largest}"
        atheris.Setup([sys.argv[0], *LIMITS, most, *options, corpus], lambda content: tried(target, content))
        atheris.Fuzz()
    sys.exit(0)


if __name__ == "__main__":
    main()
