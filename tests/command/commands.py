"""Commands as in a pipeline: in separate processes, or, if only the answer matters, in this one."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import app
from storage.encryption import Cost
from storage.jobs import Jobs
from storage.vault import Vault

REPOSITORY = Path(__file__).resolve().parents[2]
PASSPHRASE = "umbrella-quartz-lantern-tide"
CHEAP = Cost(memory_kib=8, passes=1, lanes=1)


@dataclass
class Answered:
    """The output of a command.

    Attributes:
        status: its exit status.
        answer: the document on standard output.
        said: standard error.
    """

    status: int
    answer: dict[str, Any]
    said: str


def piped(content: bytes) -> int:
    """A file descriptor that this can be read from."""
    reading, writing = os.pipe()
    os.write(writing, content)
    os.close(writing)
    return reading


@dataclass
class Desk:
    """A home folder with a vault, and a working folder."""

    home: Path
    work: Path

    @classmethod
    def made(cls, folder: Path) -> Desk:
        """One with an empty vault."""
        desk = cls(folder / "home", folder / "work")
        desk.work.mkdir()
        desk.home.mkdir(mode=0o700)
        Vault.create(desk.home, PASSPHRASE, cost=CHEAP).lock()
        return desk

    @property
    def jobs(self) -> Jobs:
        return Jobs(self.home).opened(self.vault().jobs_keys_to_seal())

    def vault(self) -> Vault:
        vault = Vault.open(self.home)
        vault.unlock(PASSPHRASE)
        return vault

    def environment(self) -> dict[str, str]:
        temp = self.work / "tmp"
        temp.mkdir(exist_ok=True)
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("IRWM_", "GRADIO_"))}
        return kept | {"IRWM_HOME": str(self.home), "IRWM_DEVICE": "cpu", "TMPDIR": str(temp)}

    def start(self, *words: str | Path, **settings: Any) -> subprocess.Popen[str]:
        """The command in a separate process; its passphrase is passed to it."""
        reading = piped(PASSPHRASE.encode() + b"\n")
        try:
            return subprocess.Popen(
                [sys.executable, REPOSITORY / "app.py", *words, "--passphrase-fd", str(reading)],
                env=self.environment(),
                cwd=self.work,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                pass_fds=[reading],
                **settings,
            )
        finally:
            os.close(reading)

    def here(self, capfd: pytest.CaptureFixture[str], *words: str | Path, passphrase: str = PASSPHRASE) -> Answered:
        """The command in this process, which saves the imports; its job still has a process."""
        reading = piped(passphrase.encode() + b"\r\n")
        capfd.readouterr()
        with pytest.MonkeyPatch.context() as patch, signals_kept():
            for name, value in self.environment().items():
                patch.setenv(name, value)
            patch.chdir(self.work)
            patch.setattr(tempfile, "tempdir", None)  # which remembers the first one
            status = app.main([*map(str, words), "--passphrase-fd", str(reading)])
        with contextlib.suppress(OSError):  # closed by the command, if it got that far
            os.close(reading)
        out, said = capfd.readouterr()
        return Answered(status, json.loads(out), said)


@contextlib.contextmanager
def signals_kept() -> Iterator[None]:
    """Restores the signal handlers and the mode of new files that a command in this process changes."""
    before = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    mask = os.umask(0o077)
    os.umask(mask)
    try:
        yield
    finally:
        os.umask(mask)
        for each, handler in before.items():
            signal.signal(each, handler)
