"""The real app in its own process, called by a program."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import uuid
from pathlib import Path
from typing import Any

import httpx
import pytest

from tools.running_app import PASSPHRASE, REPOSITORY, RunningApp, start_app
from tools.waiting import PATIENCE
from ui.pages.api import NAMES


def handler(client: httpx.Client, name: str) -> int:
    """Number of the handler of this function name."""
    config = client.get("/config").json()
    return int(next(d["id"] for d in config["dependencies"] if d["api_name"] == name))


def call(client: httpx.Client, name: str | int, data: list[Any], session: str | None = None) -> dict[str, Any]:
    """Runs a handler, given by its function's name or its number, as the page does, and returns its last message."""
    session = session or uuid.uuid4().hex
    number = name if isinstance(name, int) else handler(client, name)
    body = {"data": data, "fn_index": number, "session_hash": session}
    assert client.post("/gradio_api/queue/join", json=body).status_code == 200
    with client.stream("GET", "/gradio_api/queue/data", params={"session_hash": session}) as stream:
        for line in stream.iter_lines():
            if line.startswith("data:") and (message := json.loads(line[5:]))["msg"] == "process_completed":
                return dict(message)
    raise AssertionError("no answer")


def is_open(client: httpx.Client, session: str | None = None) -> bool:
    """Whether this program sees the unlocked pages."""
    data = call(client, "arrive", [False], session)["output"]["data"]
    return bool(data[4]["visible"])


def test_app_assets_are_served(running_app: RunningApp) -> None:
    with running_app.client() as client:
        font = client.get("/studio/fonts/ibm-plex-sans-latin-400-normal.woff2")
        assert font.status_code == 200
        assert font.content[:4] == b"wOF2"
        assert "javascript" in client.get("/studio/studio.js").headers["content-type"]
        assert client.get("/favicon.ico").headers["content-type"].startswith("image/svg")
        assert "IBM Plex Sans" in client.get("/theme.css").text


def test_extra_gradio_routes_are_disabled(running_app: RunningApp) -> None:
    with running_app.client() as client:
        for path in ("/monitoring", "/monitoring/summary", "/gradio_api/runs", "/docs", "/openapi.json"):
            assert client.get(path).status_code == 404, path
        config = client.get("/config").json()
    assert config["run_history"] is False
    assert config["analytics_enabled"] is False
    assert config["footer_links"] == []
    assert config["show_error"] is False
    assert config["max_file_size"] == 1024**3


def test_it_listens_on_this_computer_only(running_app: RunningApp) -> None:
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    listening = [line.split()[1] for line in lines if line.split()[3] == "0A"]
    assert [a for a in listening if a.endswith(f":{running_app.port:04X}")] == [f"0100007F:{running_app.port:04X}"]


@pytest.mark.quick("four passphrases are stretched as a real vault does it, which is what takes the time")
@pytest.mark.fault(54)
def test_the_passphrase_opens_the_vault_for_one_program_only(running_app: RunningApp) -> None:
    session = uuid.uuid4().hex
    with running_app.client() as client, running_app.client() as other:
        client.get("/")
        assert not is_open(client)
        refused = call(client, "do_create", ["short", "short", 0])
        assert "too short" in json.dumps(refused)
        assert not (running_app.home / "vault.sqlite3").exists()
        call(client, "do_create", [PASSPHRASE, PASSPHRASE, 0])
        assert (running_app.home / "vault.sqlite3").exists(), "the checks above could have failed"
        assert is_open(client)
        assert is_open(client, uuid.uuid4().hex), "after a reload, which changes the session but not the cookie"

        other.get("/")
        assert not is_open(other), "a second browser"
        assert not is_open(other, session)
        wrong = call(other, "do_unlock", ["not the passphrase", 0])
        assert "does not open the vault" in json.dumps(wrong)
        assert not is_open(other)
        assert is_open(client)
        call(other, "do_unlock", [PASSPHRASE, 0])
        assert is_open(other)

        call(client, "do_lock", [0])
        assert (is_open(client), is_open(other)) == (False, True)
    for path in running_app.home.parent.rglob("*"):  # home, log and temp folder
        if path.is_file():
            assert PASSPHRASE.encode() not in path.read_bytes(), path


