"""GGUF headers: read as by the gguf package, and only the requested parts of the file."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch

from irwm.checkpoint import find_files, open_checkpoint, read_tensor
from irwm.checkpoint.files import FileState
from irwm.checkpoint.formats import reading
from irwm.checkpoint.formats.child import Limits
from irwm.checkpoint.formats.gguf_file import read_gguf
from irwm.checkpoint.tensors import TensorEntry
from irwm.errors import CheckpointError, CorruptCheckpointError
from tests.checkpoint import gguf_builders as build
from tests.checkpoint.as_found import split_gguf
from tests.checkpoint.gguf_builders import add_tensor, convert, finished
from tests.families.reference import save

TYPES = ("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "TQ1_0", "TQ2_0", "MXFP4")


def entry(path: Path, name: str) -> TensorEntry:
    found = read_gguf(path).tensors[name]
    assert isinstance(found, TensorEntry)
    return found


def write(path: Path, **tensors: tuple[np.ndarray, str]) -> Path:
    writer = gguf.GGUFWriter(path, "llama")
    for name, (value, kind) in tensors.items():
        add_tensor(writer, name, value, gguf.GGMLQuantizationType[kind])
    return finished(writer)


@pytest.fixture
def values() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(10, 512)).astype(np.float32)


def assert_read_as_the_package_reads(path: Path) -> None:
    reader = gguf.GGUFReader(path)
    content = read_gguf(path)
    assert list(content.tensors) == [t.name for t in sorted(reader.tensors, key=lambda t: t.data_offset)]
    for theirs in reader.tensors:
        ours = content.tensors[theirs.name]
        assert isinstance(ours, TensorEntry)
        assert (ours.dtype, ours.shape) == (theirs.tensor_type.name, tuple(theirs.shape.tolist()[::-1]))
        assert (ours.start, ours.nbytes) == (theirs.data_offset, theirs.n_bytes)
    settings = {name: f.contents() for name, f in reader.fields.items() if not name.startswith("GGUF.")}
    for name, theirs in settings.items():
        if isinstance(theirs, float):
            assert np.float32(content.metadata[name]) == np.float32(theirs)
        else:
            assert content.metadata[name] == theirs
    assert set(content.metadata) == set(settings)


@pytest.mark.parametrize("case", ["llama", "gpt2", "bert"])
@pytest.mark.parametrize("kind", ["F32", "F16"])
def test_a_models_header_is_read_as_the_gguf_package_reads_it(case: str, kind: str, tmp_path: Path) -> None:
    folder = save(case, tmp_path / "model", torch.float32)
    tokens = [f"token {i} ▁Ġ" for i in range(199)]
    path = convert(folder, tmp_path / "model.gguf", gguf.GGMLQuantizationType[kind], tokens=tokens)
    assert_read_as_the_package_reads(path)


def test_every_type_of_tensor_is_read_as_the_gguf_package_reads_it(tmp_path: Path, values: np.ndarray) -> None:
    path = write(tmp_path / "model.gguf", **{kind: (values, kind) for kind in TYPES})
    assert_read_as_the_package_reads(path)


def test_every_type_of_setting_is_read(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "model.gguf", "llama")
    expected: dict[str, Any] = {"general.architecture": "llama"}
    for kind, value in (
        *(("uint8", 255), ("int8", -128), ("uint16", 65535), ("int16", -32768), ("uint32", 2**32 - 1)),
        *(("int32", -(2**31)), ("uint64", 2**64 - 1), ("int64", -(2**63)), ("float64", 0.1), ("bool", True)),
        *(("string", "Ġ\x1b[31m"), ("array", [1, -2, 3]), ("float32", 1e-6)),
    ):
        getattr(writer, f"add_{kind}")(f"x.{kind}", value)
        expected[f"x.{kind}"] = value
    writer.add_array("x.texts", ["a", "", "▁b"])
    writer.add_array("x.numbers", [0.5, 1e-5])
    writer.add_tensor("t", np.zeros((1, 1), np.float32))
    found = read_gguf(finished(writer)).metadata
    numbers = found.pop("x.numbers")
    assert found == {**expected, "x.texts": ["a", "", "▁b"]}
    assert numbers == [0.5, float(np.float32(1e-5))]


@pytest.mark.parametrize("value", [1e-6, 1e-5, 1e-12, 5.5, 3.4028234663852886e38, 0.1, 1 / 3, float("inf"), 0.0])
def test_float32_setting_is_the_shortest_decimal(tmp_path: Path, value: float) -> None:
    setting = build.setting("x", 6, struct.pack("<f", value))
    path = build.raw(tmp_path / "x.gguf", build.header([setting], [build.tensor("t", [8], 0, 0)]), bytes(32))
    found = read_gguf(path).metadata["x"]
    assert np.float32(found) == np.float32(value)
    assert len(repr(found)) <= len(repr(float(np.float32(value))))
    if value in (1e-6, 1e-5, 1e-12, 0.1):
        assert found == value


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16"])
def test_plain_numbers_are_read_bit_for_bit(tmp_path: Path, values: np.ndarray, kind: str) -> None:
    path = write(tmp_path / "model.gguf", a=(values[:3], kind), b=(values, kind))
    dtype = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}[kind]
    found = read_tensor(entry(path, "b"))
    assert found.dtype == dtype
    assert torch.equal(found, torch.from_numpy(values).to(dtype))
    assert torch.equal(read_tensor(entry(path, "b"), [7, 2, 2]), found[[7, 2, 2]])


@pytest.mark.parametrize("kind", TYPES[3:])
def test_selected_block_rows_equal_a_full_read(tmp_path: Path, values: np.ndarray, kind: str) -> None:
    path = write(tmp_path / "model.gguf", a=(values[:3], kind), b=(values, kind))
    whole = read_tensor(entry(path, "b"))
    assert whole.dtype == torch.float32
    number = gguf.GGMLQuantizationType[kind]
    expected = gguf.quants.dequantize(gguf.quants.quantize(values, number), number)
    assert torch.equal(whole, torch.from_numpy(expected))
    assert torch.equal(read_tensor(entry(path, "b"), [7, 2, 2, 9]), whole[[7, 2, 2, 9]])


def test_only_the_rows_asked_for_are_read(tmp_path: Path, values: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    found = entry(write(tmp_path / "model.gguf", b=(values, "Q4_0")), "b")
    ranges = []
    monkeypatch.setattr(
        "irwm.checkpoint.rows.read_into", lambda _, __, offset, target: ranges.append((offset, len(target)))
    )
    read_tensor(found, [2, 3, 9])
    row = 512 // 32 * 18
    assert ranges == [(found.start + 2 * row, 2 * row), (found.start + 9 * row, row)]


def test_the_vocabulary_is_returned_but_other_long_lists_are_not(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "model.gguf", "llama")
    tokens = [f"▁{i}" for i in range(5000)]
    writer.add_token_list(tokens)
    writer.add_token_types([1] * 5000)
    writer.add_token_scores([0.5] * 5000)
    writer.add_token_merges(["a b"] * 5000)
    writer.add_chat_template("x" * 100_000)
    writer.add_tensor("t", np.zeros((1, 1), np.float32))
    found = read_gguf(finished(writer)).metadata
    assert set(found) == {"general.architecture", "tokenizer.ggml.tokens", "tokenizer.ggml.token_type"}
    assert found["tokenizer.ggml.tokens"] == tokens


def test_vocabulary_of_non_text_bytes_is_read(tmp_path: Path) -> None:
    listed = struct.pack("<IQ", 8, 2) + build.text(b"\xff\xfe") + build.text("ok")
    path = build.raw(
        tmp_path / "x.gguf",
        build.header([build.setting("tokenizer.ggml.tokens", 9, listed)], [build.tensor("t", [8], 0, 0)]),
        bytes(32),
    )
    assert read_gguf(path).metadata["tokenizer.ggml.tokens"] == ["��", "ok"]


def test_a_large_real_vocabulary_is_read_in_little_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Llama 3's: 128 256 tokens and 280 147 merges. The gguf package's reader needs 750 MB for it."""
    monkeypatch.setattr(reading, "LIMITS", Limits(memory=128 << 20))
    writer = gguf.GGUFWriter(tmp_path / "model.gguf", "llama")
    writer.add_token_list([f"token{i}" for i in range(128_256)])
    writer.add_token_types([1] * 128_256)
    writer.add_token_merges([f"ab{i} cd{i}" for i in range(280_147)])
    writer.add_tensor("t", np.zeros((1, 1), np.float32))
    path = finished(writer)
    assert len(read_gguf(path).metadata["tokenizer.ggml.tokens"]) == 128_256


