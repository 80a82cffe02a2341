"""Checks before Gradio, on an app that only counts the requests that reach it."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, PlainTextResponse

from tools.waiting import PATIENCE
from ui import guard as module
from ui.budget import Budget, Refusal, ServerLimits
from ui.guard import OFFERED, Callers, Guard, content_security_policy
from ui.sessions import folder_of
from ui.streams import REMEMBERED_LOCKED, Streams

HOST = "127.0.0.1:7860"
PAGE = "<html><script>one()</script><script type='module' src='x.js'></script></html>"


class Inner:
    def __init__(self) -> None:
        self.reached: list[str] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.reached.append(f"{scope['method']} {scope['path']}")
        answer = HTMLResponse(PAGE) if scope["path"] == "/" else PlainTextResponse("inner")
        await answer(scope, receive, send)


class Harness:
    def __init__(self, uploads: Path, is_open: Callable[[str], bool]) -> None:
        self.inner = Inner()
        self.guard = Guard(self.inner, uploads=uploads, cookie="irwm_session_7860", callers=Callers(is_open))

    def ask(self, method: str, path: str, content: bytes | None = None, **headers: str) -> httpx.Response:
        async def go() -> httpx.Response:
            transport = httpx.ASGITransport(app=self.guard)
            async with httpx.AsyncClient(transport=transport, base_url=f"http://{HOST}") as client:
                named = {name.replace("_", "-"): value for name, value in headers.items()}
                usual = b"{}" if method == "POST" and "content-length" not in named else None
                return await client.request(method, path, headers=named, content=content or usual)

        return asyncio.run(go())


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    uploads = tmp_path / "uploads"
    uploads.mkdir()
    return Harness(uploads, lambda session: session == "cookie:proved")


@pytest.mark.parametrize(
    "headers", [{}, {"origin": f"http://{HOST}"}, {"host": "localhost:9000", "origin": "http://localhost:9000"}]
)
def test_our_page_programs_and_a_tunnel_get_through(harness: Harness, headers: dict[str, str]) -> None:
    assert harness.ask("POST", "/gradio_api/queue/join", **headers).status_code == 200
    assert harness.inner.reached == ["POST /gradio_api/queue/join"]


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_other_pages_may_link_to_us_but_not_embed_us(harness: Harness, site: str) -> None:
    document = {"sec_fetch_site": site, "sec_fetch_dest": "document"}
    assert harness.ask("GET", "/", **document).status_code == 200
    assert harness.ask("GET", "/", sec_fetch_site=site, sec_fetch_dest="iframe").status_code == 403
    assert harness.ask("GET", "/gradio_api/heartbeat/x", sec_fetch_site=site, sec_fetch_dest="image").status_code == 403
    assert harness.ask("GET", "/config", **document).status_code == 403
    assert harness.ask("POST", "/gradio_api/queue/join", **document).status_code == 403


@pytest.mark.fault(69, 98)
@pytest.mark.parametrize(
    ("method", "paths"),
    [
        ("GET", "/monitoring /monitoring/summary /openapi.json /docs /login /anything /assets/"),
        ("GET", "/gradio_api/deep_link /gradio_api/proxy=https://x.hf.space/ /gradio_api/runs /gradio_api/dev/reload"),
        ("GET", "/gradio_api/vibe-code /gradio_api/token /gradio_api/custom_component/x/client/y/z.js"),
        ("GET", "/gradio_api/call/unlock /gradio_api/call/unlock/session /gradio_api/call/v2/unlock/session"),
        ("POST", "/gradio_api/call/unlock /gradio_api/call/v2/unlock /gradio_api/run/unlock /gradio_api/api/unlock/"),
        ("POST", "/gradio_api/component_server /gradio_api/process_recording /gradio_api/vibe-code /login /"),
    ],
)
def test_unneeded_routes_are_missing(harness: Harness, method: str, paths: str) -> None:
    for each in paths.split():
        assert harness.ask(method, each).status_code == 404, each
    assert harness.inner.reached == []


@pytest.mark.parametrize("method", ["OPTIONS", "PUT", "DELETE", "PATCH", "TRACE"])
def test_other_methods_are_refused(harness: Harness, method: str) -> None:
    assert harness.ask(method, "/gradio_api/queue/join").status_code == 405
    assert harness.inner.reached == []


@pytest.mark.fault(61)
def test_only_uploaded_files_are_served(harness: Harness, tmp_path: Path) -> None:
    (tmp_path / "uploads" / "a.txt").write_text("mine")
    (tmp_path / "secret.txt").write_text("not yours")
    (tmp_path / "uploads" / "link.txt").symlink_to(tmp_path / "secret.txt")
    base = f"/gradio_api/file={tmp_path}"
    assert harness.ask("GET", f"{base}/uploads/a.txt").status_code == 200
    for path in (
        f"{base}/secret.txt",
        f"{base}/uploads/../secret.txt",
        f"{base}/uploads/%2e%2e/secret.txt",
        f"{base}/uploads/%252e%252e/secret.txt",
        f"{base}/uploads/link.txt",
        f"{base}/uploads/missing.txt",
        f"{base}/uploads/a%00.txt",
        f"/gradio_api/file=/{tmp_path}/uploads/a.txt",
        "/gradio_api/file=%5C%5Cevil.example%5Cshare%5Cx",
        "/gradio_api/file=/etc/passwd",
        "/gradio_api/file=etc/passwd",
        "/gradio_api/file=.env",
        "/gradio_api/file=http://example.com/x",
        "/gradio_api/file=https://example.com/x",
        "/gradio_api/file=file:///etc/passwd",
    ):
        assert harness.ask("GET", path).status_code == 403, path
    assert len(harness.inner.reached) == 1


@pytest.mark.fault(63)
def test_uploads_are_limited_in_total_and_leave_free_disk_space(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    def upload(size: int, **headers: str) -> int:
        return harness.ask("POST", "/gradio_api/upload", content_length=str(size), **headers).status_code

    uploads = harness.guard.uploads
    with monkeypatch.context() as patch:
        usage = SimpleNamespace(free=module.SPARE_BYTES + 100)
        patch.setattr(module.shutil, "disk_usage", lambda _: usage)
        assert [upload(90), upload(110)] == [200, 413]
    monkeypatch.setattr(module, "UPLOADS_TOTAL_BYTES", 1000)
    monkeypatch.setattr(module, "UPLOADS_MOST", 10)
    offered, posted = uploads / OFFERED, uploads / ("a" * 64) / OFFERED
    for folder in (offered, posted):
        folder.mkdir(parents=True)
    for number in range(9):
        (offered / str(number)).write_bytes(bytes(500))
    assert upload(900) == 200, "offered files do not count"
    (posted / "held").write_bytes(bytes(200))
    assert upload(900) == 413
    harness.guard._arriving = 700
    assert upload(200) == 413, "uploads under way count too"
    harness.guard._arriving = 0
    for number in range(4):
        (posted / str(number)).touch()
    assert upload(10) == 413, "half of the places"
    assert upload(10, cookie="irwm_session_7860=proved") == 200, "the others are for the officer"


def test_every_answer_has_the_headers(harness: Harness) -> None:
    for answer in (harness.ask("GET", "/"), harness.ask("GET", "/config"), harness.ask("GET", "/nothing")):
        for name, value in module.HEADERS.items():
            assert answer.headers[name] == value
        assert answer.headers["cache-control"] == "no-store"
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
    assert "cache-control" not in harness.ask("GET", "/assets/x.js").headers


def test_inline_scripts_need_the_nonce_of_their_response(harness: Harness) -> None:
    first, second = harness.ask("GET", "/"), harness.ask("GET", "/")
    nonces = [re.search(r"'nonce-([^']+)'", answer.headers["content-security-policy"])[1] for answer in (first, second)]
    assert nonces[0] != nonces[1]
    assert first.text.count(f'<script nonce="{nonces[0]}"') == PAGE.count("<script")
    assert int(first.headers["content-length"]) == len(first.content)


def test_the_policy_names_no_other_host() -> None:
    policy = content_security_policy("n")
    assert "default-src 'self'" in policy
    assert "http" not in policy
    assert "*" not in policy
    assert "'unsafe-inline'" not in next(part for part in policy.split("; ") if part.startswith("script-src"))


def test_a_locked_browser_gets_a_fresh_cookie_with_each_page(harness: Harness) -> None:
    planted = harness.ask("GET", "/", cookie="irwm_session_7860=planted")
    cookie = planted.headers["set-cookie"]
    assert "planted" not in cookie
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    assert harness.ask("GET", "/").headers["set-cookie"] != cookie
    assert "set-cookie" not in harness.ask("GET", "/", cookie="irwm_session_7860=proved").headers
    assert "set-cookie" not in harness.ask("GET", "/config").headers, "only a page sets one"


def test_fresh_cookie_replaces_the_previous_one(tmp_path: Path) -> None:
    renewed: list[tuple[str, str]] = []
    harness = Harness(tmp_path, lambda _: False)
    harness.guard.callers = Callers(lambda _: False, renew=lambda old, new: renewed.append((old, new)))
    harness.ask("GET", "/")
    answer = harness.ask("GET", "/", cookie="irwm_session_7860=before")
    new = re.search(r"irwm_session_7860=([^;]+)", answer.headers["set-cookie"])
    assert new is not None
    assert renewed == [("cookie:before", f"cookie:{new[1]}")]


def test_websockets_are_closed(harness: Harness) -> None:
    sent: list[dict[str, Any]] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> dict[str, str]:
        return {"type": "websocket.connect"}

    asyncio.run(harness.guard({"type": "websocket", "path": "/", "headers": []}, receive, send))
    assert [message["type"] for message in sent] == ["websocket.close"]
    assert harness.inner.reached == []


@pytest.mark.parametrize("path", ["/gradio_api/queue/data", "/static/x", "/gradio_api/heartbeat/x"])
def test_only_the_stream_of_an_ended_session_ends_without_an_error(tmp_path: Path, path: str) -> None:
    """Gradio raises an HTTPException in that stream, after it told the client that the session has ended."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"told", "more_body": True})
        raise RuntimeError("the answer had begun") from HTTPException(404)

    harness = Harness(tmp_path, lambda _: False)
    harness.guard.app = app
    if path == module.DATA:
        assert harness.ask("GET", path, cookie="irwm_session_7860=x").text == "told"
    else:
        with pytest.raises(RuntimeError):
            harness.ask("GET", path)


