"""Requests to web servers, among them the hub: bounded in time and size, repeated where that can help.

Redirects are followed here, so that each server is checked before it is asked (`servers`), and so that the hub's token,
which comes from the hub library's own store, is sent to the hub only.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from threading import Event
from typing import Any
from urllib.parse import urljoin, urlsplit

import httpx2
from huggingface_hub import constants, get_token

from irwm.checkpoint.files import require_bounded
from irwm.checkpoint.platform import elapsed
from irwm.checkpoint.remote.listing import RemoteFile
from irwm.checkpoint.remote.servers import require_allowed
from irwm.errors import CheckpointError, RemoteError, ServerUnavailableError, printable

# Seconds for a connection, and between two pieces of an answer.
_TIMEOUT = httpx2.Timeout(30.0, connect=15.0)
# How often a request is repeated without progress, and the longest wait that a server may ask for.
TRIES = 5
_FIRST_WAIT, _LONGEST_WAIT = 0.5, 60.0
_MOST_REDIRECTS = 5
_TRANSIENT = frozenset({408, 425, 429, 500, 502, 503, 504})
# Of a list of files: the bytes of a page, the number of pages, and the seconds for all of them.
MOST_PAGE_BYTES, MOST_PAGES, MOST_LISTING_SECONDS = 8 << 20, 200, 120
# A server that sends fewer bytes within so many seconds keeps its reader waiting.
_LEAST_BYTES, _WITHIN_SECONDS = 64 << 10, 60
# Bytes after which the tries of a connection that breaks are counted again.
_PROGRESS = 1 << 20
# A server that ignores a range sends the file from its beginning; so much of it is read to reach a range.
MOST_SKIPPED = 64 << 20
# The longest number of bytes in a header: 2^63 has 19 digits.
_DIGITS = 19
_REFUSALS = {
    401: ("The server requires a login", "Log in with `hf auth login`, or use a signed address"),
    403: ("The server denied access", "Ask the files' owner for access. If the address is signed, it may have expired"),
    404: ("There is no such file on the server", "Check the address"),
    410: ("The file was removed from the server", "Look for another copy"),
    416: ("The file on the server is shorter than before", "Enter the address again to read the new version"),
    429: ("The server is limiting the rate of requests", "Try again later"),
    451: ("The file is unavailable for legal reasons", "Look for another copy"),
}


class RefusedError(RemoteError):
    """A server answered with a status that means refusal.

    Attributes:
        status: of HTTP.
    """

    def __init__(self, answer: httpx2.Response, what: str) -> None:
        self.status = answer.status_code
        problem, advice = _REFUSALS.get(self.status, ("The server reported an error", "Try again later"))
        super().__init__(problem, file=what, found=f"status {self.status} from {answer.url.host}", advice=advice)

    @property
    def is_absence(self) -> bool:
        """Whether it may only mean that there is no such file. A signature holds for one file, and a store may refuse
        to say which others it lacks; an empty file has no range. A server that asks to try again says nothing about
        the file."""
        return 400 <= self.status < 500 and self.status not in _TRANSIENT


def json_pages(url: str, what: str) -> Iterator[Any]:
    """The JSON values of a paged answer of the hub, one after the other.

    Raises:
        RemoteError: see `opened`; or the answer is not JSON, or longer than any list of files.
    """
    page: str | None = url
    began, pages = elapsed(), 0
    while page is not None:
        pages += 1
        if pages > MOST_PAGES or elapsed() - began > MOST_LISTING_SECONDS:
            raise RemoteError("The server's list of files seems to have no end", file=what, found=f"{pages - 1} pages")
        content, page = _page(page, what)
        yield parsed(content, what)


def _page(url: str, what: str) -> tuple[bytes, str | None]:
    """One page, and the address of the next one; repeated as a whole if the connection breaks."""
    for tried in range(TRIES + 1):
        try:
            with opened(url, what, hub=True) as found:
                content = _all_of(found.answer, MOST_PAGE_BYTES, what)
                following = found.answer.links.get("next", {}).get("url")
                return content, None if following is None else _joined(url, following, what)
        except httpx2.TransportError as error:
            if tried == TRIES:
                raise _unreachable(what, error) from error
    raise AssertionError("the last try returns or raises")


def _joined(url: str, following: str, what: str) -> str:
    try:
        return urljoin(url, following)
    except ValueError as error:
        raise RemoteError(
            "The server's list of files has an invalid address of its next page",
            file=what,
            found=printable(following, 80),
        ) from error


def parsed(content: bytes, what: str) -> Any:
    """The JSON value of a server's answer.

    Raises:
        RemoteError: it is not JSON, or would take far more memory than its bytes.
    """
    try:
        require_bounded(content, Path(what), "response from the server")
        return json.loads(content)
    except (ValueError, RecursionError, CheckpointError) as error:
        raise RemoteError("The server's response is not JSON", file=what, found=printable(str(error), 80)) from error


@dataclass(frozen=True, slots=True)
class Answered:
    """An answer whose content is still unread, and the headers of the redirects before it."""

    answer: httpx2.Response
    before: tuple[httpx2.Headers, ...]

    @property
    def headers(self) -> httpx2.Headers:
        return self.answer.headers

    @property
    def status(self) -> int:
        return self.answer.status_code


@contextmanager
def opened(url: str, what: str, *, asked: Mapping[str, str] | None = None, hub: bool = False) -> Iterator[Answered]:
    """The answer to a request. A transient failure before its content is repeated, with growing waits.

    Args:
        what: the address or file, for errors.
        asked: headers of the request.
        hub: whether the address is one of the hub's, which gets the user's token.

    Raises:
        RemoteError: no answer, a refusal, a server that may not be asked, too many redirects, or one that leaves
            encryption.
    """
    before: list[httpx2.Headers] = []
    with ExitStack() as held:
        while True:
            answer = _answer(held, url, what, {**(asked or {}), **(_token_for(url) if hub else {})})
            place = answer.headers.get("Location") if answer.is_redirect else None
            if place is None:
                break
            before.append(answer.headers)
            held.close()
            url = _redirected(url, place, what, len(before))
        if answer.status_code >= 300:
            raise RefusedError(answer, what)
        yield Answered(answer, tuple(before))


def _answer(held: ExitStack, url: str, what: str, headers: Mapping[str, str]) -> httpx2.Response:
    require_allowed(_host(url, what), what)
    sent = {"Accept-Encoding": "identity", **headers}
    for tried in range(TRIES + 1):
        wait = min(_FIRST_WAIT * 2**tried, _LONGEST_WAIT)
        try:
            answer = held.enter_context(_client().stream("GET", url, headers=sent))
        except (httpx2.InvalidURL, ValueError) as error:  # of a redirect; UnicodeError is one too
            raise _unusable(url, what) from error
        except httpx2.HTTPError as error:
            if tried == TRIES or not isinstance(error, httpx2.TransportError):
                raise _unreachable(what, error) from error
        else:
            if answer.status_code not in _TRANSIENT or tried == TRIES:
                break
            wait = max(wait, _asked_wait(answer, what))
            held.close()
        Event().wait(wait)
    return answer


def _host(url: str, what: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError as error:
        raise _unusable(url, what) from error


def _unusable(url: str, what: str) -> RemoteError:
    # Without its query, which may be a signature.
    return RemoteError(
        "The server returned an unusable address", file=what, found=printable(url.partition("?")[0], 120)
    )


@lru_cache(maxsize=1)  # connections are kept open between requests
def _client() -> httpx2.Client:
    return httpx2.Client(timeout=_TIMEOUT, follow_redirects=False)


def close_connections() -> None:
    """Closes the connections that are kept open between requests."""
    _client().close()
    _client.cache_clear()


def _token_for(url: str) -> dict[str, str]:
    """The header with the user's token, for the hub itself."""
    token = get_token() if urlsplit(url)[:2] == urlsplit(constants.ENDPOINT)[:2] else None
    return {"Authorization": f"Bearer {token}"} if token else {}


