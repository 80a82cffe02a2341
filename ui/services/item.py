"""A received item: hashes a file or folder in place and files it in a case."""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path

from irwm.answers.recorded_responses import holds_responses, read_source
from irwm.checkpoint.recorded import holds_answers, read_header
from irwm.errors import AnswersFileError, IrwmError, path_from, printable
from irwm.report.items import answers_of
from storage.vault import Vault
from ui.services.filing import CaseFiling
from ui.services.request import ItemRequest
from ui.services.results import Added
from ui.services.work import Work

# Most files of one item; a person has to read the list, and a whole disk is not an item.
MOST_FILES = 5000
BLOCK_BYTES = 8 << 20
LONGEST_NAME = 200


class ItemError(IrwmError):
    """The item cannot be hashed: it is missing, unreadable, empty, or has too many files."""


def run(request: ItemRequest, vault: Vault, work: Work) -> Added:
    """Hash an item and file it.

    Raises:
        ItemError
    """
    path = path_from(request.path)
    hashed = hash_files(path, work)
    filing = CaseFiling.begin(vault, request)
    name = request.name.strip() or _own_name(path)
    added = filing.received(
        name,
        hashed,
        note=request.note,
        received_from=request.received_from,
        seen_utc=filing.seen_utc,
    )
    return {"name": name, "files": len(hashed), "bytes": sum(size for size, _ in hashed.values()), "added": added}


def _own_name(path: Path) -> str:
    """The file's or folder's name; recorded answers have the name of the model, as in reports."""
    try:
        if holds_responses(path):
            generated = read_source(path)[0]
            return printable(answers_of(generated.model, generated.endpoint), LONGEST_NAME)
        source = read_header(path).source if holds_answers(path) else None
    except AnswersFileError:  # damaged recordings are items too
        source = None
    return path.name if source is None else printable(answers_of(source.model, source.endpoint), LONGEST_NAME)


def hash_files(path: Path, work: Work) -> dict[str, tuple[int, str]]:
    """Size and SHA-256 of a file, or of every regular file below a folder, by its name within the item.

    Links inside a folder are not followed: their author decides where they lead.

    Raises:
        ItemError
    """
    work.progress(0, 0, "Listing the item's files")
    try:
        files = {path.name: path} if path.is_file() else dict(_below(path))
        total, done, found = sum(file.stat().st_size for file in files.values()), 0, {}
        for name, file in files.items():
            digest, size = hashlib.sha256(), 0
            with open(file, "rb") as stream:
                while block := stream.read(BLOCK_BYTES):
                    digest.update(block)
                    size, done = size + len(block), done + len(block)
                    work.progress(done, total, "Hashing the item")
            found[name] = (size, digest.hexdigest())
    except OSError as error:
        raise ItemError(
            "this item cannot be read",
            file=error.filename or path,
            found=error.strerror,
            advice="Check that it still exists and can be read",
        ) from error
    if not found:
        raise ItemError(
            "there are no files in this folder", file=path, advice="Choose the folder that contains the files"
        )
    return found


def _below(folder: Path) -> list[tuple[str, Path]]:
    found: list[tuple[str, Path]] = []
    for place, _, names in os.walk(folder, onerror=_raise):
        for name in names:
            file = Path(place, name)
            if stat.S_ISREG(file.lstat().st_mode):
                found.append((file.relative_to(folder).as_posix(), file))
        if len(found) > MOST_FILES:
            raise ItemError(
                "this folder contains too many files for one item",
                file=folder,
                expected=f"at most {MOST_FILES}",
                advice="Pack the files into one archive, or add parts of the folder separately",
            )
    return sorted(found)


def _raise(error: OSError) -> None:
    raise error
