"""A stranger's report, verified in a process of its own under limits of time and memory.

Whoever sends a report decides what the verifier reads. Here the worst that a file can do is to end that process.

    python -m irwm.report.judged REPORT [IDENTITY]      the child: one JSON list of checks
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from irwm.checkpoint.formats.confined import address_space, limit
from irwm.errors import printable
from irwm.report.checks import Check, Verification

# A report of 10 000 positions takes a minute and a gigabyte, nearly all of it to set its PDF again.
SECONDS, MEMORY = 120, 2 << 30
_ROOT = Path(__file__).resolve().parents[2]
_WORDS = 300


@dataclass(frozen=True, slots=True)
class Limits:
    """What verifying one report may take: seconds by the clock and of a processor, and bytes beyond the libraries'."""

    seconds: int = SECONDS
    memory: int = MEMORY


def judge_report(path: str | Path, identity: str | None = None, limits: Limits = Limits()) -> Verification:
    """`irwm.report.verify_report` of the report's own files, in a child process.

    What takes more than the limits, or ends the process, is a failed check: an honest report does neither.
    """
    command = [sys.executable, "-B", "-m", "irwm.report.judged", f"{limits.seconds},{limits.memory}", str(path)]
    environment = os.environ | {"PYTHONPATH": str(_ROOT), "OMP_NUM_THREADS": "1"}
    try:
        ended = subprocess.run(
            [*command, identity or ""],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env=environment,
            timeout=limits.seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return _stopped(f"it kept the verifier busy for more than {limits.seconds} seconds")
    except OSError as error:
        return Verification((Check("files", None, f"the verifier could not be started: {error.strerror}", asked=True),))
    if ended.returncode:
        words = printable(ended.stderr.decode("utf-8", "replace").strip()[-_WORDS:], _WORDS)
        return _stopped(f"it ended the verifier, usually because memory ran out ({words or ended.returncode})")
    return Verification(tuple(Check(*each) for each in json.loads(ended.stdout)))


def _stopped(why: str) -> Verification:
    return Verification((Check("document", False, f"this is no report: {why}"),))


def main(limits: str, path: str, identity: str) -> None:
    """The child's work."""
    seconds, memory = (int(each) for each in limits.split(","))
    from irwm.report.verify import verify_report

    limit("RLIMIT_CORE", 0)
    limit("RLIMIT_CPU", seconds)
    # Set only now: what the libraries take differs widely and does not depend on the report.
    taken = address_space()
    if taken is not None:
        limit("RLIMIT_AS", taken + memory)
    found = verify_report(path, identity=identity or None)
    json.dump([[check.name, check.ok, check.said, check.asked] for check in found.checks], sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
