"""PyTorch files, archives and pickles that would run code, be unpacked or fill the machine (FAULTS 18 to 20)."""

from __future__ import annotations

import collections
import io
import os
import pickle
import resource
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from irwm.checkpoint import open_checkpoint
from irwm.checkpoint.formats import child, reading
from irwm.errors import (
    CheckpointError,
    CorruptCheckpointError,
    NotACheckpointError,
    UnsupportedCheckpointError,
)
from tests.checkpoint.builders import tree
from tests.checkpoint.torch_files import WHOLE, as_torch, rezipped, saved
from tests.faults.helpers import all_but, refused, weights


class Bomb:
    """Unpickled, it writes the canary."""

    def __init__(self, canary: Path) -> None:
        self.canary = canary

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, (f"touch '{self.canary}'",)


class QuietBomb(Bomb):
    """The same with a builtin, among the items of a dictionary that may be made."""

    def __reduce__(self) -> Any:
        return collections.OrderedDict, (), {"a": 1}, None, iter([("w", Evaluated(self.canary))])


class Evaluated(Bomb):
    def __reduce__(self) -> Any:
        return eval, (f"__import__('os').mkdir({str(self.canary)!r})",)


class OldStorage:
    """What torch's storages reduced to before 1.0: a call that unpickles its argument without any restriction."""

    def __init__(self, canary: Path) -> None:
        buffer = io.BytesIO()
        torch.save({"w": Bomb(canary)}, buffer)
        self.content = buffer.getvalue()

    def __reduce__(self) -> Any:
        return torch.storage._load_from_bytes, (self.content,)


@pytest.fixture
def canary(tmp_path: Path) -> Path:
    return tmp_path / "canary"


@pytest.fixture
def folder(tiny_path: Path, tmp_path: Path) -> Path:
    """A valid model as torch saves it."""
    return as_torch(tiny_path, tmp_path / "model")


# --- 18: code that tries to run

BOMBS: dict[str, Callable[[Path], Any]] = {
    "a value": lambda canary: {"w": torch.ones(1), "x": Bomb(canary)},
    "the whole": Bomb,
    "further down": lambda canary: {"state_dict": {"w": torch.ones(1), "x": [{"y": (Bomb(canary),)}]}},
    "eval behind a dict": lambda canary: {"w": QuietBomb(canary)},
    "another pickle within": OldStorage,
}


@pytest.mark.parametrize("make", BOMBS.values(), ids=BOMBS)
def test_test_pickles_run_code_with_plain_pickle(canary: Path, tmp_path: Path, make: Callable) -> None:
    torch.load(saved(make(canary), tmp_path / "x.bin"), weights_only=False)
    assert canary.exists()


@pytest.mark.sweep
@pytest.mark.parametrize("make", BOMBS.values(), ids=BOMBS)
def test_fault_18_bin_with_code_is_refused_without_running_it(folder: Path, canary: Path, make: Callable) -> None:
    saved(make(canary), folder / WHOLE)
    error = refused(folder, UnsupportedCheckpointError)
    assert error.file == str(folder / WHOLE)
    assert "safe_serialization=True" in str(error)
    assert not canary.exists()


@pytest.mark.parametrize("name", ["x.bin", "x.pt", "x.pth"])
def test_fault_18_bare_and_old_pickles_do_not_run(folder: Path, canary: Path, name: str) -> None:
    path = folder / name
    for protocol in range(2, 6):
        path.write_bytes(pickle.dumps(Bomb(canary), protocol))
        assert "safe_serialization=True" in str(refused(path, UnsupportedCheckpointError))
    torch.save({"w": Bomb(canary)}, path, _use_new_zipfile_serialization=False)
    assert "before 1.6" in str(refused(path, UnsupportedCheckpointError))
    for protocol in (0, 1):  # these look like text, or like nothing at all
        path.write_bytes(pickle.dumps(Bomb(canary), protocol))
        refused(path, NotACheckpointError)
    assert not canary.exists()


@pytest.mark.slow
def test_fault_18_code_in_one_of_several_shards_does_not_run(tiny_path: Path, tmp_path: Path, canary: Path) -> None:
    folder = as_torch(tiny_path, tmp_path / "sharded", shards=3)
    shard = folder / "pytorch_model-00002-of-00003.bin"
    saved(torch.load(shard) | {"x": Bomb(canary)}, shard)
    assert refused(folder, UnsupportedCheckpointError).file == str(shard)
    assert not canary.exists()


def test_fault_18_code_next_to_the_pickle_is_not_run(folder: Path, canary: Path) -> None:
    """A module in the model's folder, which Python would import first if it looked there."""
    for name in ("torch.py", "json.py", "resource.py", "sitecustomize.py", "usercustomize.py"):
        (folder / name).write_text(f"open({str(canary)!r}, 'w')")
    here = os.getcwd()
    os.chdir(folder)
    try:
        assert open_checkpoint(folder).vocab_size == 600
    finally:
        os.chdir(here)
    assert not canary.exists()


