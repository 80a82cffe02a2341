"""Sharing a file's blocks between the copies of one release, if the file system can (a reflink).

Only a file of a copy that this run has written and hashed is cloned. A clone takes no space and no time, and it is a
separate file: writing to one of the two does not change the other. Hard links are never used: they are one file with
two names, so an edit, a repair or a change of permissions in one recipient's folder would affect all the others and
break every manifest at once.
"""

from __future__ import annotations

import errno
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from irwm.checkpoint.files import FileState, open_seen
from irwm.checkpoint.platform import ALWAYS, NO_FOLLOW
from irwm.errors import CheckpointChangedError

try:
    import fcntl
except ImportError:  # Windows: files are copied there
    fcntl = None  # type: ignore[assignment]

# _IOW(0x94, 9, int) of linux/fs.h. On processors that number it differently the kernel has no such call, and the file
# is copied.
_FICLONE = 0x40049409
# The errors of a kernel or file system that cannot clone: no such call, not for these files, not between these disks.
# All other errors, such as a full disk, are handled as for a copy.
_CANNOT = {errno.EOPNOTSUPP, errno.ENOTTY, errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EPERM, errno.ETXTBSY}
# O_EXCL: an existing file in the new, empty folder means that the disk does not distinguish two names.
WRITE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | NO_FOLLOW | ALWAYS
_PROBE_BYTES = 4096


@dataclass(frozen=True, slots=True)
class ClonedFrom:
    """A file of a finished copy, whose blocks the next copy of the same original may share.

    Attributes:
        path: its path.
        seen: its state when it was completely on the disk, from the descriptor that wrote it.
        origin: the state of the original's file that was copied. The next copy's original must have the same
            state, or a new release would contain old bytes.
        digest: hex SHA-256 of the bytes as they were written.
    """

    path: Path
    seen: FileState
    origin: FileState
    digest: str


def clone(source: ClonedFrom, target: Path) -> FileState | None:
    """Makes `target` a clone of `source`, fsynced, and returns its state; None if a copy is needed instead.

    The digest stays valid: the kernel clones the blocks of the same file that `open_seen` finds unchanged in size,
    time, inode and disk since it was hashed, before and after cloning.

    Raises:
        OSError: another error of the disk, such as no space for the names.
    """
    if fcntl is None:
        return None
    try:
        with open_seen(source.path, source.seen) as reader:
            writer = os.open(target, WRITE_FLAGS, 0o666)
            try:
                state = _cloned(writer, reader)
            except BaseException:
                target.unlink(missing_ok=True)
                raise
            finally:
                os.close(writer)
    except CheckpointChangedError:
        state = None  # the finished copy was moved or edited, so the original is copied
    if state is None or state.size != source.seen.size:
        target.unlink(missing_ok=True)
        return None
    return state


def _cloned(writer: int, reader: int) -> FileState | None:
    """The state of `writer`'s file after it got the blocks of `reader`'s file; None if it cannot share them."""
    try:
        fcntl.ioctl(writer, _FICLONE, reader)
    except OSError as error:
        if error.errno not in _CANNOT:
            raise
        return None
    os.fsync(writer)
    return FileState.of(os.fstat(writer))


def clones_in(folder: Path) -> bool:
    """Whether the disk of `folder` can clone, tested with two unnamed files."""
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
