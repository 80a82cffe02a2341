"""An answer in every case: signals at the worst moment, streams closed or full, a Python without libraries."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.command.commands import REPOSITORY, signals_kept
from tools.waiting import PATIENCE
from ui.command import main as main_module
from ui.command.main import main
from ui.command.stop import Stop, Stopped
from ui.command.streams import say

# Replaces a library whose import takes seconds: `run` begins with it, and the signals arrive during its import.
SLOW = """\
import os, signal, sys, types
class Slow:
    def find_spec(self, name, path=None, target=None):
        if name == "irwm.errors":
            for _ in range({signals}):
                os.kill(os.getpid(), signal.SIGTERM)
sys.meta_path.insert(0, Slow())
import app
sys.exit(app.main({arguments!r}))
"""


def command(code: str, home: Path, **settings: object) -> subprocess.CompletedProcess[str]:
    known = os.environ | {"IRWM_HOME": str(home)}
    return subprocess.run(  # type: ignore[call-overload, no-any-return]
        [sys.executable, "-c", code],
        **{"env": known, "capture_output": True, "text": True, "timeout": 120, "cwd": REPOSITORY, **settings},
    )


@pytest.mark.slow
def test_signals_during_imports_stop_before_the_passphrase_prompt(tmp_path: Path) -> None:
    arguments = ["init", "--passphrase-fd", "999"]
    done = command(SLOW.format(signals=2, arguments=arguments), tmp_path / "home")
    assert (done.returncode, json.loads(done.stdout)["outcome"]) == (4, "stopped"), done.stderr
    assert done.stderr == "Stopped; no partial output was left.\n"
    assert not list((tmp_path / "home").glob("*"))


def test_python_without_libraries_gives_an_error_and_no_verdict(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "for name in ('torch', 'numpy', 'sqlite_utils'): sys.modules[name] = None\n"
        "import app; sys.exit(app.main(['investigate', 'a', '--original', 'b']))"
    )
    done = command(code, tmp_path)
    answer = json.loads(done.stdout)
    assert (done.returncode, answer["exit_status"], answer["command"]) == (2, 2, "investigate")
    assert answer["error"]["type"] == "ModuleNotFoundError"
    assert ".venv/bin/python app.py" in answer["error"]["advice"]
    assert set(answer["error"]) == {"type", "problem", "file", "tensor", "expected", "found", "advice"}
    assert done.stderr.splitlines()[-1].startswith("Error: a library that this app needs")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="only Linux has a file that is always full")
@pytest.mark.parametrize("redirected", ["2>/dev/full", "2>&-", "<&- 2>&-"])
def test_unwritable_standard_error_does_not_change_the_answer(tmp_path: Path, redirected: str) -> None:
    shell = ["bash", "-c", f'"{sys.executable}" app.py bogus {redirected}']
    done = subprocess.run(
        shell,
        cwd=REPOSITORY,
        env=os.environ | {"IRWM_HOME": str(tmp_path)},
        stdout=subprocess.PIPE,
        timeout=PATIENCE,
    )
    assert done.returncode == 2
    assert "bogus" in json.loads(done.stdout)["error"]["problem"]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="only Linux has a file that is always full")
@pytest.mark.parametrize("redirected", [">/dev/full", ">&-"])
def test_unread_answer_keeps_its_exit_status(redirected: str) -> None:
    code = "import sys; from ui.command.streams import open_missing, say; open_missing(); say('x', sys.stdout)"
    done = subprocess.run(
        ["bash", "-c", f'"{sys.executable}" -c "{code}" {redirected}'], cwd=REPOSITORY, timeout=PATIENCE
    )
    assert done.returncode == 0


def test_failure_to_build_an_answer_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def burst(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr(main_module, "say", burst)
    monkeypatch.setattr(main_module, "_answer", burst)
    with signals_kept():
        assert main(["init"]) == 2


def test_signal_ends_the_command_only_without_a_running_job() -> None:
    with signals_kept():
        stop = Stop.installed()
        stop.open()
        with pytest.raises(Stopped):
            signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)  # one is enough
        assert stop.wait(0)
        for noted in (stop.open, stop.close):
            with pytest.raises(Stopped):
                noted()
            signal.raise_signal(signal.SIGTERM)
        busy = Stop.installed()
        busy.open()
        busy.close()
        assert not busy.wait(0)
        signal.raise_signal(signal.SIGTERM)
        assert busy.wait(60)


def test_full_stream_is_redirected_to_null_device() -> None:
    if os.path.exists("/dev/full"):
        with open("/dev/full", "w", encoding="utf-8") as stream:
            say("lost", stream)
            say("lost too", stream)
    with open(os.devnull, "w", encoding="utf-8") as closed:
        pass
    say("lost", closed)
