"""An unlocked officer's clicks, and another's unlocking, while four callers attack the app in six ways at once.

    python -m benchmarks.locked_out [--seconds 60] [--without 66 67] [--write]

The attacks are those of docs/faults.md: a page with 40 000 `<script` tags and a valid report's JSON (66), a JSON of
57 MiB of empty lists (67), endless content in pieces with a short stated length (68), backups that need eight passes
over 512 MiB to try a passphrase (69), calls with session names of 2 MB and with many new names (91), and unlimited
wrong passphrases, small files, streams and silent connections (96). Each attacker runs in a separate process and
repeats each attack. It prints the officer's waiting times, the time that the right passphrase takes in a known browser,
and the largest size of the app's process with its children. The exit status is 1 if a click took more than 2 s,
unlocking more than 5 s, or the processes more than 1.5 GB. --write puts the table into docs/security.md.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import socket
import sqlite3
import statistics
import tempfile
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

import httpx
import psutil

import irwm
from benchmarks.written import write_table
from irwm.report import ItemDescription, KeyInfo, finding_document, installed_versions, to_json
from storage.vault import Vault
from tools.running_app import PASSPHRASE, start_app
from tools.small_models import write_llama
from tools.waiting import PATIENCE

MIB = 1024**2
MOST_SECONDS, MOST_TO_UNLOCK, MOST_BYTES = 2.0, 5.0, 1.5e9
# Seconds between two clicks of the officer.
PAUSE = 0.25
ATTACKERS = 4
CLICKS_BEFORE = 10
ANSWERED = "answered"
PAGE = b"<script" * 40_000
LISTS = b"[" + b"[]," * (19 * MIB) + b"[]]"
WHAT = {
    66: "a report whose page is 40 000 times `<script`",
    67: "a report's JSON of 57 MiB of `[],`",
    68: "up to 1 GB in pieces, with a stated length of 5 bytes",
    69: "backups that ask for 512 MiB × 8",
    91: "calls with session names of 2 MB, and with many new names",
    96: "wrong passphrases; small files; streams and silent connections that stay open",
}
# Streams and silent connections that one attacker holds open at a time.
HELD = 100


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--without", type=int, nargs="*", default=[], choices=list(WHAT))
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    numbers = [number for number in WHAT if number not in given.without]
    with tempfile.TemporaryDirectory(dir=Path.home()) as place:
        folder = Path(place)
        (folder / "home").mkdir(mode=0o700)
        Vault.create(folder / "home", PASSPHRASE).lock()
        (folder / "report.json").write_bytes(sound_numbers(folder))
        (folder / "expensive.sqlite3").write_bytes(expensive_backup(folder / "home" / "vault.sqlite3"))
        load = os.getloadavg()[0]
        with start_app(folder) as app:
            found = measured(app.port, app.process.pid, folder, numbers, given.seconds)
    lines = table(found, load)
    print(lines)
    if given.write:
        write_table("security.md", "locked out", lines)
    slow = max(found.clicks) > MOST_SECONDS or max(found.unlocks) > MOST_TO_UNLOCK
    return int(slow or found.peak > MOST_BYTES)


@dataclass(frozen=True)
class Measured:
    """The results.

    Attributes:
        before, clicks: seconds of the officer's clicks, before and during the attacks.
        unlocks: seconds from the right passphrase to the open page, each in a known browser.
        peak: largest number of bytes of the app and its children.
        counts: number of outcomes of each attack.
    """

    before: Sequence[float]
    clicks: Sequence[float]
    unlocks: Sequence[float]
    peak: int
    counts: Mapping[int, Counter[str]]


def table(found: Measured, load: float) -> str:
    """Return the table for docs/security.md."""
    rows = [
        f"| the officer's {len(found.before)} clicks before the attacks | {waited(found.before)} |",
        f"| the officer's {len(found.clicks)} clicks during the attacks | {waited(found.clicks)} |",
        f"| the right passphrase, {len(found.unlocks)} times in a known browser | {waited(found.unlocks)} |",
        f"| largest size of the app and its children | {found.peak / 1e9:.2f} GB |",
    ]
    for number, count in found.counts.items():
        refused = ", ".join(f"{n} times {why}" for why, n in count.most_common() if why != ANSWERED)
        rows.append(
            f"| {WHAT[number]} ({number}) | answered {count[ANSWERED]} times{'; ' + refused if refused else ''} |"
        )
    rows.append(f"| the machine | {os.cpu_count()} processors, {load:.0f} running processes before the attacks |")
    return "\n".join(["| measured | |", "|---|---|", *rows])


def waited(seconds: Sequence[float]) -> str:
    return f"median {statistics.median(seconds):.2f} s, slowest {max(seconds):.2f} s"


def measured(port: int, process: int, folder: Path, numbers: Sequence[int], seconds: float) -> Measured:
    """Measure the officer's waiting times before and during the attacks."""
    spawn = multiprocessing.get_context("spawn")
    over, told = spawn.Event(), spawn.Queue()
    waits: list[float] = []
    unlocks: list[float] = []
    peak = 0
    attackers = [spawn.Process(target=attack, args=(port, folder, numbers, over, told)) for _ in range(ATTACKERS)]
    with client_of(port) as officer, client_of(port) as owner:
        for browser in (officer, owner):
            browser.get("/")
            called(browser, "do_unlock", [PASSPHRASE, 0])
        unlock, lock = handler(owner, "do_unlock"), handler(owner, "do_lock")
        number = handler(officer, "arrive")  # an open page knows it
        desk = answer_for(officer, "arrive", "desk")

        def click() -> float:
            began = time.monotonic()
            seen = run(officer, number, [False])["output"]["data"]
            took = time.monotonic() - began
            if not seen[desk]["visible"]:
                raise SystemExit("the officer was locked out")
            time.sleep(PAUSE)
            return took

        def unlocked() -> float:
            run(owner, lock, [0])
            owner.get("/")
            began = time.monotonic()
            run(owner, unlock, [PASSPHRASE, 0])
            took = time.monotonic() - began
            if not run(owner, number, [False])["output"]["data"][desk]["visible"]:
                raise SystemExit("the right passphrase did not open the page")
            return took

        before = [click() for _ in range(CLICKS_BEFORE)]
        for each in attackers:
            each.start()
        for _ in range(ATTACKERS):
            told.get(timeout=PATIENCE)  # the attacker is ready
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            waits.append(click())
            if len(waits) % CLICKS_BEFORE == 0:
                unlocks.append(unlocked())
            peak = max(peak, size_of(process))
        over.set()
        counts: dict[int, Counter[str]] = {number: Counter() for number in numbers}
        for _ in range(ATTACKERS):
            for number, count in told.get(timeout=PATIENCE).items():
                counts[number] += count
        for each in attackers:
            each.join()
    return Measured(before, waits, unlocks, peak, counts)


