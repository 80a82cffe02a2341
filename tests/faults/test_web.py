"""Faults with the running app (FAULTS 44, 46, 47, 50, 54, 60 to 65): forged requests, hostile files, a real browser.

One app for the module, on a home with an existing vault; anyone who has the passphrase can unlock it.
"""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import os
import re
import signal
import socket
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
import torch
from playwright.sync_api import Browser, Page, expect
from playwright.sync_api import Error as PlaywrightError
from safetensors.torch import load_file, save_file

import irwm
from storage import Cost, Jobs, Vault
from storage.job import Job
from storage.processes import still_runs
from storage.session import IDLE_SECONDS
from tests.faults import idle_app
from tests.ui.serving import Visit
from tests.ui.test_serving import call, handler, is_open
from tools.officer import open_tab, place, set_up_release
from tools.page_events import after_events, settled
from tools.running_app import PASSPHRASE, REPOSITORY, RunningApp, opened_context, pass_the_gate, start_app
from tools.waiting import PATIENCE, until, until_over
from ui import guard
from ui.jobs import runner
from ui.jobs.vault_access import secrets_for

EVIL = "http://evil.example"
# Slow enough that a hundred guesses take a while, fast enough that a test can wait for them.
COST = Cost(memory_kib=8 * 1024, passes=2, lanes=1)
NASTY = "<img src=x onerror=document.title='run'>"


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory, tiny_path: Path) -> Iterator[RunningApp]:
    folder = tmp_path_factory.mktemp("web")
    Vault.create(folder / "home", PASSPHRASE, COST)
    with start_app(folder) as app:
        place(tiny_path, app.root, "tiny")
        yield app


@pytest.fixture
def vault(app: RunningApp) -> Vault:
    """The app's vault, unlocked for this process."""
    vault = Vault.open(app.home)
    vault.unlock(PASSPHRASE)
    return vault


@pytest.fixture
def jobs(app: RunningApp, vault: Vault) -> Iterator[Jobs]:
    jobs = Jobs(app.home).opened(vault.jobs_keys_to_seal())
    yield jobs
    for job in jobs.recent():
        runner.stop(job.id, jobs)


@pytest.fixture
def client(app: RunningApp) -> Iterator[httpx.Client]:
    """A program with its own cookie, locked."""
    with app.client() as client:
        client.get("/")
        yield client


def unlock(client: httpx.Client) -> None:
    """Opens the vault, after the delay for wrong passphrases that the previous test entered."""
    until(lambda: opens(client), "the vault to open")


def opens(client: httpx.Client) -> bool:
    call(client, "do_unlock", [PASSPHRASE, 0])
    return is_open(client)


def request(app: RunningApp, name: str, **changes: Any) -> dict[str, Any]:
    return {
        "model": str(app.root / "tiny"),
        "out": str(app.root / name),
        "parameters": irwm.Parameters().to_dict(),
        "owner": "Example Labs",
        "recipients": [{"name": name}],
        "device": "cpu",
    } | changes


# The passphrase


@pytest.mark.slow
def test_fault_46_a_hundred_wrong_passphrases_read_the_same_and_the_page_answers_meanwhile(
    app: RunningApp, client: httpx.Client, vault: Vault
) -> None:
    number, answers = handler(client, "do_unlock"), []

    def guess(n: int) -> None:
        answers.append(json.dumps(call(client, number, [f"guess {n}", 0])["output"]["data"]))

    numbers, answered = itertools.count(), threading.Event()

    def go_on_guessing() -> None:
        while not answered.is_set() or len(answers) < 100:
            guess(next(numbers))

    with ThreadPoolExecutor(16) as pool, app.client() as other:
        guessers = [pool.submit(go_on_guessing) for _ in range(16)]
        try:
            until(lambda: answers or guessers[0].done(), "the first answer", app.log)
            for _ in range(3):  # while guesses are checked: they end only after this
                assert not is_open(other)
                assert other.get("/").status_code == 200
        finally:
            answered.set()
        for each in guessers:
            each.result()
    assert len(answers) >= 100
    wrong = [answer for answer in answers if "does not open the vault" in answer]
    early = [answer for answer in answers if "oo many wrong passphrases" in answer]
    assert len(set(wrong)) == 1
    assert len(wrong) >= 3
    assert len(wrong) + len(early) == len(answers), "checked or delayed; all browsers count together"
    unlock(client)
    assert vault.audit_log()[-1].details["failed tries before"] == len(wrong)


