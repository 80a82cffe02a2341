"""A cache of fingerprints for this user and machine: a large original is hashed once and not for each suspect.

A detection at 8B geometry takes 2.7 s with this and 3.5 s without (docs/speed); the goal is 3 s.

The user's cache folder stores each SHA-256 under the digest of the file's state: device, inode, size, times of the last
write and of the last change, the tensor's position in the file, and the boot of the machine. The kernel sets the time
of the last change, and programs cannot. It is therefore trusted only on disks where the kernel maintains it
(`keeps_change_times`), until the next boot. Anyone who can write to this folder or set the clock back could also
replace this program (docs/security.md).
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from irwm.checkpoint.files import FileState
from irwm.checkpoint.tensors import PackedTensor, Tensor, parameters_of

# Below this size, hashing is too fast to need a cache.
LEAST_BYTES = 64 << 20
# A file that changed this recently (in ns) before hashing may change again without a new time: within one tick of the
# clock, or through a memory mapping, whose changes get their time when they are written to the disk, after 35 seconds
# by Linux's defaults. The present time is the file system's, taken from a new file.
LATELY = 45_000_000_000
MOST_REMEMBERED = 1024
# File systems on this machine's own disks, where the kernel writes the time of a change itself. Excluded: images with
# stored times (squashfs, ISO 9660), file systems in user space (FUSE), other machines (NFS), and memory (tmpfs), where
# a mapped file can change at any time without a new time of change.
_OWN_DISKS = frozenset({"ext2", "ext3", "ext4", "xfs", "btrfs", "bcachefs", "zfs", "f2fs"})
_MOUNTS, _BOOT = Path("/proc/self/mountinfo"), Path("/proc/sys/kernel/random/boot_id")
_ENTRY = re.compile(rb"([0-9a-f]{64}) ([0-9a-f]{64})\n")


def fingerprint_of(tensor: Tensor, hashed: Callable[[], str], kind: bytes) -> str:
    """The result of `hashed` for a stored tensor, computed now or taken from the cache.

    Args:
        hashed: reads all of the tensor; hex SHA-256.
        kind: what is hashed in addition to the tensor, so that different ways of hashing do not share an entry.
    """
    folder = _folder()
    if tensor.nbytes < LEAST_BYTES or folder is None or not boot_id():
        return hashed()
    if not all(keeps_change_times(part.file) for part in tensor.parts):
        return hashed()
    before = _state_of(tensor, kind)
    if before is None:
        return hashed()
    state, changed = before
    known = _recall(folder, state)
    if known is not None:
        return known
    new = _new_file(folder)
    if new is None:
        return hashed()
    file, now = new
    try:
        found = hashed()
        if now - changed >= LATELY and _state_of(tensor, kind) == before:
            with suppress(OSError):  # no space in the cache
                file.write_bytes(f"{state} {found}\n".encode("ascii"))
                os.replace(file, folder / state)
        return found
    finally:
        file.unlink(missing_ok=True)


def _state_of(tensor: Tensor, kind: bytes) -> tuple[str, int] | None:
    """A hex digest of a stored tensor's state, and the time of its last change; None where a file changed after it was
    opened."""
    parts, changed = [], 0
    for part in tensor.parts:
        try:
            status = os.stat(part.file)
        except OSError:
            return None
        if FileState.of(status) != part.seen:
            return None
        times = (status.st_mtime_ns, status.st_ctime_ns)
        parts.append([status.st_dev, status.st_ino, status.st_size, *times, part.start, part.stop, part.dtype])
        changed = max(changed, *times)
    recipe = tensor.recipe.hex() if isinstance(tensor, PackedTensor) else ""
    text = parameters_of(parts=parts, dtype=tensor.dtype, shape=list(tensor.shape), recipe=recipe, boot=boot_id())
    return hashlib.sha256(b"irwm/v1/remembered\0" + kind + b"\0" + text).hexdigest(), changed


def _recall(folder: Path, state: str) -> str | None:
    """The cached fingerprint of this state, from a file that only this user can have written; None if not cached."""
    if not _is_ours(folder):
        return None
    try:
        descriptor = os.open(folder / state, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        status = os.fstat(descriptor)
        ours = status.st_uid == os.geteuid() and not status.st_mode & 0o022
        content = os.read(descriptor, 131) if ours else b""
    except OSError:
        return None
    finally:
        os.close(descriptor)
    entry = _ENTRY.fullmatch(content)
    # The state is also in the content, so that a renamed file is not used for another state.
    return entry[2].decode("ascii") if entry and entry[1] == state.encode("ascii") else None


def _is_ours(folder: Path) -> bool:
    """Whether it is a real folder that only this user can change."""
    try:
        status = os.lstat(folder)
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o022


def _new_file(folder: Path) -> tuple[Path, int] | None:
    """An empty file in the cache and its time in ns, which is the present time; the oldest entries are removed."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not _is_ours(folder):
            return None
        kept = sorted(folder.iterdir(), key=lambda file: file.stat().st_mtime_ns)
        for file in kept[: max(0, len(kept) - MOST_REMEMBERED + 1)]:
            file.unlink(missing_ok=True)
        descriptor, name = tempfile.mkstemp(dir=folder)  # mode 0600
        try:
            return Path(name), os.fstat(descriptor).st_mtime_ns
        finally:
            os.close(descriptor)
    except OSError:
        return None


def _folder() -> Path | None:
    try:
        cache = Path(os.environ.get("XDG_CACHE_HOME", ""))
        # The specification of these folders requires that relative paths are ignored.
        return (cache if cache.is_absolute() else Path.home() / ".cache") / "irwm" / "fingerprints"
    except RuntimeError:  # a user without a home
        return None


def keeps_change_times(file: str | Path, mounts: str | None = None) -> bool:
    """Whether the file is on a disk of this machine that is mounted for writing, so that its time of change (ctime) is
    the time at which this machine changed it.

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
        if below and len(point) >= longest:  # of two mounts at one place, the later one is visible
            writable = "rw" in fields[5].split(",") and "rw" in kind[2].split(",")
            longest, found = len(point), kind[0] in _OWN_DISKS and writable
    return found


@lru_cache(maxsize=1)  # it cannot change while a process runs
def boot_id() -> str:
    """The id of this boot of the machine; empty where the system has none."""
    try:
        return _BOOT.read_text(encoding="ascii").strip()
    except OSError:
        return ""
