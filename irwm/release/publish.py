"""Publishes a release: a complete copy of a checkpoint's folder with some bytes replaced, or none.

The copy is written to `NAME.partial` next to the target; every file is hashed while it is copied, and fsynced. Then the
copy is verified, its manifest is written, and one rename makes it visible. Until then only the partial folder changes.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path

from irwm.checkpoint.files import CHUNK, FileState, changed, open_seen, read_into, require_unchanged
from irwm.checkpoint.model import Checkpoint, is_single_file
from irwm.errors import CancelledError, DiskSpaceError, OutputExistsError, PublishError
from irwm.release.cloning import WRITE_FLAGS, ClonedFrom, clone, clones_in
from irwm.release.front_matter import Rewrite
from irwm.release.manifest import MANIFEST_NAME, SIGNATURE_NAME, Manifest, format_manifest
from irwm.release.partial import PARTIAL_SUFFIX, partial_folder, require_absent, sync_folder
from irwm.release.patches import Replacement, checked_patches, overlay, replaced
from irwm.release.selection import SourceFile, select_files
from irwm.release.unmarked import RowSearch

Progress = Callable[[int, int, str], None]
# Makes the bytes of `SIGNATURE_NAME` from the release's name and the SHA-256 of each file, the manifest included.
Sign = Callable[[str, Mapping[str, str]], bytes]

# Files take whole blocks; folders and the manifest need some space as well.
_BLOCK = 4096
_RESERVE = 1024 * 1024
# Bytes after which a file is flushed to the disk while more is written, so that little is left at its end.
FLUSHED = 256 * 1024 * 1024
# The errors of a full disk.
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT}
# The errors of a rename onto a folder with content, or onto a file.
_TAKEN = {errno.ENOTEMPTY, errno.ENOTDIR}
# Other errors of the target disk, with a message and the next step.
_REFUSALS = {
    errno.EROFS: ("The target disk is read-only", "Choose another folder"),
    errno.EACCES: (
        "This user is not allowed to write there",
        "Change the folder's permissions, or choose another folder",
    ),
    errno.EPERM: (
        "This user is not allowed to write there",
        "Change the folder's permissions, or choose another folder",
    ),
    errno.ENAMETOOLONG: ("A name is longer than the target disk allows", "Choose a shorter name"),
    errno.EFBIG: (
        "A file is larger than the target disk allows",
        "Choose a disk without this limit, for example one that is not formatted as FAT",
    ),
    errno.EMFILE: ("Too many files are open", "Close other programs or raise the limit (ulimit -n)"),
    errno.ENFILE: ("Too many files are open", "Close other programs or raise the limit"),
    errno.EEXIST: (
        "Two files have the same name on the target disk",
        "The disk does not distinguish between upper and lower case. Rename one of the files, or choose another disk",
    ),
}


@dataclass(frozen=True, slots=True, eq=False)
class Published:
    """A complete release.

    Attributes:
        path: its folder.
        manifest: the SHA-256 of every file in it, as written to SHA256SUMS.
        left_out: names of the source's files that were not copied, since they are not on the list of `select_files`,
            which may hold unmarked weights or secrets; links to folders; and entries that are not regular files.
        bytes_written: size of all its files with the manifest.
        bytes_cloned: the number of these bytes that are shared with an earlier copy and took no space.
        shared: its files that equal the original's byte for byte; the next copy may be cloned from them.
        signature: SHA-256 of its signature, hex; "" if it has none.
    """

    path: Path
    manifest: Manifest
    left_out: tuple[str, ...]
    bytes_written: int
    bytes_cloned: int = 0
    shared: Mapping[str, ClonedFrom] = field(default_factory=dict, repr=False)
    signature: str = ""


@dataclass(frozen=True, slots=True)
class Preflight:
    """The requirements of a release, determined before any work starts.

    Attributes:
        path: the output folder, its parent's links resolved.
        needed, free: bytes on the target disk; needed is for all copies together.
        left_out: as `Published.left_out`.
        each: bytes of one copy.
        same: the number of these bytes that every copy shares with the original.
        clones: whether the disk allows the copies to share them; None for a single copy.
    """

    path: Path
    needed: int
    free: int
    left_out: tuple[str, ...]
    each: int
    same: int
    clones: bool | None


def preflight(source: Checkpoint, out_dir: str | Path, copies: int = 1, also: Collection[str] = ()) -> Preflight:
    """Checks that `publish` can begin: an unused name, a writable folder, enough space.

    Args:
        copies: the number of copies on the same disk.
        also: as for `publish`.

    Raises:
        OutputExistsError, DiskSpaceError, PublishError: as `publish`; no file is written.
    """
    out = _target(source, Path(out_dir))
    selection = select_files(source, also)
    touched = _embedding_files(source)
    each, same = _needed(selection.files), _room([file for file in selection.files if file.path not in touched])
    if not os.access(out.parent, os.W_OK | os.X_OK):
        problem, advice = _REFUSALS[errno.EACCES]
        raise PublishError(problem, file=out.parent, advice=advice)
    clones = clones_in(out.parent) if copies > 1 else None
    needed = each + (copies - 1) * (each - (same if clones else 0))
    try:
        _require_room(out.parent, out, needed)
        free = shutil.disk_usage(out.parent).free
    except OSError as error:
        raise _refusal(error, out, needed) from error
    return Preflight(out, needed, free, selection.left_out, each, same, clones)


def _needed(files: Sequence[SourceFile]) -> int:
    return _room(files) + _RESERVE


def _room(files: Sequence[SourceFile]) -> int:
    return sum(file.seen.size + _BLOCK - file.seen.size % _BLOCK for file in files)


def _embedding_files(source: Checkpoint) -> set[Path]:
    """The shards that a mark may change: those with the embedding, the output head, or copies of the embedding."""
    layout = source.layout
    refs = (layout.embedding, layout.head, *layout.copies)
    return {part.file for ref in refs if ref is not None for part in source.tensors[ref.name].parts}


def publish(
    source: Checkpoint,
    out_dir: str | Path,
    patches: Mapping[Path, Sequence[Replacement]],
    progress: Progress | None = None,
    verify: Callable[[Path], None] | None = None,
    cancelled: Callable[[], bool] | None = None,
    shared: Mapping[str, ClonedFrom] | None = None,
    search: RowSearch | None = None,
    also: Collection[str] = (),
    sign: Sign | None = None,
    rewrites: Mapping[str, Rewrite] | None = None,
) -> Published:
    """Writes the new folder `out_dir` as a copy of `source` with byte ranges replaced.

    Args:
        source: an opened checkpoint, a folder or a single file. For a single file, only config and
            tokenizer files next to it are copied.
        out_dir: must not exist and must not be in the source folder; its parent must exist.
        patches: for each shard, the bytes to replace, by absolute position; they must not overlap.
        progress: called with bytes done, bytes in total and the current step, at most once per 8 MiB.
        verify: called with the folder before it gets its manifest and its name; an exception aborts.
        cancelled: called once per 8 MiB; true stops the work.
        shared: `Published.shared` of an earlier copy. Identical files are cloned from it, or copied if the
            disk, the original or the earlier copy does not allow it.
        search: searches all written bytes for unmarked rows.
        also: names of source files to copy although they are not on the list of `select_files`.
        sign: makes the release's signature from the hashes that were computed while writing.
        rewrites: what to make of the content of small files, by name.

    Raises:
        OutputExistsError: the target exists, is in the source, or is being written by another process.
        DiskSpaceError: not enough space, before or during writing.
        PublishError: another error of the target disk.
        CheckpointChangedError: a file of the source changed meanwhile.
        CorruptCheckpointError: a link in the source leads out of its folder.
        ParameterError: a patch is not within a shard's tensors.
        UnmarkedCopyError: `search` found an unmarked row.
        CancelledError: stopped on request.
        Any exception of `verify` and `sign`. After all of these, the release is removed, and other files are unchanged.
    """
    out = _target(source, Path(out_dir))
    overlays = checked_patches(source, patches)
    selection = select_files(source, also)
    size = sum(file.seen.size for file in selection.files)
    rewrites = rewrites or {}
    needed = _needed(selection.files)
    meter = _Meter(size, progress, cancelled, out)
    try:
        with partial_folder(out) as partial:
            same = [file for file in selection.files if file.name not in rewrites]
            cloned = _clones(same, overlays, shared or {}, partial.path, meter)
            to_copy = [file for file in selection.files if file.name not in cloned]
            needed = _needed(to_copy)
            _require_room(partial.path, out, needed)
            written = cloned | _copies(to_copy, overlays, rewrites, partial.path, meter, search)
            _require_unchanged(selection.files)
            digests = {file.name: written[file.name].digest for file in selection.files}
            for folder in _folders(partial.path, digests):
                sync_folder(folder)
            if verify is not None:
                verify(partial.path)
            meter.poll()
            text, signature = _write_lists(partial.path, digests, out.name, sign)
            partial.publish()
    except OSError as error:
        raise _refusal(error, out, needed) from error
    return Published(
        path=out,
        manifest=Manifest(out / MANIFEST_NAME, digests),
        left_out=selection.left_out,
        bytes_written=sum(each.seen.size for each in written.values()) + len(text) + len(signature),
        bytes_cloned=sum(file.seen.size for file in cloned.values()),
        shared={
            file.name: ClonedFrom(out / file.name, written[file.name].seen, file.seen, written[file.name].digest)
            for file in selection.files
            if file.path not in overlays and file.name not in rewrites
        },
        signature=hashlib.sha256(signature).hexdigest() if signature else "",
    )


@dataclass(frozen=True, slots=True)
class _Written:
    """A file in the partial folder: its SHA-256, and its state when it was completely on the disk."""

    digest: str
    seen: FileState


def _clones(
    files: Sequence[SourceFile],
    overlays: Mapping[Path, Sequence[Replacement]],
    shared: Mapping[str, ClonedFrom],
    folder: Path,
    meter: _Meter,
) -> dict[str, _Written]:
    """Clones the files that can be cloned and returns them by name; done first, so that the space for the rest is
    known."""
    made = {}
    for file in files:
        source = shared.get(file.name)
        # If the original's file has another state than for the earlier copy, its bytes may differ.
        if source is None or file.path in overlays or source.origin != file.seen:
            continue
        meter.poll()
        seen = clone(source, _place(folder, file))
        if seen is None:
            continue
        made[file.name] = _Written(source.digest, seen)
        meter.advance(file.seen.size, f"Writing {file.name}")
    return made


def _copies(
    files: Sequence[SourceFile],
    overlays: Mapping[Path, Sequence[Replacement]],
    rewrites: Mapping[str, Rewrite],
    folder: Path,
    meter: _Meter,
    search: RowSearch | None,
) -> dict[str, _Written]:
    """Copies files, with their changes, and returns them by name."""
    made = {}
    with ThreadPoolExecutor(2, "irwm-write") as pool:
        for file in files:
            target = _place(folder, file)
            if file.name in rewrites:
                made[file.name] = _rewrite(file, target, rewrites[file.name], meter, search)
            else:
                made[file.name] = _copy(file, target, overlays.get(file.path, ()), meter, pool, search)
    return made


def _write_lists(folder: Path, digests: Mapping[str, str], name: str, sign: Sign | None) -> tuple[bytes, bytes]:
    """Writes the manifest and, if requested, the signature over it and all files; returns the bytes of both."""
    text = format_manifest(digests)
    _write_file(folder / MANIFEST_NAME, text)
    if sign is None:
        return text, b""
    signature = sign(name, {**digests, MANIFEST_NAME: hashlib.sha256(text).hexdigest()})
    _write_file(folder / SIGNATURE_NAME, signature)
    return text, signature


def _place(folder: Path, file: SourceFile) -> Path:
    target = folder / file.name
    target.parent.mkdir(parents=True, exist_ok=True)
    return target


def _target(source: Checkpoint, out_dir: Path) -> Path:
    """The output path with its parent's links resolved, checked to be unused and outside the source."""
    if out_dir.name in ("", ".."):
        raise OutputExistsError("The output folder already exists", file=out_dir, advice="Choose a new name")
    try:
        if b"\0" in os.fsencode(out_dir):
            raise ValueError("the path contains a NUL character")
        parent = out_dir.parent.resolve(strict=True)
        out = parent / out_dir.name
        inside = not is_single_file(source) and any(
            # By identity and not by name: with a bind mount or a disk that ignores case, a folder can have two names.
            os.path.samefile(folder, source.path)
            for folder in (parent, *parent.parents)
        )
        if inside:
            raise OutputExistsError(
                "The output folder is inside the model's own folder",
                file=out,
                advice="Choose a folder outside the model's folder",
            )
        require_absent(out)
    except (OSError, RuntimeError, ValueError) as error:
        raise PublishError(
            "The parent folder of the release does not exist or cannot be accessed",
            file=out_dir.parent,
            found=str(error),
            advice="Create the folder first, or choose another folder",
        ) from error
    if not parent.is_dir() or out.name.endswith(PARTIAL_SUFFIX):
        raise PublishError(
            "A folder with this name cannot be created there",
            file=out,
            expected=f"a name that does not end in {PARTIAL_SUFFIX}, in an existing folder",
            advice="Choose another name",
        )
    return out


