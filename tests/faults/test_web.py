"""Faults with the running app (FAULTS 44, 46, 47, 54, 60 to 64): forged requests, hostile files, a real browser.

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
from playwright.sync_api import Error as PlaywrightError
from playwright.sync_api import Page, expect
from safetensors.torch import load_file, save_file

import irwm
from storage import Cost, Jobs, NewKey, Vault
from storage.job_table import Job
from storage.processes import still_runs
from tests.ui.serving import Visit
from tests.ui.test_serving import call, handler, is_open
from tools.officer import first_step, open_tab, place, set_up_release
from tools.page_events import settled
from tools.running_app import PASSPHRASE, REPOSITORY, RunningApp, pass_the_gate, start_app
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
@pytest.mark.fault(96)
def test_fault_46_a_hundred_wrong_passphrases_read_the_same_and_the_page_answers_meanwhile(
    app: RunningApp, client: httpx.Client, vault: Vault
) -> None:
    """A browser that was unlocked before gets in at the first try in the meantime."""
    number, answers = handler(client, "do_unlock"), []

    def guess(n: int) -> None:
        answers.append(json.dumps(call(client, number, [f"guess {n}", 0])["output"]["data"]))

    numbers, answered = itertools.count(), threading.Event()

    def go_on_guessing() -> None:
        while not answered.is_set() or len(answers) < 100:
            guess(next(numbers))

    with ThreadPoolExecutor(16) as pool, app.client() as other, app.client() as owner:
        owner.get("/")
        unlock(owner)
        call(owner, "do_lock", [0])
        owner.get("/")  # a reload, which gives a new cookie
        guessers = [pool.submit(go_on_guessing) for _ in range(16)]
        try:
            until(lambda: answers or guessers[0].done(), "the first answer", app.log)
            for _ in range(3):  # while guesses are checked: they end only after this
                assert not is_open(other)
                assert other.get("/").status_code == 200
            assert opens(owner)
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
    assert sum(entry.details.get("failed tries before", 0) for entry in vault.audit_log()) == len(wrong)


@pytest.mark.sweep
@pytest.mark.parametrize(
    "passphrase", ["x" * 2**20, "ä" * 1025, {"path": "/etc/passwd"}], ids=["megabyte", "too long", "file"]
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
        {"origin": ""},
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
    for path, headers in itertools.product(("/", "/config", "/gradio_api/queue/data?session_hash=x"), forged[:12]):
        assert 400 <= client.get(path, headers=headers).status_code < 500, (path, headers)
    # Without any Origin, as a program sends it: content that is not JSON is not a call.
    for body in bodies[1:]:
        assert 400 <= client.post(paths[0], **body).status_code < 500
    assert state(app) == before
    answer = client.post(paths[0], json=data)
    assert answer.status_code == 200, "the refusals could have had another cause"
    until(lambda: state(app)["log"] != before["log"], "another line in the log", app.log)


@pytest.mark.slow
def test_fault_60_simple_request_from_another_page_has_no_effect(app: RunningApp, visit: Callable[..., Visit]) -> None:
    """The browser unlocks, then visits a page of another origin that posts to us with its cookies."""
    page = visit(app).page
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


@pytest.mark.sweep
@pytest.mark.parametrize(
    "path",
    ["{home}/vault.sqlite3", "/etc/passwd", "{root}/tiny/config.json", "https://a.example/x", "../../../../etc/passwd"],
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
    before, said = state(app), []
    for each in takers:
        file = {"path": named, "meta": {"_type": "gradio.FileData"}, "orig_name": "a.txt", "url": "file:///etc/passwd"}
        data = [([file] if kinds[i] in ("file", "uploadbutton") else None) for i in each["inputs"]]
        for shape in (data, [value[0] if value else None for value in data]):
            answer = call(client, each["id"], shape)
            told = json.dumps(answer)
            assert answer["success"] is False or "not uploaded" in told, (each["api_name"], told[:300])
            said.append(told)
            assert "root:" not in told
            assert "SQLite format" not in told
    assert not path.startswith("https:") or any("does not fetch web addresses" in told for told in said)
    assert state(app)["jobs"] == before["jobs"]
    assert not list(app.home.glob("received/*/*"))


def test_fault_63_upload_is_limited_in_size_and_number_and_stays_in_its_private_folder(
    app: RunningApp, client: httpx.Client
) -> None:
    before = uploads(app)
    size = guard.UPLOAD_BYTES + 2 * guard.MIB
    with socket.create_connection(("127.0.0.1", app.port), timeout=PATIENCE) as raw:
        # Announced and never sent: it is refused before any of it is read.
        raw.sendall(f"POST /gradio_api/upload HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {size}\r\n\r\n".encode())
        assert b" 413 " in raw.recv(100)
    endless = client.post(
        "/gradio_api/upload", content=iter([b"x" * 1000]), headers={"content-type": "multipart/form-data"}
    )
    assert endless.status_code == 411, "a body of unknown length"
    many = client.post("/gradio_api/upload", files=[("files", (f"{n}.txt", b"x")) for n in range(1001)])
    assert many.status_code == 400, "too many files in one request"
    assert uploads(app) == before
    (path,) = client.post("/gradio_api/upload", files={"files": ("../../../evil.txt", b"x")}).json()
    assert Path(path).name == "evil.txt"
    folder = Path(path).parent.parent
    assert folder.name.startswith("irwm-uploads-")
    assert folder.stat().st_mode & 0o077 == 0, "no other user of this computer can read it"


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
        digest = f"{number:02}" * 32
        vault.add_keys([NewKey(b"k", name, name, name, digest, name, digest, {}, label=name)])
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
    first_step(page)
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


def secrets_of(vault: Vault) -> list[bytes]:
    """The passphrase, the vault's data key and every key, in the forms in which they could be written."""
    keys = [vault.key_bytes(record.id) for record in vault.keys()]
    raw = [vault.hand_over(), *(irwm.Key.from_bytes(key).secret for key in keys if len(key) > 1)]
    coded = [code(value) for value in raw for code in (bytes, base64.b64encode, lambda v: v.hex().encode())]
    return [PASSPHRASE.encode(), *coded, *(key for key in keys if len(key) > 1)]