def _redirected(url: str, place: str, what: str, count: int) -> str:
    try:
        found = urljoin(url, place)
        scheme = urlsplit(found).scheme
    except ValueError as error:
        raise _unusable(place, what) from error
    if count > _MOST_REDIRECTS:
        raise RemoteError(
            "The server redirected too many times", file=what, expected=f"at most {_MOST_REDIRECTS} redirects"
        )
    if scheme not in ("http", "https") or (scheme == "http" and urlsplit(url).scheme == "https"):
        host = printable(urlsplit(found).netloc, 80)
        raise RemoteError("The server redirected to an unencrypted address", file=what, found=host)
    return found


def _asked_wait(answer: httpx2.Response, what: str) -> float:
    """The seconds that a server asks to wait; 0 if it does not say.

    Raises:
        ServerUnavailableError: longer than anyone would wait.
    """
    asked = answer.headers.get("Retry-After", "")
    seconds = float(asked) if asked.isdecimal() else 0.0
    if seconds > _LONGEST_WAIT:
        raise ServerUnavailableError(
            "The server is limiting the rate of requests",
            file=what,
            found=f"a wait of {seconds:.0f} seconds is required",
            advice="Wait that long, then try again; the data read so far has been kept",
        )
    return seconds


def _unreachable(what: str, error: Exception) -> ServerUnavailableError:
    return ServerUnavailableError(
        "The server could not be reached, or the connection failed repeatedly",
        file=what,
        found=printable(str(error) or type(error).__name__, 200),
        advice="Check the network and try again; the data read so far is kept",
    )


