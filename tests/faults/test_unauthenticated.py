"""Limits on what an unauthenticated caller can make the app hold, store, compute or disclose.

Every attack is on the running app, over real connections.
"""

from __future__ import annotations

import contextlib
import io
import json
import socket
import threading
import uuid
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import psutil
import pytest

from benchmarks.locked_out import LISTS, MOST_BYTES, PAGE, expensive_backup, report_of, size_of, sound_numbers
from storage import Cost, Vault
from tests.ui.test_serving import call, handler, is_open
from tools.running_app import PASSPHRASE, RunningApp, start_app
from tools.waiting import PATIENCE, until
from ui import connections, errors_seen, guard, offline
from ui.budget import UNAUTHENTICATED

MIB = 1024**2
CHEAP = Cost(memory_kib=8, passes=1, lanes=1)


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningApp]:
    folder = tmp_path_factory.mktemp("callers")
    (folder / "home").mkdir(mode=0o700)
    Vault.create(folder / "home", PASSPHRASE, CHEAP).lock()
    with start_app(folder) as app:
        yield app


@pytest.fixture
def client(app: RunningApp) -> Iterator[httpx.Client]:
    """A browser with its own cookie, locked."""
    with app.client() as client:
        client.get("/")
        yield client


def stored(app: RunningApp) -> int:
    """Bytes in the app's temporary folder."""
    return sum(path.stat().st_size for path in (app.home.parent / "tmp").rglob("*") if path.is_file())


def answer_to(app: RunningApp, head: str, piece: bytes = b"", most: int = 0) -> tuple[bytes, int]:
    """The app's answer to a raw request, and how many bytes of repeated `piece` it took before."""
    sent = 0
    with socket.create_connection(("127.0.0.1", app.port), timeout=PATIENCE) as raw:
        raw.sendall(head.replace("\n", "\r\n").encode() + b"\r\n")
        # The app closed the connection; it need not read what it refused.
        with contextlib.suppress(ConnectionError):
            while sent < most:
                raw.sendall(piece)
                sent += len(piece)
        with contextlib.suppress(ConnectionError):
            return raw.recv(200), sent
    return b"", sent


