"""What a target disk says when it refuses a release, as typed errors with the next step."""

from __future__ import annotations

import errno
from pathlib import Path

from irwm.errors import DiskSpaceError, OutputExistsError, PublishError

_NO_ROOM = {errno.ENOSPC, errno.EDQUOT}
# What a rename onto a folder with content, or onto a file, says.
_TAKEN = {errno.ENOTEMPTY, errno.ENOTDIR}
REFUSALS = {
    errno.EROFS: ("The target disk is read-only", "Choose another folder"),
    errno.EACCES: ("This user may not write there", "Change the folder's permissions or choose another one"),
    errno.EPERM: ("This user may not write there", "Change the folder's permissions or choose another one"),
    errno.ENAMETOOLONG: ("A name is longer than the target disk allows", "Choose a shorter name"),
    errno.EFBIG: ("A file is larger than the target disk allows", "Choose a disk without that limit; FAT has one"),
    errno.EMFILE: ("Too many files are open", "Close other programs or raise the limit (ulimit -n)"),
    errno.ENFILE: ("Too many files are open", "Close other programs or raise the limit"),
    errno.EEXIST: (
        "Two files have one name on the target disk",
        "It does not tell upper from lower case; rename one of them or choose another disk",
    ),
}


def no_room(out: Path, needed: int, free: int | None) -> DiskSpaceError:
    return DiskSpaceError(
        "There is not enough room on the target disk",
        file=out,
        expected=f"{_size(needed)} free ({needed} bytes)",
        found="less than that" if free is None else f"{_size(free)} ({free} bytes)",
        advice="Free some space or choose another disk; nothing of the release was kept",
    )


def _size(count: int) -> str:
    """A number of bytes in the unit that suits it."""
    size, units = float(count), ["bytes", "kB", "MB", "GB", "TB"]
    while size >= 1000 and len(units) > 1:
        size /= 1000
        units.pop(0)
    return f"{size:.0f} {units[0]}" if units[0] == "bytes" else f"{size:.1f} {units[0]}"


def refusal(error: OSError, out: Path, needed: int) -> PublishError:
    """The typed error for what the target disk said; the partial folder is gone by now."""
    if error.errno in _TAKEN:
        return OutputExistsError("Something else took the output folder's name meanwhile", file=out)
    if error.errno in _NO_ROOM:
        return no_room(out, needed, None)
    problem, advice = REFUSALS.get(error.errno or 0, ("The target disk refused to write the release", "Check the disk"))
    return PublishError(problem, file=error.filename or out, found=error.strerror, advice=advice)