def test_full_queue_holds_unauthenticated_callers_but_not_the_officer(harness: Harness) -> None:
    harness.guard.waiting = lambda: harness.guard.budget.limits.waiting
    assert harness.ask("POST", "/gradio_api/queue/join").status_code == 503
    assert harness.inner.reached == []
    assert harness.ask("POST", "/gradio_api/queue/join", cookie="irwm_session_7860=proved").status_code == 200
    harness.guard.waiting = lambda: harness.guard.budget.limits.waiting - 1
    assert harness.ask("POST", "/gradio_api/queue/join").status_code == 200


def test_unauthenticated_calls_run_two_at_a_time_and_the_officer_at_once(tmp_path: Path) -> None:
    """No turn lasts longer than its limit in seconds, and a slow reader's turn ends when the answer begins."""
    worked: list[str] = []
    begins, ends = asyncio.Event(), asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        worked.append(scope["path"])
        await begins.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await ends.wait()
        await send({"type": "http.response.body", "body": b""})

    timers: list[tuple[float, Callable[[], None]]] = []

    def later(seconds: float, over: Callable[[], None]) -> Any:
        timers.append((seconds, over))
        return SimpleNamespace(cancel=lambda: None)

    async def until(condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE):
            while not condition():
                await asyncio.sleep(0)

    async def go() -> None:
        callers = Callers(lambda session: session == "cookie:in")
        guard = Guard(app, uploads=tmp_path, cookie="irwm_session_7860", callers=callers)
        guard.budget = Budget(ServerLimits(turn_seconds=7), later)
        client = httpx.AsyncClient(transport=httpx.ASGITransport(app=guard), base_url=f"http://{HOST}")
        locked = [asyncio.create_task(client.get(f"/static/{n}")) for n in range(6)]
        await until(lambda: len(worked) == 2 and guard.budget.answers == 6)
        assert worked == ["/static/0", "/static/1"], "the four others wait for their turn"
        officer = asyncio.create_task(client.get("/static/officer", headers={"cookie": "irwm_session_7860=in"}))
        await until(lambda: len(worked) == 3)
        assert worked[2:] == ["/static/officer"]
        assert [seconds for seconds, _ in timers] == [7, 7]
        for _, over in timers[:]:  # the time limits of both turns pass
            over()
        await until(lambda: len(worked) == 5)
        assert len(timers) == 4
        begins.set()
        await until(lambda: len(worked) == 7)  # answers that begin end turns
        ends.set()
        assert [answer.status_code for answer in await asyncio.gather(*locked, officer)] == [200] * 7
        await client.aclose()

    asyncio.run(go())


