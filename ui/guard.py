"""What stands between the network and Gradio: who may ask, what may be asked, and what the browser may do with it.

Gradio 6.31.0 answers any Host header (so a rebound name reaches it), lets every port of localhost read its answers,
fetches web addresses for whoever asks for /file=http..., and serves pages for tracing, recording and editing that this
app has no use for. Each check below refuses before Gradio sees the request; what it does not know is refused.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import unquote

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import HTTPConnection
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ui.sessions import new_session_id

MIB = 1024 * 1024
# A suspect of this size may be uploaded; larger ones are picked where they lie.
UPLOAD_BYTES = 1024 * MIB
UPLOADS_TOTAL_BYTES = 2 * UPLOAD_BYTES
# Ten times the files of a large model's folder; a flood of empty files would take every name on the disk.
UPLOADS_MOST = 2000
# Free space that uploads must leave; a full temp folder stops more than this app.
SPARE_BYTES = 512 * MIB
# Everything that is no upload: form values, pasted CSV lists of recipients.
BODY_BYTES = 8 * MIB

DOCUMENT = "/"
UPLOAD = "/gradio_api/upload"
FILE = "/gradio_api/file="
# The folder inside that of uploads where the app puts what may be fetched; Gradio gives uploads names of 64 digits.
OFFERED = "offered"
READ = (
    re.compile(r"/(?:config|theme\.css|favicon\.ico|manifest\.json|robots\.txt)?"),
    re.compile(r"/(?:assets|static|studio)/.+"),
    re.compile(r"/gradio_api/(?:info|openapi\.json|app_id|startup-events|theme\.css|upload_progress)/?"),
    re.compile(r"/gradio_api/(?:queue/(?:data|status)|heartbeat/[^/]+|call/(?:v2/)?[^/]+/[^/]+)"),
    re.compile(re.escape(FILE) + r".+"),
)
WRITE = (
    re.compile(r"/gradio_api/(?:queue/join|cancel|reset|upload)/?"),
    re.compile(r"/gradio_api/(?:run|api|call|call/v2)/[^/]+/?"),
)
# What keeps reading from being a way to act: a page elsewhere may link to us, but not load parts of us.
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

    'unsafe-eval' stays because gr.HTML compiles its template and every `js=` with `Function` (seen in 6.31.0). What
    that lets through is code that came as code; markup smuggled into a name cannot run, which needs 'unsafe-inline'.
    Inline styles are how Svelte and plotly position things.
    """
    scripts = f" 'nonce-{nonce}'" if nonce else ""
    return (
        f"default-src 'self'; script-src 'self'{scripts} 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
        "img-src 'self' data: blob:; font-src 'self'; connect-src 'self'; worker-src 'self' blob:; "
        "object-src 'none'; base-uri 'self'; form-action 'self'; frame-src 'self'; frame-ancestors 'none'"
    )


class Refusal(Exception):
    """A request that goes no further."""

    def __init__(self, status: int, reason: str) -> None:
        self.status = status
        self.reason = reason
        super().__init__(reason)


