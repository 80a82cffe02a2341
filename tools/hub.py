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
from urllib.parse import parse_qs, unquote, urlencode, urlsplit

# Larger files are in the hub's large file storage.
LARGE = 100_000
REPOSITORY = "acme/model-8b"
ADDRESS = f"hf://{REPOSITORY}"
TOKEN = "hf_quuxholm"
_RANGE = re.compile(r"bytes=(\d+)-(\d+)")
_API = re.compile(r"/api/models/(?P<repository>[^/]+/[^/]+)/(?P<call>revision|tree)/(?P<revision>.+)")
_RESOLVE = re.compile(r"/(?P<repository>[^/]+/[^/]+)/resolve/(?P<revision>[^/]+)/(?P<resolve>.+)")
_STORED = re.compile(r"/(signed|api/resolve-cache)/(?P<repository>[^/]+/[^/]+)/(?P<name>.+)")


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
        page: how many files, or models, are in one page of a list.
        models: other repositories, by name: their commits and folders. The list of models has them and no others.
    """

    folder: Path
    commit: str = "c" * 40
    requests: list[Request] = field(default_factory=list)
    fault: Callable[[Any, Path, int, int], bool] | None = None
    page: int = 1000
    address: str = ""
    store: str = ""
    large: int = LARGE
    models: dict[str, tuple[str, Path]] = field(default_factory=dict)
    _digests: dict[tuple[str, int], str] = field(default_factory=dict)

    @property
    def bytes_sent(self) -> int:
        return sum(request.sent for request in self.requests)

    def sha256(self, file: Path) -> str:
        key = str(file), file.stat().st_mtime_ns
        if key not in self._digests:
            self._digests[key] = hashlib.sha256(file.read_bytes()).hexdigest()
        return self._digests[key]

    def repository(self, name: str) -> tuple[str, Path] | None:
        """The commit and the folder of a repository."""
        return (self.commit, self.folder) if name == REPOSITORY else self.models.get(name)

    def listed(self, query: Mapping[str, list[str]]) -> list[dict[str, str]]:
        """The models of an author, or with a word in their names."""
        author, word = query.get("author", [""])[0], query.get("search", [""])[0]
        return [
            {"_id": "1", "id": name, "sha": commit}
            for name, (commit, _) in self.models.items()
            if name.startswith(f"{author}/" if author else "") and word in name
        ]

    def tree(self, folder: Path) -> list[dict[str, Any]]:
        found = []
        for file in sorted(folder.rglob("*")):
            name, size = str(file.relative_to(folder)), file.stat().st_size
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
        if path == "/api/models":
            self.send_page(path, query, hub.listed(query))
            return
        store = _STORED.fullmatch(path)
        if store is not None:
            found = hub.repository(store["repository"])
            self.send_file(found[1] / store["name"] if found else Path("missing"))
            return
        asked = _API.fullmatch(path) or _RESOLVE.fullmatch(path)
        found = hub.repository(asked["repository"]) if asked else None
        if asked is None or found is None:
            self.send_json({"error": "not found"}, 404)
            return
        repository, (commit, folder) = asked["repository"], found
        if "resolve" in asked.groupdict():
            self._resolve(repository, commit, folder, asked["revision"], asked["resolve"])
        elif asked["call"] == "revision":
            known = asked["revision"] in ("main", commit)
            self.send_json({"sha": commit, "id": repository} if known else {"error": "?"}, 200 if known else 404)
        elif asked["revision"] == commit:
            self.send_page(path, query, hub.tree(folder))
        else:
            self.send_json({"error": "not found"}, 404)

    def _resolve(self, repository: str, commit: str, folder: Path, revision: str, name: str) -> None:
        hub, file = self.hub, folder / name
        if revision not in ("main", commit) or not file.is_file():
            self.send_json({"error": "Entry not found"}, 404)
        elif file.stat().st_size > hub.large:
            linked = {"X-Repo-Commit": commit, "X-Linked-Etag": f'"{hub.sha256(file)}"'}
            self.redirect(302, f"{hub.store}/signed/{repository}/{name}?signature=abc", linked)
        else:
            self.redirect(307, f"/api/resolve-cache/{repository}/{name}", {"X-Repo-Commit": commit})

    def send_page(self, path: str, query: Mapping[str, list[str]], found: list[Any]) -> None:
        """One page of a list, with the address of the next one."""
        start, more = int(query.get("cursor", ["0"])[0]), {}
        if start + self.hub.page < len(found):
            kept = {name: values for name, values in query.items() if name != "cursor"}
            following = urlencode({**kept, "cursor": [start + self.hub.page]}, doseq=True)
            more = {"Link": f'<{self.hub.address}{path}?{following}>; rel="next"'}
        self.send_json(found[start : start + self.hub.page], 200, more)

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
