"""A received report, as files or as an archive, and the kind that its JSON states. Sizes are read before contents.

This module needs only Python: most files that are no report are recognised before torch is loaded.
"""

from __future__ import annotations

import copy
import os
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import IO

from irwm.canonical import MOST_JSON_BYTES, strict_json
from irwm.checkpoint.files import read_small
from irwm.errors import IrwmError, printable
from irwm.report.checks import Check, listed, said

# Names of this program's schemas begin with it.
OURS = "irwm"
_MOST_NAME = 80
# The signature file's ending (`irwm.report.signature_file`).
SIGNATURE = ".signature.json"
# The schema of a review (`irwm.report.review`).
REVIEW = "irwm-review"
# The files of a report that are signed.
PARTS = (".json", ".html", ".pdf")
ENDINGS = (SIGNATURE, *PARTS)
# Bytes of a page apart from the document (mostly plotly.js and fonts), and the most of the rest in lengths of the JSON.
_PAGE_BYTES, _PAGE_TIMES = 12 << 20, 4
_MOST_PAGE_BYTES = 64 << 20
_MOST_SIGNATURE_BYTES = 1 << 20
# An archive of a report has four files, of a review and its report eight. The packing program may add its own notes.
# `zipfile` reads the complete list of them.
ARCHIVE = ".zip"
_MOST_ENTRIES, _MOST_LISTING = 32, 1 << 14
_MOST_ARCHIVE_BYTES = MOST_JSON_BYTES + 2 * _MOST_PAGE_BYTES
_END = struct.Struct("<4s4H2LH")
_END_OF_LONG = b"PK\x06\x07"
AGAIN = "Ask the sender for the archive again"
# Of a folder; one with the reports of a sweep has four for each suspect.
_MOST_FILES = 100_000


@dataclass(frozen=True, slots=True)
class Received:
    """The files of one report.

    Attributes:
        folder, name: where they are, and their common name.
        parts: their bytes by ending.
        unread: why others were not read, by ending.
        schema: the name of the schema that the JSON states; "" if there is no JSON, or it is refused.
        refused: why the JSON is not a document of this program; "" if it may be one.
        source: where other reports are looked for.
    """

    folder: Path
    name: str
    parts: Mapping[str, bytes] = field(repr=False)
    unread: Mapping[str, str]
    schema: str = ""
    refused: str = ""
    source: _Files | None = field(default=None, repr=False)

    def next_to(self, name: str) -> Received | Check:
        """The report with this common name in the same folder or archive."""
        return _received(self.source.named(name) if self.source is not None else _Files(self.folder, name))

    def file(self, ending: str) -> str:
        return f"{self.name}{ending}"

    def hopeless(self) -> Check | None:
        """Why the report cannot be checked: its numbers cannot be read, and there is no signature over its files."""
        if self.schema or _is_json(self.parts.get(SIGNATURE)):
            return None
        json_name, signature = printable(self.file(".json")), self.unread.get(SIGNATURE)
        if why := self.refused or self.unread.get(".json"):
            return Check("document", False, f"{json_name} is not a report: {why}")
        if SIGNATURE in self.parts or signature:
            why = signature or "it is not JSON"
            return Check("signature", False, f"{printable(self.file(SIGNATURE))} is not a signature: {why}")
        what = f"{json_name} is missing, so there is nothing to check"
        return Check("document", None, what, asked=True)


class _Files:
    """A report's files in a folder."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.name = folder, name

    def named(self, name: str) -> _Files:
        """The files of another report in the same place."""
        found = copy.copy(self)
        found.name = name
        return found

    def read(self, ending: str, most: int) -> bytes | None:
        """The file's bytes; None if there is no such file.

        Raises:
            IrwmError: it cannot be read, or is larger.
        """
        file = self.folder / f"{self.name}{ending}"
        return read_small(file, most, "report") if file.exists() or file.is_symlink() else None


class _Archive(_Files):
    """A report's files in one ZIP.

    Raises:
        ValueError: it is no archive of one report.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._entries: dict[str, zipfile.ZipInfo] = {}
        with path.open("rb") as file:
            _look_at_the_end(file)
            with zipfile.ZipFile(file) as archive:
                entries = archive.infolist()
                if entries and all(entry.header_offset for entry in entries):
                    raise ValueError("it contains data before its first file")
                for entry in entries:
                    base = entry.filename.rpartition("/")[2]
                    if not base or base.startswith("._") or base == ".DS_Store":  # a folder, or what macOS adds
                        continue
                    if not report_name(base):  # a person who unpacks it could mistake it for the report's page
                        raise ValueError(f"it also contains {printable(base, 80)}")
                    if base in self._entries:
                        raise ValueError(f"it contains two files named {printable(base)}")
                    self._entries[base] = entry
        names = sorted({report_name(base) for base in self._entries})
        super().__init__(path.parent, names[0] if names else "")
        self.name = _only(names, self)
        if not self.name:
            raise ValueError(f"it contains {len(names)} reports: {listed(names)}" if names else "it contains no report")

    def read(self, ending: str, most: int) -> bytes | None:
        entry = self._entries.get(f"{self.name}{ending}")
        if entry is None:
            return None
        name, size = printable(entry.filename), entry.file_size
        if size > most:
            raise IrwmError(
                f"{name} in the archive is far larger than in any real report",
                expected=f"at most {most} bytes",
                found=f"{size} bytes",
                advice=AGAIN,
            )
        if entry.flag_bits & 1 or entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise IrwmError(
                f"{name} in the archive is encrypted or uses an unsupported compression method",
                advice="Unpack the archive and choose the folder",
            )
        try:
            with zipfile.ZipFile(self._path) as archive, archive.open(entry) as file:
                content = file.read(size)
            if len(content) < size:
                raise EOFError(f"{len(content)} bytes instead of the {size} stated in the list of files")
            return content
        except (OSError, EOFError, NotImplementedError, ValueError, zipfile.BadZipFile, zlib.error) as error:
            found = str(error) or type(error).__name__
            raise IrwmError(f"{name} in the archive is damaged", found=found, advice=AGAIN) from error


