"""What kind of disk a file lies on, as Linux says it (proc(5), mountinfo); elsewhere nothing is known."""

from __future__ import annotations

import os
import re
from functools import lru_cache
from pathlib import Path

# File systems of this machine's own disks, on which the kernel writes the time of a change itself. Left out: images
# that bring their times with them (squashfs, ISO 9660), programs that answer for a disk (FUSE), other machines (NFS),
# and memory (tmpfs), where a file that is mapped can change for ever without a new time.
_OWN_DISKS = frozenset({"ext2", "ext3", "ext4", "xfs", "btrfs", "bcachefs", "zfs", "f2fs"})
_MOUNTS, _BOOT = Path("/proc/self/mountinfo"), Path("/proc/sys/kernel/random/boot_id")


def keeps_change_times(file: str | Path, mounts: str | None = None) -> bool:
    """Whether the file lies on a disk of this machine that is mounted for writing, so that its time of change (ctime)
    is when this machine changed it.

    Args:
        mounts: the text of mountinfo; the system's if None.
    """
    if mounts is None:
        try:
            mounts = _MOUNTS.read_text(encoding="utf-8", errors="surrogateescape")
        except OSError:
            return False
    path, longest, found = os.path.realpath(file), -1, False
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        fields, kind = before.split(" "), after.split(" ")
        if len(fields) < 6 or len(kind) < 3:
            continue
        point = re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), fields[4])
        below = path == point or path.startswith(point.rstrip("/") + "/")
        if below and len(point) >= longest:  # of two at one place the later one lies on top
            writable = "rw" in fields[5].split(",") and "rw" in kind[2].split(",")
            longest, found = len(point), kind[0] in _OWN_DISKS and writable
    return found


@lru_cache(maxsize=1)
def boot_id() -> str:
    """What tells this start of the machine from every other; empty where the system does not say."""
    try:
        return _BOOT.read_text(encoding="ascii").strip()
    except OSError:
        return ""
