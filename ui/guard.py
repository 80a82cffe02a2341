"""The checks between the network and Gradio: which callers, which requests, and what the browser may do with answers.

Gradio 6.31.0 answers any Host header (so a rebound name reaches it), lets every port of localhost read its answers,
fetches web addresses for any caller that requests /file=http..., and serves pages for tracing, recording and editing
that this app does not use. Each check below refuses before Gradio sees the request; unknown requests are refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import parse_qs, unquote

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ui.budget import MIB, Budget, Refusal
from ui.errors_seen import ErrorsSeen
from ui.sessions import folder_of, new_session_id
from ui.streams import Streams

# A suspect of this size may be uploaded; larger ones are picked by their path.
UPLOAD_BYTES = 1024 * MIB
UPLOADS_TOTAL_BYTES = 2 * UPLOAD_BYTES
# Ten times the files of a large model's folder; a flood of empty files would use all inodes of the disk.
UPLOADS_MOST = 2000
# Free space that uploads must leave; a full temp folder stops other programs too.
SPARE_BYTES = 512 * MIB
# Everything that is not an upload: form values, pasted CSV lists of recipients.
BODY_BYTES = 8 * MIB
# Commas, brackets and braces in it, each of which may become an object in memory.
BODY_VALUES = 1_000_000
UNANSWERED = "The app could not process this request. Reload the page, then try again."
LATE = "The content did not arrive in time. Try again, or enter the file’s path."
# Seconds for all of it to arrive, on one computer.
BODY_SECONDS = 30
# Added to `BODY_SECONDS` for an upload of a locked browser.
UPLOAD_BYTES_A_SECOND = 4 * MIB

DOCUMENT = "/"
UPLOAD = "/gradio_api/upload"
FILE = "/gradio_api/file="
# The folder inside the upload folder for files that may be downloaded; Gradio gives uploads names of 64 digits.
# Below it each session has its own folder, `folder_of`.
OFFERED = "offered"
# The keys of a request's scope for its session, and for whether that session is known.
SESSION, KNOWN = "irwm.session", "irwm.known"
READ = (
    re.compile(r"/(?:config|theme\.css|favicon\.ico|manifest\.json|robots\.txt)?"),
    re.compile(r"/(?:assets|static|studio)/.+"),
    re.compile(r"/gradio_api/(?:info|openapi\.json|app_id|startup-events|theme\.css|upload_progress)/?"),
    # Not call/, which gives a session's answers to any caller that names it in the place of an event.
    re.compile(r"/gradio_api/(?:queue/(?:data|status)|heartbeat/[^/]+)"),
    re.compile(re.escape(FILE) + r".+"),
)
WRITE = (
    # Not run/ and api/, which bypass the queue and so every limit on concurrent work.
    re.compile(r"/gradio_api/(?:queue/join|cancel|reset|upload)/?"),
)
LONGEST_SESSION = 64
HEARTBEAT = re.compile(r"/gradio_api/heartbeat/([^/]+)/?")
DATA = "/gradio_api/queue/data"
# These prevent actions through reads: another site's page may link to us, but not load parts of us.
OWN_FETCH_SITES = ("same-origin", "none")

HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=(), display-capture=(), usb=(), payment=()",
}


def content_security_policy(nonce: str | None = None) -> str:
    """The policy of a page: nothing from or to any other host, no inline script but those with this answer's nonce.

    'unsafe-eval' stays because gr.HTML compiles its template and every `js=` with `Function` (seen in 6.31.0). That
    allows code that came as code; markup smuggled into a name cannot run, because that needs 'unsafe-inline'.
    Inline styles are how Svelte and plotly position things.
    """
    scripts = f" 'nonce-{nonce}'" if nonce else ""
    return (
        f"default-src 'self'; script-src 'self'{scripts} 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
        "img-src 'self' data: blob:; font-src 'self'; connect-src 'self'; worker-src 'self' blob:; "
        "object-src 'none'; base-uri 'self'; form-action 'self'; frame-src 'self'; frame-ancestors 'none'"
    )


@dataclass(frozen=True, slots=True)
class Asked:
    """A request whose headers were admitted.

    Attributes:
        size: bytes of its content, as announced.
        upload: whether its content is files.
        cookie: the browser's, None for a program without cookies.
        stream: the session hash in its address, None if there is none.
        open: whether it comes from a browser or program that is unlocked, according to its headers.
        known: whether it proved the passphrase before, unlocked now or not. It is outside the locked ones' budget.
        lasts: whether its answer is a stream.
    """

    size: int
    upload: bool
    cookie: str | None
    stream: str | None
    open: bool
    known: bool
    lasts: bool


@dataclass(frozen=True, slots=True)
class Callers:
    """Facts about sessions, by their identifiers.

    Attributes:
        is_open: whether a session is unlocked. A locked one gets a fresh cookie with each page, so that an identifier
            that another program on this host planted in the browser is discarded before the passphrase is typed.
        is_known: whether it proved the passphrase before.
        renew: called with the present and the new identifier when a locked session gets another one.
    """

    is_open: Callable[[str], bool]
    is_known: Callable[[str], bool] = lambda session: False
    renew: Callable[[str, str], object] = lambda old, new: None


NOBODY = Callers(lambda session: False)


class Guard:
    """ASGI middleware; see the module's docstring.

    Args:
        app: the protected app.
        uploads: Gradio's upload folder, the only one from which files are sent.
        cookie: name of the session cookie.
        callers: facts about sessions.
        waiting: how many calls are in Gradio's queue.
        forget: removes the data that Gradio holds for a session hash.
        first: makes the first element of the page's head.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        uploads: Path,
        cookie: str,
        callers: Callers,
        waiting: Callable[[], int] = int,
        forget: Callable[[str], object] = str,
        first: Callable[[], bytes] = bytes,
    ) -> None:
        self.app = app
        self.uploads = uploads
        self.cookie = cookie
        self.callers = callers
        self.waiting = waiting
        self.first = first
        self.budget = Budget()
        self._streams = Streams(callers.is_open, forget)
        self._errors = ErrorsSeen()
        self._arriving = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] == "websocket":  # Gradio 6 has none
            await send({"type": "websocket.close", "code": 1008, "reason": "not served here"})
            return
        started = ended = False
        answered = self._with_headers(scope, send)

        async def answer(message: Message) -> None:
            nonlocal started, ended
            started = True
            ended = message["type"] == "http.response.body" and not message.get("more_body", False)
            await answered(message)

        try:
            await self._admit(scope, receive, answer)
        except Refusal as refusal:
            if started:  # the content was longer than announced, or the answer was ended in favour of others
                if not ended:
                    await answer({"type": "http.response.body", "body": b""})
                return
            await PlainTextResponse(refusal.reason, refusal.status, {"Connection": "close"})(scope, receive, answered)
        except Exception as error:
            if started and _is_data(scope["path"]) and isinstance(error.__cause__, HTTPException):
                # Gradio's stream of a session that has ended: it tells the client so, and then raises.
                if not ended:
                    await answer({"type": "http.response.body", "body": b""})
                return
            # If raised, it is logged, and ends the connection if the answer is not complete.
            if started or scope.get(KNOWN):
                raise
            self._errors.note(error)
            await PlainTextResponse(UNANSWERED, 500, {"Connection": "close"})(scope, receive, answered)

    async def _admit(self, scope: Scope, receive: Receive, send: Send) -> None:
        asked = self._check(scope)
        scope[KNOWN] = asked.known
        async with contextlib.AsyncExitStack() as stack:
            place = None
            if not asked.known:
                place = await stack.enter_async_context(self.budget.answering(0 if asked.upload else asked.size))
                place.is_idle(True)  # until its content has arrived
            if asked.upload:
                self._arriving += asked.size
                stack.callback(self._arrived, asked.size)
                receive = _counted(receive, asked.size)
                if not asked.open:
                    receive = _in_time(receive, BODY_SECONDS + asked.size / UPLOAD_BYTES_A_SECOND)
            elif scope["method"] == "POST":
                body = await _read(receive, asked.size)
                asked = self._check_call(scope["path"], body, asked)
                receive = _again(body, receive)
            scope[SESSION] = _session_of(asked.cookie, asked.stream)
            if place is None or asked.upload:
                await self.app(scope, receive, send)
                return
            place.is_idle(False)
            over = await stack.enter_async_context(self.budget.turn())

            async def begun(message: Message) -> None:
                over()
                place.is_idle(asked.lasts)
                await send(message)

            await self.app(scope, receive, begun)

    def _arrived(self, size: int) -> None:
        self._arriving -= size

    def _check(self, scope: Scope) -> Asked:
        """Checks a request by its headers.

        Raises:
            Refusal: it is not allowed, or not now.
        """
        headers, path, method = Headers(scope=scope), scope["path"], scope["method"]
        origin = headers.get("origin")
        # The Host was checked before, so this is "the same origin", also through a tunnel from another port. Absent
        # with gradio_client and curl; a browser sends it with every POST.
        if origin is not None and origin.lower() != f"http://{headers.get('host', '').lower()}":
            raise Refusal(403, "The request was refused because it came from a page on another site.")
        self._check_fetch_metadata(headers, path, method)
        reading = method in ("GET", "HEAD")
        if not reading and method != "POST":
            raise Refusal(405, "This method is not supported.")
        if not any(pattern.fullmatch(path) for pattern in (READ if reading else WRITE)):
            raise Refusal(404, "There is no page at this address.")
        cookie = HTTPConnection(scope).cookies.get(self.cookie) or None
        if path.startswith(FILE):
            self._check_file(path.removeprefix(FILE), cookie)
        stream = _stream_of(path, scope.get("query_string", b""))
        if stream is not None:
            self._streams.claim(stream, cookie)
        session = _session_of(cookie, stream)
        open = session is not None and self.callers.is_open(session)
        known = open or (session is not None and self.callers.is_known(session))
        size = self._check_size(headers, path, reading, open)
        upload = not reading and path.rstrip("/") == UPLOAD
        return Asked(size, upload, cookie, stream, open, known, stream is not None)

    def _check_call(self, path: str, body: bytes, asked: Asked) -> Asked:
        """The remaining checks for a request that is not an upload, with its content.

        Returns:
            The request, with the session that the content names.
        """
        values = sum(body.count(mark) for mark in (b",", b"[", b"{"))
        if values > BODY_VALUES:
            raise Refusal(413, "This request contains too many values.")
        small = len(body) <= self.budget.limits.body and values <= self.budget.limits.values
        # A program without cookies is identified by the session that its content names.
        stream = _session_in(body) if values <= self.budget.limits.values or asked.open else None
        session = _session_of(asked.cookie, stream)
        open = asked.open or (session is not None and self.callers.is_open(session))
        if not open and not small:
            raise Refusal(
                413, "This request is too large while the vault is locked in this browser. Unlock the vault first."
            )
        if stream is not None:
            self._streams.claim(stream, asked.cookie)
        if not (open or asked.known) and self.waiting() >= self.budget.limits.waiting:
            raise Refusal(
                503, "Too many requests from browsers that have not unlocked the vault. Try again in a moment."
            )
        return replace(asked, stream=stream)

    def _check_fetch_metadata(self, headers: Headers, path: str, method: str) -> None:
        # Browsers add this to every request, also to those without an Origin, such as an <img> on another page.
        site = headers.get("sec-fetch-site")
        if site is None or site in OWN_FETCH_SITES:
            return
        followed_a_link = method == "GET" and path == DOCUMENT and headers.get("sec-fetch-dest") == "document"
        if not followed_a_link:
            raise Refusal(403, "The request was refused because it came from a page on another site.")

    def _check_file(self, name: str, cookie: str | None) -> None:
        refused = Refusal(403, "This file cannot be downloaded.")
        # Unquoted once more than the server did: a name that changes was quoted twice, to evade this check.
        if "\0" in name or unquote(name) != name:
            raise refused
        # On Windows, a file of another computer; Windows would log in there before it could tell where the file is.
        if re.match(r"[/\\]{2}", name):
            raise refused
        try:
            parts = Path(name).resolve(strict=True).relative_to(self.uploads.resolve()).parts
        except (OSError, RuntimeError, ValueError):
            raise refused from None
        if parts[:1] != (OFFERED,):
            return
        # A program without a cookie does not name its session here; only that program knows the names of its files.
        asking = [f"cookie:{cookie}"] if cookie else [f"hash:{stream}" for stream in self._streams.without_cookie()]
        if not any(folder_of(session) in parts[1:2] and self.callers.is_open(session) for session in asking):
            raise refused

    def _check_size(self, headers: Headers, path: str, reading: bool, open: bool) -> int:
        lengths = headers.getlist("content-length")
        # With both, the server reads pieces without limit, and the announced length has no meaning.
        if "transfer-encoding" in headers or len(lengths) > 1:
            raise Refusal(411, "Send the content in one piece, and state its length once.")
        length = lengths[0] if lengths else "0" if reading else ""
        if not (length.isascii() and length.isdigit() and len(length) < 20):
            raise Refusal(411, "Specify the content length.")
        size = int(length)
        if reading:
            if size:
                raise Refusal(413, "A read request must not have content.")
            return 0
        if path.rstrip("/") != UPLOAD:
            if size > BODY_BYTES:
                raise Refusal(413, f"A request must not exceed {BODY_BYTES // MIB} MiB.")
            return size
        # One part may be as large as allowed; the rest of the form is small.
        if size > UPLOAD_BYTES + MIB:
            raise Refusal(413, f"A file must not exceed {UPLOAD_BYTES // MIB} MiB. For larger files, enter the path.")
        sizes = list(self._sizes())
        held = self._arriving + sum(sizes)
        free = shutil.disk_usage(self.uploads).free
        most = UPLOADS_TOTAL_BYTES if open else min(UPLOADS_TOTAL_BYTES, self.budget.limits.stored)
        number = UPLOADS_MOST if open else UPLOADS_MOST // 2
        if held + size > most or size + SPARE_BYTES > free or len(sizes) >= number:
            raise Refusal(413, "There is no space for more uploads. Enter the file’s path instead.")
        return size

    def _sizes(self) -> Iterator[int]:
        """Sizes of all uploaded files; files that the app offers for download are not counted."""
        for folder, below, names in os.walk(self.uploads):
            if Path(folder) == self.uploads and OFFERED in below:
                below.remove(OFFERED)
            for name in names:
                # Moved by a handler, or removed for its age, between the two checks.
                with contextlib.suppress(FileNotFoundError):
                    yield os.lstat(os.path.join(folder, name)).st_size

    def _with_headers(self, scope: Scope, send: Send) -> Send:
        path = scope["path"]
        document = path == DOCUMENT
        nonce = secrets.token_urlsafe(16) if document else None
        held: list[Message] = []

        def finish(start: Message) -> None:
            headers = MutableHeaders(scope=start)
            for name, value in HEADERS.items():
                headers[name] = value
            headers["Content-Security-Policy"] = content_security_policy(nonce)
            if not path.startswith(("/assets/", "/static/", "/studio/")):
                headers["Cache-Control"] = "no-store"
            if document and start["status"] == 200:
                self._give_cookie(scope, headers)

        async def plain(message: Message) -> None:
            if message["type"] == "http.response.start":
                finish(message)
            await send(message)

        async def with_nonce(message: Message) -> None:
            # The page is one template of a few hundred kilobytes, so it can be held until it is complete.
            held.append(message)
            if message["type"] == "http.response.start" or message.get("more_body", False):
                return
            start, *parts = held
            finish(start)
            body = b"".join(part.get("body", b"") for part in parts)
            body = body.replace(b"<head>", b"<head>" + self.first(), 1)
            # Values in the page have every "<" escaped (Gradio's toorjson), so each of these is the template's own.
            body = body.replace(b"<script", f'<script nonce="{nonce}"'.encode())
            if scope["method"] != "HEAD":
                MutableHeaders(scope=start)["Content-Length"] = str(len(body))
            await send(start)
            await send({"type": "http.response.body", "body": body})

        return with_nonce if document else plain

    def _give_cookie(self, scope: Scope, headers: MutableHeaders) -> None:
        present = HTTPConnection(scope).cookies.get(self.cookie)
        if present and self.callers.is_open(f"cookie:{present}"):
            return
        session = new_session_id()
        if present:
            self.callers.renew(f"cookie:{present}", f"cookie:{session}")
        # Both contain plain letters only, so no quoting is needed.
        headers.append("Set-Cookie", f"{self.cookie}={session}; Path=/; HttpOnly; SameSite=Strict")


