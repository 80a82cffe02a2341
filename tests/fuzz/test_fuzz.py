"""Every parser survives thousands of inputs from a coverage-guided fuzzer; `make fuzz` runs longer."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.target import tried
from tests.fuzz.targets import TARGETS
from tools.waiting import PATIENCE

REPOSITORY = Path(__file__).resolve().parents[2]
SECONDS = 3
# libFuzzer checks the clock by SIGALRM and reports in a file what took too long. Rarely its own alarm ends it without
# a message or a file: twice in some dozens of runs over backups. Then it is run again.
BY_ITS_OWN_ALARM = -signal.SIGALRM


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with each target's log, exit code and other files."""
    folder = tmp_path_factory.mktemp("fuzzed")
    run(folder, *TARGETS)
    return folder


def run(folder: Path, *names: str) -> None:
    command = [sys.executable, "-m", "tests.fuzz.run", "--logs", *names, f"-max_total_time={SECONDS}"]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(REPOSITORY)}
    # From a small process: Linux counts a parent's largest size as that of the program it starts, and a test process
    # may have grown larger than a fuzzer may become.
    command = ["sh", "-c", '"$@"; exit $?', "sh", *command]
    done = subprocess.run(command, capture_output=True, cwd=folder, env=environment, timeout=2 * PATIENCE, check=False)
    assert done.returncode == 0, done.stderr.decode("utf-8", "replace")[-4000:]


@pytest.mark.slow
@pytest.mark.parametrize("name", TARGETS)
def test_fuzzing_crashes_no_parser(fuzzed: Path, name: str) -> None:
    """No crash, no hang, no more than 2 GiB."""
    code = fuzzed / f"{name}.code"
    if int(code.read_text()) == BY_ITS_OWN_ALARM and not list(fuzzed.glob(f"{name}-*")):
        run(fuzzed, name)
    left = sorted(path.name for path in fuzzed.glob(f"{name}-*"))
    said = (fuzzed / f"{name}.log").read_text("utf-8", "replace")
    assert int(code.read_text()) == 0, f"ended with {code.read_text()}, leaving {left}: {said[-4000:]}"
    assert "Done" in said


def test_make_fuzz_tries_every_target() -> None:
    makefile = (REPOSITORY / "Makefile").read_text(encoding="utf-8").replace("\\\n", " ")
    (names,) = re.findall(r"^TARGETS \?= (.*)$", makefile, re.MULTILINE)
    assert names.split() == list(TARGETS)


@pytest.mark.parametrize("name", TARGETS)
def test_slightly_changed_inputs_are_refused_or_read(name: str) -> None:
    target = TARGETS[name]
    chance = random.Random(1)
    for seed in target.seeds():
        target.run(seed)  # from a refused seed the fuzzer would reach little code
        for _ in range(target.changed):
            content = bytearray(seed)
            for _ in range(chance.randint(1, 4)):
                content[chance.randrange(len(content))] = chance.choice([0, 255, 34, 123, 125, chance.randrange(256)])
            tried(target, bytes(content[: chance.choice([len(content), chance.randrange(len(content) + 1)])]))