@pytest.mark.fault(96)
def test_oldest_waiting_call_ends_if_unauthenticated_callers_fill_all_places(tmp_path: Path) -> None:
    """Streams and content that does not arrive; not requests in progress or waiting for a turn."""
    begun: list[str] = []
    ends = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        begun.append(scope["path"])
        if "static" not in scope["path"]:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"beat", "more_body": True})
        await ends.wait()
        if "static" in scope["path"]:
            await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"over"})

    async def go() -> None:
        callers = Callers(lambda _: False, lambda session: session == "cookie:known")
        guard = Guard(app, uploads=tmp_path, cookie="irwm_session_7860", callers=callers)
        guard.budget = Budget(ServerLimits(answers=3), lambda seconds, over: SimpleNamespace(cancel=lambda: None))
        client = httpx.AsyncClient(transport=httpx.ASGITransport(app=guard), base_url=f"http://{HOST}")
        asked: list[asyncio.Task[httpx.Response]] = []

        async def ask(path: str, number: int, **headers: str) -> None:
            asked.append(asyncio.create_task(client.get(path, headers=headers)))
            async with asyncio.timeout(PATIENCE):
                while len(begun) < number and not asked[-1].done():
                    await asyncio.sleep(0)

        for number in range(3):
            await ask(f"/gradio_api/heartbeat/{number}", number + 1)
        await ask("/gradio_api/heartbeat/3", 4)
        first = await asked[0]
        assert (first.status_code, first.text) == (200, "beat"), "it ends as an answer does"
        assert not any(each.done() for each in asked[1:])
        await ask("/static/1", 5)
        await asked[1]
        await ask("/static/2", 6)
        await asked[2]
        assert [each.done() for each in asked] == [True, True, True, False, False, False]
        await ask("/static/3", 6)  # ends the last stream, and waits for its turn
        await asked[3]
        await ask("/static/4", 7)
        assert (await asked[-1]).status_code == 503, "no request in progress ends"
        await ask("/static/5", 7, cookie="irwm_session_7860=known")
        assert begun[-1] == "/static/5", "a browser that entered the passphrase before is not limited"
        ends.set()
        assert [(await each).status_code for each in asked] == [200] * 7 + [503, 200]
        assert (guard.budget.answers, guard.budget._idle) == (0, {})
        await client.aclose()

    asyncio.run(go())


