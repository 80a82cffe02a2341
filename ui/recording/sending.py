"""Sends one request after the other: at most at the agreed rate, with retries, and only with permission.

The only secret in a request is the token for the API. It comes from the environment variable IRWM_API_TOKEN and
goes into one HTTP header. It is in no request that is hashed, in no file, and in no message.
"""

from __future__ import annotations

import ipaddress
import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from urllib.parse import urlsplit

import httpx

from irwm.errors import printable
from ui.recording.errors import NotAllowedError, RecordingError, RefusedError, ServerError

TOKEN = "IRWM_API_TOKEN"
FASTEST = 1000.0
# Statuses after which a retry may succeed: too many requests, timeouts, and the server's own failures.
AGAIN = frozenset({408, 425, 429, 500, 502, 503, 504, 529})
# Longest wait that a server can request.
LONGEST_WAIT = 300.0
_TOO_LONG = 1000


@dataclass(frozen=True, slots=True)
class Permission:
    """The user's permission to send prompts to one address. Without it no request is sent.

    Attributes:
        url: the address.
    """

    url: str


@dataclass(frozen=True, slots=True)
class Pace:
    """The rate and the retries.

    Attributes:
        rate: maximum number of requests a second.
        timeout: seconds until a request counts as lost.
        tries: how often one request is sent at most.
        first_pause: seconds before the second try; each further pause is twice as long.
        longest_pause: in seconds.
    """

    rate: float = 2.0
    timeout: float = 60.0
    tries: int = 7
    first_pause: float = 1.0
    longest_pause: float = 60.0

    def __post_init__(self) -> None:
        for name, least, most in (("rate", 0.001, FASTEST), ("timeout", 0.1, 3600.0)):
            value = getattr(self, name)
            if not least <= value <= most:
                raise RecordingError(f"the {name} is out of range", expected=f"{least:g} to {most:g}", found=f"{value}")


@dataclass(frozen=True, slots=True)
class Response:
    """A server's answer.

    Attributes:
        body: its bytes; they are JSON.
        time_ms: when they were complete, milliseconds since 1970, UTC.
    """

    body: bytes = field(repr=False)
    time_ms: int


def checked_url(url: str) -> str:
    """The given address, after a check.

    Raises:
        RecordingError: it is not an address of a web server, or contains a user name, a password or a query.
    """
    try:
        parts = urlsplit(url)
        fits = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        fits = False
    if not fits or not url.isascii() or any(c.isspace() or ord(c) < 33 for c in url):
        raise RecordingError(
            "this is not a server address",
            expected="an address such as https://api.example.org/v1",
            found=_bare(url),
        )
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise RecordingError(
            "the address contains more than a server and a path", expected="no user name, password, query or fragment",
            advice=f"Set the environment variable {TOKEN} to the server's token",
        )  # fmt: skip
    return url


def host_of(url: str) -> str:
    """Host and port of a checked address."""
    return urlsplit(url).netloc


def token_for(url: str, environ: Mapping[str, str] | None = None) -> str | None:
    """The API's token, if there is one.

    Raises:
        RecordingError: it has characters that a header must not contain, or would go unencrypted to another machine.
    """
    token = (os.environ if environ is None else environ).get(TOKEN, "").strip()
    if not token:
        return None
    if not token.isascii() or not token.isprintable() or " " in token:
        raise RecordingError(
            f"{TOKEN} contains characters that are not allowed in a token", advice="Copy the token again"
        )
    if urlsplit(url).scheme != "https" and not _is_here(urlsplit(url).hostname or ""):
        raise RecordingError(
            "the API token would be sent unencrypted", expected="an address that begins with https://",
            advice=f"Use https, or unset {TOKEN}",
        )  # fmt: skip
    return token


