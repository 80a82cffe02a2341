"""Libraries of the optional extra `release`, which are imported when they are first used."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from irwm.errors import MissingExtraError

RELEASE = "release"


@contextmanager
def release_libraries() -> Iterator[None]:
    """Put imports of these libraries in this context.

    Raises:
        MissingExtraError: a library is missing; the error names the extra.
    """
    try:
        yield
    except ImportError as error:
        raise MissingExtraError(
            "this needs libraries that are not installed",
            expected=f"the libraries of the extra “{RELEASE}”",
            found=f"no usable {error.name}" if error.name else str(error),
            advice="Install them from the checkout: pip install -r requirements-release.txt -c constraints.txt; "
            "or install the wheel again with its extra, as in pip install 'FILE.whl[release]'",
        ) from error
