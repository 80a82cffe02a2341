"""Typed arguments, as paths and files."""

from __future__ import annotations

from pathlib import Path

from irwm.errors import IrwmError, path_from


def existing(name: str) -> Path:
    """The path; see `absolute`.

    Raises:
        IrwmError: the path does not exist.
    """
    path = absolute(name)
    if not path.exists():
        raise IrwmError("this path does not exist", file=path, advice="Check its spelling")
    return path


def absolute(name: str) -> Path:
    """A typed path, made absolute: the resolved folder, or the file's own name in its resolved folder.

    The pages do the same, so that the same work is recognised; a file's own link is kept, because in a hub's cache the
    link has the name and its target only a hash.
    """
    try:
        path = path_from(name).expanduser()
        return path.resolve() if path.is_dir() else path.parent.resolve() / path.name
    except (OSError, RuntimeError, ValueError) as error:  # a NUL, an unknown ~user, a loop of links
        raise IrwmError("this path cannot be used", file=name, found=str(error)) from error


def content(path: Path, most: int | None = None) -> bytes:
    """The bytes of a file, or the first `most` of them."""
    try:
        with path.open("rb") as stream:
            return stream.read() if most is None else stream.read(most)
    except OSError as error:
        raise IrwmError("this file cannot be read", file=path, found=error.strerror) from error