@pytest.mark.fault(96)
@pytest.mark.parametrize("path", ["/gradio_api/upload", "/gradio_api/queue/join"])
def test_unauthenticated_request_body_has_a_time_limit(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    limits: list[float] = []

    def noted(receive: Any, seconds: float) -> Any:
        limits.append(seconds)
        return receive

    async def late() -> None:
        with pytest.raises(Refusal) as caught:
            await module._in_time(asyncio.Event().wait, 0)()  # type: ignore[arg-type]
        assert caught.value.status == 408

    asyncio.run(late())
    monkeypatch.setattr(module, "_in_time", noted)
    harness.ask("POST", path, content=b"{}")
    assert limits == [pytest.approx(module.BODY_SECONDS, abs=1e-3)]


@pytest.mark.fault(98)
def test_offered_file_is_only_for_its_unlocked_session(tmp_path: Path) -> None:
    unlocked = {"cookie:proved", "cookie:other", "hash:program"}
    uploads = tmp_path / "uploads"
    harness = Harness(uploads, unlocked.__contains__)
    paths = {}
    for session in ("cookie:proved", "hash:program"):
        folder = uploads / OFFERED / folder_of(session) / "token"
        folder.mkdir(parents=True)
        (folder / "report.json").write_bytes(b"{}")
        paths[session] = f"/gradio_api/file={folder / 'report.json'}"

    def asked(path: str, cookie: str | None = None) -> int:
        headers = {"cookie": f"irwm_session_7860={cookie}"} if cookie else {}
        return harness.ask("GET", path, **headers).status_code

    own, programs = paths["cookie:proved"], paths["hash:program"]
    assert asked(own, "proved") == 200
    assert [asked(own, "other"), asked(own, "locked"), asked(own)] == [403] * 3
    assert asked(programs) == 403, "no such program is known"
    harness.ask("POST", "/gradio_api/queue/join", content=joining("program"))
    assert [asked(programs), asked(programs, "proved")] == [200, 403]
    unlocked.clear()
    assert [asked(own, "proved"), asked(programs)] == [403, 403]


def test_app_receives_the_session_of_a_request(tmp_path: Path) -> None:
    seen: list[str | None] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope[module.SESSION])
        await PlainTextResponse("inner")(scope, receive, send)

    harness = Harness(tmp_path, lambda _: False)
    harness.guard.app = app
    harness.ask("GET", "/config")
    harness.ask("POST", "/gradio_api/queue/join", content=joining("program"))
    harness.ask("POST", "/gradio_api/queue/join", content=joining("page"), cookie="irwm_session_7860=browser")
    assert seen == [None, "hash:program", "cookie:browser"]


