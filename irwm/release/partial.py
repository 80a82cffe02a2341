"""The folder `NAME.partial` of an incomplete release, and the removal of those that interrupted runs left.

The running publisher locks a file inside. The kernel releases the lock when the process ends for any reason, so a
partial folder with a free lock belongs to an interrupted run and may be removed. Windows cannot rename a folder that
contains an open file, so there the locked file is next to the folder, and the file inside only shows that this program
made the folder.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from threading import Event

from filelock import lock_descriptor

from irwm.checkpoint.files import unreadable
from irwm.checkpoint.platform import (
    ALWAYS,
    FOLDERS_OPEN,
    NO_FOLLOW,
    NO_WAIT,
    OPEN_FILES_STAY,
    patiently,
    unlock_and_close,
)
from irwm.errors import OutputExistsError, PublishError
from irwm.release.manifest import LOCK_NAME

PARTIAL_SUFFIX = ".partial"
# Another process may remove or finish the folder between two of our steps, and a process that removes old folders may
# hold the lock briefly: so we retry, with pauses in seconds, for a quarter of a second in total.
_ATTEMPTS = 25
_PAUSE = 0.01
# Listing a folder to remove it needs descriptors; these are reserved in case the process runs out of them.
_SPARE_DESCRIPTORS = 6
# The errors of file systems that cannot fsync a folder; their renames cannot be made durable.
_NO_FOLDER_SYNC = {errno.EINVAL, errno.ENOTSUP, errno.EBADF}


class Partial:
    """A partial folder whose lock this process holds; made by `partial_folder`."""

    def __init__(self, out: Path, path: Path) -> None:
        self.path = path
        self.published = False
        self._out = out

    def publish(self) -> None:
        """Renames the folder to its final name, durably. On any failure it gets its partial name back.

        Raises:
            OutputExistsError: the final name was used by something else meanwhile.
            OSError: an error of the disk.
        """
        sync_folder(self.path)
        require_absent(self._out)
        try:
            patiently(os.rename, self.path, self._out)
        except FileExistsError:
            require_absent(self._out)
            raise
        try:
            sync_folder(self._out.parent)
        except BaseException:
            os.rename(self._out, self.path)
            raise
        self.published = True
        # Removed only now, because its lock kept others out of the partial folder. If it remains, it is harmless.
        with suppress(OSError):
            os.unlink(self._out / LOCK_NAME)
            sync_folder(self._out)


@contextmanager
def partial_folder(out: Path) -> Iterator[Partial]:
    """An empty, locked partial folder next to `out`, removed at the end unless it was published.

    Raises:
        OutputExistsError: `out` exists, another process is writing it, or another program's folder has this name.
        OSError: an error of the disk.
    """
    path = out.with_name(out.name + PARTIAL_SUFFIX)
    with ExitStack() as spare:
        for _ in range(_SPARE_DESCRIPTORS if FOLDERS_OPEN else 0):
            spare.callback(os.close, os.open(out.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
        lock = _acquire(path)
        try:
            partial = Partial(out, path)
            try:
                require_absent(out)  # a publisher may have finished between the caller's check and our lock
                _clear(path)
                yield partial
            finally:
                if not partial.published:
                    spare.close()
                    _remove(path)
        finally:
            _let_go(path, lock)


def require_absent(out: Path) -> None:
    """Raises OutputExistsError if the name `out` exists, even as a broken link."""
    if os.path.lexists(out):
        raise OutputExistsError(
            "The output folder already exists",
            file=out,
            expected="an unused name",
            advice="Choose another name, or move the folder; existing files are never overwritten",
        )


def sweep_partials(folder: str | Path) -> list[Path]:
    """Removes the partial folders of interrupted runs directly inside `folder` and returns their paths.

    It skips folders that a running publisher holds and folders of other programs: a partial folder is empty or contains
    a lock file.

    Raises:
        NotACheckpointError: `folder` cannot be listed.
    """
    folder = Path(folder)
    try:
        names = sorted(name for name in os.listdir(folder) if name.endswith(PARTIAL_SUFFIX))
    except OSError as error:
        raise unreadable(folder, error) from error
    swept = []
    for name in names:
        path = folder / name
        try:
            if not _is_ours(path):
                continue
            if not os.listdir(path):
                os.rmdir(path)
                swept.append(path)
                continue
            lock = _try_lock(path)
        except OSError:
            continue  # it no longer exists, or may not be removed
        if lock is None:
            continue
        try:
            _remove(path)
            if not os.path.lexists(path):
                swept.append(path)
        finally:
            _let_go(path, lock)
    return swept


def sync_folder(path: Path) -> None:
    """Makes the names in a folder durable, if the file system can."""
    if not FOLDERS_OPEN:
        return
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _NO_FOLDER_SYNC:
            raise
    finally:
        os.close(descriptor)


def _acquire(path: Path) -> int:
    """Makes the partial folder, or reuses that of an interrupted run, and returns the descriptor that holds its
    lock."""
    held = False
    for _ in range(_ATTEMPTS):
        with suppress(FileExistsError):
            os.mkdir(path)
        try:
            if not _is_ours(path):
                raise OutputExistsError(
                    "A file or folder already has the name needed for the unfinished release",
                    file=path,
                    advice="Move that file or folder, or choose another name for the release",
                )
            lock = _try_lock(path)
        except FileNotFoundError:
            continue  # another process removed or finished the folder
        except OSError:
            with suppress(OSError):
                os.rmdir(path)  # empty, so made by this program
            raise
        if lock is not None:
            return lock
        held = True
        Event().wait(_PAUSE)
    if held:
        raise OutputExistsError(
            "The output folder is in use: another process is writing to it",
            file=path,
            advice="Wait until that process ends, or choose another name",
        )
    raise PublishError(
        "The partial folder kept changing", file=path, advice="Check which other program is using this folder"
    )


def _is_ours(path: Path) -> bool:
    """Whether this is a real folder that contains a lock file or is empty."""
    if not stat.S_ISDIR(os.lstat(path).st_mode):
        return False
    names = os.listdir(path)
    return not names or LOCK_NAME in names


def _try_lock(path: Path) -> int | None:
    """A descriptor that holds the folder's lock; None if another process holds it.

    Raises:
        FileNotFoundError: folder or lock file were just removed.
    """
    flags = os.O_RDWR | os.O_CREAT | NO_FOLLOW | NO_WAIT | ALWAYS
    file = _lock_file(path)
    lock = os.open(file, flags, 0o600)
    try:
        locked = lock_descriptor(lock, blocking=False)
    except OSError:
        os.close(lock)
        raise
    if not locked:
        os.close(lock)
        return None
    try:
        # The last holder may have removed the file before releasing it, so the file may no longer have this name.
        if not os.path.samestat(os.stat(file), os.fstat(lock)):
            raise FileNotFoundError(errno.ENOENT, "the lock file was replaced", str(path))
        if OPEN_FILES_STAY:
            os.close(os.open(path / LOCK_NAME, flags, 0o600))
    except OSError:
        _let_go(path, lock)
        raise
    return lock


def _lock_file(path: Path) -> Path:
    return path.with_name(path.name + ".lock") if OPEN_FILES_STAY else path / LOCK_NAME


def _let_go(path: Path, lock: int) -> None:
    """Releases the folder's lock, and removes the lock file next to the folder."""
    unlock_and_close(lock)
    if OPEN_FILES_STAY:
        with suppress(OSError):  # it fails while another process has the file open and uses it
            os.unlink(_lock_file(path))


def _clear(path: Path) -> None:
    """Empties the folder except for the lock file."""
    for entry in list(os.scandir(path)):
        if entry.name == LOCK_NAME:
            continue
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path)
        else:
            os.unlink(entry.path)


def _remove(path: Path) -> None:
    """Removes the folder, the lock file last, so that an interrupted removal can be continued.

    Files that cannot be removed stay for the next cleanup; an earlier error matters more than this one.
    """
    with suppress(OSError):
        _clear(path)
        os.unlink(path / LOCK_NAME)
        os.rmdir(path)
