"""Files that are sent through the browser: suspects as uploads, reports as downloads. Other files are not moved."""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
from collections.abc import Sequence
from pathlib import Path

import gradio as gr
from gradio.context import LocalContext

from irwm.errors import IrwmError, printable
from storage.errors import RecordNotFoundError, StorageError
from storage.job_files import JobFiles
from ui.guard import OFFERED, SESSION
from ui.sessions import folder_of

RECEIVED = "received"
# The name of several files that were uploaded together, on cards and in reports.
SEVERAL = "uploaded files"
# The name of a pasted text, on cards and in reports.
PASTED = "pasted-text.txt"
# Known only to this process: see `_offered`.
_SECRET = secrets.token_bytes(32)
# A model's folder has a few files; more is a mistake.
MOST_FILES = 200


class UploadRefusedError(IrwmError):
    """The posted value is not a set of uploaded files."""


def browser_folder() -> Path:
    """The only folder that Gradio serves files from and uploads files to; private to this process."""
    return Path(os.environ["GRADIO_TEMP_DIR"]).resolve()


def receive(files: Sequence[str], home: Path) -> Path:
    """Moves uploaded files into a new folder under `home` and returns the path to open.

    For a single file, this is the file; for several, their folder. A browser does not send the folder's name.

    Raises:
        UploadRefusedError: a path was not uploaded here, two files share a name, or there are too many.
    """
    sources = uploaded(files)
    names = [printable(source.name) for source in sources]
    if len(set(names)) != len(names):
        raise UploadRefusedError("two files have the same name", found=", ".join(sorted(names)[:5]))
    target = _new_folder(home)
    if len(names) > 1:
        target /= SEVERAL
        target.mkdir(mode=0o700)
    for source, name in zip(sources, names, strict=True):
        shutil.move(source, target / name)
    return target / names[0] if len(names) == 1 else target


def receive_text(text: str, home: Path) -> Path:
    """Writes a pasted text into a new folder under `home` and returns the file's path."""
    path = _new_folder(home) / PASTED
    path.write_text(text, encoding="utf-8", errors="replace", newline="\n")
    return path


def _new_folder(home: Path) -> Path:
    folder = home / RECEIVED / secrets.token_hex(8)
    folder.mkdir(parents=True, mode=0o700)
    return folder


def uploaded(files: Sequence[str]) -> list[Path]:
    """The uploaded files in their upload folder, for files that are read at once and not stored.

    Raises:
        UploadRefusedError: a path was not uploaded here, or there are none or too many.
    """
    if not files or len(files) > MOST_FILES:
        raise UploadRefusedError(
            "the upload cannot be used", expected=f"1 to {MOST_FILES} files", found=str(len(files))
        )
    folder = browser_folder()
    sources = [Path(file) for file in files]
    for source in sources:
        # A posted form can name any path; only files in the upload folder were uploaded.
        if source.is_symlink() or not source.is_file() or not source.resolve().is_relative_to(folder):
            raise UploadRefusedError("this file was not uploaded here", file=source, advice="Enter its path instead")
    return sources


def new_offer(name: str) -> Path:
    """A path with this name in its own folder, from which the browser may fetch the file written to it."""
    return _offered(secrets.token_hex(16)) / name


def offer(content: bytes, name: str) -> str:
    """A file with these bytes under `name` that the browser may fetch; the same file for the same bytes."""
    path = _offered(hashlib.blake2b(name.encode() + b"\0" + content, key=_SECRET).hexdigest()[:32]) / name
    try:
        # Updates the time of the file: offered files are removed some hours after their last change.
        os.utime(path)
    except FileNotFoundError:
        partial = path.with_name(f"{secrets.token_hex(8)}.partial")
        partial.write_bytes(content)
        partial.replace(path)
    return str(path)


def download(content: bytes | None, name: str) -> gr.DownloadButton:
    """A button for these bytes under `name`, hidden if there are none."""
    if content is None:
        return gr.DownloadButton(visible=False)
    return gr.DownloadButton(value=offer(content, name), visible=True)


def download_copy(path: Path) -> gr.DownloadButton:
    """A button for a copy of a file outside the folder that Gradio serves, under its own name."""
    offered = new_offer(path.name)
    shutil.copyfile(path, offered)
    return gr.DownloadButton(value=str(offered), visible=True)


def download_of(files: JobFiles, name: str) -> gr.DownloadButton:
    """A button for one of a job's files, hidden if the file does not exist.

    Raises:
        StorageError: it is damaged or cannot be read.
    """
    try:
        content = files.read(name)
    except RecordNotFoundError:
        content = None
    return download(content, name)


def download_if_sound(files: JobFiles, name: str) -> gr.DownloadButton:
    """Like `download_of`, but also hidden if the file cannot be opened, for a page that shows the error elsewhere."""
    try:
        return download_of(files, name)
    except StorageError:
        return download(None, name)


def _offered(token: str) -> Path:
    # The guard serves it to the session whose handler runs now, while that session is unlocked. A program without
    # cookies is identified by the path alone when it fetches, so no part of the token can be guessed.
    asked = getattr(LocalContext.request.get(None), "request", None)
    session = None if asked is None else asked.scope.get(SESSION)
    folder = browser_folder() / OFFERED / folder_of(session or "") / token
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder
