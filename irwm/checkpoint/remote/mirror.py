"""A folder on this machine that represents an address; bytes are fetched before they are read for the first time.

Below the cache folder, each mirror has
    listing.json   the files as the server listed them (`Listing`)
    model/NAME/    a placeholder of each file: its size, no bytes
    data/          the bytes that were fetched, at their places in sparse files
    reads.jsonl    which ranges these are, with their SHA-256 and time
A mirror belongs to one commit, or to one version of each file. A changed file is an error, never a mixture.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from threading import Event, Lock, RLock

from filelock import FileLock, Timeout

from irwm.checkpoint.platform import ALWAYS, read_at
from irwm.checkpoint.remote.listing import Listing, RemoteFile
from irwm.errors import RemoteError

LISTING, MODEL, DATA, READS, LOCK = "listing.json", "model", "data", "reads.jsonl", "lock"
# Reads are widened to whole blocks, and ranges with a smaller gap are fetched together: a request takes about as long
# as so many bytes.
BLOCK, GAP = 64 << 10, 1 << 20
# Bytes that are written, hashed and noted together, so that a broken connection loses no more.
SEGMENT = 8 << 20
_CONNECTIONS = 4
# Bytes of one mirror, and of all. The oldest are removed when another is made, but none that was opened within a day.
MOST_OF_ONE, MOST_BYTES, _KEPT_NS = 32 << 30, 64 << 30, 24 * 3600 * 10**9
# Bytes of the disk that stay free, and seconds to wait for another process that reads the same files.
_RESERVE, _LOCK_SECONDS = 1 << 30, 3600.0
# Names of folders that are being made or removed.
_NEW, _GONE = ".new-", ".gone-"
Range = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Fetched:
    """A range of a file that was fetched.

    Attributes:
        file: its name in the listing.
        start, stop: half-open, in bytes.
        sha256: of these bytes, hex.
        utc: when they were written here, by this machine's clock.
    """

    file: str
    start: int
    stop: int
    sha256: str
    utc: str


class Mirror:
    """One mirror, opened by this process. Safe for several threads and processes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            self.listing = Listing.of_json((folder / LISTING).read_text(encoding="utf-8"))
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise removed(folder) from error
        self._numbers = {file.name: number for number, file in enumerate(self.listing.files)}
        self._have: dict[str, list[Range]] = {}
        self._noted: list[Fetched] = []
        self._seen_bytes = 0
        self._lock, self._lock_of_notes = RLock(), Lock()

    @property
    def opens(self) -> Path:
        """The folder or file to open."""
        return self.folder / MODEL / _folder_name(self.listing) / self.listing.opens

    @property
    def reads(self) -> tuple[Fetched, ...]:
        """All ranges that were fetched, also by other processes."""
        with self._lock:
            self._refresh()
            return tuple(self._noted)

    def read(self, name: str, offset: int, target: memoryview) -> int:
        """Reads bytes of a file into `target`, and fetches them before if necessary; returns how many.

        Raises:
            RemoteError: they cannot be fetched.
        """
        stop = min(offset + len(target), self._file(name).size)
        if stop <= offset:
            return 0
        self.fetch(name, [(offset, stop)])
        with self.data(name) as descriptor:
            return read_at(descriptor, target[: stop - offset], offset)

    @contextmanager
    def data(self, name: str) -> Iterator[int]:
        """A descriptor of the file's bytes; those that were not fetched are zeros."""
        try:
            descriptor = os.open(self._data_path(name), os.O_RDONLY | ALWAYS)
        except OSError as error:
            raise removed(self.folder) from error
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def fetch(self, name: str, ranges: Iterable[Range]) -> None:
        """Fetches those of the ranges that are not here yet.

        Raises:
            RemoteError: the server cannot be read, or the file changed. What arrived before is kept.
        """
        file = self._file(name)
        wanted = joined((max(0, start), min(stop, file.size)) for start, stop in ranges)
        with self._lock:
            if not self._missing(name, wanted):
                return
            self._refresh()  # another process may have fetched them
            if not self._missing(name, wanted):
                return
            try:
                with FileLock(self.folder / LOCK, timeout=_LOCK_SECONDS):
                    self._refresh()
                    self._fetch_all(file, self._missing(name, wanted))
            except Timeout as error:
                raise RemoteError(
                    "Another process has been reading the same files for a long time",
                    file=self.folder,
                    advice="Wait until that process has finished, or stop it",
                ) from error
            except OSError as error:
                raise RemoteError(
                    "The local copy of a remote file cannot be written",
                    file=self.folder,
                    found=error.strerror,
                    advice="Free up some space on this disk, or set XDG_CACHE_HOME to a folder on another disk",
                ) from error

    def _fetch_all(self, file: RemoteFile, missing: Sequence[Range]) -> None:
        blocks = ((start // BLOCK * BLOCK, min(-(-stop // BLOCK) * BLOCK, file.size)) for start, stop in missing)
        asked = joined(blocks, GAP)
        self._require_room(file, sum(stop - start for start, stop in asked))
        ended = Event()
        pool = ThreadPoolExecutor(_CONNECTIONS)
        try:
            list(pool.map(lambda each: self._fetch(file, each, ended), asked))
        finally:  # also after an error or an interrupt: no other range is begun, and begun ones end early
            ended.set()
            pool.shutdown(cancel_futures=True)
            self._refresh()

    def _require_room(self, file: RemoteFile, wanted: int) -> None:
        """Rejects ranges that do not fit on the disk, or that no model of a sensible size has."""
        used = sum(stop - start for ranges in self._have.values() for start, stop in ranges)
        free = shutil.disk_usage(self.folder).free - _RESERVE
        if used + wanted > MOST_OF_ONE or wanted > free:
            raise RemoteError(
                "There is not enough space for the data from the server",
                file=file.name,
                expected=f"at most {min(MOST_OF_ONE - used, max(0, free))} more bytes",
                found=f"{wanted} bytes",
                advice="Free up some space on this disk, or download the files and use their path",
            )

    def _file(self, name: str) -> RemoteFile:
        return self.listing.files[self._numbers[name]]

    def _data_path(self, name: str) -> Path:
        return self.folder / DATA / str(self._numbers[name])

    def _fetch(self, file: RemoteFile, part: Range, ended: Event) -> None:
        start, stop = part
        descriptor = os.open(self._data_path(file.name), os.O_WRONLY | ALWAYS)
        segment, begin = bytearray(), start
        try:
            for piece in _pieces(self.listing.scheme, file, start, stop):
                segment += piece
                if len(segment) >= SEGMENT or begin + len(segment) == stop:
                    self._keep(file.name, descriptor, begin, bytes(segment))
                    begin += len(segment)
                    segment.clear()
                if ended.is_set():
                    return
        finally:
            os.close(descriptor)

    def _keep(self, name: str, descriptor: int, start: int, content: bytes) -> None:
        """Writes a segment, then notes it, so that what is noted is on the disk."""
        _write_at(descriptor, content, start)
        os.fsync(descriptor)
        seconds = os.fstat(descriptor).st_mtime_ns // 10**9
        utc = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        digest = hashlib.sha256(content).hexdigest()
        line = json.dumps([name, start, start + len(content), digest, utc]).encode("utf-8")
        # A line before it may have been cut short, by a full disk or a loss of power.
        with self._lock_of_notes, open(self.folder / READS, "ab") as notes:
            notes.write(b"\n" + line + b"\n")

    def _refresh(self) -> None:
        """Reads the notes that were added since the last time."""
        added: dict[str, list[Range]] = {}
        with suppress(FileNotFoundError), open(self.folder / READS, "rb") as notes:
            notes.seek(self._seen_bytes)
            content = notes.read()
            whole = content[: content.rfind(b"\n") + 1]
            self._seen_bytes += len(whole)
            for line in filter(None, whole.splitlines()):
                with suppress(ValueError, TypeError):  # cut short; its bytes are fetched again
                    found = Fetched(*json.loads(line))
                    self._noted.append(found)
                    added.setdefault(found.file, []).append((found.start, found.stop))
        for name, ranges in added.items():
            self._have[name] = joined([*self._have.get(name, ()), *ranges])

    def _missing(self, name: str, wanted: Sequence[Range]) -> list[Range]:
        """The parts of ordered, disjoint ranges that are not here."""
        have, found = self._have.get(name, []), []
        for start, stop in wanted:
            for first, last in have:
                if last <= start or first >= stop:
                    continue
                if first > start:
                    found.append((start, first))
                start = last
            if start < stop:
                found.append((start, stop))
        return found


def _folder_name(listing: Listing) -> str:
    """The name of the folder that has the placeholders, as reports show it."""
    plain = re.sub(r"[^\w.@+-]", "-", listing.name)[:120].strip(".")
    return plain or "model"


def joined(ranges: Iterable[Range], gap: int = 0) -> list[Range]:
    """The union of ranges, ordered; those with at most `gap` bytes between them become one. Empty ones are left out."""
    found: list[Range] = []
    for start, stop in sorted(ranges):
        if start >= stop:
            continue
        if found and start <= found[-1][1] + gap:
            found[-1] = found[-1][0], max(found[-1][1], stop)
        else:
            found.append((start, stop))
    return found


def _write_at(descriptor: int, content: bytes, offset: int) -> None:
    view = memoryview(content)
    os.lseek(descriptor, offset, os.SEEK_SET)
    while view:
        view = view[os.write(descriptor, view) :]


def _pieces(scheme: str, file: RemoteFile, start: int, stop: int) -> Iterator[bytes]:
    # Imported when bytes are fetched: the clients take half a second, and local checkpoints need none.
    from irwm.checkpoint.remote import store, web
    from irwm.checkpoint.remote.address import HUB, STORES

    if scheme in STORES:
        return store.pieces(scheme, file, start, stop)
    return web.pieces(file, start, stop, hub=scheme == HUB)


def mirrors() -> Path | None:
    """The folder of all mirrors, in the user's cache; None for a user without a home."""
    # As for fingerprints: relative paths are ignored, as the specification of these folders requires.
    return _real(os.environ.get("XDG_CACHE_HOME", ""))


@lru_cache(maxsize=8)  # one for each value of the variable
def _real(cache: str) -> Path | None:
    try:
        base = Path(cache) if os.path.isabs(cache) else Path.home() / ".cache"
    except RuntimeError:
        return None
    # The whole path: checkpoints are opened by paths without links, and any part of this one may be a link.
    return Path(os.path.realpath(base / "irwm" / "mirrors"))


def mirror_of(path: str | Path) -> tuple[Mirror, str] | None:
    """The mirror that a path is in, and the file's name in its listing; None for any other path."""
    root, text = mirrors(), os.fspath(path)
    if root is None or not text.startswith(f"{root}{os.sep}"):
        return None
    parts = Path(text).relative_to(root).parts
    if len(parts) < 4 or parts[1] != MODEL:
        return None
    return opened(root / parts[0]), "/".join(parts[3:])


def bytes_read(path: str | Path) -> int:
    """Bytes of the files at a path that were fetched from their server; 0 for files of this machine."""
    found = mirror_of(Path(path) / "any") or mirror_of(path)
    return 0 if found is None else sum(each.stop - each.start for each in found[0].reads)


def discard(path: str | Path) -> None:
    """Removes the mirror that a path is in, unless another process reads it."""
    found = mirror_of(Path(path) / "any") or mirror_of(path)
    if found is not None:
        with suppress(OSError, Timeout), FileLock(found[0].folder / LOCK, timeout=0):
            _remove(found[0].folder)


def opened(folder: Path) -> Mirror:
    """The mirror in a folder.

    Raises:
        RemoteError: it was removed.
    """
    try:
        state = os.stat(folder / DATA)
    except OSError as error:
        raise removed(folder) from error
    # Another one may have been made in its place, with other bytes present.
    return _shared(folder, state.st_ino, state.st_mtime_ns)


@lru_cache(maxsize=64)  # threads must share its lock
def _shared(folder: Path, inode: int, made_ns: int) -> Mirror:
    return Mirror(folder)


def removed(folder: Path) -> RemoteError:
    return RemoteError(
        "The local copy of the remote files was removed",
        file=folder,
        advice="Enter the address again to reread the files",
    )


def made(listing: Listing, root: Path | None = None) -> Mirror:
    """The mirror of a listing, new or from before.

    Raises:
        RemoteError: there is no folder for it, or it cannot be written.
    """
    root = root or mirrors()
    if root is None:
        raise RemoteError("There is no cache folder for remote files", advice="Set XDG_CACHE_HOME")
    folder = root / hashlib.sha256(listing.to_json().encode("utf-8")).hexdigest()[:32]
    try:
        if not (folder / LISTING).exists():
            root.mkdir(mode=0o700, parents=True, exist_ok=True)
            _make_room(root)
            _write_new(listing, root, folder)
        with suppress(OSError):  # a cache that cannot be written has what was read before
            os.utime(folder / LISTING)
    except OSError as error:
        raise RemoteError(
            "The local folder for remote files is not writable", file=folder, found=error.strerror
        ) from error
    return opened(folder)


def _write_new(listing: Listing, root: Path, folder: Path) -> None:
    partial = Path(tempfile.mkdtemp(prefix=_NEW, dir=root))
    try:
        model, data = partial / MODEL / _folder_name(listing), partial / DATA
        model.mkdir(parents=True)
        data.mkdir()
        for number, file in enumerate(listing.files):
            place = model.joinpath(*file.name.split("/"))
            place.parent.mkdir(parents=True, exist_ok=True)
            for path in (place, data / str(number)):
                with open(path, "xb") as empty:
                    empty.truncate(file.size)
        (partial / LISTING).write_text(listing.to_json(), encoding="utf-8")
        try:
            os.rename(partial, folder)
        except OSError:
            if (folder / LISTING).exists():
                return  # another process was first
            _remove(folder)  # the remains of one that was half removed
            os.rename(partial, folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _remove(folder: Path) -> None:
    """Removes a mirror. Its name is free at once, and a kill leaves nothing that looks like a mirror."""
    gone = Path(tempfile.mkdtemp(prefix=_GONE, dir=folder.parent))
    os.rename(folder, gone / folder.name)
    shutil.rmtree(gone, ignore_errors=True)


def _make_room(root: Path) -> None:
    """Removes the mirrors that were not opened for the longest time, until the rest is below the limit."""
    found = []
    for folder in root.iterdir():
        if folder.name.startswith(_GONE):
            shutil.rmtree(folder, ignore_errors=True)  # a process was killed while it removed it
            continue
        with suppress(OSError):
            used = sum(file.stat().st_blocks * 512 for file in (folder / DATA).iterdir())
            found.append(((folder / LISTING).stat().st_mtime_ns, used, folder))
    total = sum(used for _, used, _ in found)
    newest = max((opened for opened, *_ in found), default=0)
    for opened, used, folder in sorted(found):
        if total <= MOST_BYTES or newest - opened < _KEPT_NS:
            return
        with suppress(OSError, Timeout), FileLock(folder / LOCK, timeout=0):
            _remove(folder)
            total -= used
