"""The vault with 100 000 recipients: adding, browsing, reading, and sealing again with a new passphrase.

    python -m benchmarks.vault_scale [--keys 100000] [--batch 1000] [--folder FOLDER] [--write]

One real key is made on the demo model. Every further recipient has the same key with another name, which has the length
of a real key, and the vault does not read its content. Each step runs in a separate process, so that its peak memory is
its own (a child starts with its parent's peak), and without torch, which only making the key needs. --write puts the
table into docs/security.md.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.written import printed_table

ROOT = Path(__file__).resolve().parents[1]
PASSPHRASE = "umbrella-quartz-lantern-tide"
NEW_PASSPHRASE = "harvest-velvet-compass-rain"
PAGE = 50


def real_key(file: Path) -> None:
    """Write a real key's bytes and the values that the vault records with them."""
    import irwm

    model = irwm.open_checkpoint(ROOT / "assets" / "demo")
    key = irwm.generate_key(model, owner="Example Labs", recipient="Recipient 000000")
    body = key.to_bytes()
    about = {"fingerprint": key.model_fingerprint, "parameters": key.parameters.to_dict()}
    another = replace(key, recipient="Recipient 123456").to_bytes()
    assert another == body.replace(b"Recipient 000000", b"Recipient 123456"), "the name is all that differs"
    file.write_text(json.dumps(about | {"key": body.decode("ascii")}), encoding="ascii")


def new_keys(file: Path, count: int) -> Iterator[Any]:
    """Yield the recipients' keys in the form that the vault accepts."""
    import hashlib

    from storage import NewKey

    about = json.loads(file.read_text(encoding="ascii"))
    for n in range(count):
        recipient = f"Recipient {n:06}"
        body = about["key"].replace("Recipient 000000", recipient).encode("ascii")
        commitment = hashlib.sha256(b"irwm/v1/commitment\0" + body).hexdigest()
        yield NewKey(
            body, "Example Labs", recipient, "demo", about["fingerprint"], "llama", commitment, about["parameters"]
        )


def measured(action: Callable[[], Any]) -> tuple[float, Any]:
    """Return seconds and result."""
    started = time.perf_counter()
    result = action()
    return time.perf_counter() - started, result


def add(home: Path, file: Path, count: int, batch: int) -> list[tuple[str, str]]:
    """Add the keys in batches."""
    from storage import Vault

    vault = Vault.create(home, PASSPHRASE)
    keys = list(new_keys(file, count))

    def seconds(at: int) -> float:
        return measured(lambda: vault.add_keys(keys[at : at + batch]))[0]

    times = [seconds(at) for at in range(0, count, batch)]
    size = (home / "vault.sqlite3").stat().st_size
    return [
        (f"add all, {batch} at once", f"{sum(times):.1f} s"),
        ("slowest batch", f"{max(times):.2f} s"),
        ("size of the vault", f"{size / 1e6:.0f} MB"),
    ]