class _Meter:
    """Counts bytes for the progress callback and checks whether to stop."""

    def __init__(self, total: int, progress: Progress | None, cancelled: Callable[[], bool] | None, out: Path) -> None:
        self._total, self._progress, self._cancelled, self._out = total, progress, cancelled, out
        self._done = self._shown = 0

    def poll(self) -> None:
        if self._cancelled is not None and self._cancelled():
            raise CancelledError("The release was stopped and its files were removed", file=self._out)

    def advance(self, count: int, what: str) -> None:
        self._done += count
        if self._progress is not None and (self._done - self._shown >= CHUNK or self._done == self._total):
            self._progress(self._done, self._total, what)
            self._shown = self._done


def _copy(
    file: SourceFile,
    target: Path,
    patches: Sequence[Replacement],
    meter: _Meter,
    pool: Executor,
    search: RowSearch | None,
) -> _Written:
    """Copies one file with its patches applied, fsynced; one piece is stored while the next is read or computed."""
    buffers = [bytearray(min(CHUNK, file.seen.size)) for _ in range(2)]
    first = 0
    with open_seen(file.path, file.seen) as reader, _Output(target, pool) as output:
        meter.poll()
        for number, begin in enumerate(range(0, file.seen.size, CHUNK)):
            if begin:
                meter.poll()
            piece = memoryview(buffers[number % 2])[: min(CHUNK, file.seen.size - begin)]
            if not replaced(len(piece), begin, patches, first):
                read_into(reader, file.path, begin, piece)
            first = overlay(piece, begin, patches, first)
            output.store(piece)
            if search is not None:
                search.check(buffers[number % 2], len(piece), begin == 0, file.path)
            meter.advance(len(piece), f"Writing {file.name}")
        return output.written()


