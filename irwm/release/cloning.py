"""Sharing a file's blocks between the copies of one release, where the file system can (a reflink).

What is cloned is a file of a copy that this very run has written and hashed. A clone takes no room and no time, and
from then on it is a file of its own: whatever is written to one of the two is not seen in the other. A hard link is
never used instead. It is one file under two names, so that an edit, a repair or a change of permissions in one
recipient's folder would reach all the others, and break every manifest at once.
"""

from __future__ import annotations

import errno
import os
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from irwm.checkpoint.files import FileState, open_seen
from irwm.checkpoint.platform import ALWAYS, NO_FOLLOW
from irwm.errors import CheckpointChangedError

try:
    import fcntl
except ImportError:  # Windows: files are copied there
    fcntl = None  # type: ignore[assignment]

# _IOW(0x94, 9, int) of linux/fs.h. Where a processor numbers it in another way the kernel knows no such call, and
# the file is copied.
_FICLONE = 0x40049409
# How a kernel or file system says that it cannot: no such call, not these files, not between these disks. Anything
# else, a full disk above all, is an error as for a copy.
_CANNOT = {errno.EOPNOTSUPP, errno.ENOTTY, errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EPERM, errno.ETXTBSY}
# O_EXCL: in our own empty folder a file that is there already means a disk that does not tell names apart.
WRITE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | NO_FOLLOW | ALWAYS
_PROBE_BYTES = 4096


@dataclass(frozen=True, slots=True)
class ClonedFrom:
    """A file of a finished copy that the next copy of the same original may share its blocks with.

    Attributes:
        path: where it is.
        seen: its state, taken from the descriptor that wrote it when its last byte was on the disk.
        origin: the state of the original's file that it is a copy of. The next copy's original must be in the same
            state, or old bytes would come back into a new release.
        digest: SHA-256 of the bytes as they were written, hex.
    """

    path: Path
    seen: FileState
    origin: FileState
    digest: str


def clone(source: ClonedFrom, target: Path) -> FileState | None:
    """Makes `target` a clone of `source`, fsynced, and returns its state; None where it has to be copied instead.

    The digest need not be taken anew. The kernel clones the blocks of the very file that `open_seen` finds unchanged
    in size, time, inode and disk before and after, since it was hashed; so its bytes are the hashed ones.

    Raises:
        OSError: the disk's refusal of another kind, such as no room for the names.
    """
    if fcntl is None:
        return None
    try:
        with open_seen(source.path, source.seen) as reader:
            writer = os.open(target, WRITE_FLAGS, 0o666)
            try:
                state = _cloned(writer, reader)
            except BaseException:
                _discard(target)
                raise
            finally:
                os.close(writer)
    except CheckpointChangedError:
        state = None  # somebody moved or edited the finished copy; the original is still there
    if state is None or state.size != source.seen.size:
        _discard(target)
        return None
    return state


def _cloned(writer: int, reader: int) -> FileState | None:
    """The state of the file behind `writer` once it shares the blocks of the one behind `reader`; None if it cannot."""
    try:
        fcntl.ioctl(writer, _FICLONE, reader)
    except OSError as error:
        if error.errno not in _CANNOT:
            raise
        return None
    os.fsync(writer)
    return FileState.of(os.fstat(writer))


def clones_in(folder: Path) -> bool:
    """Whether the disk that holds `folder` can clone, tried with two files that never get a name."""
    if fcntl is None or not hasattr(os, "O_TMPFILE"):
        return False
    try:
        with tempfile.TemporaryFile(dir=folder) as one, tempfile.TemporaryFile(dir=folder) as other:
            one.write(bytes(_PROBE_BYTES))
            one.flush()
            fcntl.ioctl(other.fileno(), _FICLONE, one.fileno())
    except OSError:
        return False
    return True


def _discard(target: Path) -> None:
    with suppress(FileNotFoundError):
        os.unlink(target)
