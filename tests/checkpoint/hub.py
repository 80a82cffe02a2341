"""A hub on this machine: its list of files, its resolve addresses, and redirects of large files to a second host.

Written after the answers of the real hub: `X-Repo-Commit` and `X-Linked-Etag` are on the redirect, small files are
redirected within the hub, and large ones to a signed address on another host.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

# Larger files are in the hub's large file storage.
LARGE = 100_000
REPOSITORY = "acme/model-8b"
ADDRESS = f"hf://{REPOSITORY}"
TOKEN = "hf_quuxholm"
_RANGE = re.compile(r"bytes=(\d+)-(\d+)")


@dataclass(frozen=True, slots=True)
class Request:
    """One request as the server saw it."""

    host: str
    path: str
    range: str
    authorization: str
    sent: int


@dataclass
class Hub:
    """A running hub.

    Attributes:
        folder: the files of its repository.
        commit: the commit of its main branch.
        requests: all requests so far.
        fault: changes an answer; called with the handler, the file and the range before a large file is sent. Returns
            whether it answered itself.
        page: how many files are in one page of the list.
    """

    folder: Path
    commit: str = "c" * 40
    requests: list[Request] = field(default_factory=list)
    fault: Callable[[Any, Path, int, int], bool] | None = None
    page: int = 1000
    address: str = ""
    store: str = ""
    large: int = LARGE
    _digests: dict[tuple[str, int], str] = field(default_factory=dict)

    @property
    def bytes_sent(self) -> int:
        return sum(request.sent for request in self.requests)

    def sha256(self, file: Path) -> str:
        key = str(file), file.stat().st_mtime_ns
        if key not in self._digests:
            self._digests[key] = hashlib.sha256(file.read_bytes()).hexdigest()
        return self._digests[key]

    def tree(self) -> list[dict[str, Any]]:
        found = []
        for file in sorted(self.folder.rglob("*")):
            name, size = str(file.relative_to(self.folder)), file.stat().st_size
            if file.is_dir():
                found.append({"type": "directory", "oid": "d" * 40, "size": 0, "path": name})
                continue
            entry: dict[str, Any] = {"type": "file", "oid": self.oid(file), "size": size, "path": name}
            if size > self.large:
                entry["lfs"] = {"oid": self.sha256(file), "size": size, "pointerSize": 134}
            found.append(entry)
        return found

    @staticmethod
    def oid(file: Path) -> str:
        content = file.read_bytes() if file.stat().st_size <= LARGE else b"pointer"
        return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: Hub

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        path = unquote(parts.path)
        self.sent = 0
        try:
            self._answer(path, parse_qs(parts.query))
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True
        said = self.headers.get("Range", ""), self.headers.get("Authorization", "")
        self.hub.requests.append(Request(self.headers["Host"], path, *said, self.sent))

    def _answer(self, path: str, query: Mapping[str, list[str]]) -> None:
        hub = self.hub
        if path.startswith("/signed/"):
            self.send_file(hub.folder / path.removeprefix("/signed/"))
        elif path.startswith(f"/api/models/{REPOSITORY}/revision/"):
            revision = path.rsplit("/", 1)[1]
            known = revision in ("main", hub.commit)
            self.send_json({"sha": hub.commit, "id": REPOSITORY} if known else {"error": "?"}, 200 if known else 404)
        elif path == f"/api/models/{REPOSITORY}/tree/{hub.commit}":
            start = int(query.get("cursor", ["0"])[0])
            found = hub.tree()
            more = {}
            if start + hub.page < len(found):
                more = {"Link": f'<{hub.address}{path}?recursive=true&cursor={start + hub.page}>; rel="next"'}
            self.send_json(found[start : start + hub.page], 200, more)
        elif path.startswith(f"/{REPOSITORY}/resolve/"):
            commit, _, name = path.removeprefix(f"/{REPOSITORY}/resolve/").partition("/")
            file = hub.folder / name
            if commit not in ("main", hub.commit) or not file.is_file():
                self.send_json({"error": "Entry not found"}, 404)
            elif file.stat().st_size > hub.large:
                linked = {"X-Repo-Commit": hub.commit, "X-Linked-Etag": f'"{hub.sha256(file)}"'}
                self.redirect(302, f"{hub.store}/signed/{name}?signature=abc", linked)
            else:
                self.redirect(307, f"/api/resolve-cache/{name}", {"X-Repo-Commit": hub.commit})
        elif path.startswith("/api/resolve-cache/"):
            self.send_file(hub.folder / path.removeprefix("/api/resolve-cache/"))
        else:
            self.send_json({"error": "not found"}, 404)

    def redirect(self, status: int, place: str, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in {"Location": place, "Content-Length": "0", **headers}.items():
            self.send_header(name, value)
        self.end_headers()

    def send_json(self, value: Any, status: int, headers: Mapping[str, str] | None = None) -> None:
        content = json.dumps(value).encode()
        self.send_response(status)
        for name, text in {"Content-Length": str(len(content)), **(headers or {})}.items():
            self.send_header(name, text)
        self.end_headers()
        self.wfile.write(content)

    def send_file(self, file: Path) -> None:
        if not file.is_file():
            self.send_json({"error": "no such file"}, 404)
            return
        size = file.stat().st_size
        asked = _RANGE.fullmatch(self.headers.get("Range", ""))
        start, stop = (int(asked[1]), min(int(asked[2]) + 1, size)) if asked else (0, size)
        if self.hub.fault is not None and self.hub.fault(self, file, start, stop):
            return
        if start >= size:
            self.send_json({"error": "range"}, 416)
            return
        self.send_range(file, start, stop, size)

    def send_range(self, file: Path, start: int, stop: int, size: int, most: int | None = None) -> None:
        """A range; with `most`, the connection breaks after so many bytes."""
        self.send_response(206)
        self.send_header("Content-Range", f"bytes {start}-{stop - 1}/{size}")
        self.send_header("Content-Length", str(stop - start))
        self.send_header("ETag", f'"{self.hub.sha256(file)}"')
        self.end_headers()
        with open(file, "rb") as stream:
            stream.seek(start)
            content = stream.read((stop - start) if most is None else min(most, stop - start))
        self.wfile.write(content)
        self.sent = len(content)
        if most is not None and most < stop - start:
            self.close_connection = True


@contextmanager
def serving(folder: Path) -> Iterator[Hub]:
    """A hub with the files of a folder, and its store on a second port."""
    hub = Hub(folder)
    handler = type("Handler", (_Handler,), {"hub": hub})
    servers = [ThreadingHTTPServer(("127.0.0.1", 0), handler) for _ in range(2)]
    threads = [threading.Thread(target=server.serve_forever, daemon=True) for server in servers]
    hub.address, hub.store = (f"http://127.0.0.1:{server.server_address[1]}" for server in servers)
    for thread in threads:
        thread.start()
    try:
        yield hub
    finally:
        for server in servers:
            server.shutdown()
            server.server_close()
        for thread in threads:
            thread.join()


def put(hub: Hub, path: Path) -> None:
    """Adds the files of a folder to the repository."""
    shutil.copytree(path, hub.folder, dirs_exist_ok=True)