@pytest.mark.sweep
@pytest.mark.parametrize(
    "passphrase",
    ["", "x" * 2**20, "ä" * 1025, 7, None, {"path": "/etc/passwd"}, ["a"]],
    ids=["empty", "megabyte", "too long", "number", "null", "file", "list"],
)
def test_fault_47_invalid_passphrases_are_refused_and_not_stored(
    app: RunningApp, client: httpx.Client, passphrase: Any
) -> None:
    answer = json.dumps(call(client, "do_unlock", [passphrase, 0]))
    assert not is_open(client)
    assert "Traceback" not in answer
    assert str(app.home) not in answer
    assert "x" * 2000 not in answer
    assert "x" * 2000 not in app.log.read_text()


@pytest.mark.slow
def test_fault_50_and_52_gate_reports_damage_and_offers_the_backup_with_its_age(
    app: RunningApp, vault: Vault, visit: Callable[..., Visit]
) -> None:
    vault.add_case("kept")
    vault.backup()
    vault.add_case("lost")
    whole = vault.path.read_bytes()
    page = visit(app).page
    page.wait_for_selector("#passphrase input")
    try:
        vault.path.write_bytes(whole[: len(whole) // 2])
        page.fill("#passphrase input", PASSPHRASE)
        page.click("#unlock-vault")
        expect(page.locator("#gate-again .notice-fault")).to_contain_text("damaged")
        assert str(app.home) not in page.content(), "anyone can see the gate"
        page.click("#restore button.label-wrap")
        page.click("#restore-which input")
        page.locator("#restore-which [role=option]").first.click()
        for passphrase, said in (("a wrong passphrase", "does not open"), (PASSPHRASE, "loses newer records")):
            page.fill("#restore-passphrase input", passphrase)
            page.click("#restore-look")
            expect(page.locator("#restore-said")).to_contain_text(said)
            assert vault.path.read_bytes() == whole[: len(whole) // 2], "reading changes nothing"
        page.click("#restore-now")
        page.click("#restore-done")
        page.fill("#passphrase input", PASSPHRASE)
        page.click("#unlock-vault")
        page.wait_for_selector("#pages")
        expect(page.locator(".toast-wrap")).to_contain_text("older state of the vault")
    finally:
        if vault.path.stat().st_size == len(whole) // 2:
            vault.path.write_bytes(whole)
    again = Vault.open(app.home)
    again.unlock(PASSPHRASE)
    assert [case.title for case in again.cases()][-1] == "kept"
    assert "exchange noticed" in [entry.event for entry in again.audit_log()]
    assert again.check().ok
    assert list(app.home.glob("vault.sqlite3.replaced-*")), "the damaged file is kept"


# Forged requests


def state(app: RunningApp) -> dict[str, Any]:
    """The state that a forged request could have changed."""
    vault = Vault.open(app.home)
    rows = [(job.id, job.state) for job in Jobs(app.home).recent()]
    return {"log": vault.audit_head, "jobs": rows, "uploads": uploads(app), "models": sorted(os.listdir(app.root))}


def uploads(app: RunningApp) -> list[str]:
    (folder,) = (app.home.parent / "tmp").glob("irwm-uploads-*")
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_fault_60_forged_hosts_origins_and_bodies_are_refused(app: RunningApp, client: httpx.Client) -> None:
    unlock(client)  # so that the cookie that a browser would send is valid
    before = state(app)
    config = client.get("/config").json()
    data = {"data": [], "fn_index": handler(client, "back_up"), "session_hash": uuid.uuid4().hex}
    calls = ("queue/join", "run/back_up", "api/back_up", "call/back_up", "upload", "cancel")
    paths = [f"/gradio_api/{name}" for name in calls]
    bodies: list[dict[str, Any]] = [
        {"json": data},
        {"files": {"files": ("a.txt", b"x")}},
        {"data": {"data": json.dumps(data)}},
        {"content": json.dumps(data), "headers": {"content-type": "text/plain"}},
    ]
    forged = [
        {"host": "evil.example"},
        {"host": f"evil.example:{app.port}"},
        {"host": f"127.0.0.1:{app.port}.evil.example"},
        {"host": f"localhost.:{app.port}"},
        {"host": "0.0.0.0"},
        {"host": ""},
        {"origin": EVIL},
        {"origin": "null"},
        {"origin": f"http://127.0.0.1:{app.port + 1}"},
        {"origin": f"https://127.0.0.1:{app.port}"},
        {"origin": f"http://localhost:{app.port}"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ]
    for path, body, extra in itertools.product(paths, bodies, forged):
        headers = body.get("headers", {}) | extra
        answer = client.post(path, **(body | {"headers": headers}))
        assert 400 <= answer.status_code < 500, (path, headers, answer.status_code)
        assert len(answer.content) < 100, "a page of another port may read no more than this"
    for path, headers in itertools.product(("/", "/gradio_api/queue/data?session_hash=x"), forged[:8]):
        assert 400 <= client.get(path, headers=headers).status_code < 500, (path, headers)
    # Without any Origin, as a program sends it: content that is not JSON is not a call.
    for body in bodies[1:]:
        assert 400 <= client.post(paths[0], **body).status_code < 500
    assert state(app) == before
    answer = client.post(paths[0], json=data)
    assert answer.status_code == 200, "the refusals could have had another cause"
    until(lambda: state(app)["log"] != before["log"], "another line in the log", app.log)
    assert config["dependencies"]


@pytest.mark.slow
def test_fault_60_simple_request_from_another_page_has_no_effect(app: RunningApp, chromium: Browser) -> None:
    """The browser unlocks, then visits a page of another origin that posts to us with its cookies."""
    context = opened_context(chromium)
    try:
        page = context.new_page()
        page.goto(app.url)
        pass_the_gate(page)
        before = state(app)["log"]
        page.route(f"{EVIL}/**", lambda route: route.fulfill(body="<p>evil</p>", content_type="text/html"))
        page.goto(f"{EVIL}/")
        outcome = page.evaluate(
            """async (url) => {
                const told = [];
                for (const path of ["queue/join", "run/back_up", "call/back_up"])
                    for (const type of ["text/plain", "application/json"]) {
                        const options = {method: "POST", body: '{"data": []}', credentials: "include",
                                         headers: {"content-type": type}};
                        for (const mode of ["no-cors", "cors"])
                            told.push(await fetch(url + "/gradio_api/" + path, {...options, mode})
                                .then(answer => answer.type + answer.status).catch(() => "refused"));
                    }
                told.push(await fetch(url + "/config").then(answer => answer.text()).catch(() => "refused"));
                return told;
            }""",
            app.url,
        )
        assert set(outcome) <= {"refused", "opaque0"}
        assert state(app)["log"] == before
    finally:
        context.close()


def test_fault_61_app_and_system_files_are_not_served(app: RunningApp, client: httpx.Client) -> None:
    unlock(client)
    with tempfile.NamedTemporaryFile("w", dir=REPOSITORY, prefix=".env-", delete=True) as env:
        env.write("SECRET=sealed")
        env.flush()
        files = [app.home / "vault.sqlite3", app.home / "jobs.sqlite3", app.log, Path(env.name), Path("/etc/passwd")]
        files += [REPOSITORY / "pyproject.toml", REPOSITORY / ".gitignore", app.root / "tiny" / "config.json"]
        for file in files:
            assert file.is_file()
            for path in ways_to(file):
                answer = client.get(path)
                assert answer.status_code in (400, 403, 404), path
                assert len(answer.content) < 200, path


def ways_to(file: Path) -> Iterator[str]:
    """Addresses that might return a file."""
    text = str(file)
    for prefix in ("/gradio_api/file=", "/file=", "/gradio_api/file/", "/gradio_api/stream/", "/gradio_api/proxy="):
        for name in (text, text.lstrip("/"), os.path.relpath(file, REPOSITORY), file.name, f"file://{text}"):
            yield prefix + name
            yield prefix + name.replace("/", "%2f").replace(".", "%2e")
            yield prefix + name.replace("/", "%252f")
            yield prefix + name.replace("/", "%5c")
        yield f"{prefix}./{'../' * 12}{text.lstrip('/')}"
        yield f"{prefix}{text}%00.png"
    for prefix in ("/static/", "/assets/", "/studio/", "/studio/fonts/", "/gradio_api/", "/theme.css/", "//"):
        for dots in ("../", "..%2f", "%2e%2e/", "%2e%2e%2f", "%252e%252e%252f", "....//", "..%5c"):
            yield prefix + dots * 12 + text.lstrip("/")


@pytest.mark.slow
@pytest.mark.parametrize(
    "path", ["/etc/passwd", "{home}/vault.sqlite3", "{root}/tiny/config.json", "https://a.example/x"]
)
def test_fault_62_posted_path_is_not_treated_as_upload(app: RunningApp, client: httpx.Client, path: str) -> None:
    """Tests every handler of the real app that takes files."""
    unlock(client)
    named = path.format(home=app.home, root=app.root)
    config = client.get("/config").json()
    kinds = {part["id"]: part["type"] for part in config["components"]}
    takers = [
        each for each in config["dependencies"] if any(kinds[i] in ("file", "uploadbutton") for i in each["inputs"])
    ]
    assert takers, "the app has handlers that take files"
    before = state(app)
    for each in takers:
        file = {"path": named, "meta": {"_type": "gradio.FileData"}, "orig_name": "a.txt"}
        data = [([file] if kinds[i] in ("file", "uploadbutton") else None) for i in each["inputs"]]
        for shape in (data, [value[0] if value else None for value in data]):
            answer = call(client, each["id"], shape)
            told = json.dumps(answer)
            assert answer["success"] is False or "not uploaded" in told, (each["api_name"], told[:300])
            assert "root:" not in told
            assert "SQLite format" not in told
    assert state(app)["jobs"] == before["jobs"]
    assert not list(app.home.glob("received/*/*"))


def test_fault_63_uploads_are_limited_in_size_total_and_number(app: RunningApp, client: httpx.Client) -> None:
    (folder,) = (app.home.parent / "tmp").glob("irwm-uploads-*")
    before = uploads(app)

    def upload(count: int = 1) -> int:
        return client.post(
            "/gradio_api/upload", files=[("files", (f"{n}.txt", b"x")) for n in range(count)]
        ).status_code

    size = guard.UPLOAD_BYTES + 2 * guard.MIB
    with socket.create_connection(("127.0.0.1", app.port), timeout=PATIENCE) as raw:
        # Announced and never sent: it is refused before any of it is read.
        raw.sendall(f"POST /gradio_api/upload HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {size}\r\n\r\n".encode())
        assert b" 413 " in raw.recv(100)
    endless = client.post(
        "/gradio_api/upload", content=iter([b"x" * 1000]), headers={"content-type": "multipart/form-data"}
    )
    assert endless.status_code == 411, "a body of unknown length"
    assert upload(1001) == 400, "of files in one request"
    many = folder / "many"
    many.mkdir()
    for number in range(guard.UPLOADS_MOST):
        (many / str(number)).touch()
    assert upload() == 413
    for file in many.iterdir():
        file.unlink()
    many.rmdir()
    assert uploads(app) == before
    assert upload() == 200, "the refusals could have had another cause"


def look_at_every_page(page: Page) -> None:
    for tab in page.locator("button[role=tab][id^=page-]").all():
        tab.evaluate("tab => tab.click()")  # some may be folded into a menu
        settled(page)


# Hostile names


@pytest.mark.slow
def test_fault_64_hostile_names_are_inert_on_every_page(
    app: RunningApp, vault: Vault, jobs: Jobs, visit: Callable[..., Visit]
) -> None:
    markdown = "[click](javascript:document.title='run') **bold** ![i](http://evil.example/x)"
    names = (NASTY, markdown, "</script><script>document.title='run'</script>")
    for number, name in enumerate(names):
        vault.add_key(
            b"k",
            owner=name,
            recipient=name,
            model_name=name,
            model_fingerprint=f"{number:02}" * 32,
            family=name,
            commitment=f"{number:02}" * 32,
            parameters={},
            label=name,
        )
        case = vault.add_case(name, name)
        vault.add_note(case.id, name, added_by=name)
        (app.root / name.replace("/", "_")).mkdir(exist_ok=True)
        missing = str(app.root / name / "missing")
        runner.start(
            "protect", f"Protect {name}", request(app, "x", model=missing, owner=name), secrets_for(vault), jobs
        )
    until(lambda: all(job.is_over for job in jobs.recent()), "the end of every job", app.log)
    seen = visit(app)
    page = seen.page
    pass_the_gate(page)
    look_at_every_page(page)
    open_tab(page, "protect")
    expect(page.locator("#job-protect .notice-fault")).to_be_visible()
    for text in (str(app.root / NASTY), f"{NASTY}\x1b[31m", markdown):
        field = page.locator("#path-original input, #path-original textarea").first
        field.fill(text)
        field.press("Enter")
        expect(page.locator("#picker-original .notice, #protect-model .notice").first).to_be_visible()
    page.click("#browse-original")
    expect(page.locator("#listing-original")).to_contain_text("<img src=x")
    open_tab(page, "vault")
    expect(page.locator("#page-vault")).to_contain_text("<img src=x")
    assert page.title() == "IRWM Studio"
    assert page.locator("img[src='x'], img[src*='evil'], a[href^='javascript']").count() == 0
    assert seen.outside(app) == []
    assert seen.complaints == [], "the policy had nothing to block"


# Jobs


@pytest.fixture(scope="module")
def large(app: RunningApp, tiny_path: Path) -> Path:
    """A model whose copy takes several polls, so that a test can act midway."""
    folder = place(tiny_path, app.root, "large")
    tensors = load_file(folder / "model.safetensors")
    save_file(tensors | {"ballast": torch.zeros(64 << 20, dtype=torch.uint8)}, folder / "model.safetensors")
    return folder


def connected(app: RunningApp) -> bool:
    """Whether a browser has an open connection to the app."""
    found = psutil.Process(app.process.pid).net_connections("tcp")
    return any(each.laddr.port == app.port and each.status == psutil.CONN_ESTABLISHED for each in found)


@contextlib.contextmanager
def frozen(pid: int) -> Iterator[None]:
    """Pauses a process midway, so that a test need not be faster than a disk."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def caught_writing(jobs: Jobs, job: Job, out: Path) -> int:
    """Waits until the job's process writes its release, and returns its number."""
    partial = out.with_name(f"{out.name}.partial")
    until(
        lambda: partial.exists() or jobs.get(job.id).is_over, "the half-written release", lambda: jobs.log_tail(job.id)
    )
    assert not jobs.get(job.id).is_over, jobs.log_tail(job.id)
    return jobs.get(job.id).pid or 0


@pytest.mark.slow
def test_fault_65_two_long_jobs_queue_and_one_submitted_twice_runs_once(
    app: RunningApp, vault: Vault, jobs: Jobs, large: Path
) -> None:
    def submit(name: str) -> Job:
        return runner.start("protect", name, request(app, name, model=str(large)), secrets_for(vault), jobs)

    filed = len(vault.releases())
    first, out = submit("first"), app.root / "first"
    with frozen(caught_writing(jobs, first, out)):
        second = submit("second")
        for again in ("first", "second"):
            with pytest.raises(runner.JobRunningError):
                submit(again)
        until(lambda: "Waiting for" in jobs.log_tail(second.id), "the second job to wait", app.log)
        assert [jobs.get(job.id).state for job in (first, second)] == ["running", "queued"]
        assert still_runs(jobs.get(second.id).pid or 0, None), "it waits in its own process"
        assert not (app.root / "second.partial").exists()
    until_over(jobs, second.id)
    ended = [jobs.get(job.id) for job in (first, second)]
    assert [job.state for job in ended] == ["done", "done"]
    assert (ended[1].started or "") >= (ended[0].ended or "")
    before = {file: file.read_bytes() for file in sorted(out.iterdir()) if file.stat().st_size < 1 << 20}
    third = submit("first")
    until_over(jobs, third.id)
    # The same request again, as from "Run again", is answered with the filed receipt.
    assert jobs.get(third.id).state == "done", jobs.get(third.id).error
    assert [(job.result or {})["key_id"] for job in (ended[0], jobs.get(third.id))] == [
        vault.releases()[filed].key_id
    ] * 2
    assert {file: file.read_bytes() for file in before} == before
    assert [release.path for release in vault.releases()[filed:]] == [str(out), str(app.root / "second")]


@pytest.mark.slow
def test_fault_54_a_jobs_process_shows_no_secret_to_others_and_holds_no_pipe(
    app: RunningApp, vault: Vault, jobs: Jobs, large: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IRWM_PASSPHRASE", PASSPHRASE)
    monkeypatch.setenv("HF_TOKEN", PASSPHRASE)
    out = app.root / "shown"
    asked = request(app, "shown", model=str(large))
    job = runner.start("protect", "Shown", asked, secrets_for(vault), jobs)
    pid = caught_writing(jobs, job, out)
    with frozen(pid):
        forbidden = secrets_of(vault)
        for name in ("cmdline", "environ"):
            content = Path(f"/proc/{pid}/{name}").read_bytes()
            assert content
            assert not [word for word in forbidden if word in content], name
        limits = Path(f"/proc/{pid}/limits").read_text()
        assert re.search(r"^Max core file size +0 ", limits, re.MULTILINE), "a crash writes no memory to a file"
        opened = {entry.name: os.readlink(entry.path) for entry in os.scandir(f"/proc/{pid}/fd")}
        assert opened["0"] == "/dev/null"
        assert not [target for target in opened.values() if target.startswith(("pipe:", "socket:"))], opened
        assert not [target for target in opened.values() if str(Path(app.home / "vault")) in target], opened
    runner.stop(job.id, jobs)


def secrets_of(vault: Vault) -> list[bytes]:
    """The passphrase, the vault's data key and every key, in the forms in which they could be written."""
    keys = [vault.key_bytes(record.id) for record in vault.keys()]
    raw = [vault.hand_over(), *(irwm.Key.from_bytes(key).secret for key in keys if len(key) > 1)]
    coded = [code(value) for value in raw for code in (bytes, base64.b64encode, lambda v: v.hex().encode())]
    return [PASSPHRASE.encode(), *coded, *(key for key in keys if len(key) > 1)]


@pytest.mark.slow
def test_fault_54_no_secret_is_in_page_state_browser_storage_logs_or_caches(
    app: RunningApp, vault: Vault, jobs: Jobs, chromium: Browser
) -> None:
    context = opened_context(chromium)
    try:
        page = context.new_page()
        received: list[Any] = []
        page.on("response", lambda answer: received.append(answer))
        page.goto(app.url)
        pass_the_gate(page)
        set_up_release(page, app.root / "tiny", app.root, "stored", "Example Labs", "Early access 7")
        page.click("#start-protect")
        expect(page.locator("#receipt")).to_contain_text(str(app.root / "stored"))
        look_at_every_page(page)
        stored = page.evaluate("JSON.stringify([Object.entries(localStorage), Object.entries(sessionStorage)])")
        assert json.loads(stored) == [[], []], "no input either, after unlocking and after a job"
        assert page.evaluate("document.cookie") == "", "the session cookie is out of reach of scripts"
        assert page.evaluate("indexedDB.databases().then(found => found.length)") == 0
        assert page.evaluate("caches.keys().then(found => found.length)") == 0
        forbidden = secrets_of(vault)
        assert len(forbidden) > 4
        bodies = {answer.url: body for answer in received if (body := body_of(answer)) is not None}
        bodies["the document"] = page.content().encode()
        assert sum(map(len, bodies.values())) > 100_000
        for url, body in bodies.items():
            assert not [word for word in forbidden if word in body], url
            assert str(app.home / "vault.sqlite3").encode() not in body, url
        files = [
            *app.home.parent.rglob("*"),
            *(REPOSITORY / ".gradio").rglob("*"),
            *Path("gradio_cached_examples").rglob("*"),
        ]
        for file in files:
            if file.is_file() and app.root not in file.parents:
                content = file.read_bytes()
                assert not [word for word in forbidden if word in content], file
        for name in ("cmdline", "environ"):
            content = Path(f"/proc/{app.process.pid}/{name}").read_bytes()
            assert not [word for word in forbidden if word in content]
    finally:
        context.close()


def body_of(answer: Any) -> bytes | None:
    """The content that the browser received; None for content that it did not keep, such as an unfinished answer."""
    if "queue/data" in answer.url or "heartbeat" in answer.url:
        return None
    try:
        return bytes(answer.body())
    except PlaywrightError:
        return None


def test_fault_54_another_browser_is_locked_and_cannot_replay_the_first_ones_session(
    app: RunningApp, client: httpx.Client
) -> None:
    unlock(client)
    session = uuid.uuid4().hex
    assert is_open(client, session)
    with app.client() as other:
        other.get("/")
        body = {"data": [False], "fn_index": handler(other, "arrive"), "session_hash": session}
        assert other.post("/gradio_api/queue/join", json=body).status_code == 403, "another browser's session"
        assert not is_open(other, f"cookie:{client.cookies.get(f'irwm_session_{app.port}')}"), "its cookie as a hash"
        assert not is_open(other)
    with app.client() as stolen:  # a cookie planted before the passphrase was typed is discarded
        stolen.cookies.set(f"irwm_session_{app.port}", "planted")
        assert "planted" not in stolen.get("/").headers["set-cookie"]


@pytest.mark.slow
def test_fault_54_handlers_reveal_nothing_to_a_locked_program(
    app: RunningApp, client: httpx.Client, vault: Vault
) -> None:
    """Each handler of each page, private or not, joined by its number with a value that could be right."""
    key = vault.add_key(
        b"k",
        owner="Sealed Owner",
        recipient="Sealed Recipient",
        model_name="sealed",
        model_fingerprint="ab" * 32,
        family="llama",
        commitment="cd" * 32,
        parameters={},
        label="Sealed Label",
    )
    vault.add_case("Sealed Case")
    before = state(app)
    config = client.get("/config")
    assert str(app.home) not in config.text
    assert str(app.root) not in config.text
    handlers = [d for d in config.json()["dependencies"] if d["backend_fn"]]
    asked = list(zip(handlers, itertools.cycle([key.id, str(app.root)]), strict=False))

    def ask(what: tuple[dict[str, Any], str]) -> str:
        return json.dumps(call(client, what[0]["id"], [what[1]] * len(what[0]["inputs"])))

    with ThreadPoolExecutor(8) as pool:
        for (each, fill), told in zip(asked, pool.map(ask, asked), strict=True):
            for secret in ("Sealed", "cd" * 8, str(app.home), "config.json"):
                assert secret not in told, (each["api_name"], fill)
    assert {**state(app), "uploads": []} == {**before, "uploads": []}


@pytest.mark.slow
def test_fault_54_an_idle_page_locks_itself_although_it_polls(
    tmp_path: Path, tiny_path: Path, visit: Callable[..., Visit]
) -> None:
    Vault.create(tmp_path / "home", PASSPHRASE, COST)
    with start_app(tmp_path, ("-m", "tests.faults.idle_app")) as app:
        page = visit(app).page
        pass_the_gate(page)
        for part in (0.6, 1.2):
            after_events(page, 5)  # all of them polls, except those that the gate starts
            assert page.locator("#pages").is_visible(), "it is open"
            idle_app.move_clock(tmp_path, part * IDLE_SECONDS)
        page.wait_for_selector("#passphrase input")
        assert page.locator("#pages").count() == 0
        assert page.input_value("#passphrase input") == ""
        with app.client() as client:
            client.get("/")
            assert not is_open(client)


@pytest.mark.slow
def test_fault_44_job_survives_browser_close_and_stop_removes_its_files(
    app: RunningApp, jobs: Jobs, large: Path, chromium: Browser
) -> None:
    out = app.root / "closed"

    def opened() -> Page:
        page = opened_context(chromium).new_page()
        page.goto(app.url)
        pass_the_gate(page)
        return page

    page = opened()
    set_up_release(page, large, app.root, "closed", "Example Labs", "")
    page.click("#start-protect")
    until((app.root / "closed.partial").exists, "the half-written release", app.log)
    job = next(job for job in jobs.recent() if job.request.get("out") == str(out))
    pid = job.pid or 0
    with frozen(pid):
        page.context.close()
        until(lambda: not connected(app), "the app to be left by the browser", app.log)
        assert jobs.get(job.id).state == "running"
        page = opened()  # its cookie went with the browser, so it had to be unlocked again
        open_tab(page, "protect")
        expect(page.locator("#job-protect .job-state")).to_have_text("Running")
        page.reload()
        page.wait_for_selector("#pages")
        open_tab(page, "protect")
        expect(page.locator("#job-protect .job-state")).to_have_text("Running")
        # The worst case: it ignores the signal, so it is killed and cannot clean up.
        page.click("#job-protect .job-stop")
        until_over(jobs, job.id)
        until(
            lambda: not still_runs(pid, None) and not (app.root / "closed.partial").exists(), "the end of the process"
        )
    expect(page.locator("#job-protect .job-state")).to_have_text("Stopped")
    assert jobs.get(job.id).state == "stopped"
    assert not out.exists()
    page.context.close()


@pytest.mark.slow
def test_fault_44_job_of_a_killed_app_is_interrupted_swept_and_rerunnable(
    app: RunningApp, vault: Vault, jobs: Jobs, large: Path, chromium: Browser
) -> None:
    """The last test of this module: it kills the app."""
    page = opened_context(chromium).new_page()
    page.goto(app.url)
    pass_the_gate(page)
    set_up_release(page, large, app.root, "again", "Example Labs", "")
    page.click("#start-protect")
    partial = app.root / "again.partial"
    until(partial.exists, "the half-written release", app.log)
    job = next(job for job in jobs.recent() if job.request.get("out") == str(app.root / "again"))
    with frozen(job.pid or 0):
        app.process.kill()
        app.process.wait()
        os.kill(job.pid or 0, signal.SIGKILL)
    page.context.close()
    assert jobs.get(job.id).state == "running", "no process was left to change it"
    assert partial.exists()
    with start_app(app.home.parent) as restarted:
        assert jobs.get(job.id).state == "interrupted"
        page = opened_context(chromium).new_page()
        page.goto(f"{restarted.url}/?tab=protect")
        pass_the_gate(page)
        # The job's output is sealed, so that it is swept when the vault is first opened.
        until(lambda: not partial.exists(), "the sweep of what was left", restarted.log)
        expect(page.locator("#job-protect .job-state")).to_have_text("Interrupted")
        page.context.close()
        again = runner.again(jobs.get(job.id), vault, jobs)
        until_over(jobs, again.id)
        assert jobs.get(again.id).state == "done", jobs.log_tail(again.id)
        assert vault.releases()[-1].path == str(app.root / "again")
        assert vault.check().ok
