"""Faulty and hostile GGUF files (FAULTS 21, and the GGUF side of 1 to 8, 11, 15 and 17)."""

from __future__ import annotations

import io
import os
import random
import struct
from pathlib import Path
from typing import IO

import gguf
import numpy as np
import pytest
import torch

from irwm.checkpoint import Checkpoint, open_checkpoint, read_tensor, token_ids
from irwm.checkpoint.formats import child, gguf_parser, reading
from irwm.checkpoint.formats.gguf_file import read_gguf
from irwm.errors import (
    CheckpointChangedError,
    CheckpointError,
    CorruptCheckpointError,
    NotACheckpointError,
    UnsupportedCheckpointError,
)
from tests.checkpoint.gguf_builders import convert, finished, header, raw, setting, tensor, text
from tests.checkpoint.parsing import without_child
from tests.faults.helpers import CHANGES
from tools.small_models import write_llama

ESCAPES = "../../etc/x\0\x1b[31m\u202e<script>alert(1)</script>"
UINT32, TEXT, LIST, UINT64 = 4, 8, 9, 10
F32, Q4_0 = 0, 2
# How `child` begins its report of a reader that it had to end: a header is refused before that.
ENDED = ("kept its reader", "made its reader", "crashed its reader")


def listed(kind: int, count: int, content: bytes = b"") -> bytes:
    return struct.pack("<IQ", kind, count) + content


ONE = tensor("t", [8, 1], F32, 0)
ROW = bytes(32)

HEADERS: dict[str, tuple[bytes, str]] = {
    "2^63 settings": (header([], [ONE], setting_count=2**63), "more settings than any real"),
    "2^63 tensors": (header([], [ONE], tensor_count=2**63), "more tensors than any real"),
    "more settings than bytes": (header([], [ONE], setting_count=19_000), "more settings than it has room for"),
    "more tensors than bytes": (header([], [ONE], tensor_count=190_000), "more tensors than it has room for"),
    "a tensor too few": (header([], [ONE], tensor_count=2), "overlap"),
    "a list of 2^60 texts": (header([setting("a", LIST, listed(TEXT, 2**60))], [ONE]), "more entries of a"),
    "a list of 2^60 bytes": (header([setting("a", LIST, listed(0, 2**60))], [ONE]), "more entries of a"),
    "a list of 2^60 lists": (header([setting("a", LIST, listed(LIST, 2**60))], [ONE]), "list of lists"),
    "lists in lists, 5 000 deep": (
        header([setting("a", LIST, listed(LIST, 1) * 5000 + listed(0, 0))], [ONE]),
        "list of lists",
    ),
    "a list of an unknown type": (header([setting("a", LIST, listed(13, 1, ROW))], [ONE]), "does not know"),
    "a setting of an unknown type": (header([setting("a", 13, ROW)], [ONE]), "does not know"),
    "a text of 2^63 bytes": (header([setting("a", TEXT, struct.pack("<Q", 2**63))], [ONE]), "beyond the end"),
    "a name of 2^64 - 1 bytes": (header([struct.pack("<Q", 2**64 - 1)], [ONE]), "beyond the end|room for"),
    "a setting twice": (header([setting("a", UINT32, b"1234")] * 2, [ONE]), "a setting twice"),
    "a setting's name that is no text": (header([setting(b"\xff\xfe", 0, b"1")], [ONE]), "not UTF-8"),
    "a tensor's name that is no text": (header([], [tensor(b"\xff\xfe", [8], F32, 0)]), "not UTF-8"),
    "a very long name": (header([], [tensor("n" * 5000, [8], F32, 0)]), "longer than any real"),
    "alignment 0": (header([setting("general.alignment", UINT32, struct.pack("<I", 0))], [ONE]), "alignment"),
    "alignment 3": (header([setting("general.alignment", UINT32, struct.pack("<I", 3))], [ONE]), "alignment"),
    "alignment as a text": (header([setting("general.alignment", TEXT, text("32"))], [ONE]), "alignment"),
    "alignment as a list": (header([setting("general.alignment", LIST, listed(0, 0))], [ONE]), "alignment"),
    "alignment in 64 bits": (header([setting("general.alignment", UINT64, struct.pack("<Q", 32))], [ONE]), "alignment"),
    "alignment 2^31": (
        header([setting("general.alignment", UINT32, struct.pack("<I", 2**31))], [ONE]),
        "beyond the end",
    ),
    "a dimension of 2^40": (header([], [tensor("t", [2**40], F32, 0)]), "beyond the end"),
    "dimensions whose product wraps to 0": (header([], [tensor("t", [2**32, 2**32], F32, 0)]), "overflows"),
    "dimensions whose product wraps to 8": (header([], [tensor("t", [2**61 + 1, 8], F32, 0)]), "overflows"),
    "a dimension of 0": (header([], [tensor("t", [0, 8], F32, 0)]), "whole numbers from 1"),
    "a dimension of 2^64 - 1": (header([], [tensor("t", [2**64 - 1], F32, 0)]), "whole numbers from 1"),
    "5 dimensions": (header([], [tensor("t", [1, 1, 1, 1, 8], F32, 0)]), "more dimensions"),
    "2^32 - 1 dimensions": (header([], [text("t") + struct.pack("<I", 2**32 - 1)]), "more dimensions|room for"),
    "an offset beyond the file": (header([], [tensor("t", [8], F32, 2**40)]), "beyond the end"),
    "an offset that wraps": (header([], [tensor("t", [8], F32, 2**64 - 64)]), "beyond the end"),
    "an offset that is no multiple": (header([], [tensor("t", [7], F32, 4)]), "does not follow"),
    "a hole": (header([], [tensor("a", [8], F32, 0), tensor("b", [8], F32, 64)]), "does not follow"),
    "an overlap": (header([], [tensor("a", [16], F32, 0), tensor("b", [8], F32, 32)]), "overlap"),
    "one range twice": (header([], [tensor("a", [8], F32, 0), tensor("b", [8], F32, 0)]), "overlap"),
    "one name twice": (header([], [tensor("a", [8], F32, 0), tensor("a", [8], F32, 32)]), "same name"),
    "no tensor": (header([], []), "no tensor"),
    "a row that is no whole number of blocks": (header([], [tensor("t", [40, 1], Q4_0, 0)]), "whole number of blocks"),
    "blocks without a dimension": (header([], [tensor("t", [], Q4_0, 0)]), "whole number of blocks"),
    "a vector of blocks": (header([], [tensor("t", [32], Q4_0, 0)]), "vector is stored in blocks"),
}