def described(name: str, url: str, *, wanted: bool = True) -> RemoteFile | None:
    """A file on a web server; None if there is none.

    Args:
        wanted: whether it must be readable. A file that is only looked for is absent if the server refuses it.

    Raises:
        RemoteError: the server refuses it, or does not state its size.
    """
    try:
        # Not HEAD, which signed addresses do not allow.
        with opened(url, name, asked={"Range": "bytes=0-0"}) as found:
            size, etag = _total(found.answer), _etag(found.answer)
    except RefusedError as error:
        if error.status in (404, 410) or (not wanted and error.is_absence):
            return None
        raise
    if size is None and not wanted:
        return None
    if size is None:
        raise RemoteError(
            "The server did not report the file's size", file=name, advice="Download the file and use its path"
        )
    return RemoteFile(name, size, url, etag)


def _etag(answer: httpx2.Response) -> str:
    return str(answer.headers.get("ETag") or answer.headers.get("Last-Modified") or "")


def _total(answer: httpx2.Response) -> int | None:
    """The size of the whole file, by the answer's headers."""
    total = answer.headers.get("Content-Range", "").rpartition("/")[2]
    if answer.status_code != 206:
        total = answer.headers.get("Content-Length", "")
    return int(total) if total.isdecimal() and len(total) <= _DIGITS else None


def whole(file: RemoteFile, most: int) -> bytes:
    """All bytes of a small file."""
    if file.size > most:
        raise RemoteError("The file on the server is implausibly large", file=file.name, found=f"{file.size} bytes")
    return b"".join(pieces(file, 0, file.size, hub=False))


def _all_of(answer: httpx2.Response, most: int, what: str) -> bytes:
    content = bytearray()
    for piece in _steady(answer, what):
        content += piece
        if len(content) > most:
            raise RemoteError("The server's response is implausibly large", file=what, expected=f"at most {most} bytes")
    return bytes(content)


