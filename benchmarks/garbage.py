"""Time and memory of verifying garbage: 64 MiB in many shapes, given to `irwm verify` as a report or next to one.

    python -m benchmarks.garbage [--only WORDS ...] [--write]

For each shape it prints wall-clock seconds and the largest memory of all the command's processes together, with shared
memory counted once. The exit status is 1 if a shape takes more than 10 s or 400 MB, passes for a report, or does not
end with a sentence. --write puts the table into docs/security.md if the machine is idle.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import os
import random
import struct
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil

from benchmarks.locked_out import sound_numbers
from benchmarks.written import write_table
from irwm.report.document import SCHEMA, VERSION
from tools.waiting import PATIENCE

MIB = 1 << 20
SIZE = 64 * MIB
# The largest JSON, and the greatest number of values, that are parsed (`irwm.canonical`).
MOST_JSON, MOST_VALUES = 32 * MIB - 1024, 499_000
MOST_SECONDS, MOST_BYTES = 10.0, 400e6
MOST_LOAD = 0.5
_PAUSE = 0.02
_REPORT = f'{{"schema":{{"name":"{SCHEMA}","version":{VERSION}}},'.encode()


@dataclass(frozen=True, slots=True)
class Took:
    """Result of verifying one shape: seconds, bytes, the exit code, and the output."""

    seconds: float
    memory: int
    code: int
    printed: str
    errors: str

    @property
    def fits(self) -> bool:
        return self.seconds <= MOST_SECONDS and self.memory <= MOST_BYTES

    @property
    def said_well(self) -> bool:
        """Whether it did not pass, the last line is a sentence, and stderr is empty."""
        return self.code in (1, 2) and self.printed.rstrip().endswith(".") and not self.errors


def noise(size: int) -> bytes:
    """Return random bytes, the same each time."""
    return random.Random(0).randbytes(size)


def texts(size: int) -> bytes:
    """Return a list of texts with the greatest allowed length."""
    return b'["' + b'","'.join([b"a" * MIB] * (size // MIB - 1)) + b'"]'


def names(size: int, most: int = 9_000) -> bytes:
    """Return a list of objects with the greatest parsed number of names."""
    wide = max(8, size // MOST_VALUES - 6)
    count = min(MOST_VALUES - 1000, size // (wide + 6))
    groups = [range(at, min(at + most, count)) for at in range(0, count, most)]
    return b"[" + b",".join(b"{" + b",".join(b'"%0*x":0' % (wide, i) for i in group) + b"}" for group in groups) + b"]"


def one(name: str, content: Callable[[], bytes]) -> Callable[[Path], Path]:
    """Write one file, and return its path."""

    def write(folder: Path) -> Path:
        (folder / name).write_bytes(content())
        return folder / name

    return write


def beside_a_report(ending: str, content: Callable[[], bytes]) -> Callable[[Path], Path]:
    """Write a valid report's numbers, and garbage as another of its files."""

    def write(folder: Path) -> Path:
        with tempfile.TemporaryDirectory() as models:
            (folder / "report.json").write_bytes(sound_numbers(Path(models)))
        (folder / f"report{ending}").write_bytes(content())
        return folder / "report.json"

    return write


def all_of_them(folder: Path) -> Path:
    for ending, size in ((".json", 31), (".signature.json", 1), (".html", 16), (".pdf", 16)):
        (folder / f"report{ending}").write_bytes(noise(size * MIB))
    return folder


