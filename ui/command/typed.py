"""What was typed, as paths and files."""

from __future__ import annotations

from pathlib import Path

from irwm.errors import IrwmError, path_from


def existing(name: str) -> Path:
    """The path; see `absolute`.

    Raises:
        IrwmError: nothing is there.
    """
    path = absolute(name)
    if not path.exists():
        raise IrwmError("there is nothing at this path", file=path, advice="Check its spelling")
    return path


def absolute(name: str) -> Path:
    """A path as typed, from the top: the resolved folder, or the file's own name in its resolved folder.

    As the pages have it, so that the same work is known again; a file's own link is kept, since in a hub's cache the
    link has the name and its target only a hash.
    """
    try:
        path = path_from(name).expanduser()
        return path.resolve() if path.is_dir() else path.parent.resolve() / path.name
    except (OSError, RuntimeError, ValueError) as error:  # a NUL, an unknown ~user, a loop of links
        raise IrwmError("this path cannot be used", file=name, found=str(error)) from error


def content(path: Path, most: int | None = None) -> bytes:
    """The bytes of a file, the first `most` of them where that is given."""
    try:
        with path.open("rb") as stream:
            return stream.read() if most is None else stream.read(most)
    except OSError as error:
        raise IrwmError("this file cannot be read", file=path, found=error.strerror) from error