# --- 19: something else under a weight file's name

ARCHIVES = [
    (b"7z\xbc\xaf\x27\x1c\0\4", "7z"),
    (b"GGUF\3\0\0\0" + bytes(60), "GGUF"),
    (b"\x1f\x8b\x08" + bytes(60), "gzip"),
    (b"\x89HDF\r\n\x1a\n" + bytes(60), "HDF5"),
    (b"Rar!\x1a\7\1\0", "RAR"),
    (b"\xfd7zXZ\0" + bytes(60), "xz"),
    (bytes(257) + b"ustar\00000", "tar"),
]


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        *((name, *archive) for name in ("model.safetensors", WHOLE) for archive in ARCHIVES),
        ("model.safetensors", b"PK\x03\x04" + bytes(60), "ZIP"),
    ],
)
def test_fault_19_renamed_archives_are_refused_by_their_magic_bytes(
    tmp_path: Path, name: str, content: bytes, words: str
) -> None:
    (tmp_path / name).write_bytes(content)
    error = refused(tmp_path)
    assert words in str(error)
    assert error.advice


@pytest.mark.slow
def test_fault_19_zip_renamed_to_bin_is_distinguished_from_pytorch(folder: Path) -> None:
    with zipfile.ZipFile(folder / WHOLE, "w") as archive:
        archive.writestr("model/config.json", "{}")
        archive.writestr("model/model.safetensors", bytes(100))
    error = refused(folder, NotACheckpointError)
    assert "that PyTorch did not write" in str(error)
    assert "Unpack it" in str(error)
    with zipfile.ZipFile(folder / WHOLE, "w") as archive:
        archive.writestr("arr_0.npy", b"\x93NUMPY")
    assert "that PyTorch did not write" in str(refused(folder, NotACheckpointError))
    (folder / WHOLE).write_bytes(b"PK\x03\x04" + bytes(60))
    refused(folder, CorruptCheckpointError)


def test_fault_19_renamed_safetensors_and_bin_files_are_named_correctly(folder: Path, tiny_path: Path) -> None:
    shutil.copy(folder / WHOLE, folder / "model.safetensors")
    assert "ends in .bin" in str(refused(folder, UnsupportedCheckpointError))
    shutil.move(folder / "model.safetensors", folder / "x.bin")
    assert open_checkpoint(folder / "x.bin").vocab_size == 600
    shutil.copy(tiny_path / "model.safetensors", folder / "x.bin")
    assert "ends in .safetensors" in str(refused(folder / "x.bin", UnsupportedCheckpointError))


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_fault_19_renamed_pickle_is_refused_without_running_it(tmp_path: Path, canary: Path, protocol: int) -> None:
    content = pickle.dumps(Bomb(canary), protocol) + bytes(200)
    assert "pickle" in str(refused(weights(tmp_path / "m", content), UnsupportedCheckpointError))
    assert not canary.exists()


# --- 20: archives that use up the disk or write elsewhere