class _Output:
    """A new file, which is hashed, written and flushed to the disk in the background.

    Args:
        target: the file; it must not exist.
        pool: two threads, one to hash and write, one to flush.
    """

    def __init__(self, target: Path, pool: Executor) -> None:
        self._pool, self._digest = pool, hashlib.sha256()
        self._storing: Future[None] | None = None
        self._flushing: Future[None] | None = None
        self._stored = self._flushed = 0
        self._descriptor = os.open(target, WRITE_FLAGS, 0o666)

    def __enter__(self) -> _Output:
        return self

    def __exit__(self, *_: object) -> None:
        # The file must not be closed while it is used.
        wait([each for each in (self._storing, self._flushing) if each is not None])
        os.close(self._descriptor)

    def store(self, piece: memoryview) -> None:
        """Begins to write the next piece; when it returns, the one before is written and its buffer is free."""
        if self._storing is not None:
            self._storing.result()
        if self._stored - self._flushed >= FLUSHED:
            if self._flushing is not None:
                self._flushing.result()
            self._flushed, self._flushing = self._stored, self._pool.submit(os.fsync, self._descriptor)
        self._storing = self._pool.submit(self._store, piece)
        self._stored += len(piece)

    def _store(self, piece: memoryview) -> None:
        self._digest.update(piece)
        _write_all(self._descriptor, piece)

    def written(self) -> _Written:
        """The file's hash and state, when it is completely on the disk."""
        for each in (self._storing, self._flushing):
            if each is not None:
                each.result()
        os.fsync(self._descriptor)
        return _Written(self._digest.hexdigest(), FileState.of(os.fstat(self._descriptor)))