def attack(port: int, folder: Path, numbers: Sequence[int], over: Event, told: Queue[Any]) -> None:
    """Run one attacker's process: every attack in its own thread, until `over` is set."""
    numbers_file, backup = (folder / "report.json").read_bytes(), (folder / "expensive.sqlite3").read_bytes()
    attacks: dict[int, Callable[[], Any]] = {
        66: lambda: report_of(port, {"report.html": PAGE, "report.json": numbers_file}),
        67: lambda: report_of(port, {"report.json": LISTS}),
        68: lambda: pieces_without_end(port),
        69: lambda: try_backup(port, backup),
        91: lambda: new_names(port),
        96: lambda: hold(port),
    }
    counts: dict[int, Counter[str]] = {number: Counter() for number in numbers}

    def attack(number: int) -> None:
        while not over.is_set():
            try:
                attacks[number]()
                counts[number][ANSWERED] += 1
            except httpx.HTTPStatusError as error:
                counts[number][f"refused with {error.response.status_code}"] += 1
                over.wait(0.2)
            except (OSError, httpx.HTTPError, RuntimeError, ValueError):
                counts[number]["cut off"] += 1
                over.wait(0.2)

    told.put("ready")
    threads = [threading.Thread(target=attack, args=(number,)) for number in numbers]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    told.put(counts)


def client_of(port: int) -> httpx.Client:
    return httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE, trust_env=False)


def size_of(number: int) -> int:
    """Return the bytes of memory of a process and all its children."""
    process, total = psutil.Process(number), 0
    for each in (process, *process.children(recursive=True)):
        with contextlib.suppress(psutil.Error):
            total += each.memory_info().rss
    return total


def called(client: httpx.Client, name: str, data: list[Any]) -> dict[str, Any]:
    """Call a handler like the page, and return the last message about it."""
    return run(client, handler(client, name), data)


def handler(client: httpx.Client, name: str) -> int:
    """Return the number of a handler."""
    config = client.get("/config").raise_for_status().json()
    return int(next(each["id"] for each in config["dependencies"] if each["api_name"] == name))


def answer_for(client: httpx.Client, name: str, part: str) -> int:
    """Return the index of a handler's answer for the part of the page with this elem_id."""
    config = client.get("/config").raise_for_status().json()
    parts = {each["id"]: each["props"].get("elem_id") for each in config["components"]}
    outputs = next(each["outputs"] for each in config["dependencies"] if each["api_name"] == name)
    return [parts[number] for number in outputs].index(part)


