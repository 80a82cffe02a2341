"""Writing a document as a new file."""

from __future__ import annotations

from pathlib import Path

from irwm.errors import AttestationError


def write_new(path: Path, content: bytes) -> Path:
    """Write a new file, and return its path.

    Raises:
        AttestationError: it exists, or its folder cannot be written.
    """
    try:
        with path.open("xb") as file:
            try:
                file.write(content)
                file.flush()
            except OSError:
                path.unlink()  # no part of a document stays
                raise
    except OSError as error:
        raise AttestationError(
            "the file cannot be written",
            file=path,
            expected="a new file in an existing folder",
            found=error.strerror,
            advice="Choose another name; existing files are never overwritten",
        ) from error
    return path