def _rewrite(file: SourceFile, target: Path, rewrite: Rewrite, meter: _Meter, search: RowSearch | None) -> _Written:
    """Writes the changed content of a small file, fsynced."""
    content = rewrite(file.path)
    if search is not None:
        search.check(bytearray(content), len(content), True, file.path)
    _write_file(target, content)
    meter.advance(file.seen.size, f"Writing {file.name}")
    return _Written(hashlib.sha256(content).hexdigest(), FileState.of(os.stat(target)))


def _write_file(target: Path, content: bytes) -> None:
    writer = os.open(target, WRITE_FLAGS, 0o666)
    try:
        _write_all(writer, memoryview(content))
        os.fsync(writer)
    finally:
        os.close(writer)


def _write_all(descriptor: int, piece: memoryview) -> None:
    while piece:
        piece = piece[os.write(descriptor, piece) :]


def _folders(root: Path, names: Mapping[str, str]) -> list[Path]:
    """The folders below `root` that hold the named files, deepest first; `root` itself is synced at the end."""
    folders = {parent for name in names for parent in Path(name).parents if parent != Path(".")}
    return [root / folder for folder in sorted(folders, key=lambda folder: len(folder.parts), reverse=True)]


def _require_unchanged(files: Sequence[SourceFile]) -> None:
    """Checks the files by name once more, because only this shows that one was replaced by a rename during the copy."""
    for file in files:
        try:
            now = FileState.of(os.stat(file.path))
        except OSError as error:
            raise changed(file.path, error.strerror or "nothing") from error
        require_unchanged(file.path, file.seen, now)


