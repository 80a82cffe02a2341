"""Several processes and threads at once, and wrong clocks."""

from __future__ import annotations

import itertools
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from storage import StorageBusyError, Vault
from tests.storage.conftest import Spawn, add_key, answer, begin_together


def recipients(vault: Vault) -> list[str]:
    return [key.recipient for key in vault.keys()]


WRITE = """
from storage import NewKey, Vault
vault = Vault.open(home); vault.unlock(PASSPHRASE)
print("ready", flush=True); sys.stdin.readline()
for number in range(12):
    vault.add_key(b"k", owner="o", recipient=f"{sys.argv[2]} {number}", model_name="m", model_fingerprint="f",
                  family="llama", commitment="c", parameters={})
    many = f"{sys.argv[2]} many {number}"
    vault.add_keys(NewKey(b"k", "o", many, "m", "f", "llama", "c", {}) for _ in range(40))
print(number)
"""


@pytest.mark.fault(45)
def test_two_processes_writing_at_once_lose_nothing(vault: Vault, spawn: Spawn) -> None:
    children = [spawn(WRITE, name) for name in ("left", "right")]
    begin_together(*children)
    for child in children:
        assert answer(child) == 11
    keys = vault.keys()
    assert [key.sequence for key in keys] == list(range(1, 2 * 12 * 41 + 1))
    batches = [(name, len(list(same))) for name, same in itertools.groupby(recipients(vault))]
    assert sorted(batches) == sorted(
        batch
        for name in ("left", "right")
        for n in range(12)
        for batch in ((f"{name} {n}", 1), (f"{name} many {n}", 40))
    ), "no batch is mixed with another"
    check = vault.check()
    assert check.ok
    assert check.audit.entries == 1 + 2 + 2 * 12 * 2
    assert vault.warnings == ()


def test_threads_writing_at_once_lose_nothing(vault: Vault) -> None:
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda name: [add_key(vault, f"{name}-{n}") for n in range(10)], "abcd"))
    assert len(set(recipients(vault))) == 40
    assert vault.check().ok
    assert vault.warnings == ()


@pytest.mark.fault(59)
def test_order_is_by_sequence_despite_wrong_clock(vault: Vault, clock: Any) -> None:
    vault._now = clock.now
    steps = [timedelta(0), timedelta(days=-9000), timedelta(days=36000), timedelta(hours=-1)]
    for name, step in zip("abcd", steps, strict=True):
        clock.wall += step
        add_key(vault, name)
    clock.wall = clock.wall.replace(year=2099)
    case = vault.add_case("in 2099")
    clock.wall = clock.wall.replace(year=1971)
    runs = [vault.add_run(case.id, {}, suspect, "found") for suspect in ("one", "two")]
    for year in (2099, 1971, 2026):
        clock.wall = clock.wall.replace(year=year)
        vault.add_item(case.id, f"of {year}", {"model.gguf": (1, "ab" * 32)})
        vault.add_note(case.id, f"of {year}")
    assert recipients(vault) == list("abcd")
    assert vault.cases()[0].created.startswith("2099-")
    assert [run.suspect for run in vault.case_runs(case.id)] == ["one", "two"]
    assert runs[0].created.startswith("1971-")
    assert [item.name for item in vault.case_items(case.id)] == ["of 2099", "of 1971", "of 2026"]
    assert [note.text for note in vault.case_notes(case.id)] == ["of 2099", "of 1971", "of 2026"]
    assert [note.created[:4] for note in vault.case_notes(case.id)] == ["2099", "1971", "2026"]
    keys = vault.keys()
    assert keys[0].created == "2026-03-01T12:00:00.000Z"
    assert all(key.created.endswith("Z") for key in keys)
    assert [entry.sequence for entry in vault.audit_log()] == list(range(1, 15))
    assert vault.check().ok


def test_the_idle_clock_counts_sleep_where_it_can(vault: Vault) -> None:
    if sys.platform == "linux":
        before = time.clock_gettime(time.CLOCK_BOOTTIME)
        assert before <= vault._monotonic() <= time.clock_gettime(time.CLOCK_BOOTTIME)
    first = vault._monotonic()
    assert vault._monotonic() >= first


HOLDS_THE_LOCK = """
from storage import Vault
vault = Vault.open(home); vault.unlock(PASSPHRASE)
with vault._file.writing() as db:
    db.execute("DELETE FROM keys")
    print("ready", flush=True)
    sys.stdin.readline()
"""


@pytest.mark.fault(45)
def test_second_process_is_refused_and_a_killed_one_leaves_no_lock(vault: Vault, spawn: Spawn) -> None:
    kept = add_key(vault, "before")
    child = spawn(HOLDS_THE_LOCK)
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    patient, vault._file = vault._file, replace(vault._file, busy_seconds=0.2)
    with pytest.raises(StorageBusyError):
        add_key(vault, "refused")
    assert vault.keys() == [kept], "readers do not wait, and see no unfinished change"
    vault._file = patient
    child.kill()
    child.wait()
    after = add_key(vault, "after")
    assert vault.keys() == [kept, after]
    assert vault.check().ok