class Guard:
    """ASGI middleware; see the module's text.

    Args:
        app: what it protects.
        uploads: Gradio's upload folder, the only one from which files are handed out.
        cookie: name of the session cookie.
        is_open: whether a session is unlocked. A locked one gets a fresh cookie with each page, so that an identifier
            that another program on this host planted in the browser is thrown away before the passphrase is typed.
        first: makes what stands first in the page's head.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        uploads: Path,
        cookie: str,
        is_open: Callable[[str], bool],
        first: Callable[[], bytes] = bytes,
    ) -> None:
        self.app = app
        self.uploads = uploads
        self.cookie = cookie
        self.is_open = is_open
        self.first = first
        self._arriving = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] == "websocket":  # Gradio 6 has none
            await send({"type": "websocket.close", "code": 1008, "reason": "not served here"})
            return
        try:
            size = self._check(scope)
        except Refusal as refusal:
            answer = PlainTextResponse(refusal.reason, refusal.status)
            await answer(scope, receive, self._with_headers(scope, send))
            return
        self._arriving += size
        try:
            await self.app(scope, receive, self._with_headers(scope, send))
        finally:
            self._arriving -= size

    def _check(self, scope: Scope) -> int:
        """Raises Refusal, or returns the size of an admitted upload (0 for everything else)."""
        headers, path, method = Headers(scope=scope), scope["path"], scope["method"]
        origin = headers.get("origin")
        # The Host was checked before, so this is "the same origin", also through a tunnel from another port. Absent
        # with gradio_client and curl; a browser sends it with every POST.
        if origin is not None and origin.lower() != f"http://{headers.get('host', '').lower()}":
            raise Refusal(403, "This page belongs to another site; nothing was done.")
        self._check_fetch_metadata(headers, path, method)
        reading = method in ("GET", "HEAD")
        if not reading and method != "POST":
            raise Refusal(405, "This method is not used here.")
        if not any(pattern.fullmatch(path) for pattern in (READ if reading else WRITE)):
            raise Refusal(404, "There is nothing here.")
        if path.startswith(FILE):
            self._check_file(path.removeprefix(FILE))
        return 0 if reading else self._check_size(headers, path)

    def _check_fetch_metadata(self, headers: Headers, path: str, method: str) -> None:
        # Browsers add this to every request, also to those without an Origin, such as an <img> on another page.
        site = headers.get("sec-fetch-site")
        if site is None or site in OWN_FETCH_SITES:
            return
        followed_a_link = method == "GET" and path == DOCUMENT and headers.get("sec-fetch-dest") == "document"
        if not followed_a_link:
            raise Refusal(403, "This page belongs to another site; nothing was done.")

    def _check_file(self, name: str) -> None:
        refused = Refusal(403, "This file is not handed out.")
        # Unquoted once more than the server did: a name that changes was quoted twice, and means to slip by.
        if "\0" in name or unquote(name) != name:
            raise refused
        # Another computer's file to Windows, which would log in there before it could say where the file lies.
        if re.match(r"[/\\]{2}", name):
            raise refused
        try:
            inside = Path(name).resolve(strict=True).is_relative_to(self.uploads.resolve())
        except (OSError, RuntimeError, ValueError):
            raise refused from None
        if not inside:
            raise refused

    def _check_size(self, headers: Headers, path: str) -> int:
        length = headers.get("content-length", "")
        if not (length.isascii() and length.isdigit()):
            raise Refusal(411, "Say how long the content is.")
        size = int(length)
        if path.rstrip("/") != UPLOAD:
            if size > BODY_BYTES:
                raise Refusal(413, f"At most {BODY_BYTES // MIB} MiB fit in one request.")
            return 0
        # One part may be as large as allowed; what surrounds it in the form is small.
        if size > UPLOAD_BYTES + MIB:
            raise Refusal(413, f"A file may have {UPLOAD_BYTES // MIB} MiB. Pick larger ones by their path instead.")
        sizes = list(self._sizes())
        held = self._arriving + sum(sizes)
        free = shutil.disk_usage(self.uploads).free
        if held + size > UPLOADS_TOTAL_BYTES or size + SPARE_BYTES > free or len(sizes) >= UPLOADS_MOST:
            raise Refusal(413, "There is no room for more uploads. Pick the file by its path instead.")
        return size

    def _sizes(self) -> Iterator[int]:
        """Of every file that was uploaded; what the app offers there itself takes no room from uploads."""
        for folder, below, names in os.walk(self.uploads):
            if Path(folder) == self.uploads and OFFERED in below:
                below.remove(OFFERED)
            for name in names:
                # Taken by a handler, or removed for its age, between the two looks.
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
            # The page is one template of some hundred kilobytes, so it can be held until it is complete.
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
        if present and self.is_open(f"cookie:{present}"):
            return
        # Both are of plain letters, so nothing needs quoting.
        headers.append("Set-Cookie", f"{self.cookie}={new_session_id()}; Path=/; HttpOnly; SameSite=Strict")
