"""Every parser survives some thousands of inputs that a coverage-guided fuzzer made up; `make fuzz` goes on longer."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.targets import TARGETS, tried
from tools.waiting import PATIENCE

REPOSITORY = Path(__file__).resolve().parents[2]
SECONDS = 6


@pytest.mark.slow
@pytest.mark.parametrize("name", TARGETS)
def test_no_input_brings_a_parser_down(name: str, tmp_path: Path) -> None:
    """No crash, no hang beyond ten seconds, no more than 2 GiB."""
    options = [f"-max_total_time={SECONDS}", f"-artifact_prefix={tmp_path}/"]
    command = [sys.executable, "-m", "tests.fuzz.run", name, *options]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(REPOSITORY)}
    # From a small process: Linux counts the largest size of whoever starts a program as that program's own, and a test
    # process that has come far is larger than a fuzzer may become.
    command = ["sh", "-c", '"$@"; exit $?', "sh", *command]
    run = subprocess.run(command, capture_output=True, cwd=tmp_path, env=environment, timeout=PATIENCE)
    said = run.stderr.decode("utf-8", "replace")
    assert run.returncode == 0, said[-4000:]
    assert "Done" in said


@pytest.mark.parametrize("name", TARGETS)
def test_sound_inputs_with_a_few_bytes_changed_are_refused_or_read(name: str) -> None:
    target = TARGETS[name]
    chance = random.Random(1)
    for seed in target.seeds():
        target.run(seed)  # a seed that is refused would leave the fuzzer at the door
        for _ in range(200):
            content = bytearray(seed)
            for _ in range(chance.randint(1, 4)):
                content[chance.randrange(len(content))] = chance.choice([0, 255, 34, 123, 125, chance.randrange(256)])
            tried(target, bytes(content[: chance.choice([len(content), chance.randrange(len(content) + 1)])]))
