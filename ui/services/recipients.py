"""Lists of recipients: names one per line, or a table from a spreadsheet."""

from __future__ import annotations

import csv
import io
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from irwm.errors import IrwmError, holds_controls, printable
from irwm.keys.key import MAX_NAME

MOST_RECIPIENTS = 100_000
MAX_NOTE = 500
# A hundred thousand names of full length, each with a note.
MAX_LIST_BYTES = 64 * 1024 * 1024
SEPARATORS = {",": "comma", ";": "semicolon", "\t": "tab"}
NAME_COLUMNS = ("recipient", "recipients", "name")
NOTE_COLUMNS = ("note", "notes")
# Characters of the key's fingerprint in a folder's name.
_MARK = 12
# Invisible joiners, which Persian and many Indian names need.
_JOINERS = "\u200c\u200d"
_SHOWN = 60


class RecipientListError(IrwmError):
    """A list of recipients that cannot be used; the message names the first faulty line."""


@dataclass(frozen=True, slots=True)
class Recipient:
    """The recipient of a copy: the name that the key records, and the officer's note."""

    name: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Fault:
    """The error in one line of a list.

    Attributes:
        line: counted from 1; if a cell spans lines, its last one.
        value: the name in question, or the line.
        what: the reason, as the end of a sentence that begins with the value.
    """

    line: int
    value: str
    what: str

    @property
    def text(self) -> str:
        """The fault in one line, safe to show."""
        return f"line {self.line}: {printable(self.value, _SHOWN) or 'the name'} {self.what}"


@dataclass(frozen=True, slots=True)
class RecipientList:
    """A parsed list.

    Attributes:
        recipients: the valid lines, in order.
        faults: the other lines, in order.
        table: how a table was read, in words; empty for a plain list of names.
    """

    recipients: tuple[Recipient, ...]
    faults: tuple[Fault, ...] = ()
    table: str = ""

    def require(self) -> tuple[Recipient, ...]:
        """The recipients, if the list has no errors.

        Raises:
            RecipientListError: it is empty, too long, or a line is faulty.
        """
        if self.faults:
            more = len(self.faults) - 1
            raise RecipientListError(
                "the list of recipients contains invalid lines",
                found=self.faults[0].text + (f"; other invalid lines: {more}" if more else ""),
                advice="Correct the list, then continue",
            )
        if not self.recipients:
            raise RecipientListError("there are no recipients", advice="Type or paste one name per line, or a table")
        if len(self.recipients) > MOST_RECIPIENTS:
            raise RecipientListError(
                "there are too many recipients for one list",
                expected=f"at most {MOST_RECIPIENTS}",
                found=str(len(self.recipients)),
                advice="Split the list; the later parts continue the same release",
            )
        return self.recipients


def decoded(content: bytes, file: str | Path) -> str:
    """The text of a list's file.

    Raises:
        RecipientListError: too large, or not UTF-8.
    """
    advice = "Save the list as “CSV UTF-8” in your spreadsheet program, then choose the file again"
    if len(content) > MAX_LIST_BYTES:
        raise RecipientListError(
            "this file is too large to be a list of recipients",
            file=file,
            expected=f"at most {MAX_LIST_BYTES // 1024**2} MiB",
            found=f"{len(content) // 1024**2} MiB",
        )
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise RecipientListError(
            "the list is not UTF-8 text", file=file, expected="UTF-8", found="UTF-16", advice=advice
        )
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        found = f"byte {content[error.start]:#04x} on line {line}"
        raise RecipientListError(
            "the list is not UTF-8 text", file=file, expected="UTF-8", found=found, advice=advice
        ) from error


def read_list(text: str) -> RecipientList:
    """A list as typed or pasted: names one per line, or a table whose first line names a column "recipient" or "name".

    Without a header line, every line is one name, including commas ("Example, Inc."). Blank lines are ignored.

    Raises:
        RecipientListError: not a list: a table without a header line, or a quote that never ends.
    """
    text = text.removeprefix("\ufeff")
    if len(text) > MAX_LIST_BYTES:
        raise RecipientListError("this text is too long to be a list of recipients")
    rows, table = _rows(text)
    return _checked(rows, table)


def read_file(content: bytes, file: str | Path) -> str:
    """The text of a list's file, known to be a list of names or a table with headers.

    Raises:
        RecipientListError: see `decoded` and `read_list`; also a comma-separated table without a header line, because
            in a file this is a table and not a list of names with commas.
    """
    text = decoded(content, file)
    rows, table = _rows(text)
    counts = {len(cells) for _, cells in _parsed(text, ",")}
    if not table and len(rows) > 1 and len(counts) == 1 and counts.pop() > 1:
        raise _no_headers("comma", file)
    return text


def same_name(name: str) -> str:
    """A form in which equivalent names are equal: without case, joiners and different encodings of accents."""
    bare = name.translate(dict.fromkeys(map(ord, _JOINERS)))
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", bare).casefold())


def tidy(name: str) -> str:
    """A name as the key records it: runs of white space become one space, accents are composed."""
    return unicodedata.normalize("NFC", " ".join(name.split()))


