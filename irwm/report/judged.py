"""A stranger's report, verified in a process of its own under limits of time and memory.

Whoever sends a report decides what the verifier reads. Here the worst that a file can do is to end that process.

    python -m irwm.report.judged LIMITS REPORT IDENTITY      the child; trusted certificates come on its input, and what
                                                             it finds goes out as JSON
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from irwm.checkpoint.confined import address_space, limit
from irwm.errors import printable
from irwm.report.checks import Check, Unchecked, Verification
from irwm.report.received import receive

# A report of 10 000 positions takes a minute and a gigabyte, nearly all of it to set its PDF again.
SECONDS, MEMORY = 120, 2 << 30
_ROOT = Path(__file__).resolve().parents[2]
_WORDS = 300


@dataclass(frozen=True, slots=True)
class Limits:
    """What verifying one report may take: seconds by the clock and of a processor, and bytes beyond the libraries'."""

    seconds: int = SECONDS
    memory: int = MEMORY


def judge_report(
    path: str | Path, identity: str | None = None, limits: Limits = Limits(), roots_pem: bytes | None = None
) -> Verification:
    """`irwm.report.verify_report` of the report's own files, in a child process.

    What takes more than the limits, or ends the process, is a failed check: an honest report does neither.
    """
    # -P: not from the folder that the command is run in, where a stranger's files may lie.
    command = [sys.executable, "-P", "-B", "-m", "irwm.report.judged", f"{limits.seconds},{limits.memory}", str(path)]
    environment = os.environ | {"PYTHONPATH": str(_ROOT), "OMP_NUM_THREADS": "1"}
    try:
        ended = subprocess.run(
            [*command, identity or ""],
            input=roots_pem or b"",
            capture_output=True,
            env=environment,
            timeout=limits.seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return _refused(f"this is not a report: it kept the verifier busy for more than {limits.seconds} seconds")
    except OSError as error:
        return Verification((Check("files", None, f"the verifier could not be started: {error.strerror}", asked=True),))
    if ended.returncode:
        words = printable(ended.stderr.decode("utf-8", "replace").strip()[-_WORDS:], _WORDS)
        return _refused(
            f"this is not a report: it ended the verifier, usually because memory ran out ({words or ended.returncode})"
        )
    try:
        found = json.loads(ended.stdout)
        checks = tuple(Check(*each) for each in found["checks"])
        unchecked = tuple(Unchecked(name, why, tuple(fields)) for name, why, fields in found["unchecked"])
    except (ValueError, LookupError, TypeError):
        return _refused("this is not a report: it kept the verifier from answering")
    return Verification(checks, unchecked)


def _refused(why: str) -> Verification:
    return Verification((Check("document", False, why),))


def main(limits: str, path: str, identity: str) -> None:
    """The child's work."""
    seconds, memory = (int(each) for each in limits.split(","))
    limit("RLIMIT_CORE", 0)
    limit("RLIMIT_CPU", seconds)
    report = receive(Path(path))
    if isinstance(report, Check):
        return answer(Verification((report,)))
    if (hopeless := report.hopeless()) is not None:
        return answer(Verification((hopeless,)))
    # Only now torch and the rest, which take more memory than most garbage.
    from irwm.report.verify import verify_report

    # Set only now: what the libraries take differs widely and does not depend on the report.
    taken = address_space()
    if taken is not None:
        limit("RLIMIT_AS", taken + memory)
    answer(verify_report(report, identity=identity or None, roots_pem=sys.stdin.buffer.read() or None))


def answer(found: Verification) -> None:
    checks = [[check.name, check.ok, check.said, check.asked] for check in found.checks]
    unchecked = [[group.name, group.why, group.fields] for group in found.unchecked]
    json.dump({"checks": checks, "unchecked": unchecked}, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
