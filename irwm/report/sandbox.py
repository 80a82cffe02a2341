"""A report of unknown origin, verified in a separate process under limits of time and memory.

The sender of a report decides what the verifier reads. Here the worst that a file can do is to end that process.

    python -m irwm.report.sandbox      the child; reads a request as JSON from its input and writes its result as JSON
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from irwm.checkpoint.child_process import module_command, module_environment
from irwm.checkpoint.parser_process import address_space, limit
from irwm.errors import path_from, printable, shown_path
from irwm.report.checks import EXAMINATION, Check, Verification
from irwm.report.received import receive
from irwm.report.value_states import Stated, States

if TYPE_CHECKING:
    from irwm.report.reader_inputs import Brought

# A report of 10 000 positions takes a minute and a gigabyte, nearly all of it for drawing its PDF again.
SECONDS, MEMORY = 120, 2 << 30
# Bytes that an examination may take for each byte of the models. An embedding of 4-bit numbers takes 16 in float64.
_FOR_EACH_BYTE = 16
_WORDS = 300


@dataclass(frozen=True, slots=True)
class SandboxLimits:
    """Limits for verifying one report: seconds of time and of a processor, and bytes in addition to the libraries'.

    An examination that is run again has no time limit, and its memory limit grows with the size of the models.
    """

    seconds: int = SECONDS
    memory: int = MEMORY


def judge_report(
    path: str | Path,
    identity: str | None = None,
    limits: SandboxLimits = SandboxLimits(),
    roots_pem: bytes | None = None,
    brought: Brought | None = None,
) -> Verification:
    """`irwm.report.verify_report` in a child process.

    A report that exceeds the limits, or ends the process, fails a check: an honest report does neither. Models are only
    opened after the report was read within the time limit.

    Args:
        path: one of the report's files, their folder or their archive.
        identity, roots_pem: see `Brought`; they may be given there instead.
        brought: what else the reader brings, models as paths.
    """
    asked: dict[str, object] = {"path": shown_path(path), "limits": asdict(limits), "identity": identity}
    asked |= {"roots_pem": None if roots_pem is None else roots_pem.decode("ascii"), "brought": None}
    if brought is not None:
        given = brought.to_dict()
        asked |= {"identity": identity or given["identity"], "roots_pem": asked["roots_pem"] or given["roots_pem"]}
    try:
        found = _answer_of_child(asked, limits.seconds)
    except _EndedError as error:
        return Verification((Check("document", False, f"this is not a report: {error}"),))
    readable = any(check.name == "document" and check.ok for check in found.checks)
    if brought is None or not readable or not (brought.examines or brought.audit_log or brought.seen_utc):
        return found
    whole = given | {name: asked[name] for name in ("identity", "roots_pem")}
    try:
        return _answer_of_child(asked | {"brought": whole}, None)
    except _EndedError as error:
        # The report was read before, so a model, or the limits of this computer, ended the process.
        left_open = Check(EXAMINATION, None, f"the examination could not be run again: {error}", asked=True)
        return Verification((*found.checks, left_open), found.states, found.sha256)


class _EndedError(Exception):
    """Why a child gave no answer, as a part of a sentence."""


def _answer_of_child(asked: Mapping[str, object], seconds: int | None) -> Verification:
    """The verification of a child process.

    Raises:
        _EndedError: it took more than its limits, or ended without an answer.
    """
    try:
        ended = subprocess.run(
            module_command("irwm.report.sandbox"),
            input=json.dumps(asked).encode("ascii"),
            capture_output=True,
            env=module_environment({"OMP_NUM_THREADS": "1"} if seconds is not None else {}),
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise _EndedError(f"the verifier took more than {seconds} seconds") from error
    except OSError as error:
        return Verification((Check("files", None, f"the verifier could not be started: {error.strerror}", asked=True),))
    if ended.returncode:
        words = printable(ended.stderr.decode("utf-8", "replace").strip()[-_WORDS:], _WORDS) or str(ended.returncode)
        raise _EndedError(f"the verifier ended early, probably because the computer ran out of memory ({words})")
    try:
        return from_json(json.loads(ended.stdout))
    except (ValueError, LookupError, TypeError) as error:
        raise _EndedError("the verifier returned no valid result") from error


class VerificationJson(TypedDict):
    """A verification as plain JSON values: its `Check`s, the fields and groups of its `States`, and its digest."""

    sha256: str
    checks: list[dict[str, Any]]
    fields: dict[str, list[str]]
    left: list[dict[str, Any]]


def to_json(found: Verification) -> VerificationJson:
    """A verification as plain JSON values."""
    return {
        "sha256": found.sha256,
        "checks": [asdict(check) for check in found.checks],
        "fields": {state: list(fields) for state, fields in found.states.fields.items()},
        "left": [asdict(group) for group in found.states.left],
    }


def from_json(values: VerificationJson) -> Verification:
    """The verification that `to_json` wrote."""
    left = [
        Stated(
            group["name"], group["why"], tuple(group["fields"]), tuple(group["bring"]), carries=bool(group["carries"])
        )
        for group in values["left"]
    ]
    fields = {state: tuple(fields) for state, fields in values["fields"].items()}
    checks = tuple(Check(**check) for check in values["checks"])
    return Verification(checks, States(fields, tuple(left)), values.get("sha256", ""))  # of before, without a digest


def main() -> None:
    """The main function of the child."""
    asked = json.load(sys.stdin)
    allowed = SandboxLimits(**asked["limits"])
    limit("RLIMIT_CORE", 0)
    if asked["brought"] is None:
        limit("RLIMIT_CPU", allowed.seconds)
    report = receive(path_from(asked["path"]))
    if isinstance(report, Check):
        return _answer(Verification((report,)))
    if (hopeless := report.hopeless()) is not None:
        return _answer(Verification((hopeless,)))
    # Import torch and the rest only now: they take more memory than most garbage files.
    from irwm.report.reader_inputs import Brought
    from irwm.report.verify import verified

    given = {"identity": asked["identity"], "roots_pem": asked["roots_pem"]}
    roots = given["roots_pem"]
    brought = Brought(given["identity"], None if roots is None else roots.encode("ascii"))
    memory = allowed.memory
    if asked["brought"] is not None:
        brought = Brought.from_dict(asked["brought"])
        memory += _of_models(brought)
    # Set only now: the memory of the libraries differs widely and does not depend on the report. A GPU's driver maps
    # more than any limit allows.
    taken = address_space()
    if taken is not None and brought.device == "cpu":
        limit("RLIMIT_AS", taken + memory)
    return _answer(verified(report, brought))


def _of_models(brought: Brought) -> int:
    """Bytes of address space that an examination of these models may take."""
    paths = [path for path in (brought.suspect, brought.original, *brought.models) if path is not None]
    sizes = [_size(Path(path)) for path in paths if isinstance(path, (str, Path))]
    return _FOR_EACH_BYTE * sum(sizes)


def _size(path: Path) -> int:
    if path.is_dir():
        return sum(file.stat().st_blocks * 512 for file in path.rglob("*") if file.is_file())
    return path.stat().st_blocks * 512 if path.is_file() else 0


def _answer(found: Verification) -> None:
    json.dump(to_json(found), sys.stdout)


if __name__ == "__main__":
    main()
