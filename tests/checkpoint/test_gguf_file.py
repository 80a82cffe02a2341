"""GGUF files: read as by the gguf package, only the requested parts, and refused if they break the format."""

from __future__ import annotations

import json
import os
import random
import struct
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch

from irwm.checkpoint import Checkpoint, find_files, open_checkpoint, read_tensor, token_ids
from irwm.checkpoint.dtypes import BLOCK_FORMATS, dequantised, stored_as
from irwm.checkpoint.files import FileState
from irwm.checkpoint.formats import gguf_parser, read_budget
from irwm.checkpoint.formats.gguf_file import read_gguf
from irwm.checkpoint.formats.parser_child import ParserLimits
from irwm.checkpoint.magic import DOWNLOAD_AGAIN
from irwm.checkpoint.tensors import TensorEntry
from irwm.errors import CheckpointChangedError, CheckpointError, CorruptCheckpointError, UnsupportedCheckpointError
from tests.checkpoint.as_found import split_gguf
from tests.checkpoint.builders import CHANGES, ESCAPES, refused
from tests.checkpoint.gguf_builders import add_tensor, convert, finished, header, raw, setting, tensor, text
from tests.checkpoint.parsing import without_child
from tests.families.reference import save
from tools.small_models import write_llama

FORMATS = ("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "TQ1_0", "TQ2_0", "MXFP4")
# Types of settings, and of tensors.
UINT32, FLOAT32, TEXT, LIST, UINT64 = 4, 6, 8, 9, 10
F32, Q4_0 = 0, 2


def entry(path: Path, name: str) -> TensorEntry:
    found = read_gguf(path).tensors[name]
    assert isinstance(found, TensorEntry)
    return found


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "model.gguf"


def write(path: Path, **tensors: tuple[np.ndarray, str]) -> Path:
    writer = gguf.GGUFWriter(path, "llama")
    for name, (value, kind) in tensors.items():
        add_tensor(writer, name, value, gguf.GGMLQuantizationType[kind])
    return finished(writer)


def with_a_tensor(writer: gguf.GGUFWriter) -> dict[str, Any]:
    """The settings that are read from the writer's file."""
    writer.add_tensor("t", np.zeros((1, 1), np.float32))
    return dict(read_gguf(finished(writer)).metadata)


# --- valid files


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
def test_a_models_header_is_read_as_the_gguf_package_reads_it(case: str, path: Path) -> None:
    folder = save(case, path.with_name("model"), torch.float32)
    kind = gguf.GGMLQuantizationType.F16
    assert_read_as_the_package_reads(convert(folder, path, kind, tokens=[f"token {i} ▁Ġ" for i in range(199)]))


def test_every_type_of_tensor_is_read_as_the_gguf_package_reads_it(path: Path, values: np.ndarray) -> None:
    assert_read_as_the_package_reads(write(path, **{kind: (values, kind) for kind in FORMATS}))


def test_every_type_of_setting_is_read(path: Path) -> None:
    writer = gguf.GGUFWriter(path, "llama")
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
    numbers = {"x.texts": ["a", "", "▁b"], "x.numbers": [0.5, float(np.float32(1e-5))]}
    assert with_a_tensor(writer) == expected | numbers


@pytest.mark.parametrize("value", [1e-6, 1e-5, 1e-12, 5.5, 3.4028234663852886e38, 0.1, 1 / 3, float("inf"), 0.0])
def test_float32_setting_is_the_shortest_decimal(path: Path, value: float) -> None:
    raw(path, header([setting("x", FLOAT32, struct.pack("<f", value))], [ONE]), ROW)
    found = read_gguf(path).metadata["x"]
    assert np.float32(found) == np.float32(value)
    assert len(repr(found)) <= len(repr(float(np.float32(value))))
    if value in (1e-6, 1e-5, 1e-12, 0.1):
        assert found == value


@pytest.mark.parametrize("kind", FORMATS)
def test_numbers_of_every_format_are_read_exactly(path: Path, values: np.ndarray, kind: str) -> None:
    stored, number = entry(write(path, a=(values[:3], kind), b=(values, kind)), "b"), gguf.GGMLQuantizationType[kind]
    whole = read_tensor(stored)
    assert whole.dtype == {"F16": torch.float16, "BF16": torch.bfloat16}.get(kind, torch.float32)
    expected = torch.from_numpy(gguf.quants.dequantize(gguf.quants.quantize(values, number), number))
    assert torch.equal(whole.float(), expected.float())
    assert torch.equal(read_tensor(stored, [7, 2, 2, 9]), whole[[7, 2, 2, 9]])


def test_only_the_rows_asked_for_are_read(path: Path, values: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    found = entry(write(path, b=(values, "Q4_0")), "b")
    ranges = []
    monkeypatch.setattr(
        "irwm.checkpoint.rows.read_into", lambda _, __, offset, target: ranges.append((offset, len(target)))
    )
    read_tensor(found, [2, 3, 9])
    row = 512 // 32 * 18
    assert ranges == [(found.start + 2 * row, 2 * row), (found.start + 9 * row, row)]


def test_the_vocabulary_is_returned_but_other_long_lists_are_not(path: Path) -> None:
    writer = gguf.GGUFWriter(path, "llama")
    tokens = [f"▁{i}" for i in range(5000)]
    writer.add_token_list(tokens)
    writer.add_token_types([1] * 5000)
    writer.add_token_scores([0.5] * 5000)
    writer.add_token_merges(["a b"] * 5000)
    writer.add_chat_template("x" * 100_000)
    found = with_a_tensor(writer)
    assert set(found) == {"general.architecture", "tokenizer.ggml.tokens", "tokenizer.ggml.token_type"}
    assert found["tokenizer.ggml.tokens"] == tokens


def test_vocabulary_of_non_text_bytes_is_read(path: Path) -> None:
    tokens = setting("tokenizer.ggml.tokens", LIST, listed(TEXT, 2, text(b"\xff\xfe") + text("ok")))
    assert read_gguf(raw(path, header([tokens], [ONE]), ROW)).metadata["tokenizer.ggml.tokens"] == ["��", "ok"]


def test_a_large_real_vocabulary_is_read_in_little_memory(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Llama 3's: 128 256 tokens and 280 147 merges. The gguf package's reader needs 750 MB for it."""
    monkeypatch.setattr(read_budget, "LIMITS", ParserLimits(memory=128 << 20))
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_token_list([f"token{i}" for i in range(128_256)])
    writer.add_token_types([1] * 128_256)
    writer.add_token_merges([f"ab{i} cd{i}" for i in range(280_147)])
    assert len(with_a_tensor(writer)["tokenizer.ggml.tokens"]) == 128_256


@pytest.mark.parametrize("alignment", [8, 64, 4096])
def test_every_alignment_is_honoured(path: Path, values: np.ndarray, alignment: int) -> None:
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_custom_alignment(alignment)
    for name, rows in (("a", 3), ("b", 10)):
        writer.add_tensor(name, values[:rows, :5].copy())
    assert_read_as_the_package_reads(finished(writer))
    assert np.array_equal(read_tensor(entry(path, "b")).numpy(), values[:, :5])


def test_version_2_is_read(path: Path, values: np.ndarray) -> None:
    content = bytearray(write(path, b=(values, "F32")).read_bytes())
    content[4:8] = struct.pack("<I", 2)
    path.write_bytes(content)
    assert np.array_equal(read_tensor(entry(path, "b")).numpy(), values)


def test_bytes_behind_the_last_tensor_are_noted_and_not_read(path: Path, sound: bytes) -> None:
    """llama.cpp ignores them, so a file with some is as usable as one without."""
    path.write_bytes(sound)
    before = open_checkpoint(path)
    embedding = before.embedding()
    path.write_bytes(sound + b"PK\x03\x04" + bytes(996))
    model = open_checkpoint(path)
    assert len(model.notes) == len(before.notes) + 1
    assert "after the last tensor of model.gguf: 1000." in " ".join(model.notes)
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
    for changes in (({}, {}), (first, second)):
        for number, (name, only, change) in enumerate(zip(names, "ab", changes, strict=True)):
            piece(tmp_path / name, (only,), **{"split__no": number, **SPLIT, **change})
        if changes == ({}, {}):
            assert set(find_files(tmp_path).tensors) == {"a", "b"}
    assert refused(tmp_path, CorruptCheckpointError).expected == key
    for name, only in zip(names, "ab", strict=True):  # llama.cpp would read only the first of these
        piece(tmp_path / name, (only,))
    refused(tmp_path, CorruptCheckpointError)


def test_the_childs_answer_is_checked(path: Path, values: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    write(path, b=(values, "F32"))
    size = FileState.of(path.stat()).size
    start = entry(path, "b").start
    right = {"metadata": {}, "tensors": [["b", 0, [10, 512], start]], "data": start, "alignment": 32}
    monkeypatch.setattr(read_budget, "run_parser", lambda *_: right)
    assert list(read_gguf(path).tensors) == ["b"]
    tensors = [
        *(["b", 0, [10, 512]], ["b", 0, [10, 512], -start], ["b", 0, [10, 512], start + 32]),
        *(["b", 0, [10, 512], float(start)], ["b", True, [10, 512], start], ["b", 0, [10, -512], start]),
        *(["b", 0, [10, 0], start], ["b", 0, [2**62, 2**62], start], ["b", 0, "10", start]),
        *([None, 0, [10, 512], start], ["\ud800", 0, [10, 512], start], ["b", 0, [1, 8], size - 16]),
    ]
    for wrong in (
        {},
        *({**right, "tensors": [each]} for each in tensors),
        {**right, "tensors": [["b", 0, [1, 8], start]] * 2},
        {**right, "tensors": [["b", 0, [1, 8], start], ["b", 0, [1, 8], start + 32]]},
        *({**right, **change} for change in ({"metadata": []}, {"tensors": {"b": 1}}, {"data": start - 32})),
        *({**right, **change} for change in ({"data": -1}, {"alignment": None})),
    ):
        monkeypatch.setattr(read_budget, "run_parser", lambda *_, wrong=wrong: wrong)
        with pytest.raises(CheckpointError):
            read_gguf(path)


# --- faulty and hostile headers


def listed(kind: int, count: int, content: bytes = b"") -> bytes:
    return struct.pack("<IQ", kind, count) + content


def of_setting(kind: int, value: bytes, name: str | bytes = "a") -> bytes:
    return header([setting(name, kind, value)], [ONE])


def aligned(kind: int, value: bytes) -> bytes:
    return of_setting(kind, value, "general.alignment")


def of_tensor(shape: list[int], kind: int = F32, offset: int = 0, name: str | bytes = "t") -> bytes:
    return header([], [tensor(name, shape, kind, offset)])


def of_two(first: int, offset: int, second: str = "b") -> bytes:
    return header([], [tensor("a", [first], F32, 0), tensor(second, [8], F32, offset)])


ONE = tensor("t", [8, 1], F32, 0)
ROW = bytes(32)
HEADERS = {
    "2^63 settings": header([], [ONE], setting_count=2**63),
    "2^63 tensors": header([], [ONE], tensor_count=2**63),
    "more settings than bytes": header([], [ONE], setting_count=19_000),
    "more tensors than bytes": header([], [ONE], tensor_count=190_000),
    "a tensor too few": header([], [ONE], tensor_count=2),
    "a list of 2^60 texts": of_setting(LIST, listed(TEXT, 2**60)),
    "a list of 2^60 bytes": of_setting(LIST, listed(0, 2**60)),
    "a list of 2^60 lists": of_setting(LIST, listed(LIST, 2**60)),
    "lists in lists, 5 000 deep": of_setting(LIST, listed(LIST, 1) * 5000 + listed(0, 0)),
    "a list of an unknown type": of_setting(LIST, listed(13, 1, ROW)),
    "a setting of an unknown type": of_setting(13, ROW),
    "a text of 2^63 bytes": of_setting(TEXT, struct.pack("<Q", 2**63)),
    "a name of 2^64 - 1 bytes": header([struct.pack("<Q", 2**64 - 1)], [ONE]),
    "a setting twice": header([setting("a", UINT32, b"1234")] * 2, [ONE]),
    "a setting's name that is no text": of_setting(0, b"1", b"\xff\xfe"),
    "a tensor's name that is no text": of_tensor([8], name=b"\xff\xfe"),
    "a very long name": of_tensor([8], name="n" * 5000),
    "alignment 0": aligned(UINT32, struct.pack("<I", 0)),
    "alignment 3": aligned(UINT32, struct.pack("<I", 3)),
    "alignment 2^31": aligned(UINT32, struct.pack("<I", 2**31)),
    "alignment as a text": aligned(TEXT, text("32")),
    "alignment as a list": aligned(LIST, listed(0, 0)),
    "alignment in 64 bits": aligned(UINT64, struct.pack("<Q", 32)),
    "a dimension of 2^40": of_tensor([2**40]),
    "dimensions whose product wraps to 0": of_tensor([2**32, 2**32]),
    "dimensions whose product wraps to 8": of_tensor([2**61 + 1, 8]),
    "a dimension of 0": of_tensor([0, 8]),
    "a dimension of 2^64 - 1": of_tensor([2**64 - 1]),
    "5 dimensions": of_tensor([1, 1, 1, 1, 8]),
    "2^32 - 1 dimensions": header([], [text("t") + struct.pack("<I", 2**32 - 1)]),
    "an offset beyond the file": of_tensor([8], offset=2**40),
    "an offset that wraps": of_tensor([8], offset=2**64 - 64),
    "an offset that is no multiple": of_tensor([7], offset=4),
    "a gap": of_two(8, 64),
    "an overlap": of_two(16, 32),
    "one range twice": of_two(8, 0),
    "one name twice": of_two(8, 32, "a"),
    "no tensor": header([], []),
    "a row that is no whole number of blocks": of_tensor([40, 1], Q4_0),
    "blocks without a dimension": of_tensor([], Q4_0),
    "a vector of blocks": of_tensor([32], Q4_0),
}


@pytest.mark.fault(3, 21)
@pytest.mark.parametrize("name", HEADERS)
def test_faulty_header_is_refused(name: str, path: Path) -> None:
    error = refused(raw(path, HEADERS[name], ROW * 4), CorruptCheckpointError)
    assert error.file == str(path)
    # An unexpected error of the parser, which is refused as well, comes without advice.
    assert error.advice == ("Choose the file with the model's weights" if name == "no tensor" else DOWNLOAD_AGAIN)


@pytest.mark.fault(21)
@pytest.mark.parametrize("kind", [4, 5, 31, 36, 99, 2**32 - 1])
def test_a_number_format_that_ggml_does_not_have_is_refused_by_name(kind: int, path: Path) -> None:
    error = refused(raw(path, of_tensor([8], kind), ROW), UnsupportedCheckpointError)
    assert (error.tensor, error.found) == ("t", f"type {kind}")
    assert "llama.cpp" in str(error.advice)


@pytest.mark.fault(21)
@pytest.mark.parametrize("kind", ["Q8_1", "Q8_K", "Q1_0"])
def test_unreadable_number_format_is_reported_on_use(kind: str, path: Path) -> None:
    number = gguf.GGMLQuantizationType[kind]
    block, size = gguf.GGML_QUANT_SIZES[number]
    raw(path, of_tensor([block, 2 * block], number.value, name="token_embd.weight"), bytes(2 * block * size))
    with pytest.raises(UnsupportedCheckpointError) as caught:
        read_tensor(read_gguf(path).tensors["token_embd.weight"])
    assert kind in str(caught.value)
    assert caught.value.advice
    refused(path)


@pytest.mark.fault(21)
def test_blocks_with_nan_and_infinite_scales_are_read(path: Path) -> None:
    """Their rows are not finite, which the invariant then reports; this step neither raises nor warns."""
    raw(path, of_tensor([32, 64], Q4_0, name="token_embd.weight"), b"\xff" * (64 * 18))
    assert not torch.isfinite(open_checkpoint(path).embedding()).any()


@pytest.mark.fault(3)
@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("first", "size", "most"),
    [
        (setting("a", TEXT, struct.pack("<Q", 2**32)), 2**33, f"{gguf_parser.MAX_HEADER_BYTES} bytes"),
        (setting("a", LIST, listed(TEXT, 8_000_000)), 2**27, f"{2**22} strings"),
    ],
    ids=["a text of 4 GB", "eight million empty texts"],
)
def test_oversized_header_is_refused_unread(path: Path, first: bytes, size: int, most: str) -> None:
    """A sparse file with this first setting, parsed in this process, whose memory is measured."""
    path.write_bytes(header([first], [ONE]))
    os.truncate(path, size)
    assert refused(path, CorruptCheckpointError).expected == f"at most {most}"


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A small real model with a vocabulary."""
    root = tmp_path_factory.mktemp("gguf")
    folder = write_llama(root / "model", vocab_size=80, hidden_size=32, intermediate_size=32)
    return convert(folder, root / "model.gguf", tokens=[f"t{i}" for i in range(80)]).read_bytes()


@pytest.mark.fault(1, 17)
@pytest.mark.parametrize("part", [4, 7, 30, 100, 0.1, 0.2, 0.5, 0.99])
def test_a_file_cut_short_is_refused(sound: bytes, path: Path, part: float) -> None:
    path.write_bytes(sound[: part if isinstance(part, int) else int(part * len(sound))])
    assert refused(path, CorruptCheckpointError).advice == DOWNLOAD_AGAIN


@pytest.mark.fault(17)
@pytest.mark.parametrize("change", CHANGES)
def test_a_file_changed_while_its_header_is_parsed_is_noticed(
    change: str, sound: bytes, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path.write_bytes(sound)

    def then_change(*arguments: Any) -> object:
        answer = without_child(*arguments)
        CHANGES[change](path, sound)
        return answer

    monkeypatch.setattr(read_budget, "run_parser", then_change)
    refused(path, CheckpointChangedError)


@pytest.mark.fault(11)
def test_hostile_names_are_dictionary_keys_only(tmp_path: Path) -> None:
    architecture = setting("general.architecture", TEXT, text(ESCAPES))
    tokens = setting("tokenizer.ggml.tokens", LIST, listed(TEXT, 1, text(ESCAPES)))
    rows = [tensor("token_embd.weight", [4, 8], F32, 0), tensor(ESCAPES, [8], F32, 128)]
    path = raw(tmp_path / "model.gguf", header([architecture, tokens], rows), ROW * 5)
    before = sorted(tmp_path.rglob("*"))
    model = open_checkpoint(path)
    assert ESCAPES in model.tensors
    assert token_ids(model) == {ESCAPES: 0}
    assert sorted(tmp_path.rglob("*")) == before
    assert all(map(str.isprintable, model.notes))
    assert refused(raw(path, of_tensor([2**40], name=ESCAPES), ROW), CorruptCheckpointError).tensor == ESCAPES


def flipped(content: bytes, stop: int, rng: random.Random) -> bytes:
    """One to three bytes before `stop` changed: a bit, any value, or a huge one."""
    corrupted = bytearray(content)
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(stop)
        corrupted[at] = rng.choice([corrupted[at] ^ 1 << rng.randrange(8), rng.randrange(256), 0xFF, 0])
    return bytes(corrupted)


def read_all(model: Checkpoint) -> None:
    """Reads everything that detection would read."""
    layout = model.layout
    model.embedding()
    token_ids(model)
    for ref in filter(None, (layout.q, layout.k, layout.q_bias, layout.k_bias, layout.position, layout.token_type)):
        model.read(ref)


# How the report of a reader begins that failed in an unexpected way or had to be ended.
UNEXPECTED = ("cannot be parsed", "took more than", "caused its reader", "crashed its reader")


@pytest.mark.fault(21)
@pytest.mark.parametrize(("count", "least", "most", "in_child"), [(600, 100, 550, False), (25, 3, 25, True)])
def test_random_header_changes_end_in_typed_error_or_valid_checkpoint(
    sound: bytes, path: Path, monkeypatch: pytest.MonkeyPatch, count: int, least: int, most: int, in_child: bool
) -> None:
    if not in_child:
        monkeypatch.setattr(read_budget, "run_parser", without_child)
    rng, said = random.Random(int(in_child)), []
    stop = min(sound.index(b"token_embd.weight") + 2000, len(sound))
    for _ in range(count):
        path.write_bytes(flipped(sound, stop, rng))
        try:
            read_all(open_checkpoint(path))
        except CheckpointError as error:
            said.append(str(error))
    assert least < len(said) < most
    assert not any(words in text for text in said for words in UNEXPECTED)
    assert all(map(str.isprintable, said))


GOLDEN = json.loads((Path(__file__).parent / "data" / "ggml.json").read_text())["blocks"]


@pytest.mark.parametrize("block", GOLDEN, ids=lambda block: f"{block['format']} {block['made']}")
def test_blocks_decode_to_the_numbers_of_ggmls_own_code(block: dict[str, Any]) -> None:
    """The blocks were quantised, and read back, by the C library in ggml-python: tools/golden_ggml.py."""
    content = torch.frombuffer(bytearray.fromhex(block["bytes"]), dtype=torch.uint8)
    expected = np.frombuffer(bytes.fromhex(block["float32"]), np.float32)
    found = dequantised(content, block["format"], (1, expected.size))
    assert found.dtype == torch.float32
    assert np.array_equal(found.numpy()[0], expected, equal_nan=True)
    if block["made"] == "quantised":
        assert np.abs(expected).max() > 0.01


def test_the_formats_are_those_that_the_package_reads_and_all_have_golden_blocks() -> None:
    found = {(block["format"], block["made"]) for block in GOLDEN}
    assert found == {(name, made) for name in BLOCK_FORMATS for made in ("quantised", "random")}
    readable = set()
    for kind, (_, block_bytes) in gguf.GGML_QUANT_SIZES.items():
        try:
            gguf.quants.dequantize(np.zeros((1, block_bytes), np.uint8), kind)
        except NotImplementedError:
            continue
        readable.add(kind.name)
    assert readable - {"F32", "F16", "BF16"} == BLOCK_FORMATS


def test_every_type_is_known_by_its_number() -> None:
    for kind, sizes in gguf.GGML_QUANT_SIZES.items():
        assert stored_as(kind.value) == (kind.name, *sizes)


@pytest.mark.parametrize("name", ["Q4_0", "Q6_K"])
def test_rows_read_separately_and_together_are_equal(name: str) -> None:
    """More numbers than are computed at a time, in rows whose length is not a power of two."""
    rng = np.random.default_rng(0)
    block, block_bytes = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[name]]
    rows, width = 300, 3 * 256
    content = rng.integers(0, 256, rows * width // block * block_bytes, dtype=np.uint8)
    whole = dequantised(torch.from_numpy(content), name, (rows, width))
    assert whole.shape == (rows, width)
    row_bytes = width // block * block_bytes
    for row in (0, 170, 299):
        piece = torch.from_numpy(content[row * row_bytes : (row + 1) * row_bytes])
        assert torch.equal(dequantised(piece, name, (1, width))[0].nan_to_num(), whole[row].nan_to_num())
    experts = dequantised(torch.from_numpy(content), name, (3, 100, width))
    assert torch.equal(experts.reshape(rows, width).nan_to_num(), whole.nan_to_num())
    assert dequantised(torch.empty(0, dtype=torch.uint8), name, (0, 256)).shape == (0, 256)


@pytest.mark.parametrize("shape", [(1, 33), (2, 32), (64,), (1, 2**40)])
def test_bytes_that_do_not_match_the_shape_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(CorruptCheckpointError):
        dequantised(torch.zeros(18, dtype=torch.uint8), "Q4_0", shape)