def pieces(file: RemoteFile, start: int, stop: int, *, hub: bool) -> Iterator[bytes]:
    """The bytes from `start` to `stop` of a file, as they arrive. A broken connection is resumed where it broke.

    Raises:
        RemoteError: see `opened`; the file is no longer the one that was listed; or the server sends no ranges.
    """
    done, tried, counted = start, 0, start
    while done < stop:
        try:
            with opened(file.url, file.name, asked={"Range": f"bytes={done}-{stop - 1}"}, hub=hub) as found:
                _require_version(found, file, hub=hub)
                for piece in _of_range(found.answer, file, done, stop):
                    done += len(piece)
                    yield piece
            error: Exception = EOFError(f"the response ended {stop - done} bytes early")
        except httpx2.TransportError as broken:
            error = broken
        if done < stop:
            # A server that breaks each connection after a few bytes must not be asked forever.
            tried = tried + 1 if done - counted < _PROGRESS else 1
            counted = done if tried == 1 else counted
            if tried > TRIES:
                raise _unreachable(file.name, error) from error
            Event().wait(min(_FIRST_WAIT * 2**tried, _LONGEST_WAIT))


def _of_range(answer: httpx2.Response, file: RemoteFile, start: int, stop: int) -> Iterator[bytes]:
    total = _total(answer)
    if answer.headers.get("Content-Encoding", "identity") != "identity":
        raise RemoteError(
            "The server sent the file in compressed form", file=file.name, advice="Download the file and use its path"
        )
    if total is not None and total != file.size:
        raise _changed(file, f"{total} bytes instead of {file.size}")
    skip = 0
    if answer.status_code == 206:
        expected = f"bytes {start}-{stop - 1}/"
        if not answer.headers.get("Content-Range", "").startswith(expected):
            found = printable(answer.headers.get("Content-Range", "nothing"), 80)
            raise RemoteError(
                "The server sent the wrong range", file=file.name, expected=expected.rstrip("/"), found=found
            )
    elif start > MOST_SKIPPED:
        raise RemoteError(
            "The server cannot send parts of a file", file=file.name, advice="Download the file and use its path"
        )
    else:
        skip = start
    left = stop - start
    for piece in _steady(answer, file.name):
        dropped = min(skip, len(piece))
        skip -= dropped
        kept = piece[dropped : dropped + left]
        left -= len(kept)
        if kept:
            yield kept
        if not left:
            return


def _steady(answer: httpx2.Response, what: str) -> Iterator[bytes]:
    """The pieces of an answer, as long as enough of them arrive.

    Raises:
        ServerUnavailableError: they arrive too slowly.
    """
    since, count = elapsed(), 0
    for piece in answer.iter_raw():
        count += len(piece)
        if elapsed() - since > _WITHIN_SECONDS:
            if count < _LEAST_BYTES:
                raise ServerUnavailableError(
                    "The server is sending data too slowly",
                    file=what,
                    expected=f"{_LEAST_BYTES} bytes in {_WITHIN_SECONDS} s",
                    found=f"{count} bytes",
                    advice="Try again later; the data read so far is kept",
                )
            since, count = elapsed(), 0
        yield piece


def _require_version(found: Answered, file: RemoteFile, *, hub: bool) -> None:
    """Compares the server's mark of the version with the listed one. The hub states it where it redirects."""
    if hub:
        marks = [headers.get("X-Linked-Etag", "") for headers in (*found.before, found.headers)]
    else:
        marks = [_etag(found.answer)]
    for mark in filter(None, marks):
        if file.etag and _strong(mark) != _strong(file.etag):
            raise _changed(file, f"version {printable(mark, 80)} instead of {printable(file.etag, 80)}")


def _strong(etag: str) -> str:
    return etag.removeprefix("W/").strip('"')


def _changed(file: RemoteFile, found: str) -> RemoteError:
    return RemoteError(
        "The file on the server changed after it was listed",
        file=file.name,
        expected="the file as it was when the checkpoint was opened",
        found=found,
        advice="Enter the address again to read the new version",
    )


def hub_api(*parts: str) -> str:
    """The address of a call of the hub's interface."""
    return "/".join((constants.ENDPOINT.rstrip("/"), "api", *parts))