def joining(session: str, size: int = 0) -> bytes:
    return json.dumps({"session_hash": session, "data": ["x" * size]}).encode()


@pytest.mark.fault(91)
def test_refused_sessions_are_not_remembered_and_names_are_limited(harness: Harness) -> None:
    limit = harness.guard.budget.limits.body
    assert harness.ask("POST", "/gradio_api/queue/join", content=joining("large", limit)).status_code == 413
    assert harness.ask("POST", "/gradio_api/queue/join", content=joining("s" * 65)).status_code == 400
    assert harness.ask("GET", "/gradio_api/queue/data?session_hash=" + "s" * 65).status_code == 400
    assert harness.ask("GET", "/gradio_api/heartbeat/" + "s" * 65).status_code == 400
    assert not harness.guard._streams._owners
    assert harness.ask("POST", "/gradio_api/queue/join", content=joining("s" * 64)).status_code == 200
    assert list(harness.guard._streams._owners) == ["s" * 64]


@pytest.mark.fault(91)
def test_only_latest_sessions_of_locked_browsers_are_kept() -> None:
    gone: list[str] = []
    streams = Streams(lambda session: session == "cookie:proved", gone.append)
    streams.claim("officer", "proved")
    for number in range(REMEMBERED_LOCKED + 3):
        streams.claim(f"caller {number}", f"cookie {number}")
    assert gone == ["caller 0", "caller 1", "caller 2"]
    assert "officer" in streams._owners


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "http://127.0.0.1:3000", "https://127.0.0.1:7860", ""]
)
@pytest.mark.parametrize(("method", "path"), [("POST", "/gradio_api/queue/join"), ("GET", "/config"), ("GET", "/")])
def test_other_origin_does_not_reach_the_app(harness: Harness, method: str, path: str, origin: str) -> None:
    assert harness.ask(method, path, origin=origin).status_code == 403
    assert harness.inner.reached == []


@pytest.mark.fault(63)
def test_large_bodies_are_refused_before_they_are_read(harness: Harness) -> None:
    too_large = str(module.BODY_BYTES + 1)
    assert harness.ask("POST", "/gradio_api/queue/join", content_length=too_large).status_code == 413
    upload = str(module.UPLOAD_BYTES + 2 * module.MIB)
    assert harness.ask("POST", "/gradio_api/upload", content_length=upload).status_code == 413
    assert harness.inner.reached == []


def test_a_body_of_unknown_length_is_refused(harness: Harness) -> None:
    scope = {"type": "http", "method": "POST", "path": "/gradio_api/upload", "headers": [(b"host", HOST.encode())]}
    with pytest.raises(Refusal) as caught:
        harness.guard._check(scope)
    assert caught.value.status == 411
