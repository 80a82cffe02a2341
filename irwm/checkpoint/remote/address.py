"""Addresses of checkpoints on servers."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from irwm.errors import ParameterError, printable

HUB = "hf"
WEB = ("https", "http")
STORES = ("s3", "gs")
_FORMS = "hf://ORGANISATION/NAME@REVISION, https://HOST/FILE, s3://BUCKET/FOLDER or gs://BUCKET/FOLDER"
_REPOSITORY = re.compile(r"\w[\w.-]{0,95}/\w[\w.-]{0,95}", re.ASCII)
_REVISION = re.compile(r"[\w][\w./-]{0,255}")


@dataclass(frozen=True, slots=True)
class Address:
    """Where a checkpoint is.

    Attributes:
        text: the address as it was given, without user name and password.
        scheme: "hf", "https", "http", "s3" or "gs".
        host: the server, the bucket, or "" for the hub, whose server is a setting of its library.
        path: the repository on the hub, else the path on the server or in the bucket.
        revision: a branch, tag or commit of a repository; "" for its main branch, and elsewhere. A "/" in it is written
            %2F, except in refs/pr/NUMBER.
        inside: a folder or file in the repository; "" for all of it.
    """

    text: str
    scheme: str
    host: str
    path: str
    revision: str = ""
    inside: str = ""

    @property
    def name(self) -> str:
        """The last part of the path, as the name of a folder or file."""
        return self.path.rstrip("/").rsplit("/", 1)[-1] or self.host


def is_address(text: object) -> bool:
    """Whether a text is an address and not a path."""
    return isinstance(text, str) and text.split("://", 1)[0].lower() in (HUB, *WEB, *STORES) and "://" in text


def parse(text: str) -> Address:
    """The parts of an address.

    Raises:
        ParameterError: not a complete address.
    """
    scheme, _, rest = text.strip().partition("://")
    scheme = scheme.lower()
    if not rest.strip("/") or not rest.isprintable() or any(c.isspace() for c in rest):
        raise _unusable(text)
    if scheme == HUB:
        return _on_the_hub(text.strip(), rest.strip("/"))
    try:
        parts = urlsplit(f"{scheme}://{rest}")
        _ = parts.port
    except ValueError as error:
        raise _unusable(text) from error
    if not parts.hostname or (scheme in WEB and not parts.path.strip("/")):
        raise _unusable(text)
    if parts.username is not None or parts.password is not None:
        raise ParameterError(
            "An address must not contain a user name or a password, because addresses are printed in reports",
            found=f"{scheme}://…@{parts.hostname}",
            advice="Use a signed address, or store the credentials where the server's own tools look for them",
        )
    path = parts.path if scheme in WEB else unquote(parts.path).strip("/")
    shown = f"{scheme}://{parts.netloc}{parts.path}"
    query = f"?{parts.query}" if parts.query else ""
    return Address(shown, scheme, parts.netloc, path + query if scheme in WEB else path)


def _on_the_hub(text: str, rest: str) -> Address:
    pieces = rest.split("/")
    if pieces[0] == "models":
        pieces = pieces[1:]
    name, at, revision = "/".join(pieces[:2]).partition("@")
    pieces = pieces[2:]
    if revision == "refs":  # as in refs/pr/1; any other "/" in a revision is written %2F
        revision, pieces = "/".join((revision, *pieces[:2])), pieces[2:]
    revision, inside = unquote(revision), "/".join(pieces)
    if not _REPOSITORY.fullmatch(name) or (at and not _REVISION.fullmatch(revision)):
        raise _unusable(text)
    return Address(text, HUB, "", name, revision, inside)


def _unusable(text: str) -> ParameterError:
    return ParameterError("This is not the address of a checkpoint", expected=_FORMS, found=printable(text, 200))
