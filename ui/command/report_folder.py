"""The folder that a report is copied into: new or empty; files are never overwritten."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from irwm.errors import IrwmError, OutputExistsError


def check_free(folder: Path) -> None:
    """Checks that a report can be written there, before the work begins and again before the copy.

    Raises:
        OutputExistsError: the folder is not empty, or the name belongs to a file.
        IrwmError: it cannot be used.
    """
    try:
        taken = folder if folder.is_symlink() or (folder.exists() and not folder.is_dir()) else None
        taken = taken or next(folder.iterdir(), None)
    except FileNotFoundError:  # it is created when there is a report
        return
    except OSError as error:
        raise IrwmError("the report's folder cannot be used", file=folder, found=error.strerror) from error
    if taken is not None:
        raise OutputExistsError(
            "the report's folder is not empty",
            file=folder,
            expected="a new or empty folder",
            found=taken.name,
            advice="Choose another one; reports are never overwritten",
        )


def copy_report(files: Mapping[str, bytes], folder: Path) -> list[Path]:
    """Writes the files into the folder, all or none.

    A new folder appears with all of them in it. An empty one is filled in place, because it may be a mount point, or
    in a folder where no other can be made.

    Raises:
        OutputExistsError: the folder is no longer empty.
        IrwmError: they cannot be copied.
    """
    check_free(folder)
    if not files:
        return []
    try:
        if folder.exists():
            _copy(files, folder)
        else:
            folder.parent.mkdir(parents=True, exist_ok=True)
            partial = Path(tempfile.mkdtemp(prefix=f".{folder.name[:100]}-", dir=folder.parent))
            try:
                _copy(files, partial)
                os.rename(partial, folder)  # which can only replace an empty folder
            except OSError:
                shutil.rmtree(partial, ignore_errors=True)
                raise
    except OSError as error:
        raise IrwmError(
            "the job is done, but its files cannot be written here",
            file=folder,
            found=error.strerror,
            advice="Get a report from its case in the app, receipts from the page Protect",
        ) from error
    return [folder / name for name in files]


def _copy(files: Mapping[str, bytes], folder: Path) -> None:
    made: list[Path] = []
    try:
        for name, content in files.items():
            with (folder / name).open("xb") as target:
                made.append(folder / name)
                target.write(content)
    except OSError:
        for path in made:
            with contextlib.suppress(OSError):
                path.unlink()
        raise