def checked(pairs: Iterable[Sequence[str]]) -> tuple[Recipient, ...]:
    """Recipients from (name, note) pairs of any source.

    Raises:
        RecipientListError: see `RecipientList.require`.
    """
    return _checked([_Row(n, *(*pair, "")[:2]) for n, pair in enumerate(pairs, start=1)], "").require()


def folder_name(commitment: str) -> str:
    """The name of a recipient's folder: the beginning of their key's fingerprint, without any part of their name.

    So a list of the folders reveals no names; the receipts and the vault show whose copy each is. The name is the same
    for the same key, so that an interrupted run finds its folders again.
    """
    return f"copy-{commitment[:_MARK]}"


@dataclass(frozen=True, slots=True)
class _Row:
    """A line that is not blank: the text in the places of name and note, and the error in the line."""

    line: int
    name: str
    note: str = ""
    wrong: str = ""


def _rows(text: str) -> tuple[list[_Row], str]:
    """Every line that is not blank, and how a table was read ("" for a plain list)."""
    first = next((line for line in text.splitlines() if line.strip()), "")
    if re.fullmatch(r"\s*sep=.\s*", first, re.IGNORECASE):  # a spreadsheet declares its separator this way
        text = text[text.index(first) + len(first) :]
    best: tuple[int, int, str, list[str]] | None = None
    for separator in SEPARATORS:
        names = [cell.strip().casefold() for cell in next(_parsed(text, separator), (0, []))[1]]
        if not any(name in names for name in NAME_COLUMNS):
            continue
        # If only the names' column is known, the separator that gives more columns is used.
        known = 1 + any(name in names for name in NOTE_COLUMNS)
        if best is None or (known, len(names)) > best[:2]:
            best = known, len(names), separator, names
    return _table(text, *best[2:]) if best else (_plain(text), "")


def _table(text: str, separator: str, names: list[str]) -> tuple[list[_Row], str]:
    at = next(names.index(name) for name in NAME_COLUMNS if name in names)
    note_at = next((names.index(name) for name in NOTE_COLUMNS if name in names), None)
    rows = []
    parsed = _parsed(text, separator, strict=True)  # a quote that is never closed would swallow the lines below it
    next(parsed)
    for line, cells in parsed:
        while len(cells) > len(names) and not cells[-1].strip():
            cells.pop()
        wrong = (
            "is on a line with more cells than the header; put names that contain commas in quotation marks"
            if len(cells) > len(names)
            else ""
        )
        cells += [""] * (len(names) - len(cells))
        rows.append(_Row(line, cells[at], cells[note_at] if note_at is not None else "", wrong))
    said = f"a table ({SEPARATORS[separator]})" if len(names) > 1 else "a table with one column"
    notes = f", notes from “{names[note_at]}”" if note_at is not None else ""
    return rows, f"{said}: names from “{names[at]}”{notes}"


def _plain(text: str) -> list[_Row]:
    for separator in ("\t", ";"):
        counts = [len(cells) for _, cells in _parsed(text, separator)]
        if counts and min(counts) > 1 and min(counts) == max(counts):
            raise _no_headers(SEPARATORS[separator])
    rows = []
    for number, line in enumerate(text.splitlines(), start=1):
        name = line.strip()
        if len(name) > 1 and name[0] == name[-1] == '"':  # one quoted cell
            name = name[1:-1].replace('""', '"')
        if name:
            rows.append(_Row(number, name))
    return rows


def _parsed(text: str, separator: str, strict: bool = False) -> Iterator[tuple[int, list[str]]]:
    """Line number and cells of every row that is not empty."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=strict)
    try:
        for cells in reader:
            if any(cell.strip() for cell in cells):
                yield reader.line_num, cells
    except csv.Error as error:
        raise RecipientListError(
            "the table cannot be read",
            found=f"line {reader.line_num}: {error}",
            advice="Look for an opening quotation mark without a closing one",
        ) from error


def _no_headers(separator: str, file: str | Path | None = None) -> RecipientListError:
    return RecipientListError(
        "this table has no header for its name column",
        file=file,
        expected="a first line with “recipient” or “name” above the names, and “note” above the notes, if any",
        found=f"columns separated by a {separator}, without a header line",
        advice="Add the header line, or keep only the names",
    )


def _checked(rows: Iterable[_Row], table: str) -> RecipientList:
    recipients, faults, seen = [], [], dict[str, int]()
    for row in rows:
        name, note = tidy(row.name), " ".join(row.note.split())
        identity = same_name(name)
        wrong = row.wrong or _wrong(name, note)
        if not wrong and identity in seen:
            wrong = f"is the same recipient as on line {seen[identity]}"
        if wrong:
            faults.append(Fault(row.line, name, wrong))
            continue
        seen[identity] = row.line
        recipients.append(Recipient(name, note))
    return RecipientList(tuple(recipients), tuple(faults), table)


def _wrong(name: str, note: str) -> str:
    if not name:
        return "is missing"
    if len(name) > MAX_NAME:
        return f"is too long: {len(name)} characters; a key can store at most {MAX_NAME}"
    if holds_controls(name) or not name.translate(dict.fromkeys(map(ord, _JOINERS))).isprintable():
        return "contains an invisible character"
    if len(note) > MAX_NOTE:
        return f"has a note of {len(note)} characters; at most {MAX_NOTE} are allowed"
    return ""