@pytest.fixture(scope="module")
def numbers(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return sound_numbers(tmp_path_factory.mktemp("numbers"))


class Sending:
    """A report that an unauthenticated caller has the app check, in a thread."""

    def __init__(self, app: RunningApp, files: Mapping[str, bytes]) -> None:
        self._app = app
        self._answers = ThreadPoolExecutor(1)
        self.answer = self._answers.submit(lambda: json.dumps(report_of(app.port, files)))
        self._answers.shutdown(wait=False)

    def frozen_verifier(self) -> psutil.Process | None:
        """The child process that checks it, paused from now on; None if it has ended already."""

        def child() -> psutil.Process | bool:
            for each in psutil.Process(self._app.process.pid).children():
                with contextlib.suppress(psutil.Error):
                    if "irwm.report.sandbox" in each.cmdline():
                        return each
            return self.answer.done()

        found = until(child, "the child process that checks the report", self._app.log)
        if isinstance(found, psutil.Process):
            with contextlib.suppress(psutil.Error):
                found.suspend()
                if found.status() == psutil.STATUS_STOPPED:
                    return found
        return None


@pytest.mark.fault(66, 67)
@pytest.mark.slow
@pytest.mark.sampled(2)
@pytest.mark.parametrize("attack", ["page", "lists"])
def test_slow_report_does_not_delay_other_callers(
    app: RunningApp, client: httpx.Client, numbers: bytes, attack: str
) -> None:
    call(client, "do_unlock", [PASSPHRASE, 0])
    files = {"report.html": PAGE, "report.json": numbers} if attack == "page" else {"report.json": LISTS}
    process = psutil.Process(app.process.pid)
    before, peak = process.memory_info().rss, 0
    while (verifier := (sending := Sending(app, files)).frozen_verifier()) is None:
        pass  # it ended before it was seen, so try again
    try:
        for _ in range(3):
            assert is_open(client), "the officer is answered before the check of the report can end"
        assert not sending.answer.done()
    finally:
        verifier.resume()
    while not sending.answer.done():
        assert is_open(client)
        peak = max(peak, size_of(app.process.pid))
    said = sending.answer.result()
    assert "Verification failed" in said, said[:2000]
    why = "differs from the page generated from the numbers in the JSON" if attack == "page" else "implausibly large"
    assert why in said, said[:2000]
    assert peak < MOST_BYTES
    assert process.memory_info().rss - before < 200 * MIB


@pytest.mark.fault(68)
@pytest.mark.parametrize(
    ("path", "lengths"),
    [
        ("/gradio_api/upload", "Transfer-Encoding: chunked\nContent-Length: 5"),
        ("/gradio_api/queue/join", "Content-Length: 5\nTransfer-Encoding: Chunked"),
    ],
)
def test_chunked_content_with_a_length_is_refused_before_storing(app: RunningApp, path: str, lengths: str) -> None:
    before = stored(app)
    head = f"POST {path} HTTP/1.1\nHost: 127.0.0.1\nContent-Type: multipart/form-data; boundary=x\n{lengths}\n"
    part = b'--x\r\nContent-Disposition: form-data; name="files"; filename="a"\r\n\r\n'
    chunk = f"{len(part) + MIB:x}\r\n".encode() + part + bytes(MIB) + b"\r\n"
    told, _ = answer_to(app, head, chunk, 64 * MIB)
    assert b" 411 " in told or b" 400 " in told or told == b"", told
    assert stored(app) == before


@pytest.mark.fault(68)
def test_chunked_content_without_length_or_with_two_is_refused(app: RunningApp) -> None:
    for lengths in ("Transfer-Encoding: chunked", "Content-Length: 5\nContent-Length: 6", "Content-Length: 5, 6"):
        for path in ("/gradio_api/upload", "/gradio_api/queue/join"):
            told, _ = answer_to(app, f"POST {path} HTTP/1.1\nHost: 127.0.0.1\n{lengths}\n")
            assert b" 411 " in told or b" 400 " in told, told
    told, _ = answer_to(app, "GET / HTTP/1.1\nHost: 127.0.0.1\nTransfer-Encoding: chunked\n")
    assert b" 411 " in told, "a read request may have no content"


@pytest.mark.fault(68)
def test_unauthenticated_uploads_stay_within_their_share(app: RunningApp, client: httpx.Client) -> None:
    (folder,) = (app.home.parent / "tmp").glob("irwm-uploads-*")
    file = {"files": ("a.txt", b"x")}
    held = folder / "held"
    try:
        with held.open("wb") as stream:
            stream.truncate(UNAUTHENTICATED.stored)  # sparse: takes no disk space and counts in full
        refused = client.post("/gradio_api/upload", files=file)
        assert refused.status_code == 413, refused.text
        call(client, "do_unlock", [PASSPHRASE, 0])
        assert is_open(client)
        assert client.post("/gradio_api/upload", files=file).status_code == 200
    finally:
        held.unlink()


@pytest.mark.fault(69)
def test_backups_with_huge_passphrase_cost_are_refused_first(
    app: RunningApp, client: httpx.Client, tmp_path: Path
) -> None:
    Vault.create(tmp_path / "made", PASSPHRASE, CHEAP).lock()
    content = expensive_backup(tmp_path / "made" / "vault.sqlite3")
    process = psutil.Process(app.process.pid)
    before = process.memory_info().rss
    for _ in range(5):
        (path,) = client.post("/gradio_api/upload", files={"files": ("b.sqlite3", io.BytesIO(content))}).json()
        posted = {"path": path, "meta": {"_type": "gradio.FileData"}, "orig_name": "b.sqlite3"}
        told = json.dumps(call(client, "compare", [None, posted, "a passphrase"]))
        assert "requires more memory or time" in told, told[:500]
    assert process.memory_info().rss - before < 200 * MIB


@pytest.mark.fault(79, 96)
def test_wrong_passphrases_delay_only_their_browser(app: RunningApp) -> None:
    with app.client() as attacker, app.client() as owner:
        owner.get("/")
        told = ""
        while "oo many wrong passphrases" not in told:
            attacker.get("/")  # which gives a locked browser a new cookie
            told = json.dumps(call(attacker, "do_unlock", ["a guess", 0]))
            assert "does not open the vault" in told or "oo many wrong passphrases" in told
        call(owner, "do_unlock", [PASSPHRASE, 0])
        assert is_open(owner)


@pytest.mark.fault(54, 78)
def test_event_stream_is_only_for_its_browser(app: RunningApp, client: httpx.Client) -> None:
    call(client, "do_unlock", [PASSPHRASE, 0])
    session = uuid.uuid4().hex
    assert is_open(client, session)
    join = {"data": [False], "fn_index": handler(client, "arrive"), "session_hash": session}
    assert client.post("/gradio_api/queue/join", json=join).status_code == 200
    with app.client() as other, app.client() as without:
        other.get("/")
        for caller in (other, without):
            ways = [
                caller.get("/gradio_api/queue/data", params={"session_hash": session}),
                caller.get(f"/gradio_api/queue/data?session_hash=x&session_hash={session}"),
                caller.get(f"/gradio_api/heartbeat/{session}"),
                caller.post("/gradio_api/queue/join", json=join),
                caller.post("/gradio_api/cancel", json={"session_hash": session, "fn_index": 0, "event_id": "x"}),
            ]
            assert [way.status_code for way in ways] == [403, 400, 403, 403, 403]
        assert not is_open(other, f"cookie:{client.cookies.get(f'irwm_session_{app.port}')}"), "its cookie as a name"
    with client.stream("GET", "/gradio_api/queue/data", params={"session_hash": session}) as stream:
        assert any("process_completed" in line for line in stream.iter_lines()), "its own browser reads it"


def test_locked_browsers_have_request_limits(app: RunningApp, client: httpx.Client) -> None:
    for data in ["x" * UNAUTHENTICATED.body, [[]] * UNAUTHENTICATED.values]:
        body = {"data": [data], "fn_index": handler(client, "arrive"), "session_hash": uuid.uuid4().hex}
        assert client.post("/gradio_api/queue/join", json=body).status_code == 413
    many = b"[" + b"[]," * guard.BODY_VALUES + b"[]]"
    answer = client.post("/gradio_api/queue/join", content=many, headers={"content-type": "application/json"})
    assert answer.status_code == 413


@pytest.mark.fault(96)
@pytest.mark.slow
@pytest.mark.parametrize("held", ["heartbeats", "silence", "uploads that stall"])
def test_open_unauthenticated_connections_do_not_block_others(app: RunningApp, client: httpx.Client, held: str) -> None:
    ask, number = {
        "heartbeats": ("GET /gradio_api/heartbeat/{} HTTP/1.1\nHost: 127.0.0.1\n\n", UNAUTHENTICATED.answers + 10),
        "silence": ("", 2 * connections.MOST + 76),  # more than a process may have files open by default
        "uploads that stall": (
            "POST /gradio_api/upload HTTP/1.1\nHost: 127.0.0.1\nContent-Length: 3000000\n"
            "Content-Type: multipart/form-data; boundary=x\n\n",
            UNAUTHENTICATED.answers + 10,
        ),
    }[held]
    call(client, "do_unlock", [PASSPHRASE, 0])
    offline.allow_files(4 * connections.MOST)  # of this process
    with contextlib.ExitStack() as stack:
        for _ in range(number):
            raw = stack.enter_context(socket.create_connection(("127.0.0.1", app.port), timeout=PATIENCE))
            raw.sendall(ask.format(uuid.uuid4().hex).replace("\n", "\r\n").encode())
        assert is_open(client)
        assert client.post("/gradio_api/upload", files={"files": ("a.txt", b"x")}).status_code == 200
        with app.client() as owner:  # in another browser, which is not known yet
            assert owner.get("/").status_code == 200
            call(owner, "do_unlock", [PASSPHRASE, 0])
            assert is_open(owner)


@pytest.mark.fault(98)
def test_offered_files_are_only_for_their_unlocked_browser(app: RunningApp, client: httpx.Client) -> None:
    call(client, "do_unlock", [PASSPHRASE, 0])
    (offered,) = call(client, "export_log", [])["output"]["data"]
    path = f"/gradio_api/file={offered['value']['path']}"
    assert b"irwm" in client.get(path).content
    with app.client() as other, app.client() as without:
        other.get("/")
        assert (other.get(path).status_code, without.get(path).status_code) == (403, 403)
        call(other, "do_unlock", [PASSPHRASE, 0])
        assert other.get(path).status_code == 403, "not for another browser, unlocked or not"
    call(client, "do_lock", [0])
    assert client.get(path).status_code == 403
    call(client, "do_unlock", [PASSPHRASE, 0])
    assert client.get(path).status_code == 200


@pytest.mark.slow
@pytest.mark.fault(96)
def test_invalid_calls_do_not_fill_the_log(app: RunningApp, client: httpx.Client) -> None:
    number = handler(client, "do_unlock")
    calls = [
        {"data": [], "fn_index": number},
        {"data": [[], {}], "fn_index": number},
        {"data": ["x"], "fn_index": 10**6},
        {"data": "x", "fn_index": number},
        {"fn_index": number},
        {"data": [None, None], "fn_index": number, "trigger_id": "x", "event_data": 7},
    ]
    for body in calls:
        for _ in range(errors_seen.MOST + 4):
            session = uuid.uuid4().hex
            if client.post("/gradio_api/queue/join", json=body | {"session_hash": session}).status_code == 200:
                with client.stream("GET", "/gradio_api/queue/data", params={"session_hash": session}) as stream:
                    assert any("process_completed" in line for line in stream.iter_lines())
    # Calls that Gradio does not accept, and calls that its handlers do not accept.
    assert app.log.read_text().count("A call could not be answered") == 2 * errors_seen.MOST


@pytest.mark.fault(96)
@pytest.mark.slow
def test_the_right_passphrase_opens_while_six_callers_enter_wrong_ones(app: RunningApp, client: httpx.Client) -> None:
    call(client, "do_unlock", [PASSPHRASE, 0])
    call(client, "do_lock", [0])
    client.get("/")  # a reload, which gives a new cookie
    over, answered = threading.Event(), threading.Semaphore(0)

    def attack() -> None:
        while not over.is_set():
            with app.client() as attacker, contextlib.suppress(httpx.HTTPError, AssertionError):
                attacker.get("/")
                call(attacker, "do_unlock", ["a guess", 0])
                answered.release()

    threads = [threading.Thread(target=attack) for _ in range(6)]
    for each in threads:
        each.start()
    try:
        for _ in range(6):
            assert answered.acquire(timeout=PATIENCE)
        call(client, "do_unlock", [PASSPHRASE, 0])
        assert is_open(client), "a browser unlocked before gets in at the first try"

        def opened() -> bool:
            call(owner, "do_unlock", [PASSPHRASE, 0])
            return is_open(owner)

        with app.client() as owner:
            owner.get("/")
            until(opened, "a turn among six others", app.log)
    finally:
        over.set()
        for each in threads:
            each.join()


@pytest.mark.fault(91)
@pytest.mark.slow
def test_session_names_take_little_memory(app: RunningApp, client: httpx.Client) -> None:
    process = psutil.Process(app.process.pid)
    number = handler(client, "arrive")
    before = process.memory_info().rss
    for n in range(100):
        body = {"data": [False], "fn_index": number, "session_hash": f"{n}" * MIB}
        assert client.post("/gradio_api/queue/join", json=body).status_code in (400, 413)
    assert process.memory_info().rss - before < 100 * MIB
