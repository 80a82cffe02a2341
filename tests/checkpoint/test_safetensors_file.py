"""Our parser reads the files of the safetensors library, and refuses files that break the format."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file

from irwm.checkpoint import open_checkpoint, read_tensor
from irwm.checkpoint.formats.safetensors_file import read_safetensors
from irwm.checkpoint.tensors import stream_tensor
from irwm.errors import CorruptCheckpointError, IrwmError, UnsupportedCheckpointError
from irwm.release import publish, verify_manifest
from tests.checkpoint.builders import ESCAPES, READABLE, entry, raw, refused

EXAMPLES = settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
ONE = json.dumps(entry("F32", [1], 0, 4))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "x.safetensors"


@pytest.mark.fault(9)
@pytest.mark.parametrize("dtype", READABLE, ids=str)
def test_every_readable_dtype_comes_back_bit_for_bit(file: Path, dtype: torch.dtype) -> None:
    """All values of two bytes, NaN payloads included."""
    bits = torch.arange(-(2**15), 2**15, dtype=torch.int16).view(torch.uint8).reshape(-1, 16)
    save_file({"a": bits.view(dtype), "pad": torch.zeros(3, dtype=torch.uint8)}, file)
    found = read_tensor(read_safetensors(file).tensors["a"])
    assert found.dtype == dtype
    assert torch.equal(found.view(torch.uint8), bits)


def test_booleans_scalars_and_empty_tensors_are_read(file: Path) -> None:
    raw(file, {"a": entry("BOOL", [4], 0, 4)}, bytes([0, 1, 2, 255]))
    assert read_tensor(read_safetensors(file).tensors["a"]).tolist() == [False, True, True, True]
    save_file({"one": torch.tensor(2.5), "none": torch.empty(0, 4), "more": torch.ones(2)}, file)
    tensors = read_safetensors(file).tensors
    assert read_tensor(tensors["one"]).item() == 2.5
    assert read_tensor(tensors["none"]).shape == (0, 4)


def test_header_keeps_metadata_order_and_positions(file: Path) -> None:
    save_file({"b": torch.ones(2), "a": torch.zeros(3, 1)}, file, metadata={"format": "pt"})
    header = read_safetensors(file)
    assert header.metadata == {"format": "pt"}
    with safe_open(file, "pt") as reference:
        assert set(reference.keys()) == set(header.tensors)
    stops = [item.stop for item in header.tensors.values()]
    assert stops == sorted(stops)
    assert stops[-1] == file.stat().st_size


def test_a_tensor_of_a_known_but_unreadable_dtype_does_not_stop_the_others(file: Path) -> None:
    header = {"packed": entry("F4", [3, 2], 0, 3), "scale": entry("F8_E8M0", [1], 3, 4), "w": entry("F32", [1], 4, 8)}
    tensors = read_safetensors(raw(file, header, bytes(8))).tensors
    assert read_tensor(tensors["w"]).tolist() == [0.0]
    with pytest.raises(UnsupportedCheckpointError) as caught:
        read_tensor(tensors["packed"])
    assert caught.value.tensor == "packed"


def test_valid_header_with_a_magic_number_length_is_read(file: Path) -> None:
    raw(file, f'{{"a": {ONE}}}'.ljust(0x0280), bytes(4))
    assert file.read_bytes()[:2] == b"\x80\x02", "as a pickle begins"
    assert list(read_safetensors(file).tensors) == ["a"]


def test_streaming_yields_the_stored_bytes(file: Path) -> None:
    tensor = torch.arange(5_000_000, dtype=torch.float32)
    save_file({"a": tensor}, file)
    pieces = [bytes(piece) for piece in stream_tensor(read_safetensors(file).tensors["a"])]
    assert len(pieces) == 3
    assert b"".join(pieces) == tensor.numpy().tobytes()


@pytest.mark.fault(2, 3)
@pytest.mark.parametrize("length", [2**64 - 1, 2**63, 2**40, 2**32, 99_000_000, 1000])
def test_a_header_length_beyond_the_file_or_the_limit_is_refused_unread(file: Path, length: int) -> None:
    raw(file, b"{" + b" " * 100, length=length)
    if length == 99_000_000:
        os.truncate(file, 10**8)
    assert str(refused(file, CorruptCheckpointError).found).startswith(f"{length} bytes")


@pytest.mark.fault(3)
@pytest.mark.parametrize(
    "header",
    [
        "{" + ",".join(f'"{i}":{json.dumps(entry("U8", [0], 0, 0))}' for i in range(200_001)) + "}",
        '{"a":[' + "{}," * 1_000_000 + "{}]}",
        '{"a":[' + "[]," * 10_000_000 + "[]]}",
    ],
    ids=["tensors", "objects", "lists"],
)
def test_more_tensors_than_any_model_has_are_refused(file: Path, header: str) -> None:
    with pytest.raises(CorruptCheckpointError) as caught:
        read_safetensors(raw(file, header))
    assert caught.value.expected == "at most 200000"


@pytest.mark.fault(4, 5)
@pytest.mark.parametrize("second", [(0, 4), (4, 8)])
def test_duplicate_names_are_refused_even_for_equal_bytes(file: Path, second: tuple[int, int]) -> None:
    raw(file, f'{{"w": {ONE}, "w": {json.dumps(entry("F32", [1], *second))}}}', bytes(second[1]))
    error = refused(file, CorruptCheckpointError)
    assert (error.tensor, error.expected) == ("w", "each name only once")


@pytest.mark.fault(6)
@pytest.mark.parametrize(
    ("ranges", "size", "tensor"),
    [
        ([(0, 4), (0, 4)], 4, "t1"),
        ([(0, 4), (2, 6)], 6, "t1"),
        ([(0, 4), (8, 12)], 12, "t1"),
        ([(4, 8), (8, 12)], 12, "t0"),
        ([(0, 4), (4, 8)], 9, None),
        ([(0, 4), (4, 8)], 7, None),
    ],
    ids=["one range twice", "overlap", "gap", "gap at the start", "more bytes", "cut"],
)
def test_overlaps_gaps_and_a_wrong_size_are_refused(file: Path, ranges: list, size: int, tensor: str | None) -> None:
    raw(file, {f"t{i}": entry("F32", [1], *pair) for i, pair in enumerate(ranges)}, bytes(size))
    error = refused(file, CorruptCheckpointError)
    assert error.tensor == tensor
    assert tensor or error.found == f"{file.stat().st_size} bytes"


SHAPES = [[3], [-1], [1.5], [1.0], ["1"], [True], [None], [2**31, 2**31, 4], [2**62, 4], [1, [1]], 1, [1] * 65]
INVALID: list[Any] = [
    *("text", [], {}, {"dtype": "F32", "shape": [1]}, {**entry("F32", [1], 0, 4), "zip": 1}),
    *(entry("F32", shape, 0, 4) for shape in SHAPES),
    *({"dtype": "F32", "shape": [1], "data_offsets": offsets} for offsets in ([0], [4, 0], [0, 4.0])),
]


@pytest.mark.fault(7)
@pytest.mark.parametrize("value", INVALID, ids=str)
def test_an_invalid_entry_is_named(file: Path, value: object) -> None:
    error = refused(raw(file, {"w": value}, bytes(4)), CorruptCheckpointError)
    assert (error.file, error.tensor) == (str(file), "w")


@pytest.mark.fault(8)
@pytest.mark.parametrize("shape", [[0, 2**63], [0, 2**62, 2**62], [2**63, 0]], ids=str)
def test_empty_tensor_with_overflowing_strides_is_refused(file: Path, shape: list) -> None:
    raw(file, {"w": entry("F32", shape, 0, 0), "v": entry("F32", [1], 0, 4)}, bytes(4))
    assert refused(file, CorruptCheckpointError).tensor == "w"


@pytest.mark.fault(9)
@pytest.mark.parametrize("dtype", ["F7", "float32", "", "\x1b[31m", 7, None])
def test_an_unknown_dtype_is_named(file: Path, dtype: Any) -> None:
    error = refused(raw(file, {"w": entry(dtype, [1], 0, 4)}, bytes(4)), UnsupportedCheckpointError)
    assert (error.tensor, error.found) == ("w", str(dtype).encode("unicode_escape").decode())


@pytest.mark.fault(10)
@pytest.mark.parametrize(
    "header",
    [
        *("{}", '{"__metadata__": {}}', '{"a": 1', "[]", b"\xef\xbb\xbf{}", b'{"\xff": 1}', b'{"a": NaN}', b'{"a"'),
        *('{"a":' + "[" * 5000 + "]" * 5000 + "}", '{"a":' * 5000 + "1" + "}" * 5000),
        '{"\\ud800": ' + ONE + "}",
        '{"a": {"dtype": "F32", "shape": [' + "9" * 10_000 + '], "data_offsets": [0, 4]}}',
    ],
    ids=lambda header: str(header)[:30],
)
def test_headers_that_are_not_json_objects_with_tensors_are_refused(file: Path, header: str | bytes) -> None:
    refused(raw(file, header, bytes(4)), CorruptCheckpointError)


@pytest.mark.fault(11)
def test_a_hostile_tensor_name_is_used_as_a_key_only(folder: Path, tmp_path: Path) -> None:
    file = folder / "model.safetensors"
    save_file(load_file(file) | {"NAME": torch.ones(3)}, file)
    content = file.read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:start])
    header[ESCAPES] = header.pop("NAME")
    model = open_checkpoint(raw(file, header, content[start:]).parent)
    assert read_tensor(model.tensors[ESCAPES]).tolist() == [1, 1, 1]
    publish(model, tmp_path / "out", {})
    assert ESCAPES in open_checkpoint(tmp_path / "out").tensors
    assert sorted(os.listdir(tmp_path)) == ["model", "out"]
    header[ESCAPES]["dtype"] = "F99"
    raw(file, header, content[start:])
    assert refused(folder, UnsupportedCheckpointError).tensor == ESCAPES


@pytest.mark.fault(11)
def test_hostile_folder_name_is_escaped_in_messages(tiny_path: Path, tmp_path: Path) -> None:
    name = "a\x1b[31m\u202e<script>"
    folder = shutil.copytree(tiny_path, tmp_path / name)
    publish(open_checkpoint(folder), tmp_path / (name + "out"), {})
    assert verify_manifest(tmp_path / (name + "out")).ok
    (folder / "model.safetensors").write_bytes(b"")
    refused(folder)
    (folder / "model.safetensors").rename(folder / "\x1b[31m-00001-of-00002.safetensors")
    refused(folder, CorruptCheckpointError)


@pytest.mark.fault(12)
@pytest.mark.parametrize("metadata", [{"a": 1}, {"a": None}, {"a": {}}, [], "text", 1])
def test_non_text_metadata_is_refused(file: Path, metadata: object) -> None:
    raw(file, {"__metadata__": metadata, "w": entry("F32", [1], 0, 4)}, bytes(4))
    assert refused(file, CorruptCheckpointError).expected == "only strings"


NUMBERS = st.one_of(st.integers(-2, 12), st.integers(2**61, 2**65), st.sampled_from([1.5, True, None, "4"]))
ENTRIES = st.fixed_dictionaries(
    {
        "dtype": st.sampled_from(["F32", "BF16", "U8", "F4", "BOOL", "f32", 7]),
        "shape": st.lists(NUMBERS, max_size=3),
        "data_offsets": st.lists(NUMBERS, min_size=1, max_size=3),
    }
)


@EXAMPLES
@given(st.dictionaries(st.text(max_size=3), ENTRIES, max_size=3), st.binary(max_size=24))
def test_any_header_is_read_or_refused_by_name(file: Path, header: dict, data: bytes) -> None:
    try:
        tensors = read_safetensors(raw(file, header, data)).tensors
    except IrwmError as error:
        assert error.file == str(file)  # noqa: PT017 -- either outcome is right
        return
    assert sum(item.nbytes for item in tensors.values()) == len(data)
    for item in tensors.values():
        if item.dtype != "F4":
            assert read_tensor(item).shape == item.shape


@EXAMPLES
@given(st.binary(max_size=64), st.integers(0, 200), st.integers(0, 255))
def test_a_damaged_file_raises_only_typed_errors(file: Path, junk: bytes, at: int, byte: int) -> None:
    save_file({"a": torch.ones(3), "b": torch.ones(2, 2, dtype=torch.bfloat16)}, file)
    content = bytearray(file.read_bytes() + junk)
    content[at % len(content)] = byte
    file.write_bytes(content)
    try:
        read_safetensors(file)
    except IrwmError:
        return
    try:
        with safe_open(file, "pt"):  # ours is the stricter parser: what it accepts, the library accepts
            pass
    except SafetensorError as error:
        pytest.fail(f"accepted what safetensors refuses: {error}")