def _look_at_the_end(file: IO[bytes]) -> None:
    """Checks the length of the list of entries before it is read.

    Raises:
        ValueError: it is longer than that of any report, or the file does not end like a plain ZIP.
    """
    size = file.seek(0, os.SEEK_END)
    if size > _MOST_ARCHIVE_BYTES:
        raise ValueError(f"it is {size} bytes in size, but a report’s archive is at most {_MOST_ARCHIVE_BYTES}")
    file.seek(max(0, size - _END.size - 20))
    tail = file.read()
    if len(tail) < _END.size:
        raise ValueError("it is not a ZIP archive")
    mark, _, _, _, entries, listing, _, comment = _END.unpack(tail[-_END.size :])
    if mark != b"PK\x05\x06" or comment or tail.startswith(_END_OF_LONG):
        raise ValueError("it is not a ZIP archive, it contains a comment, or it is larger than 4 GB")
    if entries > _MOST_ENTRIES or listing > _MOST_LISTING:
        raise ValueError(f"its list of {entries} files is {listing} bytes long, but a report has only four files")


def receive(path: Path) -> Received | Check:
    """The report at a path, or a check that says why there is none.

    Args:
        path: of any of its files, of a folder that holds one report, or of its archive.
    """
    source = _source(path)
    return source if isinstance(source, Check) else _received(source)


def _received(source: _Files) -> Received:
    """The report with these files."""
    parts: dict[str, bytes] = {}
    unread: dict[str, str] = {}
    schema = refused = ""

    def read(ending: str, most: int) -> None:
        try:
            content = source.read(ending, most)
        except IrwmError as error:
            unread[ending] = said(error)
        else:
            parts.update({} if content is None else {ending: content})

    read(SIGNATURE, _MOST_SIGNATURE_BYTES)
    read(".json", MOST_JSON_BYTES)
    if ".json" in parts:
        try:
            schema = _schema(parts[".json"])
        except (ValueError, RecursionError) as error:
            refused = printable(str(error), 200)
    most = min(_MOST_PAGE_BYTES, _PAGE_BYTES + _PAGE_TIMES * len(parts.get(".json", b"")))
    for ending in (".html", ".pdf"):
        read(ending, most)
    return Received(source.folder, source.name, parts, unread, schema, refused, source)


def report_name(name: str) -> str:
    """The common name of a report's files: a file's name without its ending; "" for other files."""
    return next((name.removesuffix(ending) for ending in ENDINGS if name.endswith(ending)), "")


def _source(path: Path) -> _Files | Check:
    """Where the report's files are, and their common name."""
    if path.is_dir():
        names = sorted({name for name in map(report_name, _files_in(path)) if name})
        if name := _only(names, _Files(path, "")):
            return _Files(path, name)
        # A page or a PDF of another name counts: a person could mistake it for that of the report.
        several = f"the folder contains files from {len(names)} reports: {listed(names)}; choose one of them"
        return Check("files", None, several if names else "the folder contains no report", asked=True)
    if not path.is_file():
        return Check("files", None, f"there is no file named {printable(path.name)}", asked=True)
    if path.name.endswith(ARCHIVE):
        try:
            return _Archive(path)
        except (ValueError, OSError, NotImplementedError, zipfile.BadZipFile) as error:
            why = printable(str(error), 200)
            what = f"{printable(path.name)} is not a report’s archive: {why}; unpack it and choose the folder"
            return Check("files", None, what, asked=True)
    name = report_name(path.name)
    if not name:
        ends = "its name does not end in .json, .html, .pdf, .signature.json or .zip"
        return Check("files", None, f"{printable(path.name)} is not part of a report: {ends}", asked=True)
    return _Files(path.parent, name)


def _only(names: Sequence[str], source: _Files) -> str:
    """The only name, or that of a review if the other one is the report that it names; "" if it is not clear."""
    if len(names) != 2:
        return names[0] if len(names) == 1 else ""
    for name, other in (names, tuple(reversed(names))):
        try:
            document = strict_json(source.named(name).read(".json", MOST_JSON_BYTES) or b"")
            if document["schema"]["name"] == REVIEW and document["reviewed"]["json"] == f"{other}.json":
                return name
        except (IrwmError, ValueError, RecursionError, KeyError, TypeError):
            continue
    return ""


def _files_in(folder: Path) -> Iterator[str]:
    try:
        with os.scandir(folder) as entries:
            yield from (entry.name for entry in islice(entries, _MOST_FILES))
    except OSError:
        return


def _is_json(data: bytes | None) -> bool:
    try:
        return data is not None and isinstance(strict_json(data), dict)
    except (ValueError, RecursionError):
        return False


def _schema(data: bytes) -> str:
    """The name of the schema that a JSON states.

    Raises:
        ValueError, RecursionError: it is not strict JSON, is larger than any report, or states no schema.
    """
    value = strict_json(data)
    said_form = value.get("schema", value.get("format")) if isinstance(value, dict) else None
    name = said_form.get("name") if isinstance(said_form, dict) else said_form
    if not isinstance(name, str) or not name.startswith(OURS):
        raise ValueError("it does not identify itself as a report")
    return name[:_MOST_NAME]
