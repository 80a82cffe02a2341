"""The files in a job's folder that users read: reports, receipts, the log. Each is sealed with the job's own key.

A file is either sealed as a whole, or grows by lines that are sealed one by one: `~` and base64. A line without this
prefix was printed by a library directly; the output of a dying process cannot be sealed.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from storage.encryption import Place, Sealer
from storage.errors import DamagedRecordError, JobSealedError, RecordNotFoundError, RecordValueError, StorageError
from storage.files import append_private, replace_private

ENDING = ".sealed"
MARK = b"~"
UNREADABLE = "(this line was changed after it was written)"


@dataclass(frozen=True, slots=True)
class JobFiles:
    """The files of one job, by the names under which they are downloaded.

    Attributes:
        job: the job's identifier.
        folder: where they are stored.
        sealer: None if they cannot be opened here.
        place: the place of a file's content, by its part.
    """

    job: str
    folder: Path
    sealer: Sealer | None
    place: Callable[[str], Place]

    def __contains__(self, name: object) -> bool:
        """Whether this file exists."""
        return isinstance(name, str) and self._path(name).is_file()

    def write(self, name: str, content: bytes) -> None:
        """Writes a file, or replaces one of this name; a reader sees either the old content or the new.

        Raises:
            JobSealedError, StorageError
        """
        sealed = self._require().seal(content, self.place(f"file {name}"))
        try:
            replace_private(self._path(name), sealed)
        except OSError as error:
            raise self._failed("written", name, error) from error

    def append(self, name: str, text: str) -> None:
        """Appends a piece of text to a file that grows.

        Raises:
            JobSealedError, StorageError
        """
        line = sealed_line(self._require(), self.place(f"line {name}"), text)
        try:
            append_private(self._path(name), line)
        except OSError as error:
            raise self._failed("written", name, error) from error

    def read(self, name: str) -> bytes:
        """The content of a file, or all pieces of one that grew.

        Raises:
            RecordNotFoundError: there is no such file.
            DamagedRecordError: the file was changed.
            JobSealedError, StorageError
        """
        sealer = self._require()
        try:
            content = self._path(name).read_bytes()
        except FileNotFoundError:
            raise RecordNotFoundError(f"job {self.job} has no file {name!r}") from None
        except OSError as error:
            raise self._failed("read", name, error) from error
        if not content.startswith(MARK):
            return sealer.open(content, self.place(f"file {name}"))
        pieces = self._pieces(sealer, name, content)
        if None in pieces:
            raise DamagedRecordError("jobs", self.job)
        return "".join(filter(None, pieces)).encode("utf-8")

    def pieces(self, name: str) -> list[str | None]:
        """The pieces of a file that grew, in order: None for one that was changed or, after a loss of power, cut short.
        None at all if there is no such file.

        Raises:
            JobSealedError, StorageError
        """
        sealer = self._require()
        try:
            return self._pieces(sealer, name, self._path(name).read_bytes())
        except FileNotFoundError:
            return []
        except OSError as error:
            raise self._failed("read", name, error) from error

    def _pieces(self, sealer: Sealer, name: str, content: bytes) -> list[str | None]:
        place = self.place(f"line {name}")
        # A piece that was cut short on a full disk has no end, and the next one follows it directly.
        lines = content.replace(MARK, b"\n" + MARK).splitlines()
        return [opened_line(sealer, place, line) for line in lines if line]

    def _require(self) -> Sealer:
        if self.sealer is None:
            raise JobSealedError(self.job)
        return self.sealer

    def _path(self, name: str) -> Path:
        if not name or name.startswith(".") or Path(name).name != name or not name.isprintable():
            raise RecordValueError("this is not a valid file name", found=repr(name))
        return self.folder / f"{name}{ENDING}"

    def _failed(self, done: str, name: str, error: OSError) -> StorageError:
        return StorageError(f"the job's file cannot be {done}", file=self._path(name), found=error.strerror)


def sealed_line(sealer: Sealer, place: Place, text: str) -> bytes:
    """A piece of text as one line."""
    sealed = sealer.seal(text.encode("utf-8", "backslashreplace"), place)
    return MARK + base64.b64encode(sealed) + b"\n"


def opened_line(sealer: Sealer, place: Place, line: bytes) -> str | None:
    """The text that was sealed as this line; None if it cannot be opened."""
    try:
        return sealer.open(base64.b64decode(line.removeprefix(MARK), validate=True), place).decode("utf-8")
    except (binascii.Error, DamagedRecordError):
        return None
