"""Files that only their owner may read, published completely or not at all."""

from __future__ import annotations

import os
import re
import secrets
import time
from pathlib import Path

PRIVATE_FILE = 0o600
PRIVATE_FOLDER = 0o700
PARTIAL = ".partial"
# A partial older than this belongs to a process that was killed: creating a vault takes about a second.
STALE_SECONDS = 3600.0
REPLACE_TRIES = 50
_OURS = re.compile(r"(vault|jobs)\..*\.[0-9a-f]{16}\.partial(-wal|-shm|-journal)?")
# Absent on Windows; there the flags are simply not set.
_NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)
_BINARY = getattr(os, "O_BINARY", 0)


def private_folder(path: Path) -> None:
    """Makes a folder for its owner only; an existing one is left unchanged."""
    path.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)


def new_private_file(path: Path) -> int:
    """Creates a file that is private from its first byte and returns its descriptor.

    The mode is given at creation: a later chmod would leave a moment in which others could open the file.

    Raises:
        FileExistsError: something has this name already, possibly a dangling link.
    """
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | _NO_FOLLOW | _BINARY, PRIVATE_FILE)


def open_to_append(path: Path) -> int:
    """A descriptor that appends to a private file, which is created if necessary; links are not followed."""
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | _NO_FOLLOW | _BINARY, PRIVATE_FILE)


def append_private(path: Path, data: bytes) -> None:
    """Adds bytes to the end of a private file; see `open_to_append`."""
    with os.fdopen(open_to_append(path), "wb", buffering=0) as stream:
        # One write for the whole piece: O_APPEND keeps the pieces of two processes from mixing.
        written = stream.write(data)
        while written < len(data):  # a full disk takes a part, and then raises
            written += stream.write(data[written:])


def partial_name(path: Path) -> Path:
    """An unused name in the folder of `path`, for a file that is still being written."""
    return path.with_name(f"{path.name}.{secrets.token_hex(8)}{PARTIAL}")


def replace_private(path: Path, data: bytes) -> None:
    """Writes a small private file so that a reader sees either the old content or the new, never a part."""
    partial = partial_name(path)
    try:
        with os.fdopen(new_private_file(partial), "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        _replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def _replace(partial: Path, path: Path) -> None:
    for _ in range(REPLACE_TRIES):
        try:
            return os.replace(partial, path)
        except PermissionError:  # on Windows, while a reader has the old file open
            time.sleep(0.01)
    os.replace(partial, path)


def publish_new(partial: Path, final: Path) -> None:
    """Renames a finished file, only if the name is free.

    Raises:
        FileExistsError: the name is taken; the partial stays for the caller to remove.
    """
    try:
        os.link(partial, final, follow_symlinks=False)
    except FileExistsError:
        raise
    except (OSError, NotImplementedError):
        # No hard links on this file system (FAT, some network shares): check, then rename.
        if os.path.lexists(final):
            raise FileExistsError(f"{final} exists") from None
        os.rename(partial, final)
    else:
        os.unlink(partial)
    sync_folder(final.parent)


def sync_folder(folder: Path) -> None:
    """Makes a new name in a folder survive a power cut, if the platform supports that."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sweep(folder: Path, names: re.Pattern[str] = _OURS) -> tuple[Path, ...]:
    """Removes partial files that killed processes left in a folder; returns the removed paths.

    Args:
        names: pattern for the files that may be removed, matched against whole names.
    """
    removed = []
    oldest = time.time() - STALE_SECONDS
    for path in sorted(folder.glob(f"*{PARTIAL}*")):
        try:
            # Only names that `partial_name` makes: the folder may contain other files.
            if (
                names.fullmatch(path.name)
                and path.is_file()
                and not path.is_symlink()
                and path.lstat().st_mtime < oldest
            ):
                path.unlink()
                removed.append(path)
        except FileNotFoundError:
            continue  # another process removed it first
    return tuple(removed)
