"""The process in which a parser reads an untrusted file: it sets limits, reads one file and gives one answer.

Started by `formats.parser_child` as `python parser_process.py LIMITS PARSER FILE`. PARSER is a module with a function
`parse(path: str) -> dict` whose result is written as one JSON object. A typed error of `irwm.errors` that it raises is
written as {"error": {...}}, and so is any other error. Only Python's own modules are imported, so that setting the
limits is cheap.
"""

from __future__ import annotations

import contextlib
import json
import os
import runpy
import signal
import sys
from pathlib import Path
from typing import Any

try:
    import resource
except ImportError:  # Windows has no such limits; the parent's time limit still ends this process
    resource = None  # type: ignore[assignment]

# Exit status for a parser that could not be loaded; the file may be valid.
NOT_LOADED = 3
# Seconds after the parent's time limit at which this process ends itself; matters only if the parent is dead.
_GRACE = 5
# Standard streams, the file itself, and files that a library opens in addition.
_OPEN_FILES = 32


def limit(name: str, value: int, more: int = 0) -> None:
    """Sets a resource limit that cannot be raised by more than `more`; does nothing if the system does not
    support the limit or rejects it."""
    if resource is not None and hasattr(resource, name):
        with contextlib.suppress(ValueError, OSError):
            kind = getattr(resource, name)
            hard = resource.getrlimit(kind)[1]
            most = value + more if hard == resource.RLIM_INFINITY else min(value + more, hard)
            resource.setrlimit(kind, (min(value, most), most))


def address_space() -> int | None:
    """Bytes of address space that this process uses now; None if the system does not report it."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return None


def refusal(problem: str, **details: str | None) -> str:
    return json.dumps({"error": {"problem": problem, **details}})


def answer_of(parser: dict[str, Any], path: str) -> str:
    """The parser's answer as JSON text, or the error that it raised."""
    from irwm.errors import CheckpointError, printable

    try:
        return json.dumps(parser["parse"](path))
    except CheckpointError as error:
        details = {name: getattr(error, name) for name in ("tensor", "expected", "found", "advice")}
        return refusal(error.problem, kind=type(error).__name__, **details)
    except MemoryError:
        return refusal("Reading the file required more memory than allowed")
    except RecursionError:
        return refusal("The file's contents are nested too deeply")
    except Exception as error:
        return refusal("The file's header cannot be parsed", found=printable(f"{type(error).__name__}: {error}"))


def main(limits: str, script: str, path: str) -> None:
    seconds, cpu_seconds, memory = (int(value) for value in limits.split(","))
    limit("RLIMIT_CORE", 0)
    limit("RLIMIT_FSIZE", 0)
    limit("RLIMIT_CPU", cpu_seconds, more=1)  # at the soft limit the system reports why it ends the process
    if hasattr(signal, "alarm"):
        signal.alarm(seconds + _GRACE)
    # The result has a separate stream, so that a library's output cannot get into it.
    answers = os.dup(1)
    os.dup2(2, 1)
    # After the installed packages, so that no module next to this package replaces a library.
    sys.path.append(str(Path(__file__).resolve().parents[2]))
    try:
        parser = runpy.run_path(script)
    except Exception as error:
        sys.stderr.write(f"{type(error).__name__}: {error}")
        sys.exit(NOT_LOADED)
    # Set only now: the libraries' address space, especially with a GPU, varies widely and does not depend on the file.
    taken = address_space()
    if taken is not None:
        limit("RLIMIT_AS", taken + memory)
    limit("RLIMIT_NOFILE", _OPEN_FILES)
    with open(answers, "w", encoding="ascii") as stream:
        stream.write(answer_of(parser, path))


if __name__ == "__main__":
    main(*sys.argv[1:])