@pytest.mark.parametrize("name", HEADERS)
def test_21_faulty_header_is_refused_with_a_message(name: str, tmp_path: Path) -> None:
    head, words = HEADERS[name]
    path = raw(tmp_path / "model.gguf", head, ROW * 4)
    with pytest.raises(CorruptCheckpointError, match=words) as caught:
        open_checkpoint(path)
    assert caught.value.file == str(path)
    assert "cannot be understood" not in str(caught.value)


@pytest.mark.parametrize("kind", [4, 5, 31, 36, 99, 2**32 - 1])
def test_21_a_number_format_that_ggml_does_not_have_is_refused_by_name(kind: int, tmp_path: Path) -> None:
    path = raw(tmp_path / "model.gguf", header([], [tensor("t", [8], kind, 0)]), ROW)
    with pytest.raises(UnsupportedCheckpointError) as caught:
        open_checkpoint(path)
    assert (caught.value.tensor, caught.value.found) == ("t", f"type {kind}")
    assert "llama.cpp" in str(caught.value.advice)


@pytest.mark.parametrize("kind", ["Q8_1", "Q8_K", "Q1_0"])
def test_21_unreadable_number_format_is_reported_on_use(kind: str, tmp_path: Path) -> None:
    number = gguf.GGMLQuantizationType[kind].value
    block, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[kind]]
    head = header([], [tensor("token_embd.weight", [block, 2 * block], number, 0)])
    path = raw(tmp_path / "model.gguf", head, bytes(2 * block * size))
    entry = read_gguf(path).tensors["token_embd.weight"]
    with pytest.raises(UnsupportedCheckpointError, match=kind) as caught:
        read_tensor(entry)
    assert caught.value.advice
    with pytest.raises(CheckpointError):
        open_checkpoint(path)