@pytest.mark.slow
def test_fault_54_no_secret_is_in_page_state_browser_storage_logs_or_caches(
    app: RunningApp, vault: Vault, visit: Callable[..., Visit]
) -> None:
    page = visit(app).page
    received: list[Any] = []
    page.on("response", lambda answer: received.append(answer))
    page.reload()
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
    folders = (app.home.parent, REPOSITORY / ".gradio", Path("gradio_cached_examples"))
    for file in (path for folder in folders for path in folder.rglob("*")):
        if file.is_file() and app.root not in file.parents:
            content = file.read_bytes()
            assert not [word for word in forbidden if word in content], file
    holds_no_secret(app.process.pid, forbidden)


def holds_no_secret(pid: int, forbidden: list[bytes]) -> None:
    """Neither the arguments nor the environment of the process, which other processes can read."""
    for name in ("cmdline", "environ"):
        content = Path(f"/proc/{pid}/{name}").read_bytes()
        assert content
        assert not [word for word in forbidden if word in content], name


def body_of(answer: Any) -> bytes | None:
    """The content that the browser received; None for content that it did not keep, such as an unfinished answer."""
    if "queue/data" in answer.url or "heartbeat" in answer.url:
        return None
    try:
        return bytes(answer.body())
    except PlaywrightError:
        return None


def begun(page: Page, app: RunningApp, jobs: Jobs, model: Path, name: str) -> Job:
    """A release of the model that the page started and that is half-written."""
    set_up_release(page, model, app.root, name, "Example Labs", "")
    page.click("#start-protect")
    until((app.root / f"{name}.partial").exists, "the half-written release", app.log)
    return next(job for job in jobs.recent() if job.request.get("out") == str(app.root / name))


@pytest.mark.slow
@pytest.mark.fault(54)
def test_fault_44_job_survives_browser_close_and_stop_removes_its_files(
    app: RunningApp, vault: Vault, jobs: Jobs, large: Path, visit: Callable[..., Visit]
) -> None:
    """In the meantime, others see no secret of its process, which holds neither a pipe nor the vault."""
    page = visit(app).page
    pass_the_gate(page)
    job = begun(page, app, jobs, large, "closed")
    pid, state = job.pid or 0, "#job-protect .job-state"
    with frozen(pid):
        page.context.close()
        until(lambda: not connected(app), "the app to be left by the browser", app.log)
        assert jobs.get(job.id).state == "running"
        holds_no_secret(pid, secrets_of(vault))
        limits = Path(f"/proc/{pid}/limits").read_text()
        assert re.search(r"^Max core file size +0 ", limits, re.MULTILINE), "a crash writes no memory to a file"
        opened = {entry.name: os.readlink(entry.path) for entry in os.scandir(f"/proc/{pid}/fd")}
        assert opened["0"] == "/dev/null"
        held = ("pipe:", "socket:", str(app.home / "vault"))
        assert not [target for target in opened.values() if target.startswith(held)], opened
        page = visit(app).page
        pass_the_gate(page)  # its cookie went with the browser, so it has to be unlocked again
        open_tab(page, "protect")
        expect(page.locator(state)).to_have_text("Running")
        page.reload()
        page.wait_for_selector("#pages")
        open_tab(page, "protect")
        expect(page.locator(state)).to_have_text("Running")
        # The worst case: it ignores the signal, so it is killed and cannot clean up.
        page.click("#job-protect .job-stop")
        until_over(jobs, job.id)
        partial = app.root / "closed.partial"
        until(lambda: not still_runs(pid, None) and not partial.exists(), "the end of the process")
    expect(page.locator(state)).to_have_text("Stopped")
    assert jobs.get(job.id).state == "stopped"
    assert not (app.root / "closed").exists()


@pytest.mark.slow
def test_fault_44_job_of_a_killed_app_is_interrupted_swept_and_rerunnable(
    app: RunningApp, vault: Vault, jobs: Jobs, large: Path, visit: Callable[..., Visit]
) -> None:
    """The last test of this module: it kills the app."""
    page = visit(app).page
    pass_the_gate(page)
    job = begun(page, app, jobs, large, "again")
    with frozen(job.pid or 0):
        app.process.kill()
        app.process.wait()
        os.kill(job.pid or 0, signal.SIGKILL)
    assert jobs.get(job.id).state == "running", "no process was left to change it"
    partial = app.root / "again.partial"
    assert partial.exists()
    with start_app(app.home.parent) as restarted:
        assert jobs.get(job.id).state == "interrupted"
        page = visit(restarted, path="/?tab=protect").page
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
