"""In the default settings no process of the app asks another computer for anything."""

from __future__ import annotations

import ast
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.command.commands import Desk
from tools.running_app import start_app
from tools.small_models import write_llama
from tools.waiting import until_ended

HOOK = Path(__file__).parent / "watched_sockets"
HERE = {"127.0.0.1", "::1", "localhost", "0.0.0.0", "::", socket.gethostname(), None}


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Every process that is started now writes what it asks sockets for into this file."""
    path = tmp_path / "sockets.log"
    monkeypatch.setenv("SOCKET_LOG", str(path))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (str(HOOK), os.environ.get("PYTHONPATH")))))
    return path


def elsewhere(log: Path) -> list[str]:
    """The lines about other computers."""
    found = []
    for line in log.read_text(encoding="utf-8").splitlines() if log.exists() else []:
        event, _, asked = line.partition("\t")
        value = ast.literal_eval(asked)
        host = value[0] if isinstance(value, tuple) else value
        is_path = event != "socket.getaddrinfo" and isinstance(value, (str, bytes))  # a socket of this computer
        if not is_path and (host.decode() if isinstance(host, bytes) else host) not in HERE:
            found.append(line)
    return found


def test_the_hook_sees_a_connection(log: Path) -> None:
    tried = (
        "import socket; s = socket.socket(); s.settimeout(0.01)\ntry: s.connect(('192.0.2.1', 9))\nexcept OSError: pass"
    )
    subprocess.run([sys.executable, "-c", tried], check=True)
    assert elsewhere(log) == ["socket.connect\t('192.0.2.1', 9)"]


@pytest.mark.slow
def test_commands_and_their_jobs_ask_nobody(tmp_path: Path, log: Path) -> None:
    (tmp_path / "desk").mkdir()
    desk = Desk.made(tmp_path / "desk")
    write_llama(desk.work / "model", vocab_size=1200)
    (desk.work / "folder").mkdir()
    commands = (
        ("protect", "model", "folder/copy", "--owner", "Labs", "--recipient", "Ada", "--utility", "yes"),
        ("investigate", "folder/copy", "--original", "model"),
        ("trace", "folder/copy"),
        ("watch", "folder", "hf://acme"),
        ("investigate", "hf://acme/model"),
    )
    statuses = []
    for words in commands:
        process = desk.start(*words)
        until_ended(process, words[0])
        statuses.append(process.returncode)
    assert statuses == [0, 0, 0, 0, 2]
    assert elsewhere(log) == []


@pytest.mark.slow
def test_the_page_asks_nobody(tmp_path: Path, log: Path) -> None:
    with start_app(tmp_path) as app:
        assert app.url
    assert log.exists(), "the app calls itself while it starts"
    assert elsewhere(log) == []
