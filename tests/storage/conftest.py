"""A vault on disk with a cheap passphrase, controllable clocks, and real second processes."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.kdf import argon2

from storage import Cost, KeyRecord, NewKey, Vault, encryption
from storage.schema import JOB_KEYS
from tools.waiting import PATIENCE

ROOT = Path(__file__).parents[2]
PASSPHRASE = "correct horse battery staple"
# The smallest cost that Argon2 accepts; passed as an argument, so that no setting can weaken a real vault.
CHEAP = Cost(memory_kib=8, passes=1, lanes=1)
Sql = Callable[..., list[Any]]
Flip = Callable[..., None]
Spawn = Callable[..., subprocess.Popen[str]]

# `irwm` itself pulls in torch, which takes seconds; a child needs `irwm.errors` alone.
PREAMBLE = """
import json, os, signal, sys, time, types
from pathlib import Path
irwm = types.ModuleType("irwm"); irwm.__path__ = [str(Path.cwd() / "irwm")]; sys.modules["irwm"] = irwm
home = Path(sys.argv[1])
PASSPHRASE = "correct horse battery staple"
"""


class Clock:
    """A wall clock and an idle clock that only tests move."""

    def __init__(self) -> None:
        self.wall = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
        self.ticks = 1000.0

    def now(self) -> datetime:
        return self.wall

    def monotonic(self) -> float:
        return self.ticks

    def later(self, **step: float) -> None:
        self.wall += timedelta(**step)


def begin_together(*children: subprocess.Popen[str]) -> None:
    """Lets processes begin at the same time: each prints a line when it is ready, and waits for one."""
    for child in children:
        assert child.stdout is not None
        child.stdout.readline()
    for child in children:
        assert child.stdin is not None
        child.stdin.write("\n")
        child.stdin.flush()


def unlocked(home: Path, passphrase: str = PASSPHRASE) -> Vault:
    """Another session of the vault in a folder, unlocked."""
    vault = Vault.open(home)
    vault.unlock(passphrase)
    return vault


@pytest.fixture
def derives(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The passphrases for which Argon2 was started, in order."""
    begun: list[bytes] = []

    class Noted:
        def __init__(self, **settings: Any) -> None:
            self._real = argon2.Argon2id(**settings)

        def derive(self, text: bytes) -> bytes:
            begun.append(text)
            return self._real.derive(text)

    monkeypatch.setattr(encryption, "Argon2id", Noted)
    return begun


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def vault(home: Path) -> Vault:
    """A new vault, unlocked."""
    return Vault.create(home, PASSPHRASE, CHEAP)


def new_keys(count: int, name: str = "Recipient", model: str = "ab" * 32, size: int = 0) -> list[NewKey]:
    """Keys for one call of `add_keys`, with bytes made from the recipient's name."""
    return [new_key(f"{name} {n}", model, size) for n in range(1, count + 1)]


def new_key(recipient: str, model: str = "ab" * 32, size: int = 0) -> NewKey:
    return NewKey(
        f"SECRET-KEY-{recipient}".encode().ljust(size, b"."),
        owner="Northwind Research AG",
        recipient=recipient,
        model_name="northwind-7b",
        model_fingerprint=model,
        family="llama-like",
        commitment=hashlib.sha256(recipient.encode()).hexdigest(),
        parameters={"positions": 50, "scale": 1000.0},
        label="early access",
    )


def add_key(vault: Vault, recipient: str = "Brightwater Labs", model: str = "ab" * 32) -> KeyRecord:
    """Adds one key, not as part of a batch."""
    return vault.add_key(**dataclasses.asdict(new_key(recipient, model)))


@pytest.fixture
def filled(vault: Vault) -> Vault:
    """A vault with two records in each of its tables."""
    for number in range(2):
        key, case = add_key(vault, f"Recipient {number}"), vault.add_case(f"Case {number}")
        vault.add_release(key.id, "/releases/copy", {"model.safetensors": "ab" * 32}, {})
        vault.add_run(case.id, {"verdict": "found"}, "suspect.gguf", "found", files={"report.html": b"<p>SEALED"})
        vault.add_item(case.id, "suspect.gguf", {"suspect.gguf": (7, "ab" * 32)}, received_from="a journalist")
        vault.add_note(case.id, "Called the customer.", added_by="R. Weber")
        vault.add_timestamp(key.id, b"COMMITTED", b"ASKED", b"ANSWERED", "2026-03-01T12:00Z", "An authority", True)
        vault.rotate_identity()
        vault.set_label("keys", key.id, f"SEALED words {number}")
        # Without this, a vault makes one for each data key.
        vault._add(JOB_KEYS, "key of the job list made", {"made_under": "ab" * 32}, bytes([number]) * 32)
    return vault


@pytest.fixture
def sql(home: Path) -> Sql:
    """Edits the vault's file as an attacker would, with plain SQLite."""

    def run(statement: str, *values: Any, name: str = "vault.sqlite3") -> list[Any]:
        with closing(sqlite3.connect(home / name)) as conn, conn:
            return conn.execute(statement, values).fetchall()

    return run


@pytest.fixture
def flip(sql: Sql) -> Flip:
    """Flips one bit in a stored value."""

    def change(table: str, column: str, where: str, value: Any, at: int = -1) -> None:
        old = bytearray(sql(f"SELECT {column} FROM {table} WHERE {where} = ?", value)[0][0])
        old[at] ^= 1
        sql(f"UPDATE {table} SET {column} = ? WHERE {where} = ?", bytes(old), value)

    return change


@pytest.fixture
def spawn(home: Path) -> Iterator[Spawn]:
    """Starts a real process on the same home; ends running processes after the test."""
    children: list[subprocess.Popen[str]] = []

    def start(script: str, *arguments: str) -> subprocess.Popen[str]:
        child = subprocess.Popen(
            [sys.executable, "-W", "error", "-c", PREAMBLE + script, str(home), *arguments],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        children.append(child)
        return child

    yield start
    for child in children:
        if child.poll() is None:
            child.kill()
        child.communicate()


def answer(child: subprocess.Popen[str]) -> Any:
    """Waits for a child and returns the JSON it printed last."""
    out, err = child.communicate(timeout=PATIENCE)
    assert child.returncode == 0, err
    return json.loads(out.splitlines()[-1])


def documented_hashes(vault_id: str, entry: dict[str, Any]) -> tuple[str, str]:
    """The digest of the details and the hash of a log entry, computed from their description in docs/security.md."""

    def digest(value: dict[str, Any]) -> str:
        return hashlib.sha256(json.dumps(value, sort_keys=True, separators=(",", ":")).encode()).hexdigest()

    details = digest({"details": entry["details"], "salt": entry["salt"]})
    message = {name: entry[name] for name in ("event", "previous", "sequence", "time", "version")}
    return details, digest(message | {"details": details, "vault": vault_id})


def put_into(target: Path, source: Path, *statements: str) -> None:
    """Runs SQL on a vault's file, with another file attached as `other`."""
    with contextlib.closing(sqlite3.connect(target)) as conn, conn:
        conn.execute("ATTACH ? AS other", [str(source)])
        for statement in statements:
            conn.execute(statement)


def taken_over(table: str, where: str = "") -> tuple[str, str]:
    """Statements that replace a table's rows with those of the other file."""
    return f"DELETE FROM main.{table} {where}", f"INSERT INTO main.{table} SELECT * FROM other.{table} {where}"