class Sender:
    """Sends requests to one address; use it in a with block.

    It uses neither a proxy nor a password file of the environment, and follows no redirection: prompts go only to the
    address that was allowed.

    Args:
        permission: for this address.
        pace: the rate and the retries.
        most_bytes: a larger answer is refused.
        token: for the API; None if it needs none.
        pause: waits for the given number of seconds.
        clock: seconds that never run backwards; used for the rate and the time of an answer.
        note: called with the reason of a wait, for the user.
    """

    def __init__(
        self, permission: Permission | None, pace: Pace, *, most_bytes: int, token: str | None = None,
        pause: Callable[[float], object] = time.sleep, clock: Callable[[], float] = time.monotonic,
        note: Callable[[str], None] = lambda _: None,
    ) -> None:  # fmt: skip
        if permission is None:
            raise NotAllowedError(
                "no request was sent, because sending is not allowed", advice="Add --send to allow it for this command"
            )
        self._url, self._pace, self._most, self._token = checked_url(permission.url), pace, most_bytes, token
        self._pause, self._clock, self._note = pause, clock, note
        self._next = 0.0
        headers = {"Content-Type": "application/json", "Accept": "application/json", "Accept-Encoding": "identity",
                   "User-Agent": "irwm-studio"}  # fmt: skip
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        self._client = httpx.Client(headers=headers, timeout=pace.timeout, trust_env=False, follow_redirects=False)

    def __enter__(self) -> Sender:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.close()

    def ask(self, body: bytes) -> Response:
        """The server's answer to a request, after as many tries as necessary.

        Raises:
            RefusedError: a status that a retry would not change.
            ServerError: every try failed, or the answer is too large.
        """
        why, wait = "", self._pace.first_pause
        for attempt in range(self._pace.tries):
            if attempt:
                self._note(f"Waiting {wait:.0f} s: {why}")
                self._pause(wait)
            self._keep_the_rate()
            outcome = self._once(body)
            if isinstance(outcome, Response):
                return outcome
            why, told = outcome
            wait = min(self._pace.first_pause * 2**attempt, self._pace.longest_pause) if told is None else told
        raise ServerError(
            "the server did not respond", found=f"{why}, {self._pace.tries} times",
            advice="Earlier answers are kept. Run the same command again later",
        )  # fmt: skip

    def _once(self, body: bytes) -> Response | tuple[str, float | None]:
        """An answer, or why there was none and how long the server asks to wait."""
        until = self._clock() + self._pace.timeout
        try:
            with self._client.stream("POST", self._url, content=body) as response:
                content = self._content(response, until)
        except httpx.TimeoutException:
            return f"no response within {self._pace.timeout:g} s", None
        except httpx.TransportError as error:  # refused, reset, closed in the middle, no name, no certificate
            return f"the connection failed ({self._safe(str(error) or type(error).__name__)})", None
        if content is None:
            return f"no response within {self._pace.timeout:g} s", None
        if response.status_code in AGAIN:
            return f"the server responded with status {response.status_code}", _retry_after(
                response.headers.get("Retry-After")
            )
        if response.status_code != 200:
            raise self._refused(response, content)
        try:
            json.loads(content)
        except (ValueError, RecursionError):
            return "the response was cut off or is not JSON", None
        return Response(content, time.time_ns() // 1_000_000)

    def _content(self, response: httpx.Response, until: float) -> bytes | None:
        """The bytes of an answer; None if they arrive for longer than a request may take."""
        if response.headers.get("Content-Encoding", "identity") != "identity":
            raise ServerError("the server compresses its responses although the request asked it not to")
        found = bytearray()
        for piece in response.iter_raw():  # unbuffered: with larger pieces, a byte a second would never fill one
            found += piece
            if len(found) > self._most:
                raise ServerError(
                    "the server's response is too large", expected=f"at most {self._most} bytes",
                    advice="Use --top to ask for fewer log-probabilities at a time",
                )  # fmt: skip
            if self._clock() > until:
                return None
        return bytes(found)

    def _refused(self, response: httpx.Response, content: bytes) -> RefusedError:
        status = response.status_code
        said = self._safe(content[:_TOO_LONG].decode("utf-8", "replace"))
        advice = {401: f"Set {TOKEN} to the API token", 403: "Ask the server's operator for access",
                  404: "Check --endpoint, --model and --api"}.get(status)  # fmt: skip
        if 300 <= status < 400:
            advice = (
                "The server redirected the request to another address, which is not allowed. "
                "Use that address as --endpoint"
            )
        return RefusedError(
            status, f"the server refused the request with status {status}", found=said or None, advice=advice
        )

    def _safe(self, text: str) -> str:
        """Untrusted text for a message, without the token, in case the server repeats it."""
        return printable(text.replace(self._token, "…") if self._token else text, 200)

    def _keep_the_rate(self) -> None:
        now = self._clock()
        if now < self._next:
            self._pause(self._next - now)
        self._next = max(now, self._next) + 1.0 / self._pace.rate


def _retry_after(text: str | None) -> float | None:
    """Seconds that the server asks to wait; None if it names no number."""
    if text is None or not (text.isascii() and text.isdigit() and len(text) < 10):
        return None
    return min(float(text), LONGEST_WAIT)


def _is_here(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _bare(url: str) -> str:
    """The printable part of an address that cannot be used, because it may contain a password."""
    return printable(url.rpartition("@")[2].partition("?")[0], 200)
