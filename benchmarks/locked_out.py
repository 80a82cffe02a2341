"""An unlocked officer's clicks while strangers attack the locked app in four ways at once.

    python -m benchmarks.locked_out [--seconds 60] [--without 66 67]

The attacks are those of docs/faults.md: a report's HTML of 40 000 beginnings of a script (66), a report's JSON of
millions of empty lists (67), content in pieces without end beside a short length (68), and backups that ask for 512 MiB
to try a passphrase (69). Printed are the officer's waits, and the largest size of the app's process with its children.
It ends with 1 where a click took more than 2 s or the processes more than 1.5 GB.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import socket
import sqlite3
import statistics
import tempfile
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import psutil

from storage.vault import Vault
from tools.running_app import PASSPHRASE, RunningApp, start_app

MIB = 1024**2
MOST_SECONDS, MOST_BYTES = 2.0, 1.5e9
# Of the officer's time between two clicks.
PAUSE = 0.25
STRANGERS_EACH = 2


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--without", type=int, nargs="*", default=[], choices=[66, 67, 68, 69])
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=Path.home()) as place:
        folder = Path(place)
        (folder / "home").mkdir(mode=0o700)
        Vault.create(folder / "home", PASSPHRASE).lock()
        backup = dear_backup(folder)
        attacks: dict[int, Callable[[RunningApp], Any]] = {
            66: lambda app: report_of(app, "report.html", b"<script" * 40_000),
            67: lambda app: report_of(app, "report.json", b"[" + b"[]," * (19 * MIB) + b"[]]"),
            68: pieces_without_end,
            69: lambda app: try_backup(app, backup),
        }
        with start_app(folder) as app:
            return measured(app, {n: attack for n, attack in attacks.items() if n not in given.without}, given.seconds)


def measured(app: RunningApp, attacks: dict[int, Callable[[RunningApp], Any]], seconds: float) -> int:
    """Runs the attacks beside the officer and prints what it cost."""
    over = threading.Event()
    counts = dict.fromkeys(attacks, 0)
    failed = dict.fromkeys(attacks, "")

    def attack(number: int) -> None:
        while not over.is_set():
            try:
                attacks[number](app)
            except (OSError, httpx.HTTPError, RuntimeError) as error:
                failed[number] = f"{type(error).__name__}: {error}"[:80]
                over.wait(0.2)
            counts[number] += 1

    waits: list[float] = []
    peak = 0
    with app.client() as officer:
        officer.get("/")
        called(officer, "do_unlock", [PASSPHRASE, 0])
        strangers = [threading.Thread(target=attack, args=(n,)) for n in attacks for _ in range(STRANGERS_EACH)]
        for each in strangers:
            each.start()
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            began = time.monotonic()
            seen = called(officer, "arrive", [False])["output"]["data"]
            waits.append(time.monotonic() - began)
            if not seen[3]["visible"]:
                raise SystemExit("the officer was locked out")
            peak = max(peak, size_of(app))
            time.sleep(PAUSE)
        over.set()
        for each in strangers:
            each.join(60)
    for number, count in counts.items():
        print(f"attack {number}: {count} times; last refusal by a broken connection: {failed[number] or 'none'}")
    print(f"the officer's {len(waits)} clicks: median {statistics.median(waits):.2f} s, slowest {max(waits):.2f} s")
    print(f"largest size of the app and its children: {peak / 1e9:.2f} GB")
    return int(max(waits) > MOST_SECONDS or peak > MOST_BYTES)


def size_of(app: RunningApp) -> int:
    """Bytes of memory of the app's process and all its children."""
    process, total = psutil.Process(app.process.pid), 0
    for each in (process, *process.children(recursive=True)):
        with contextlib.suppress(psutil.Error):
            total += each.memory_info().rss
    return total


def called(client: httpx.Client, name: str, data: list[Any]) -> dict[str, Any]:
    """The last message about a handler that was called as the page calls it."""
    config = client.get("/config").json()
    number = next(each["id"] for each in config["dependencies"] if each["api_name"] == name)
    session = uuid.uuid4().hex
    body = {"data": data, "fn_index": number, "session_hash": session}
    client.post("/gradio_api/queue/join", json=body).raise_for_status()
    with client.stream("GET", "/gradio_api/queue/data", params={"session_hash": session}) as stream:
        for line in stream.iter_lines():
            if line.startswith("data:") and (message := json.loads(line[5:]))["msg"] == "process_completed":
                return dict(message)
    raise RuntimeError("no answer")


def uploaded(client: httpx.Client, name: str, content: bytes) -> dict[str, Any]:
    """A file that a stranger uploads, as a call names it."""
    answer = client.post("/gradio_api/upload", files={"files": (name, content)})
    answer.raise_for_status()
    return {"path": answer.json()[0], "orig_name": name, "meta": {"_type": "gradio.FileData"}}


def report_of(app: RunningApp, name: str, content: bytes) -> None:
    """Has the page Verify check a report."""
    with app.client() as client:
        client.get("/")
        config = client.get("/config").json()
        kinds = {part["id"]: part["type"] for part in config["components"]}
        # The one behind the gate takes models too.
        begins = [each for each in config["dependencies"] if str(each["api_name"]).startswith("begin")]
        takes = [each["api_name"] for each in begins if [kinds[n] for n in each["inputs"]] == ["file", "textbox"]]
        file = uploaded(client, name, content)
        called(client, takes[0], [[file], ""])


def pieces_without_end(app: RunningApp) -> None:
    """Sends a file in pieces for as long as the app takes them, at most 1 GB."""
    head = "POST /gradio_api/upload HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: multipart/form-data; boundary=x\r\n"
    part = b'--x\r\nContent-Disposition: form-data; name="files"; filename="a"\r\n\r\n'
    with socket.create_connection(("127.0.0.1", app.port), timeout=20) as raw:
        raw.sendall(f"{head}Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n".encode())
        raw.sendall(f"{len(part):x}\r\n".encode() + part + b"\r\n")
        for _ in range(1024):
            raw.sendall(f"{MIB:x}\r\n".encode() + bytes(MIB) + b"\r\n")


def try_backup(app: RunningApp, content: bytes) -> None:
    """Has a passphrase tried on a backup."""
    with app.client() as client:
        client.get("/")
        called(client, "compare", [None, uploaded(client, "b.sqlite3", content), "a passphrase"])


def dear_backup(folder: Path) -> bytes:
    """A backup whose header asks for the most memory and time that any vault may."""
    copy = folder / "dear.sqlite3"
    with contextlib.ExitStack() as stack:
        source = stack.enter_context(contextlib.closing(sqlite3.connect(folder / "home" / "vault.sqlite3")))
        target = stack.enter_context(contextlib.closing(sqlite3.connect(copy)))
        source.backup(target)
        target.execute("PRAGMA journal_mode=DELETE").fetchall()
        target.execute("UPDATE vault SET memory_kib = 524288, passes = 8, lanes = 1")
        target.commit()
    return copy.read_bytes()


if __name__ == "__main__":
    raise SystemExit(main())