def run(client: httpx.Client, number: int, data: list[Any]) -> dict[str, Any]:
    session = uuid.uuid4().hex
    body = {"data": data, "fn_index": number, "session_hash": session}
    client.post("/gradio_api/queue/join", json=body).raise_for_status()
    with client.stream("GET", "/gradio_api/queue/data", params={"session_hash": session}) as stream:
        for line in stream.iter_lines():
            if line.startswith("data:") and (message := json.loads(line[5:]))["msg"] == "process_completed":
                return dict(message)
    raise RuntimeError("no answer")


def uploaded(client: httpx.Client, name: str, content: bytes) -> dict[str, Any]:
    """Upload a file as an unauthenticated caller, and return it as a call names it."""
    answer = client.post("/gradio_api/upload", files={"files": (name, content)})
    answer.raise_for_status()
    return {"path": answer.json()[0], "orig_name": name, "meta": {"_type": "gradio.FileData"}}


def report_of(port: int, files: Mapping[str, bytes]) -> dict[str, Any]:
    """Let the page Verify of a locked browser check a report, and return the answer."""
    with client_of(port) as client:
        client.get("/")
        config = client.get("/config").raise_for_status().json()
        kinds = {part["id"]: part["type"] for part in config["components"]}
        # The handler behind the gate also takes models.
        begins = [each for each in config["dependencies"] if str(each["api_name"]).startswith("begin")]
        takes = [
            each["api_name"] for each in begins if [kinds[n] for n in each["inputs"]] == ["file", "textbox", "file"]
        ]
        posted = [uploaded(client, name, content) for name, content in files.items()]
        return called(client, takes[0], [posted, "", []])


def pieces_without_end(port: int) -> None:
    """Send a file in pieces while the app accepts them, at most 1 GB."""
    head = "POST /gradio_api/upload HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: multipart/form-data; boundary=x\r\n"
    part = b'--x\r\nContent-Disposition: form-data; name="files"; filename="a"\r\n\r\n'
    with socket.create_connection(("127.0.0.1", port), timeout=20) as raw:
        raw.sendall(f"{head}Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n".encode())
        raw.sendall(f"{len(part):x}\r\n".encode() + part + b"\r\n")
        for _ in range(1024):
            raw.sendall(f"{MIB:x}\r\n".encode() + bytes(MIB) + b"\r\n")


def try_backup(port: int, content: bytes) -> None:
    """Let the app try a passphrase on a backup."""
    with client_of(port) as client:
        client.get("/")
        called(client, "compare", [None, uploaded(client, "b.sqlite3", content), "a passphrase"])


def new_names(port: int) -> None:
    """Call with a session name of 2 MB, and with many new names."""
    with client_of(port) as client:
        number = handler(client, "arrive")
        body = {"data": [False], "fn_index": number, "session_hash": "x" * 2 * MIB}
        client.post("/gradio_api/queue/join", json=body)
        for _ in range(HELD):
            client.post("/gradio_api/queue/join", json=body | {"session_hash": uuid.uuid4().hex})


def hold(port: int) -> None:
    """Hold streams and silent connections open while sending small files and a wrong passphrase."""
    with contextlib.ExitStack() as stack:
        for number in range(HELD):
            raw = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=20))
            if number % 2:
                raw.sendall(
                    f"GET /gradio_api/heartbeat/{uuid.uuid4().hex} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode()
                )
        client = stack.enter_context(client_of(port))
        client.get("/")
        for number in range(HELD // 10):
            client.post("/gradio_api/upload", files={"files": (f"{number}", b"x")})
        called(client, "do_unlock", ["a guess", 0])


def sound_numbers(folder: Path) -> bytes:
    """Return the JSON of an honest report, so that the page next to it is checked."""
    model = irwm.open_checkpoint(write_llama(folder / "original"))
    key = irwm.generate_key(model, owner="Example Labs")
    item = ItemDescription.of(model)
    document = finding_document(
        irwm.detect(model, model, key),
        suspect=item,
        original=item,
        key_info=KeyInfo.of(key),
        case={},
        created_utc="2026-01-01T00:00:00Z",
        tool_versions=installed_versions(),
    )
    return to_json(document)


def expensive_backup(vault: Path) -> bytes:
    """Return a backup of this vault file that asks for 512 MiB, eight times, before its passphrase can be wrong."""
    copy = vault.with_name("expensive.sqlite3")
    with contextlib.ExitStack() as stack:
        source = stack.enter_context(contextlib.closing(sqlite3.connect(vault)))
        target = stack.enter_context(contextlib.closing(sqlite3.connect(copy)))
        source.backup(target)
        target.execute("PRAGMA journal_mode=DELETE").fetchall()
        target.execute("UPDATE vault SET memory_kib = 524288, passes = 8, lanes = 1")
        target.commit()
    content = copy.read_bytes()
    copy.unlink()
    return content


if __name__ == "__main__":
    raise SystemExit(main())