@pytest.mark.parametrize("alignment", [8, 32, 64, 4096])
def test_every_alignment_is_honoured(tmp_path: Path, values: np.ndarray, alignment: int) -> None:
    writer = gguf.GGUFWriter(tmp_path / "model.gguf", "llama")
    writer.add_custom_alignment(alignment)
    for name, rows in (("a", 3), ("b", 10)):
        writer.add_tensor(name, values[:rows, :5].copy())
    path = finished(writer)
    assert_read_as_the_package_reads(path)
    assert np.array_equal(read_tensor(entry(path, "b")).numpy(), values[:, :5])


def test_version_2_is_read(tmp_path: Path, values: np.ndarray) -> None:
    path = write(tmp_path / "model.gguf", b=(values, "F32"))
    content = bytearray(path.read_bytes())
    content[4:8] = struct.pack("<I", 2)
    path.write_bytes(content)
    assert np.array_equal(read_tensor(entry(path, "b")).numpy(), values)


def test_bytes_behind_the_last_tensor_are_noted_and_not_read(tmp_path: Path) -> None:
    """llama.cpp ignores them, so a file with some is as usable as one without."""
    folder = save("llama", tmp_path / "model", torch.float32)
    path = convert(folder, tmp_path / "model.gguf")
    before = open_checkpoint(path)
    assert not any("follow the last tensor" in note for note in before.notes)
    embedding = before.embedding()
    with path.open("ab") as file:
        file.write(b"PK\x03\x04" + bytes(996))
    model = open_checkpoint(path)
    assert [note for note in model.notes if "1000 bytes follow the last tensor" in note]
    assert torch.equal(model.embedding(), embedding)


