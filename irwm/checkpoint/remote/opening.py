"""Turns an address into the local folder or file that represents it."""

from __future__ import annotations

from pathlib import Path

from irwm.checkpoint.remote.address import is_address, parse
from irwm.checkpoint.remote.listing import listing_of
from irwm.checkpoint.remote.mirror import made, mirror_of
from irwm.errors import path_from

UNVERSIONED = (
    "The server provides no version information for its files, so a change to a file during reading cannot be detected."
)


def local_path(path: str | Path) -> Path:
    """A path on this machine: that of a mirror if an address was given. The server is asked for its list of files; no
    weights are read.

    Raises:
        ParameterError: an incomplete address.
        RemoteError: the server cannot be reached, refuses, or may not be asked (`servers`).
    """
    if isinstance(path, str) and is_address(path):
        return made(listing_of(parse(path))).opens
    return path_from(path)


def server_of(path: Path) -> str:
    """The server that the files at a path are read from; "" for files of this machine."""
    mirrored = mirror_of(path / "any")
    return "" if mirrored is None else mirrored[0].listing.server


def source_notes(path: Path) -> tuple[str, ...]:
    """Sentences on where the files at a path come from; none for files of this machine."""
    mirrored = mirror_of(path / "any")
    if mirrored is None:
        return ()
    listing = mirrored[0].listing
    commit = f", commit {listing.commit}" if listing.commit else ""
    said = f"The files are on a server: {listing.address}{commit}. Only the required tensors are read."
    return (said,) if listing.versioned else (said, UNVERSIONED)