@pytest.mark.parametrize(
    ("content", "error", "words"),
    [
        (b"", NotACheckpointError, "empty"),
        (b"GGUF", CorruptCheckpointError, "too short"),
        (b"GGUF\x03\0\0", CorruptCheckpointError, "too short"),
        (b"<!DOCTYPE html><html>", NotACheckpointError, "web page"),
        (b"version https://git-lfs.github.com/spec/v1\n", NotACheckpointError, "Git LFS"),
        (b"PK\x03\x04" + bytes(600), UnsupportedCheckpointError, "ZIP"),
        (b"\x80\x02}q\x00.", UnsupportedCheckpointError, "pickle"),
        (bytes(range(255)), NotACheckpointError, "not GGUF"),
        (header([], [ONE], version=0x03000000), UnsupportedCheckpointError, "big-endian"),
        (header([], [ONE], version=1), UnsupportedCheckpointError, "version of GGUF is not read"),
        (header([], [ONE], version=0), UnsupportedCheckpointError, "version of GGUF is not read"),
        (header([], [ONE], version=4), UnsupportedCheckpointError, "version of GGUF is not read"),
        (header([], [ONE], magic=b"ggjt"), NotACheckpointError, "not GGUF"),
    ],
)
def test_01_other_file_type_is_named(content: bytes, error: type[CheckpointError], words: str, tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(content)
    with pytest.raises(error, match=words) as caught:
        open_checkpoint(path)
    assert caught.value.advice


def test_01_a_big_endian_file_of_the_gguf_package_is_refused(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "model.gguf", "llama", endianess=gguf.GGUFEndian.BIG)
    writer.add_tensor("t", np.zeros((1, 8), np.float32))
    with pytest.raises(UnsupportedCheckpointError, match="big-endian"):
        open_checkpoint(finished(writer))


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes in bytes of all reads from files that the parser opens in this process."""
    sizes: list[int] = []

    class Counted(io.BufferedReader):
        def read(self, size: int | None = -1, /) -> bytes:
            content = super().read(size)
            sizes.append(len(content))
            return content

    def counted(path: str, mode: str) -> IO[bytes]:
        assert mode == "rb"
        return Counted(io.FileIO(path))

    monkeypatch.setattr(gguf_parser, "open", counted, raising=False)
    return sizes


@pytest.mark.parametrize(
    ("first", "size", "words"),
    [
        (setting("a", TEXT, struct.pack("<Q", 2**32)), 2**33, "larger than any real one"),
        (setting("a", LIST, listed(TEXT, 8_000_000)), 2**27, "longer than any real one"),
    ],
    ids=["a text of 4 GB", "eight million empty texts"],
)
def test_03_oversized_header_is_refused_unread(
    tmp_path: Path, taken: list[int], first: bytes, size: int, words: str
) -> None:
    """A sparse file with this first setting."""
    path = tmp_path / "model.gguf"
    path.write_bytes(header([first], [ONE]))
    os.truncate(path, size)
    with pytest.raises(CorruptCheckpointError, match=words):
        open_checkpoint(path)
    with pytest.raises(CorruptCheckpointError, match=words):
        gguf_parser.parse(str(path))
    assert 24 <= sum(taken) < 100


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A small real model with a vocabulary."""
    root = tmp_path_factory.mktemp("gguf")
    folder = write_llama(root / "model", vocab_size=80, hidden_size=32, intermediate_size=32)
    return convert(folder, root / "model.gguf", tokens=[f"t{i}" for i in range(80)]).read_bytes()


def test_17_a_file_cut_short_anywhere_is_refused(sound: bytes, tmp_path: Path) -> None:
    data = sound.rindex(b"output.weight") // 2
    path = tmp_path / "model.gguf"
    for length in (30, 100, data, data + 400, len(sound) // 2, len(sound) - 64):
        path.write_bytes(sound[:length])
        with pytest.raises(CorruptCheckpointError, match=r"beyond the end|room for"):
            open_checkpoint(path)


def test_11_hostile_names_are_dictionary_keys_and_nothing_else(tmp_path: Path) -> None:
    architecture = setting("general.architecture", TEXT, text(ESCAPES))
    tokens = setting("tokenizer.ggml.tokens", LIST, listed(TEXT, 1, text(ESCAPES)))
    rows = [tensor("token_embd.weight", [4, 8], F32, 0), tensor(ESCAPES, [8], F32, 128)]
    path = raw(tmp_path / "model.gguf", header([architecture, tokens], rows), ROW * 5)
    before = sorted(tmp_path.parent.rglob("*"))
    model = open_checkpoint(path)
    assert ESCAPES in model.tensors
    assert token_ids(model) == {ESCAPES: 0}
    assert sorted(tmp_path.parent.rglob("*")) == before
    for note in model.notes:
        assert "\x1b" not in note
        assert "\u202e" not in note
        assert "\0" not in note
    broken = raw(tmp_path / "broken.gguf", header([], [tensor(ESCAPES, [2**40], F32, 0)]), ROW)
    with pytest.raises(CorruptCheckpointError) as caught:
        open_checkpoint(broken)
    assert caught.value.tensor == ESCAPES
    assert str(caught.value).isprintable()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no named pipes")
def test_15_special_files_are_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.gguf")
    (tmp_path / "null.gguf").symlink_to("/dev/null")
    for name in ("pipe.gguf", "null.gguf"):
        with pytest.raises(NotACheckpointError, match="regular file"):
            open_checkpoint(tmp_path / name)


@pytest.mark.parametrize("change", CHANGES)
def test_17_a_file_changed_while_its_header_is_parsed_is_noticed(
    change: str, sound: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(sound)

    def then_change(*arguments: object) -> object:
        answer = child.run_parser(*arguments)  # type: ignore[arg-type]
        CHANGES[change](path, sound)
        return answer

    monkeypatch.setattr(reading, "run_parser", then_change)
    with pytest.raises(CheckpointChangedError):
        open_checkpoint(path)


def test_21_blocks_with_nan_and_infinite_scales_are_read(tmp_path: Path) -> None:
    """Their rows are not finite, which the invariant then reports; this step neither raises nor warns."""
    head = header([], [tensor("token_embd.weight", [32, 64], Q4_0, 0)])
    path = raw(tmp_path / "model.gguf", head, b"\xff" * (64 * 18))
    assert not torch.isfinite(open_checkpoint(path).embedding()).any()


def flipped(content: bytes, stop: int, rng: random.Random) -> bytes:
    """One to three bytes before `stop` changed: a bit, any value, or a huge one."""
    corrupted = bytearray(content)
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(stop)
        corrupted[at] = rng.choice([corrupted[at] ^ 1 << rng.randrange(8), rng.randrange(256), 0xFF, 0])
    return bytes(corrupted)


def header_end(content: bytes) -> int:
    return content.index(b"token_embd.weight") + 2000


def read_all(model: Checkpoint) -> None:
    """Reads everything that detection would read."""
    layout = model.layout
    model.embedding()
    token_ids(model)
    refs = (layout.q, layout.k, layout.q_bias, layout.k_bias, layout.position, layout.token_type)
    for ref in refs:
        if ref is not None:
            model.read(ref)


def refusals(sound: bytes, path: Path, seed: int, count: int) -> list[str]:
    """What is said about files with a changed header; the other files are read."""
    rng, stop, said = random.Random(seed), min(header_end(sound), len(sound)), []
    for _ in range(count):
        path.write_bytes(flipped(sound, stop, rng))
        try:
            read_all(open_checkpoint(path))
        except CheckpointError as error:
            said.append(str(error))
    # The child's words about errors other than our own, and about a reader that had to be ended.
    assert not any(words in text for text in said for words in ("cannot be understood", *ENDED))
    assert all(map(str.isprintable, said))
    return said


def test_21_random_header_changes_end_in_typed_error_or_valid_checkpoint(
    sound: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "run_parser", without_child)
    assert 100 < len(refusals(sound, tmp_path / "model.gguf", seed=0, count=600)) < 550


def test_21_child_process_refuses_the_same_headers(sound: bytes, tmp_path: Path) -> None:
    assert 3 < len(refusals(sound, tmp_path / "model.gguf", seed=1, count=25)) < 25
