"""Byte ranges of objects in a store, through fsspec's file systems (s3fs, gcsfs) and their own credentials."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import fsspec

from irwm.checkpoint.remote.listing import RemoteFile, mark_of
from irwm.checkpoint.remote.servers import require_allowed
from irwm.errors import RemoteError, printable

PIECE = 8 << 20
_PACKAGES = {"s3": "s3fs", "gs": "gcsfs"}


def file_system(scheme: str) -> Any:
    """The file system of a scheme, with the user's own credentials.

    Raises:
        RemoteError: its package is not installed.
    """
    try:
        return fsspec.filesystem(scheme)
    except ImportError as error:
        package = _PACKAGES.get(scheme, scheme)
        raise RemoteError(
            f"The package {package} is needed for {scheme}:// addresses", advice=f"Run: pip install {package}"
        ) from error


@contextmanager
def store_errors(what: str) -> Iterator[None]:
    """Turns the errors of a file system into typed ones."""
    try:
        yield
    except FileNotFoundError as error:
        raise RemoteError("The store contains no such object", file=what, advice="Check the address") from error
    except PermissionError as error:
        raise RemoteError(
            "The store denied access", file=what, found=printable(str(error), 200), advice="Check the credentials"
        ) from error
    except (OSError, ValueError) as error:
        raise RemoteError(
            "The store could not be read", file=what, found=printable(str(error), 200), advice="Try again later"
        ) from error
    except Exception as error:
        # Clients of stores raise other errors, such as botocore's for missing credentials.
        if type(error).__module__.partition(".")[0] not in ("botocore", "aiobotocore", "gcsfs", "google", "aiohttp"):
            raise
        raise RemoteError(
            "The store could not be read", file=what, found=printable(str(error), 200), advice="Check the credentials"
        ) from error


def pieces(scheme: str, file: RemoteFile, start: int, stop: int) -> Iterator[bytes]:
    """The bytes from `start` to `stop` of an object.

    Raises:
        RemoteError: the object changed after it was listed, or cannot be read.
    """
    require_allowed(f"{scheme}://{file.url.strip('/').split('/', 1)[0]}", file.name)
    system = file_system(scheme)
    for begin in range(start, stop, PIECE):
        end = min(stop, begin + PIECE)
        with store_errors(file.name):
            content = bytes(system.cat_file(file.url, start=begin, end=end))
        if len(content) != end - begin:
            raise RemoteError(
                "The store sent the wrong number of bytes",
                file=file.name,
                expected=f"{end - begin}",
                found=f"{len(content)}",
            )
        _require_unchanged(system, file)
        yield content


def _require_unchanged(system: Any, file: RemoteFile) -> None:
    with store_errors(file.name):
        system.invalidate_cache(file.url)
        now = system.info(file.url)
    if int(now["size"]) != file.size or mark_of(now) != file.etag:
        advice = "Enter the address again to read the new version"
        raise RemoteError("The object changed after it was listed", file=file.name, advice=advice)