def _require_room(folder: Path, out: Path, needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise _no_room(out, needed, free)


def _no_room(out: Path, needed: int, free: int | None) -> DiskSpaceError:
    return DiskSpaceError(
        "There is not enough space on the target disk",
        file=out,
        expected=f"{_size(needed)} free ({needed} bytes)",
        found="less than this" if free is None else f"{_size(free)} ({free} bytes)",
        advice="Free up some space, or choose another disk. No files of the release were kept",
    )


def _size(count: int) -> str:
    """A number of bytes in a suitable unit."""
    size, units = float(count), ["bytes", "kB", "MB", "GB", "TB"]
    while size >= 1000 and len(units) > 1:
        size /= 1000
        units.pop(0)
    return f"{size:.0f} {units[0]}" if units[0] == "bytes" else f"{size:.1f} {units[0]}"


def _refusal(error: OSError, out: Path, needed: int) -> PublishError:
    """The typed error for an error of the target disk, after the partial folder was removed."""
    if error.errno in _TAKEN:
        return OutputExistsError("Another file or folder was given the output folder's name in the meantime", file=out)
    if error.errno in _NO_ROOM:
        return _no_room(out, needed, None)
    problem, advice = _REFUSALS.get(
        error.errno or 0, ("The release could not be written to the target disk", "Check the disk")
    )
    return PublishError(problem, file=error.filename or out, found=error.strerror, advice=advice)
