"""Makes the header of a file on a server readable by a parser in another process, which sees only fetched bytes."""

from __future__ import annotations

import io
import os
import posixpath
import zipfile
from collections.abc import Iterator
from pathlib import Path

from irwm.checkpoint.remote.mirror import Mirror, mirror_of
from irwm.errors import CorruptCheckpointError

# A GGUF header with a vocabulary of 128 000 tokens has some 8 MB. How much is fetched for it, tried in this order.
PREFIXES = tuple(1 << bits for bits in (20, 23, 25, 27))
# The header before an entry's name and content in a ZIP archive, with the padding that torch.save adds.
_ENTRY_BYTES = 30 + 128
# Of an archive: the bytes of its list, the number of its entries (as `torch_parser`), and the bytes of the entries that
# are read as a whole.
_MOST_LISTED, _MOST_ENTRIES, _MOST_SMALL = 32 << 20, 200_000 + 100, 64 << 20
_SMALL = ("data.pkl", "byteorder", "version", ".format_version")


def readable_prefixes(parser: str, path: Path, size: int) -> Iterator[tuple[int, bool]]:
    """Yields how many bytes from the file's beginning another process can read, and whether these are all that it
    needs. The caller continues until the header lies within them. For a file on this machine, that is the whole file.

    Args:
        parser: "gguf_parser", or "torch_parser", which reads the list at an archive's end.

    Raises:
        RemoteError: the bytes cannot be fetched.
        CorruptCheckpointError: the archive's list cannot be read.
    """
    mirrored = mirror_of(path)
    if mirrored is None:
        yield size, True
        return
    mirror, name = mirrored
    if parser == "torch_parser":
        _fetch_archive(mirror, name, path, size)
        yield size, True
        return
    for prefix in PREFIXES:
        mirror.fetch(name, [(0, min(prefix, size))])
        yield min(prefix, size), prefix >= size or prefix == PREFIXES[-1]
        if prefix >= size:
            return


def _fetch_archive(mirror: Mirror, name: str, path: Path, size: int) -> None:
    """The list at the archive's end, the beginning of each entry, and the small entries."""
    try:
        with zipfile.ZipFile(_Stream(mirror, name, size)) as archive:
            entries = archive.infolist()
    except (zipfile.BadZipFile, zipfile.LargeZipFile, NotImplementedError, EOFError, ValueError) as error:
        raise CorruptCheckpointError(
            "The PyTorch file's ZIP archive cannot be read", file=path, found=str(error)
        ) from error
    if len(entries) > _MOST_ENTRIES:
        found = f"{len(entries)} entries"
        raise CorruptCheckpointError("The archive lists more entries than any real model has", file=path, found=found)
    ranges, small = [(0, min(size, _ENTRY_BYTES))], 0
    left = set(_SMALL)
    for entry in entries:
        length = _ENTRY_BYTES + len(entry.orig_filename.encode("utf-8", "replace"))
        last = posixpath.basename(entry.filename)
        if last in left and small + entry.file_size <= _MOST_SMALL:  # only the first of each name
            left.remove(last)
            small += entry.file_size
            length += entry.file_size
        ranges.append((entry.header_offset, min(size, entry.header_offset + length)))
    mirror.fetch(name, ranges)


class _Stream(io.RawIOBase):
    """A file of a mirror as a stream that reads a limited number of bytes."""

    def __init__(self, mirror: Mirror, name: str, size: int) -> None:
        self._mirror, self._name, self._size = mirror, name, size
        self._at = self._taken = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = max(0, offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence])
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, target: memoryview) -> int:  # type: ignore[override]
        self._taken += len(target)
        if self._taken > _MOST_LISTED:
            raise ValueError("the archive's list of entries is implausibly large")
        count = self._mirror.read(self._name, self._at, memoryview(target))
        self._at += count
        return count
