"""The folder that a report is copied into: new or empty, and nothing in it is ever written over."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from irwm.errors import IrwmError, OutputExistsError


def check_free(folder: Path) -> None:
    """Whether a report can go there, looked at before the work begins and again before it is copied.

    Raises:
        OutputExistsError: something lies there already.
        IrwmError: it cannot be used.
    """
    try:
        taken = folder if folder.is_symlink() or (folder.exists() and not folder.is_dir()) else None
        taken = taken or next(folder.iterdir(), None)
    except FileNotFoundError:  # it is made when there is a report
        return
    except OSError as error:
        raise IrwmError("the report's folder cannot be used", file=folder, found=error.strerror) from error
    if taken is not None:
        raise OutputExistsError(
            "the report's folder is not empty",
            file=folder,
            expected="a new or empty folder",
            found=taken.name,
            advice="Choose another one; no report is ever written over",
        )


def copy_report(files: Mapping[str, bytes], folder: Path) -> list[Path]:
    """Writes the files into the folder, all or none.

    A new folder appears with all of them in it. An empty one is filled where it stands, since it may be somebody's
    mount, or lie where no other can be made beside it.

    Raises:
        OutputExistsError: something lies there by now.
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
            beside = Path(tempfile.mkdtemp(prefix=f".{folder.name[:100]}-", dir=folder.parent))
            try:
                _copy(files, beside)
                os.rename(beside, folder)  # which replaces nothing but an empty folder
            except OSError:
                shutil.rmtree(beside, ignore_errors=True)
                raise
    except OSError as error:
        raise IrwmError(
            "the job is done, but its files cannot be written here",
            file=folder,
            found=error.strerror,
            advice="Take a report from its case in the app, receipts from the page Protect",
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
