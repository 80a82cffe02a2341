"""Runs a parser in a separate process, under limits of time, memory and output.

Libraries that read headers were not written for hostile files: a length of 2^60 in a GGUF file keeps its reader busy
for years, and a pickle is a program. In a child process the worst result is an error here. The child reads one header
and returns one JSON object, which is trusted as little as the file itself.

A parser is a module in this folder that the app never imports. It has a function `parse(path: str) -> dict`, whose
result must be JSON (NaN and Infinity are allowed). To reject a file it raises an error of `irwm.errors` (without its
`file`, which is filled in here). From the packages above it, a parser may import modules without further imports, such
as `irwm.errors`, `irwm.checkpoint.dtypes` and `irwm.checkpoint.magic`.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import IO, Any

from irwm.checkpoint.child_process import script_command
from irwm.checkpoint.files import parse_json
from irwm.checkpoint.magic import DOWNLOAD_AGAIN
from irwm.checkpoint.parser_process import NOT_LOADED
from irwm.errors import (
    CheckpointError,
    CorruptCheckpointError,
    NotACheckpointError,
    UnsupportedCheckpointError,
    printable,
)

FOLDER = Path(__file__).resolve().parent
_CONFINED = FOLDER.parent / "parser_process.py"
# Variables that Python needs to find itself and its packages, including a user's packages. No others are passed on.
_KEPT = ("SYSTEMROOT", "HOME", "USERPROFILE", "APPDATA", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
# One thread: parsing a header needs no more, and each takes address space.
_SET = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
_WINDOWS_FLAGS = getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0) | getattr(subprocess, "CREATE_NO_WINDOW", 0)
_STDERR_BYTES = 2048
# Opening this path reopens the file that is the process's standard input. Windows has no such path.
_STDIN = "/dev/fd/0"
# Seconds to wait for a process to end after it was killed or has given its answer.
_PARTING = 5
# The errors of a parser, by the names of their classes; any other becomes the first.
_KINDS: dict[str, type[CheckpointError]] = {
    kind.__name__: kind for kind in (CorruptCheckpointError, UnsupportedCheckpointError, NotACheckpointError)
}


@dataclass(frozen=True, slots=True)
class ParserLimits:
    """Limits of a parser.

    Attributes:
        seconds: wall-clock time. Loading torch takes one or two seconds, and a dozen from a cold, slow disk.
        cpu_seconds: CPU time; a PyTorch file with 100 000 tensors takes 11.
        memory: bytes in addition to its libraries'; a PyTorch file with 200 000 tensors needs about 0.9 GB.
        output: bytes of its answer; 200 000 tensors take 30 MB.
    """

    seconds: int = 60
    cpu_seconds: int = 60
    memory: int = 1024**3
    output: int = 64 * 1024**2


LIMITS = ParserLimits()


class _Drain(Thread):
    """Reads a stream to its end, so that its writer never waits, and keeps a limited part of it."""

    def __init__(self, stream: IO[bytes], most: int, *, last: bool) -> None:
        """`last`: keep the end of a longer stream; otherwise its beginning, and stop reading."""
        super().__init__(daemon=True)
        self.content = bytearray()
        self.overflowed = False
        self._stream, self._most, self._last = stream, most, last

    def run(self) -> None:
        # read1 returns the available bytes without waiting for more.
        with contextlib.suppress(OSError, ValueError):  # the stream was closed: the process is dead
            while piece := self._stream.read1(65536):  # type: ignore[attr-defined]
                self.content += piece
                if len(self.content) > self._most:
                    self.overflowed = True
                    if not self._last:
                        return
                    del self.content[: -self._most]


def run_parser(
    parser: str,
    path: Path,
    what: str,
    limits: ParserLimits = LIMITS,
    descriptor: int | None = None,
    take: Callable[[Path, int], None] | None = None,
) -> dict[str, Any]:
    """The answer of one of our parsers about a file.

    Args:
        parser: the module's name: "torch_parser", "gguf_parser".
        path: the file.
        what: the kind of file for messages, such as "GGUF file".
        descriptor: the opened file, which is read even if `path` has changed since.
        take: called with the path and the answer's size in bytes before it is parsed; may reject it.

    Raises:
        CorruptCheckpointError, UnsupportedCheckpointError, NotACheckpointError: raised by the parser.
        CorruptCheckpointError: the parser crashed, exceeded its limits, or gave no answer.
        CheckpointError: the process or the parser could not be started; the file may be valid.
    """
    allowed = f"{limits.seconds},{limits.cpu_seconds},{limits.memory}"
    command = script_command(_CONFINED, allowed, str(FOLDER / f"{parser}.py"))
    by_descriptor = descriptor is not None and os.path.exists(_STDIN)
    try:
        process = subprocess.Popen(
            [*command, _STDIN if by_descriptor else str(path.absolute())],
            stdin=descriptor if by_descriptor else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=FOLDER,
            env={name: os.environ[name] for name in _KEPT if name in os.environ} | _SET,
            start_new_session=True,
            creationflags=_WINDOWS_FLAGS,
        )
    except (OSError, ValueError) as error:
        raise _not_started(path, what, getattr(error, "strerror", None) or str(error)) from error
    assert process.stdout is not None
    assert process.stderr is not None
    answer = _Drain(process.stdout, limits.output, last=False)
    said = _Drain(process.stderr, _STDERR_BYTES, last=True)
    try:
        answer.start()
        said.start()
        answer.join(limits.seconds)
        late = answer.is_alive()
        if not late and not answer.overflowed:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_PARTING)
    finally:  # also if this thread is interrupted; also ends processes that the parser started
        _end(process)
        said.join(_PARTING)
        answer.join(_PARTING)
        for stream, reader in ((process.stdout, answer), (process.stderr, said)):
            if not reader.is_alive():  # closing under a reader would wait for it
                stream.close()
    words = printable(bytes(said.content).decode("utf-8", "replace").strip(), _STDERR_BYTES)
    if process.returncode == NOT_LOADED:
        raise _not_started(path, what, words)
    problem = _excess(process.returncode, late, answer.overflowed, limits)
    if problem is not None:
        raise CorruptCheckpointError(
            f"The {what}'s header {problem}", file=path, found=words[-300:] or None, advice=DOWNLOAD_AGAIN
        )
    if take is not None:
        take(path, len(answer.content))
    return checked_answer(bytes(answer.content), path, what, words)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends the process and its whole group."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_PARTING)


def _excess(status: int | None, late: bool, overflowed: bool, limits: ParserLimits) -> str | None:
    """How a parser without an answer failed, as the end of "The file's header ..."; None if it succeeded."""
    if late:
        return f"took more than {limits.seconds} seconds to read"
    if overflowed:
        return f"caused its reader to return more than {limits.output // 1024**2} MB"
    if status == 0:
        return None
    if status is None or status > 0:
        return f"caused its reader to fail with exit status {status}"
    if -status == getattr(signal, "SIGXCPU", None):
        return f"took more than {limits.cpu_seconds} seconds of CPU time to read"
    if -status == getattr(signal, "SIGKILL", None):
        return (
            "caused its reader to exceed its limits or to be killed by the system, usually because the computer ran "
            "out of memory"
        )
    try:
        return f"crashed its reader ({signal.Signals(-status).name})"
    except ValueError:
        return f"crashed its reader (signal {-status})"


def _not_started(path: Path, what: str, found: str) -> CheckpointError:
    return CheckpointError(
        f"The reader for a {what} could not be started",
        file=path,
        found=printable(found),
        advice="Close other programs and try again. If that does not help, reinstall IRWM Studio's requirements",
    )


def checked_answer(content: bytes, path: Path, what: str, words: str) -> dict[str, Any]:
    """The answer as an object; if it is an error, raises it."""
    if not content:
        raise CorruptCheckpointError(
            f"The reader for the {what} returned nothing", file=path, found=words[-300:] or None
        )
    value = parse_json(content, path, f"output of the {what}'s reader", strict=False)
    if not isinstance(value, dict):
        raise CorruptCheckpointError(f"The reader for the {what} returned no usable result", file=path)
    error = value.get("error")
    if error is None:
        return value
    texts = {name: text for name, text in error.items() if isinstance(text, str)} if isinstance(error, dict) else {}
    raise _KINDS.get(texts.get("kind", ""), CorruptCheckpointError)(
        texts.get("problem", f"The reader rejected the {what}"),
        file=path,
        tensor=texts.get("tensor"),
        expected=texts.get("expected"),
        found=texts.get("found"),
        advice=texts.get("advice"),
    )
