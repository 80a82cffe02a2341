"""Fingerprints that this user's machine has computed: a large original is hashed once and not for every suspect.

What is kept, in the user's cache folder, is a SHA-256 under the digest of the file's state: device, inode, size, times
of the last write and of the last change, and where in it the tensor lies. The time of change is the kernel's own; no
program sets it, as programs do the other. Whoever can write to this folder or set the clock back can as well replace
this program (docs/security.md). Where a system keeps no such time nothing is remembered.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from irwm.checkpoint.files import FileState
from irwm.checkpoint.platform import FOLDERS_OPEN
from irwm.checkpoint.tensors import PackedTensor, Tensor, parameters_of

# Below this size hashing takes no time worth a file.
LEAST_BYTES = 64 << 20
# A file that changed this lately (in ns) when its hashing began may have changed once more within one tick of the clock
# that its state tells. What the clock says is asked of the file system, by the time of a new file.
LATELY = 3_000_000_000
MOST_REMEMBERED = 1024
_DIGEST = re.compile(rb"[0-9a-f]{64}\n")


def fingerprint_of(tensor: Tensor, hashed: Callable[[], str]) -> str:
    """What `hashed` says of a stored tensor, or said of it before.

    Args:
        hashed: reads all of the tensor; hex SHA-256.
    """
    folder = _folder()
    if not FOLDERS_OPEN or tensor.nbytes < LEAST_BYTES or folder is None:
        return hashed()
    before = _state_of(tensor)
    if before is None:
        return hashed()
    state, changed = before
    known = _recall(folder / state)
    if known is not None:
        return known
    new = _new_file(folder)
    if new is None:
        return hashed()
    file, now = new
    try:
        found = hashed()
        if now - changed >= LATELY and _state_of(tensor) == before:
            with suppress(OSError):  # no room in the cache
                file.write_bytes(found.encode("ascii") + b"\n")
                os.replace(file, folder / state)
        return found
    finally:
        file.unlink(missing_ok=True)


def _state_of(tensor: Tensor) -> tuple[str, int] | None:
    """What tells this state of a stored tensor from every other one, as a hex digest, and when it was last changed;
    None where a file is not what it was when it was opened."""
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
    text = parameters_of(parts=parts, dtype=tensor.dtype, shape=list(tensor.shape), recipe=recipe)
    return hashlib.sha256(b"irwm/v1/remembered\0" + text).hexdigest(), changed


def _recall(file: Path) -> str | None:
    """The fingerprint in a file that only this user can have written; None where there is none."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        status = os.fstat(descriptor)
        ours = status.st_uid == os.geteuid() and not status.st_mode & 0o022
        content = os.read(descriptor, 66) if ours else b""
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return content.decode("ascii").strip() if _DIGEST.fullmatch(content) else None


def _new_file(folder: Path) -> tuple[Path, int] | None:
    """An empty file in the cache and its time in ns, which is now; the oldest make room."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
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
        cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        return Path(cache) / "irwm" / "fingerprints"
    except RuntimeError:  # a user without a home
        return None
