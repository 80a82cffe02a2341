"""Opens and reads untrusted files without hanging, crashing or trusting them.

Every read of the package goes through here. Three rules keep the process alive: only regular files are opened (a
FIFO would block forever), bytes are read by position (a truncated memory map kills Python with SIGBUS), and the state
of a file is compared with its state when it was opened. A file on a server is read through its mirror
(`irwm.checkpoint.remote`): it has no descriptor, and its bytes are fetched when they are read.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from irwm.checkpoint.platform import ALWAYS, FOLDERS_OPEN, NO_FOLLOW, NO_TERMINAL, NO_WAIT, read_at
from irwm.checkpoint.remote.mirror import mirror_of
from irwm.errors import (
    CheckpointChangedError,
    CheckpointError,
    CorruptCheckpointError,
    NotACheckpointError,
    printable,
)

# Large enough to make the cost of a system call negligible, small enough for a quick Stop and low memory use.
CHUNK = 8 * 1024 * 1024
# Limits for a JSON file: lists and objects, and all values.
MOST_CONTAINERS = 2_000_000
MOST_VALUES = 8_000_000
# NO_WAIT: a FIFO that replaces the file after the stat cannot block. NO_TERMINAL: a terminal cannot take control.
_OPEN_FLAGS = os.O_RDONLY | NO_WAIT | NO_TERMINAL | ALWAYS
_FOLDER_FLAGS = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | NO_FOLLOW | ALWAYS
# In the place of a descriptor, for a file on a server: any direct use of it fails.
MIRRORED = -10
# The kernel has no free handles: a state of the machine, not a fault of the file.
_OUT_OF_HANDLES = {errno.EMFILE, errno.ENFILE}
_PERMISSIONS = "Change the permissions, or run the program as a user who has access"
_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a named pipe (FIFO)"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a character device"),
    (stat.S_ISBLK, "a block device"),
)


@dataclass(frozen=True, slots=True)
class FileState:
    """Identifies one state of a file: size in bytes, modification time in ns, inode and device."""

    size: int
    mtime_ns: int
    inode: int
    device: int

    @classmethod
    def of(cls, status: os.stat_result) -> FileState:
        return cls(status.st_size, status.st_mtime_ns, status.st_ino, status.st_dev)


def listed(names: Iterable[str], limit: int = 8) -> str:
    """Names on one line, safe to show: the first `limit` of them and a count of the rest."""
    names = list(names)
    shown = ", ".join(printable(name, 80) for name in names[:limit])
    return shown if len(names) <= limit else f"{shown} and {len(names) - limit} more"


def kind_of(mode: int) -> str:
    """The kind of file for a mode from `os.stat`, for a message."""
    return next((words for test, words in _KINDS if test(mode)), "a file")


def unreadable(path: Path, error: OSError | ValueError) -> CheckpointError:
    """The typed error for a path that the system refused to open, list or look up."""
    if isinstance(error, ValueError):  # raised by Python itself for a NUL in a path
        return NotACheckpointError("This is not a valid path", file=path)
    if error.errno in _OUT_OF_HANDLES:
        return CheckpointError(
            "Too many files are open",
            file=path,
            found=error.strerror,
            advice="Close other programs or raise the limit on open files (ulimit -n), then try again",
        )
    problem, advice = {
        errno.ENOENT: ("No such file or folder", "Check the path"),
        errno.ENOTDIR: ("No such file or folder", "Check the path: one of its parts is a file, not a folder"),
        errno.EACCES: ("The current user does not have permission to read this", _PERMISSIONS),
        errno.EPERM: ("The current user does not have permission to read this", _PERMISSIONS),
        errno.ELOOP: ("The symbolic links in the path form a loop", "Use the path of the file itself"),
        errno.ENAMETOOLONG: ("The path is longer than this system allows", "Use a shorter path"),
        errno.ENXIO: ("This is not a regular file", "Use the path of a file or a folder"),
    }.get(error.errno or 0, ("This file or folder cannot be read", "Check the disk and the path"))
    return NotACheckpointError(problem, file=path, found=error.strerror, advice=advice)


@contextmanager
def open_regular(path: Path, folder: Path | None = None) -> Iterator[tuple[int, FileState]]:
    """A descriptor for reading `path` and the state of the file, for the duration of a with block.

    Args:
        folder: the resolved folder, or snapshot of a hub cache, that links may not lead out of.

    Raises:
        NotACheckpointError: missing, unreadable, or not a regular file.
        CorruptCheckpointError: a link leads out of the folder.
        CheckpointChangedError: a folder or file was just replaced by a link.
        CheckpointError: the process has no file handle left.
    """
    try:
        descriptor, status = _opened(path, None) if folder is None else _opened_inside(path, folder)
    except (OSError, ValueError) as error:
        raise unreadable(path, error) from error
    try:
        if descriptor >= 0:
            status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise NotACheckpointError(
                "This is not a regular file", file=path, expected="a regular file", found=kind_of(status.st_mode)
            )
        # A placeholder never changes; that the file on the server is the same is checked with each answer.
        yield MIRRORED if mirror_of(path) is not None else descriptor, FileState.of(status)
    finally:
        if descriptor >= 0:
            os.close(descriptor)


def _opened(name: str | Path, parent: int | None) -> tuple[int, os.stat_result]:
    """A descriptor of a regular file, -1 for anything else, and its state; in an opened folder, `parent`, no link is
    followed."""
    # Checked before opening, because opening some devices triggers actions; the result of fstat is decisive.
    if parent is None:
        status = os.stat(name)
        return (os.open(name, _OPEN_FLAGS) if stat.S_ISREG(status.st_mode) else -1), status
    status = os.stat(name, dir_fd=parent, follow_symlinks=False)
    return (os.open(name, _OPEN_FLAGS | NO_FOLLOW, dir_fd=parent) if stat.S_ISREG(status.st_mode) else -1), status


def _opened_inside(path: Path, folder: Path) -> tuple[int, os.stat_result]:
    """The same inside a folder. Links are resolved once, by name. Then each part of the path is opened from the folder
    on without following links, so that a link that appears meanwhile has no effect."""
    real, base = require_inside(path, folder)
    pieces = real.relative_to(base).parts
    if not FOLDERS_OPEN or not pieces:
        return _opened(real, None)
    held = os.open(base, _FOLDER_FLAGS)
    try:
        for piece in pieces[:-1]:
            below = os.open(piece, _FOLDER_FLAGS, dir_fd=held)
            os.close(held)
            held = below
        descriptor, status = _opened(pieces[-1], held)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            raise changed(path, "a link instead of the file") from error
        raise
    finally:
        os.close(held)
    if stat.S_ISLNK(status.st_mode):
        raise changed(path, "a link instead of the file")
    return descriptor, status


def changed(path: Path, found: str) -> CheckpointChangedError:
    """The error for a file that changed after the checkpoint was opened."""
    return CheckpointChangedError(
        "The file changed while it was in use",
        file=path,
        expected="the file as it was when the checkpoint was opened",
        found=found,
        advice="Wait until no program is writing to the file, then open the checkpoint again",
    )


def require_unchanged(path: Path, seen: FileState, now: FileState) -> None:
    """Raises CheckpointChangedError if `now` differs from the earlier state `seen`."""
    if now == seen:
        return
    if now.size != seen.size:
        raise changed(path, f"{now.size} bytes instead of {seen.size}")
    if (now.inode, now.device) != (seen.inode, seen.device):
        raise changed(path, "a different file with the same name")
    raise changed(path, "a different modification time")


@contextmanager
def open_seen(path: Path, seen: FileState) -> Iterator[int]:
    """A descriptor for `path`, checked against `seen` when it is opened and again when the block ends without an error.

    Raises:
        CheckpointChangedError: the file was truncated, edited, replaced or removed.
    """
    try:
        with open_regular(path) as (descriptor, now):
            require_unchanged(path, seen, now)
            yield descriptor
            if descriptor != MIRRORED:
                require_unchanged(path, seen, FileState.of(os.fstat(descriptor)))
    except NotACheckpointError as error:
        raise changed(path, error.problem) from error


@contextmanager
def for_another_process(path: Path, descriptor: int) -> Iterator[int]:
    """A descriptor that another process can read, of a file that `open_regular` opened. Bytes of a file on a server
    that were not fetched are zeros there."""
    mirrored = mirror_of(path) if descriptor == MIRRORED else None
    if mirrored is None:
        yield descriptor
        return
    mirror, name = mirrored
    with mirror.data(name) as found:
        yield found


def announce(path: Path, ranges: Iterable[tuple[int, int]]) -> None:
    """Says which byte ranges will be read next. Those of a file on a server are fetched now.

    Raises:
        RemoteError: they cannot be fetched.
    """
    mirrored = mirror_of(path)
    if mirrored is not None:
        mirror, name = mirrored
        mirror.fetch(name, ranges)


def read_into(descriptor: int, path: Path, offset: int, target: memoryview) -> None:
    """Fills `target` (writable bytes) with the file's bytes from `offset`.

    Raises:
        CheckpointChangedError: the file ends before `target` is full.
        RemoteError: the file is on a server that cannot be read.
        CheckpointError: the disk reports an error.
    """
    mirrored = mirror_of(path) if descriptor == MIRRORED else None
    if mirrored is not None:
        mirrored[0].fetch(mirrored[1], [(offset, offset + len(target))])
    done = 0
    while done < len(target):
        try:
            piece, begin = target[done : done + CHUNK], offset + done
            count = (
                read_at(descriptor, piece, begin) if mirrored is None else mirrored[0].read(mirrored[1], begin, piece)
            )
        except OSError as error:
            raise CheckpointError(
                "The file could not be read from the disk", file=path, found=error.strerror, advice="Check the disk"
            ) from error
        if count == 0:
            raise changed(path, f"the file ends at byte {offset + done}; bytes missing: {len(target) - done}")
        done += count


def digest_of(
    descriptor: int, path: Path, start: int, stop: int, advance: Callable[[int], None] = lambda count: None
) -> str:
    """Hex SHA-256 of the bytes from `start` to `stop` of a file that `open_regular` opened.

    Args:
        advance: called with the number of bytes before each piece is read; its exceptions are propagated.

    Raises:
        As `read_into`.
    """
    digest, buffer = hashlib.sha256(), memoryview(bytearray(min(CHUNK, max(0, stop - start))))
    for begin in range(start, stop, CHUNK):
        piece = buffer[: min(CHUNK, stop - begin)]
        advance(len(piece))
        read_into(descriptor, path, begin, piece)
        digest.update(piece)
    return digest.hexdigest()


def read_small(path: Path, limit: int, what: str, folder: Path | None = None) -> bytes:
    """All bytes of a file of at most `limit` bytes; `what` names it in errors.

    Raises:
        CorruptCheckpointError: larger than `limit`.
        NotACheckpointError, CorruptCheckpointError: see `open_regular`.
        CheckpointChangedError: it shrank while it was read.
    """
    with open_regular(path, folder) as (descriptor, state):
        if state.size > limit:
            raise CorruptCheckpointError(
                f"The {what} is implausibly large",
                file=path,
                expected=f"at most {limit} bytes",
                found=f"{state.size} bytes",
            )
        content = bytearray(state.size)
        read_into(descriptor, path, 0, memoryview(content))
    return bytes(content)


class DuplicateNameError(ValueError):
    """A JSON object with a duplicate name; raised and caught in this module only."""


def _unique_pairs(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise DuplicateNameError(name)
            seen.add(name)
    return found


def parse_json(content: bytes, path: Path, what: str, *, strict: bool) -> Any:
    """The value of a JSON text.

    With `strict`, duplicate names in one object and the non-numbers NaN and Infinity are refused, because two parsers
    may disagree on them. Model configs are read without it, since real ones contain Infinity.

    Raises:
        CorruptCheckpointError: not UTF-8, begins with a byte order mark, nested too deep, or not JSON.
    """

    def corrupt(problem: str, found: str | None = None, advice: str | None = None) -> CorruptCheckpointError:
        return CorruptCheckpointError(f"The {what} {problem}", file=path, found=found, advice=advice)

    if content.startswith(b"\xef\xbb\xbf"):
        problem = "begins with a byte order mark, which JSON forbids"
        raise corrupt(problem, advice="Save the file again as UTF-8 without a byte order mark")
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        advice = (
            "Save the file again as UTF-8 without a byte order mark. In PowerShell, > and Out-File write UTF-16 instead"
        )
        raise corrupt("is UTF-16 text, not UTF-8", advice=advice)
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise corrupt("is not UTF-8 text", f"byte {content[error.start]:#04x} at offset {error.start}") from error

    def no_constant(name: str) -> Any:
        raise ValueError(f"the value {name}, which JSON does not allow")

    try:
        if strict:
            return json.loads(text, object_pairs_hook=_unique_pairs, parse_constant=no_constant)
        return json.loads(text)
    except DuplicateNameError as error:
        raise CorruptCheckpointError(
            f"The {what} contains a duplicate name", file=path, tensor=str(error), expected="each name only once"
        ) from error
    except RecursionError as error:
        raise corrupt("contains JSON that is nested too deeply") from error
    except ValueError as error:  # JSONDecodeError, or a number with more digits than Python converts
        raise corrupt("is not valid JSON", str(error)) from error


def require_bounded(content: bytes, path: Path, what: str) -> None:
    """Rejects a JSON text that would take far more memory as Python objects than as text.

    An empty list takes two characters and 64 bytes, a short string four characters and as many bytes. The largest real
    files are tokenizers with half a million merges, each a list of two strings. Brackets in strings count as well, but
    they are few.

    Raises:
        CorruptCheckpointError: more opening brackets and braces, or more commas, than any real file has.
    """
    for marks, most in ((b"[{", MOST_CONTAINERS), (b",", MOST_VALUES)):
        count = sum(content.count(marks[i : i + 1]) for i in range(len(marks)))
        if count > most:
            raise CorruptCheckpointError(
                f"The {what} contains too many values",
                file=path,
                expected=f"at most {most} occurrences of {' and '.join(marks.decode())}",
                found=f"{count}",
            )


def read_json_object(
    path: Path, limit: int, what: str, *, folder: Path | None = None, strict: bool = False
) -> dict[str, Any]:
    """The JSON object in a file of at most `limit` bytes.

    Raises:
        CorruptCheckpointError: too large, not JSON, or a JSON value that is not an object.
        NotACheckpointError, CorruptCheckpointError: see `open_regular`.
    """
    content = read_small(path, limit, what, folder)
    require_bounded(content, path, what)
    value = parse_json(content, path, what, strict=strict)
    if not isinstance(value, dict):
        raise CorruptCheckpointError(
            f"The {what} is not a JSON object", file=path, expected="an object", found=type(value).__name__
        )
    return value


def resolved(path: Path) -> Path:
    """The real path after all symbolic links.

    Raises:
        NotACheckpointError: the path does not exist, is a loop of links, or is invalid.
    """
    try:
        return path.resolve(strict=True)
    except RuntimeError as error:  # what Python 3.11 raises for a loop
        raise unreadable(path, OSError(errno.ELOOP, os.strerror(errno.ELOOP))) from error
    except (OSError, ValueError) as error:
        raise unreadable(path, error) from error


def hub_blobs(folder: Path) -> Path | None:
    """The blob store that links in `folder` may lead to, when it is a snapshot of a Hugging Face hub cache.

    The cache is `<repository>/snapshots/<revision>/` with links into `<repository>/blobs/`. `folder` may be below the
    revision and must be resolved. A blob store that is itself a link is not accepted, because it could lead anywhere.
    """
    for place in (folder, *folder.parents):
        if place.parent.name == "snapshots":
            blobs = place.parent.parent / "blobs"
            # os.path and not Path: these return False if the system refuses access.
            return blobs if os.path.isdir(blobs) and not os.path.islink(blobs) else None
    return None


def stays_inside(path: Path, folder: Path) -> bool:
    """Whether `path`, with all links resolved, is in the resolved `folder` or, in a hub cache, in its blob store.

    Raises:
        NotACheckpointError: `path` leads nowhere.
    """
    return _base_of(resolved(path), folder) is not None


def require_inside(path: Path, folder: Path) -> tuple[Path, Path]:
    """Rejects a file whose links lead out of the resolved `folder`, except into a hub cache's blob store.

    Returns:
        The real path after all links, and the folder or blob store that it is in.

    Raises:
        CorruptCheckpointError: the file is outside.
        NotACheckpointError: it leads nowhere.
    """
    real = resolved(path)
    base = _base_of(real, folder)
    if base is None:
        raise CorruptCheckpointError(
            "A link points outside the model's folder",
            file=path,
            expected=f"a file in {folder}",
            found=str(real),
            advice="Replace the link with the file itself",
        )
    return real, base


def _base_of(real: Path, folder: Path) -> Path | None:
    """The folder, or else the blob store of its hub cache, that a resolved path is in; None if it is in neither."""
    if real.is_relative_to(folder):
        return folder
    blobs = hub_blobs(folder)
    return blobs if blobs is not None and real.is_relative_to(blobs) else None