def test_fault_20_a_zip_is_never_unpacked(tmp_path: Path) -> None:
    folder = weights(tmp_path / "m", b"")
    with zipfile.ZipFile(folder / "model.safetensors", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("../slipped", "x")
        archive.writestr("bomb", bytes(50_000_000))
    before = tree(tmp_path)
    assert "not unpacked" in str(refused(folder, UnsupportedCheckpointError))
    assert tree(tmp_path) == before


@pytest.mark.sweep
@pytest.mark.parametrize("entry", ["x/data.pkl", "x/data/0", "x/version", "x/bomb"])
def test_fault_20_a_zip_bomb_is_refused_before_it_is_inflated(tmp_path: Path, entry: str) -> None:
    path = saved({"w": torch.ones(4)}, tmp_path / "x.bin")
    with zipfile.ZipFile(path) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in (entries | {entry: bytes(2**28)}).items():
            archive.writestr(name, content, zipfile.ZIP_DEFLATED if name == entry else zipfile.ZIP_STORED)
    assert path.stat().st_size < 2**20
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    error = refused(path)
    assert "compressed" in str(error)
    assert "268435456 bytes packed into" in str(error)
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss - max(peak, 300_000) < 100_000  # kB


@pytest.mark.sweep
@pytest.mark.parametrize("name", ["x/../../slipped", "/slipped", "../slipped", "x\\..\\..\\slipped", "x/./slipped"])
def test_fault_20_bin_with_entries_outside_it_is_refused(folder: Path, name: str) -> None:
    rezipped(saved({"w": torch.ones(4)}, folder / WHOLE), lambda entries: entries | {name: b"loot"})
    before = tree(folder.parent)
    assert "leads out of it" in str(refused(folder, CorruptCheckpointError))
    assert tree(folder.parent) == before


@pytest.mark.slow
def test_fault_20_an_archive_with_a_million_entries_is_refused(tmp_path: Path) -> None:
    path = saved({"w": torch.ones(4)}, tmp_path / "x.bin")
    content = path.read_bytes()
    start, end = content.index(b"PK\1\2"), content.index(b"PK\6\6")
    listed = content[start:end]
    count = 1_000_000 // listed.count(b"PK\1\2")
    further = listed * count
    large = bytearray(content[end:])
    large[24:40] = (listed.count(b"PK\1\2") * count).to_bytes(8, "little") * 2
    large[40:48] = len(further).to_bytes(8, "little")
    large[56 + 8 : 56 + 16] = (start + len(further)).to_bytes(8, "little")
    path.write_bytes(content[:start] + further + large)
    assert "more entries" in str(refused(path, CorruptCheckpointError))


# --- similar to the tests of safetensors files


@pytest.mark.timeout(60)
def test_fault_15_a_fifo_or_folder_named_bin_does_not_hang(folder: Path) -> None:
    (folder / WHOLE).unlink()
    os.mkfifo(folder / WHOLE)
    assert "not a regular file" in str(refused(folder, NotACheckpointError))
    (folder / WHOLE).unlink()
    (folder / WHOLE).mkdir()
    refused(folder, NotACheckpointError)


def test_fault_14_a_bin_linked_from_outside_is_refused(folder: Path) -> None:
    (folder / WHOLE).rename(folder.parent / "elsewhere.bin")
    (folder / WHOLE).symlink_to("../elsewhere.bin")
    assert "leads out" in str(refused(folder, CorruptCheckpointError))


def test_fault_43_missing_file_handles_for_the_reader_are_reported(folder: Path) -> None:
    for free in (1, 3):
        with all_but(free), pytest.raises(CheckpointError, match="Too many") as caught:
            open_checkpoint(folder / WHOLE)
        assert type(caught.value) is CheckpointError
    assert open_checkpoint(folder).vocab_size == 600


# --- 74: the machine's resources that all files of one checkpoint may take


@pytest.mark.fault(74)
@pytest.mark.sweep
@pytest.mark.parametrize("protocol", [2, 4])
def test_pickle_that_allocates_gigabytes_from_a_number_is_refused(tmp_path: Path, protocol: int) -> None:
    """By name where torch would make them, and by torch where it does not know the spelling."""

    class Buffer:
        def __reduce__(self) -> Any:
            return bytearray, (2**31,)

    path = tmp_path / "x.bin"
    torch.save({"w": torch.ones(2, 2), "x": Buffer()}, path, pickle_protocol=protocol)
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    with pytest.raises(UnsupportedCheckpointError):
        open_checkpoint(path)
    grown = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    assert grown <= max(before, 1024**2), "KiB of the largest child, torch included"


@pytest.mark.fault(74)
def test_the_seconds_of_child_processes_are_counted_for_a_checkpoint(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "SECONDS", 1)
    monkeypatch.setattr(reading, "SECONDS_PER_FILE", 1)
    now = [0.0]
    one = reading.Reading(folder, files=1, clock=lambda: now[0])
    with one.child(folder / WHOLE) as (limits, _):
        assert limits.seconds == 2
        now[0] += 0.9
    with one.child(folder / WHOLE) as (limits, _):
        assert limits.seconds == 1
        now[0] += 0.2
    with pytest.raises(CorruptCheckpointError, match="2 seconds for all of them"), one.child(folder / WHOLE):
        pass
    with reading.Reading(folder, files=10**6).child(folder / WHOLE) as (limits, _):
        assert limits.seconds == child.LIMITS.seconds, "no file may have more than any other"
    assert reading.Reading(folder, files=10**6).seconds < 300


BUSY = 4


@pytest.mark.fault(74)
@pytest.mark.slow
def test_reading_of_slow_shards_ends_with_the_first_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pickle of 60 MB that creates and drops empty dictionaries, in the first of the shards."""
    readers: list[Path] = []

    def counted(parser: str, path: Path, *arguments: Any) -> dict[str, Any]:
        readers.append(path)
        return child.run_parser(parser, path, *arguments)

    monkeypatch.setattr(reading, "run_parser", counted)
    busy = b"\x80\x02" + b"}0" * (30 * 1024**2) + b"}."
    torch.save({"w": torch.ones(2)}, tmp_path / "x")
    rezipped(tmp_path / "x", lambda entries: {n: busy if n.endswith(".pkl") else c for n, c in entries.items()})
    first = tmp_path / "model" / "pytorch_model-00001-of-00200.bin"
    first.parent.mkdir()
    (tmp_path / "x").rename(first)
    for number in range(2, 201):
        other = first.with_name(f"pytorch_model-{number:05}-of-00200.bin")
        if number <= BUSY:
            shutil.copyfile(first, other)
            continue
        with other.open("wb") as file:  # as large, and never read
            file.write(first.read_bytes()[:64])
            file.truncate(first.stat().st_size)
    with pytest.raises(CheckpointError) as caught:
        open_checkpoint(first.parent)
    assert caught.value.file == str(first)
    # Two files are read at a time, and both readers may have begun with another one before the first one's error ends
    # the reading.
    assert first in readers
    assert len(readers) <= BUSY