def read(home: Path, count: int) -> list[tuple[str, str]]:
    """Browse the vault like a newly unlocked session."""
    from storage import Vault

    vault = Vault.open(home)
    vault.unlock(PASSPHRASE)
    rows = [("peak memory of unlocking, including 64 MiB for the passphrase", f"{peak() / 2**20:.0f} MiB")]

    def note(what: str, action: Callable[[], Any], expected: int) -> None:
        seconds, found = measured(action)
        assert found == expected, (what, found)
        rows.append((what, f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1000:.0f} ms"))

    note("first page after unlocking", lambda: vault.find_keys(limit=PAGE).total, count)
    note("next page", lambda: len(vault.find_keys(offset=PAGE, limit=PAGE).records), min(PAGE, max(0, count - PAGE)))
    note("search for one recipient", lambda: vault.find_keys(f"{count - 1:06}").total, 1)
    note("search for two words that all have", lambda: vault.find_keys("labs recipient").total, count)
    vault.log("something happened")
    note("page after an entry of the log", lambda: vault.find_keys().total, count)
    fingerprint = vault.find_keys(limit=1).records[0].model_fingerprint
    note("identifiers of all keys of the model", lambda: len(vault.key_ids(model_fingerprint=fingerprint)), count)
    note("records of all keys of the model", lambda: len(vault.keys_for(fingerprint)), count)
    memory = peak()
    ids = vault.key_ids()
    note("bytes of all keys", lambda: sum(1 for _ in vault.keys_bytes(ids)), count)
    note(
        "bytes of 100 keys, one at a time", lambda: sum(bool(vault.key_bytes(id)) for id in ids[:100]), min(100, count)
    )
    rows.append(("peak memory of searching and paging", f"{memory / 2**20:.0f} MiB"))
    vault.lock()
    return rows


def check(home: Path, count: int) -> list[tuple[str, str]]:
    """Open every record and check it against the log."""
    from storage import Vault

    vault = Vault.open(home)
    vault.unlock(PASSPHRASE)
    seconds, found = measured(vault.check)
    assert found.ok
    assert found.records == count
    return [("check of the log and every record", f"{seconds:.1f} s")]


def change(home: Path, count: int) -> list[tuple[str, str]]:
    """Change the passphrase, which seals everything again."""
    from storage import Vault

    vault = Vault.open(home)
    largest = 0
    before = (home / "vault.sqlite3").stat().st_size

    def watch(done: int, total: int) -> None:
        nonlocal largest
        largest = max(largest, (home / "vault.sqlite3-wal").stat().st_size)

    seconds, done = measured(lambda: vault.change_passphrase(PASSPHRASE, NEW_PASSPHRASE, progress=watch))
    assert (done.records, done.damaged, done.entries) == (count, (), ())
    rows = [
        ("change of passphrase: everything sealed again", f"{seconds:.1f} s"),
        ("disk space during the change", f"{largest / 1e6:.0f} MB"),
        ("growth of the vault", f"{((home / 'vault.sqlite3').stat().st_size - before) / 1e6:.0f} MB"),
        ("peak memory of the change, including 64 MiB for the passphrase", f"{peak() / 2**20:.0f} MiB"),
    ]
    vault.unlock(NEW_PASSPHRASE)
    assert vault.check().ok
    return rows


def peak() -> int:
    """Return peak resident memory of this process in bytes."""
    said = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(said if sys.platform == "darwin" else said * 1024)


def step(name: str, folder: Path, keys: int, batch: int) -> list[tuple[str, str]]:
    """Run one step in this process."""
    import types

    # Importing `irwm` loads torch, whose memory does not belong to the vault.
    package = types.ModuleType("irwm")
    package.__path__ = [str(ROOT / "irwm")]
    sys.modules["irwm"] = package
    home, file = folder / "home", folder / "key.json"
    rows = {
        "add": lambda: add(home, file, keys, batch),
        "read": lambda: read(home, keys),
        "check": lambda: check(home, keys),
        "change": lambda: change(home, keys),
    }[name]()
    return [*rows, (f"peak memory of this process ({name})", f"{peak() / 2**20:.0f} MiB")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--batch", type=int, default=1000)
    parser.add_argument("--folder", type=Path, help="folder for the vault")
    parser.add_argument("--write", action="store_true", help="put the table into docs/")
    parser.add_argument("--step", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.step == "key":
        real_key(options.folder / "key.json")
        return
    if options.step:
        print(json.dumps(step(options.step, options.folder, options.keys, options.batch)))
        return
    with (
        printed_table("security.md", "vault_scale", write=options.write),
        tempfile.TemporaryDirectory() as temporary,
    ):
        folder = options.folder or Path(temporary)
        folder.mkdir(exist_ok=True)
        called = [sys.executable, "-m", "benchmarks.vault_scale", "--folder", str(folder)]
        called += ["--keys", str(options.keys), "--batch", str(options.batch), "--step"]
        subprocess.run([*called, "key"], check=True, cwd=ROOT)
        print(f"{options.keys} keys of {len(json.loads((folder / 'key.json').read_text())['key'])} bytes\n")
        print("| what | measured |\n|---|---|", flush=True)
        for name in ("add", "read", "check", "change"):
            run = subprocess.run([*called, name], stdout=subprocess.PIPE, text=True, check=True, cwd=ROOT)
            for what, value in json.loads(run.stdout):
                print(f"| {what} | {value} |", flush=True)


if __name__ == "__main__":
    main()