def _is_data(path: str) -> bool:
    """Whether this is the address of the stream with a session's answers."""
    return path.rstrip("/") == DATA


def _stream_of(path: str, query: bytes) -> str | None:
    """The session hash in an address for reading the answers of a session."""
    if _is_data(path):
        named = parse_qs(query.decode("latin-1"), keep_blank_values=True).get("session_hash", [])
        if len(named) > 1:
            raise Refusal(400, "Specify only one session.")
        return _of_usual_length(named[0]) if named else None
    beat = HEARTBEAT.fullmatch(path)
    return _of_usual_length(beat[1]) if beat else None


def _session_of(cookie: str | None, stream: str | None) -> str | None:
    """The caller: a browser by its cookie, a program without cookies by its session hash."""
    if cookie:
        return f"cookie:{cookie}"
    return f"hash:{stream}" if stream else None


def _of_usual_length(stream: str) -> str:
    """Gradio's pages and clients use a dozen to 36 characters, and every name is stored."""
    if len(stream) > LONGEST_SESSION:
        raise Refusal(400, "This session name is too long.")
    return stream


def _session_in(body: bytes) -> str | None:
    """The session hash in a call's content; None if there is none, which Gradio refuses itself."""

    def once(pairs: list[tuple[str, object]]) -> dict[str, object]:
        if sum(name == "session_hash" for name, _ in pairs) > 1:
            raise Refusal(400, "Specify only one session.")
        return dict(pairs)

    try:
        value = json.loads(body, object_pairs_hook=once)
    except (ValueError, RecursionError):
        raise Refusal(422, "The content is not JSON.") from None
    found = value.get("session_hash") if isinstance(value, dict) else None
    return _of_usual_length(found) if isinstance(found, str) else None


def _counted(receive: Receive, size: int) -> Receive:
    """Passes on the content, but not a byte more than was announced."""
    left = size

    async def counted() -> Message:
        nonlocal left
        message = await receive()
        left -= len(message.get("body", b""))
        if left < 0:
            raise Refusal(413, "More content arrived than was announced.")
        return message

    return counted


def _in_time(receive: Receive, seconds: float) -> Receive:
    """Passes on the content that arrives within this many seconds."""
    end = asyncio.get_running_loop().time() + seconds

    async def in_time() -> Message:
        try:
            async with asyncio.timeout_at(end):
                return await receive()
        except TimeoutError:
            raise Refusal(408, LATE) from None

    return in_time


async def _read(receive: Receive, size: int) -> bytes:
    """A request's content of `size` bytes."""
    body, counted = bytearray(), _in_time(_counted(receive, size), BODY_SECONDS)
    while (message := await counted())["type"] == "http.request":
        body += message.get("body", b"")
        if not message.get("more_body", False):
            return bytes(body)
    raise Refusal(400, "The content did not arrive.")


def _again(body: bytes, receive: Receive) -> Receive:
    """Passes on content that was read already, then the content after it."""
    given = False

    async def again() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again