def many_files(folder: Path) -> Path:
    for number in range(20_000):
        (folder / f"{number}.json").write_bytes(b"[" * (SIZE // 20_000))
    return folder


def claiming_zip(folder: Path) -> Path:
    """Write a ZIP of 64 MiB that claims 256 MiB, under the name of a report."""
    path = folder / "r.json"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("r.json", "w") as entry:
        for _ in range(256):
            entry.write(bytes(MIB))
    with path.open("ab") as file:
        file.write(bytes(SIZE - path.stat().st_size))
    return path


def long_list(folder: Path) -> Path:
    """Write an archive whose header counts four files, but which lists a million."""
    name = b"r.json"
    entry = struct.pack("<4s6H3L5H2L", b"PK\1\2", *[0] * 9, len(name), *[0] * 6) + name
    listing = entry * (SIZE // len(entry))
    path = folder / "r.zip"
    path.write_bytes(listing + struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 4, 4, len(listing), 0, 0))
    return path


def packed(folder: Path) -> Path:
    """Write an archive of one text of the largest parsed size."""
    path = folder / "r.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("r.json", b'"' + b"a" * MOST_JSON + b'"')
    return path


SHAPES: dict[str, Callable[[Path], Path]] = {
    "random bytes as JSON": one("r.json", lambda: noise(SIZE)),
    "random bytes as HTML": one("r.html", lambda: noise(SIZE)),
    "random bytes as PDF": one("r.pdf", lambda: noise(SIZE)),
    "random bytes as a signature": one("r.signature.json", lambda: noise(SIZE)),
    "random bytes as a timestamp": one("r.tsr", lambda: noise(SIZE)),
    "random bytes as all four files, in a folder": all_of_them,
    "random bytes as JSON, largest parsed size": one("r.json", lambda: noise(MOST_JSON)),
    "one text": one("r.json", lambda: b'"' + b"a" * (SIZE - 2) + b'"'),
    "one text, largest parsed size": one("r.json", lambda: b'"' + b"a" * MOST_JSON + b'"'),
    "one text of characters that take four bytes": one(
        "r.json", lambda: b'"' + "😀".encode() * (MOST_JSON // 4) + b'"'
    ),
    "one number": one("r.json", lambda: b"9" * MOST_JSON),
    "nested lists": one("r.json", lambda: b"[" * SIZE),
    "nested lists, greatest parsed number": one("r.json", lambda: b"[" * MOST_VALUES + b" " * 31 * MIB),
    "empty lists": one("r.json", lambda: b"[" + b"[]," * (SIZE // 3) + b"[]]"),
    "millions of names": one("r.json", lambda: names(SIZE)),
    "names, greatest parsed number": one("r.json", lambda: names(MOST_JSON)),
    "nested objects as a signature": one("r.signature.json", lambda: b'{"a":' * (MIB // 5)),
    "long texts in JSON that claims to be a report": one(
        "r.json", lambda: _REPORT + b'"case":' + texts(MOST_JSON) + b"}"
    ),
    "names in JSON that claims to be a report": one("r.json", lambda: _REPORT + b'"case":' + names(31 * MIB) + b"}"),
    "a timestamp of long texts in JSON that claims to be a report": one(
        "r.json", lambda: _REPORT + b'"time_stamp":{"response":' + texts(MOST_JSON) + b"}}"
    ),
    "HTML of opened tags": one("r.html", lambda: b"<script" * (SIZE // 7)),
    "HTML of opened tags next to a valid report": beside_a_report(".html", lambda: b"<script" * (SIZE // 7)),
    "a PDF of headers next to a valid report": beside_a_report(".pdf", lambda: b"%PDF-1.7 " * (SIZE // 9)),
    "a signature next to a valid report": beside_a_report(".signature.json", lambda: b"{" * SIZE),
    "a ZIP that claims 256 MiB": claiming_zip,
    "random bytes as an archive": one("r.zip", lambda: noise(SIZE)),
    "an archive that lists a million files": long_list,
    "an archive of one text, largest parsed size": packed,
    "gzip": one("r.json.gz", lambda: gzip.compress(noise(SIZE), compresslevel=0)),
    "20 000 files in a folder": many_files,
}

# Shapes that have, or claim to have, a report's numbers.
NEXT_TO_REPORT = frozenset(name for name in SHAPES if "report" in name)


def verified(path: Path) -> Took:
    """Run `irwm verify` on a file, and return its time, memory and output."""
    began = time.monotonic()
    command = [sys.executable, "-m", "irwm", "verify", str(path)]
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = subprocess.Popen(command, stdout=out, stderr=err)
        try:
            memory = 0
            while process.poll() is None and time.monotonic() - began < PATIENCE:
                memory = max(memory, memory_of(process.pid))
                time.sleep(_PAUSE)
        finally:
            process.kill()
        code, seconds = process.wait(), time.monotonic() - began
        said = []
        for stream in (out, err):
            stream.seek(0)
            said.append(stream.read().decode("utf-8", "replace"))
    return Took(seconds, memory, code, said[0], said[1])


def memory_of(number: int) -> int:
    """Return bytes of a process and all its children. Shared memory counts once if the system reports it."""
    total = 0
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(number)
        for each in (process, *process.children(recursive=True)):
            with contextlib.suppress(psutil.Error):
                taken = each.memory_full_info()
                total += getattr(taken, "pss", taken.rss)
    return total


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", default=[], metavar="WORDS", help="shapes with one of these in their name")
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    shapes = [name for name in SHAPES if not given.only or any(words in name for words in given.only)]
    load = os.getloadavg()[0]
    found: dict[str, Took] = {}
    for name in shapes:
        with tempfile.TemporaryDirectory() as folder:
            found[name] = verified(SHAPES[name](Path(folder)))
        took = found[name]
        print(f"{name}: {took.seconds:.1f} s, {took.memory / 1e6:.0f} MB, {took.code}", file=sys.stderr, flush=True)
    lines = table(found)
    print(lines)
    if load > MOST_LOAD:
        print(f"Provisional: the machine had other work before ({load:.1f} processes), so no table is written.")
    elif given.write and shapes == list(SHAPES):
        write_table("security.md", "garbage", lines)
    return int(not all(took.fits and took.said_well for took in found.values()))


def table(found: dict[str, Took]) -> str:
    rows = [f"| {name} | {took.seconds:.1f} | {took.memory / 1e6:.0f} | {took.code} |" for name, took in found.items()]
    machine = f"| the machine | {os.cpu_count()} processors | | |"
    return "\n".join(["| 64 MiB of | seconds | MB | exit code |", "|---|---|---|---|", *rows, machine])


if __name__ == "__main__":
    raise SystemExit(main())
