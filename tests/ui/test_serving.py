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

import app
from tools.running_app import PASSPHRASE, REPOSITORY, RunningApp, start_app
from tools.waiting import PATIENCE


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


def test_extra_gradio_routes_are_disabled(running_app: RunningApp) -> None:
    with running_app.client() as client:
        assert client.get("/monitoring").status_code == 404
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
        call(client, "do_create", ["short", "short", 0])
        assert not (running_app.home / "vault.sqlite3").exists()
        call(client, "do_create", [PASSPHRASE, PASSPHRASE, 0])
        assert (running_app.home / "vault.sqlite3").exists(), "the checks above could have failed"
        assert is_open(client)
        assert is_open(client, uuid.uuid4().hex), "after a reload, which changes the session but not the cookie"

        other.get("/")
        assert not is_open(other), "a second browser"
        assert not is_open(other, session)
        call(other, "do_unlock", ["not the passphrase", 0])
        assert not is_open(other)
        assert is_open(client)
        call(other, "do_unlock", [PASSPHRASE, 0])
        assert is_open(other)

        call(client, "do_lock", [0])
        assert (is_open(client), is_open(other)) == (False, True)
    for path in running_app.home.parent.rglob("*"):  # home, log and temp folder
        if path.is_file():
            assert PASSPHRASE.encode() not in path.read_bytes(), path


@pytest.mark.parametrize("variable", ["IRWM_PORT", "IRWM_HOME"])
def test_bad_setting_stops_the_start_with_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], variable: str
) -> None:
    """A port that is not a number, or a home that the server could serve; it stays empty."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setenv("IRWM_HOME", str(tmp_path / "home"))
    with tempfile.TemporaryDirectory(dir=REPOSITORY, prefix=".home-") as inside:
        monkeypatch.setenv(variable, {"IRWM_PORT": "seven", "IRWM_HOME": inside}[variable])
        assert app.serve() == 2
        assert os.listdir(inside) == []
    said = capsys.readouterr().err
    assert variable in said
    assert "Traceback" not in said


@pytest.mark.slow
def test_a_taken_port_stops_the_start_with_a_sentence(tmp_path: Path, running_app: RunningApp) -> None:
    environment = {**os.environ, "IRWM_HOME": str(tmp_path / "home"), "IRWM_PORT": str(running_app.port)}
    ended = subprocess.run(
        [sys.executable, str(REPOSITORY / "app.py")],
        env=environment | {"TMPDIR": str(running_app.home.parent / "tmp")},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert ended.returncode == 2
    assert f"port {running_app.port} is already in use" in ended.stderr


# The app on a machine that is too busy to answer Gradio's own question within three seconds.
BUSY = """import sys, ui
from gradio import networking
networking.url_ok = lambda url: False
import app
sys.exit(app.main())"""


@pytest.mark.slow
def test_app_starts_in_any_folder_on_a_busy_machine_and_removes_its_uploads_at_the_end(tmp_path: Path) -> None:
    """Its relative home is below the folder in which it is started; that folder is not served."""
    person, temp = tmp_path / "person", tmp_path / "tmp"
    person.mkdir(mode=0o700)
    (person / "diary.txt").write_text("private")
    extra = {"IRWM_HOME": "kept", "PYTHONPATH": str(REPOSITORY)}
    with start_app(tmp_path, ("-c", BUSY), extra, cwd=person) as started, started.client() as client:
        call(client, "do_create", [PASSPHRASE, PASSPHRASE, 0])
        vault = person / "kept" / "vault.sqlite3"
        assert vault.exists()
        assert Path(f"/proc/{started.process.pid}/cwd").resolve() == REPOSITORY
        for name in ("diary.txt", str(person / "diary.txt"), str(vault)):
            assert client.get(f"/gradio_api/file={name}").status_code == 403
        assert len(list(temp.glob("irwm-uploads-*"))) == 1
        started.process.send_signal(signal.SIGTERM)  # handled as an interruption by Ctrl+C
        assert started.process.wait(PATIENCE) == 0
    assert not list(temp.glob("irwm-uploads-*"))
