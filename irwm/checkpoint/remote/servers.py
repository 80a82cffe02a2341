"""Which servers may be asked."""

from __future__ import annotations

import os

from irwm.errors import RemoteError, printable

# Host names, separated by spaces; for a store, its scheme and bucket, such as s3://models. A host includes those below
# it. Any server if the variable is not set; none if it is empty. The app sets it from its page Settings.
ALLOWED = "IRWM_SERVERS"


def require_allowed(server: str, what: str) -> None:
    """Rejects a server that may not be asked.

    Args:
        server: a host name, or a store's scheme and bucket.
        what: the address or file, for the error.

    Raises:
        RemoteError: it is not among the allowed ones.
    """
    allowed = os.environ.get(ALLOWED)
    if allowed is None:
        return
    asked = _spelled(server)
    for each in allowed.lower().split():
        # A bucket's name may end like a host's.
        if asked == each or ("://" not in asked + each and asked.endswith(f".{each}")):
            return
    raise RemoteError(
        "Reading files from this server is not allowed",
        file=what,
        expected=", ".join(allowed.split()) or None,
        found=printable(server, 120),
        advice=f"Add the server on the Settings page or to {ALLOWED}, or download the files",
    )


def _spelled(server: str) -> str:
    """A host as it is asked: in lower case, other letters than those of ASCII encoded."""
    try:
        return server.lower() if server.isascii() else server.encode("idna").decode("ascii")
    except UnicodeError:
        return server