def test_page_handlers_are_private_and_disk_handlers_need_authentication(running_app: RunningApp) -> None:
    (running_app.root / "nordwind").mkdir(exist_ok=True)
    with running_app.client() as locked:
        locked.get("/")
        config = locked.get("/config").json()
        assert [d["api_name"] for d in config["dependencies"] if d["api_visibility"] != "private"] == list(NAMES)
        browsed = call(locked, "toggle", [None, ""])
        settled = call(locked, "settle", [str(running_app.root / "nordwind")])
    for answer in (browsed, settled):
        assert answer["success"] is False
        assert "locked for this browser" in json.dumps(answer)
        assert "nordwind" not in json.dumps(answer)


def refusal(folder: Path, **values: str) -> subprocess.CompletedProcess[str]:
    for name in ("home", "tmp"):
        (folder / name).mkdir(exist_ok=True, mode=0o700)
    environment = {**os.environ, "IRWM_HOME": str(folder / "home"), "TMPDIR": str(folder / "tmp"), **values}
    return subprocess.run(
        [sys.executable, str(REPOSITORY / "app.py")],
        cwd=REPOSITORY,
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )


@pytest.mark.slow
def test_a_bad_setting_stops_the_start_with_a_sentence(tmp_path: Path) -> None:
    ended = refusal(tmp_path, IRWM_PORT="seven")
    assert ended.returncode == 2
    assert "IRWM_PORT is not a port number" in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.slow
def test_home_that_the_server_could_serve_stops_the_start(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(dir=REPOSITORY, prefix=".home-") as inside:
        ended = refusal(tmp_path, IRWM_HOME=inside)
        assert os.listdir(inside) == []
    assert ended.returncode == 2
    assert "inside the working folder" in ended.stderr


@pytest.mark.slow
def test_it_starts_from_the_users_home_folder_with_its_data_below(tmp_path: Path) -> None:
    person = tmp_path / "person"
    person.mkdir(mode=0o700)
    data = person / "data"
    unset = {"IRWM_HOME": "", "IRWM_ROOTS": "", "HOME": str(person), "XDG_DATA_HOME": str(data)}
    with start_app(tmp_path, extra=unset, cwd=person) as app, app.client() as client:
        call(client, "do_create", [PASSPHRASE, PASSPHRASE, 0])
        assert (data / "irwm-studio" / "vault.sqlite3").exists()
        assert Path(f"/proc/{app.process.pid}/cwd").resolve() == REPOSITORY
        (person / "diary.txt").write_text("private")
        for name in ("diary.txt", str(person / "diary.txt"), str(data / "irwm-studio" / "vault.sqlite3")):
            assert client.get(f"/gradio_api/file={name}").status_code == 403


@pytest.mark.slow
def test_relative_home_is_resolved_from_the_start_folder(tmp_path: Path) -> None:
    with start_app(tmp_path, extra={"IRWM_HOME": "kept"}, cwd=tmp_path) as app, app.client() as client:
        call(client, "do_create", [PASSPHRASE, PASSPHRASE, 0])
    assert (tmp_path / "kept" / "vault.sqlite3").exists()


@pytest.mark.slow
def test_a_taken_port_stops_the_start_with_a_sentence(tmp_path: Path, running_app: RunningApp) -> None:
    ended = refusal(tmp_path, IRWM_PORT=str(running_app.port))
    assert ended.returncode == 2
    assert f"port {running_app.port} is in use" in ended.stderr


@pytest.mark.slow
def test_app_starts_on_a_slow_machine(tmp_path: Path) -> None:
    with start_app(tmp_path, ("-m", "tests.ui.unanswered_app")) as app, app.client() as client:
        assert client.get("/").status_code == 200


@pytest.mark.slow
@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM])
def test_upload_folder_is_removed_when_the_app_ends(tmp_path: Path, end: signal.Signals) -> None:
    with start_app(tmp_path) as app:
        assert len(list((tmp_path / "tmp").glob("irwm-uploads-*"))) == 1
        app.process.send_signal(end)
        assert app.process.wait(30) == 0
    assert list((tmp_path / "tmp").glob("irwm-uploads-*")) == []
