"""The list of a release's files with their SHA-256, in the format of the `sha256sum` tool.

Anyone can check a release with `sha256sum -c SHA256SUMS`, without this program and long after the release.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from irwm.checkpoint.files import (
    changed,
    digest_of,
    open_regular,
    read_small,
    require_inside,
    resolved,
    unreadable,
)
from irwm.errors import CancelledError, CheckpointChangedError, CorruptCheckpointError, NotACheckpointError

MANIFEST_NAME = "SHA256SUMS"
# The release's signature, which covers the manifest and so cannot be listed in it (`irwm.attestation.model_signature`).
SIGNATURE_NAME = "model.sig"
STALE_SIGNATURE = f"{SIGNATURE_NAME} of the original was not copied, because it is not valid for the release"
# Locked while a release is written. It remains only if the machine stopped just after the rename.
LOCK_NAME = ".irwm-lock"
_MAX_MANIFEST_BYTES = 16 * 1024 * 1024
_LINE = re.compile(rb"(\\?)([0-9a-f]{64}) [ *]([^\n]+)")
# The characters that sha256sum escapes in a name (since version 9 the carriage return too); the line then begins with a
# backslash.
_ESCAPES = {b"\\": b"\\\\", b"\n": b"\\n", b"\r": b"\\r"}
_UNESCAPES = {escaped: plain for plain, escaped in _ESCAPES.items()}
# A link out of the folder, a FIFO, an unreadable file, or one that was edited meanwhile; but not a failing disk.
_NOT_AS_PUBLISHED = (CorruptCheckpointError, NotACheckpointError, CheckpointChangedError)


@dataclass(frozen=True, slots=True)
class Manifest:
    """SHA-256 sums of a folder's files.

    Attributes:
        path: the SHA256SUMS file.
        files: name relative to the folder, with / between parts, to lower-case hex digest.
    """

    path: Path
    files: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ManifestCheck:
    """Differences between a folder and its manifest, as sorted names relative to the folder.

    Attributes:
        missing: listed, but missing.
        extra: present, but not listed; without the release's signature.
        changed: present and listed, but with other content, or no longer a readable file of the folder.
    """

    missing: tuple[str, ...]
    extra: tuple[str, ...]
    changed: tuple[str, ...]

    @property
    def ok(self) -> bool:
        return not (self.missing or self.extra or self.changed)


def format_manifest(files: Mapping[str, str]) -> bytes:
    """The text of a manifest, sorted by name."""
    return b"".join(_line(name, digest) for name, digest in sorted(files.items()))


def _line(name: str, digest: str) -> bytes:
    raw = os.fsencode(name)
    escaped = re.sub(rb"[\\\n\r]", lambda match: _ESCAPES[match[0]], raw)
    return (b"\\" if escaped != raw else b"") + digest.encode("ascii") + b"  " + escaped + b"\n"


def read_manifest(path: str | Path) -> Manifest:
    """Reads a manifest, given its path or that of its folder.

    Raises:
        NotACheckpointError: it does not exist or is unreadable.
        CorruptCheckpointError: it is too large, a line has the wrong format, a name occurs twice, or a name
            leads out of the folder.
    """
    path = Path(path)
    if os.path.isdir(path):
        path = path / MANIFEST_NAME
    content = read_small(path, _MAX_MANIFEST_BYTES, "manifest")
    files: dict[str, str] = {}
    for number, line in enumerate(content.removesuffix(b"\n").split(b"\n") if content else [], 1):
        match = _LINE.fullmatch(line)
        name = os.fsdecode(_unescape(match[3]) if match[1] else match[3]) if match else ""
        pieces = PurePosixPath(name).parts
        if match is None or not pieces or name.startswith("/") or ".." in pieces or "\0" in name or name in files:
            raise CorruptCheckpointError(
                f"Line {number} of the manifest is not a digest followed by the unique name of a file in the folder",
                file=path,
                found=repr(line[:200])[2:-1],
                advice="Download the release again",
            )
        files[name] = match[2].decode("ascii")
    return Manifest(path, files)


def _unescape(name: bytes) -> bytes:
    return re.sub(rb"\\[\\nr]", lambda match: _UNESCAPES[match[0]], name)


def verify_manifest(
    folder: str | Path,
    progress: Callable[[int, int, str], None] | None = None,
    cancelled: Callable[[], bool] | None = None,
) -> ManifestCheck:
    """Compares every file of a folder with its SHA256SUMS.

    Args:
        folder: the release.
        progress: called with bytes done, bytes in total and the file's name, at most once per 8 MiB read.
        cancelled: called before each 8 MiB; true stops with CancelledError.

    Raises:
        NotACheckpointError: no folder, or no manifest in it.
        CorruptCheckpointError: the manifest itself is malformed.
        CancelledError: stopped on request.
    """
    folder = resolved(Path(folder))
    listed = read_manifest(folder / MANIFEST_NAME).files
    present = _sizes(folder)
    total = sum(size for name, size in present.items() if name in listed)
    differing, done = [], 0
    for name, digest in listed.items():
        if name not in present:
            continue

        def advance(count: int, name: str = name) -> None:
            nonlocal done
            if cancelled is not None and cancelled():
                raise CancelledError("The check was stopped", file=folder)
            done += count
            if progress is not None:
                progress(done, total, name)

        try:
            require_inside(folder / name, folder)
            same = _digest(folder / name, advance) == digest
        except _NOT_AS_PUBLISHED:
            same = False
        if not same:
            differing.append(name)
    return ManifestCheck(
        missing=tuple(sorted(set(listed) - set(present))),
        extra=tuple(sorted(set(present) - set(listed) - {SIGNATURE_NAME})),
        changed=tuple(sorted(differing)),
    )


def _digest(path: Path, advance: Callable[[int], None]) -> str:
    with open_regular(path) as (descriptor, state):
        found = digest_of(descriptor, path, 0, state.size, advance)
        if os.fstat(descriptor).st_size != state.size:
            raise changed(path, "a size that changed during the check")
    return found


def _sizes(folder: Path) -> dict[str, int]:
    """The size of every entry below `folder` that is not a folder, by relative name, without manifest and lock.

    A symbolic link to a folder counts as an entry and is not followed, so loops are impossible.
    """
    sizes: dict[str, int] = {}

    def refuse(error: OSError) -> None:
        raise unreadable(folder, error) from error

    for parent, folders, names in os.walk(folder, onerror=refuse):
        links = [name for name in folders if os.path.islink(os.path.join(parent, name))]
        for name in (*names, *links):
            path = Path(parent, name)
            try:
                status = path.stat()
                size = status.st_size if stat.S_ISREG(status.st_mode) else 0
            except OSError:
                size = 0  # a dangling link; if listed, it counts as changed
            sizes[path.relative_to(folder).as_posix()] = size
    for name in (MANIFEST_NAME, LOCK_NAME):
        sizes.pop(name, None)
    return sizes