def test_split_model_is_read_completely(tmp_path: Path) -> None:
    """As written by llama.cpp's gguf-split, with all settings and no tensor in the first file."""
    folder = save("llama", tmp_path / "model", torch.float32)
    model, expected = open_checkpoint(split_gguf(None, folder, tmp_path / "split")), open_checkpoint(folder)
    assert model.family == "llama"
    assert model.layout.q is not None
    assert torch.equal(model.embedding(), expected.embedding())
    assert torch.equal(model.read(model.layout.q), expected.read(expected.layout.q))


def piece(path: Path, names: tuple[str, ...], **settings: int | str) -> None:
    """A GGUF file with these tensors and, with "__" for a dot, these settings."""
    settings = {"general__architecture": "llama", **settings}
    writer = gguf.GGUFWriter(path, str(settings.pop("general__architecture")))
    for key, value in settings.items():
        writer.add_int32(key.replace("__", "."), value)
    for name in names:
        writer.add_tensor(name, np.zeros((2, 2), np.float32))
    finished(writer)


SPLIT = {"split__count": 2, "split__tensors__count": 2}


@pytest.mark.parametrize(
    ("first", "second", "key"),
    [
        ({"split__count": 5}, {"split__count": 5}, "split.count 2"),
        ({}, {"split__no": 0}, "split.no 1"),
        ({"split__no": 1}, {"split__no": 0}, "split.no 0"),
        ({}, {"split__tensors__count": 3}, "split.tensors.count 2"),
        ({}, {"general__architecture": "gemma"}, "general.architecture llama"),
    ],
)
def test_files_of_different_split_models_are_refused(tmp_path: Path, first: dict, second: dict, key: str) -> None:
    names = [f"m-{number:05d}-of-00002.gguf" for number in (1, 2)]
    piece(tmp_path / names[0], ("a",), split__no=0, **SPLIT)
    piece(tmp_path / names[1], ("b",), split__no=1, **SPLIT)
    assert set(find_files(tmp_path).tensors) == {"a", "b"}
    piece(tmp_path / names[0], ("a",), **{"split__no": 0, **SPLIT, **first})
    piece(tmp_path / names[1], ("b",), **{"split__no": 1, **SPLIT, **second})
    with pytest.raises(CorruptCheckpointError, match="pieces of one split model") as caught:
        find_files(tmp_path)
    assert caught.value.expected == key


def test_numbered_files_without_split_settings_are_refused(tmp_path: Path) -> None:
    """llama.cpp would read only the first."""
    for number, name in enumerate("ab", start=1):
        piece(tmp_path / f"m-{number:05d}-of-00002.gguf", (name,))
    with pytest.raises(CorruptCheckpointError, match="pieces of one split model"):
        find_files(tmp_path)


def test_the_childs_answer_is_checked(tmp_path: Path, values: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "model.gguf", b=(values, "F32"))
    size = FileState.of(path.stat()).size
    start = entry(path, "b").start
    right = {"metadata": {}, "tensors": [["b", 0, [10, 512], start]], "data": start, "alignment": 32}
    monkeypatch.setattr(reading, "run_parser", lambda *_: right)
    assert list(read_gguf(path).tensors) == ["b"]
    for wrong in (
        {},
        {**right, "metadata": []},
        {**right, "tensors": {"b": 1}},
        {**right, "tensors": [["b", 0, [10, 512]]]},
        {**right, "tensors": [["b", 0, [10, 512], -start]]},
        {**right, "tensors": [["b", 0, [10, 512], start + 32]]},
        {**right, "tensors": [["b", 0, [10, 512], float(start)]]},
        {**right, "tensors": [["b", True, [10, 512], start]]},
        {**right, "tensors": [["b", 0, [10, -512], start]]},
        {**right, "tensors": [["b", 0, [10, 0], start]]},
        {**right, "tensors": [["b", 0, [2**62, 2**62], start]]},
        {**right, "tensors": [["b", 0, "10", start]]},
        {**right, "tensors": [[None, 0, [10, 512], start]]},
        {**right, "tensors": [["\ud800", 0, [10, 512], start]]},
        {**right, "tensors": [["b", 0, [1, 8], size - 16]]},
        {**right, "tensors": [["b", 0, [1, 8], start]] * 2},
        {**right, "tensors": [["b", 0, [1, 8], start], ["b", 0, [1, 8], start + 32]]},
        {**right, "data": start - 32},
        {**right, "data": -1},
        {**right, "alignment": None},
    ):
        monkeypatch.setattr(reading, "run_parser", lambda *_, wrong=wrong: wrong)
        with pytest.raises(CheckpointError):
            read_gguf(path)
