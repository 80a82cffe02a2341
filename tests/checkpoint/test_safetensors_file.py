"""The header parser: accepts files of the safetensors library, refuses files that break the format."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from irwm.checkpoint import read_tensor
from irwm.checkpoint.formats.safetensors_file import read_safetensors
from irwm.checkpoint.tensors import stream_tensor
from irwm.errors import CorruptCheckpointError, IrwmError, UnsupportedCheckpointError
from tests.checkpoint.builders import READABLE, entry, raw


@pytest.mark.parametrize("dtype", READABLE, ids=str)
def test_every_readable_dtype_comes_back_bit_for_bit(tmp_path: Path, dtype: torch.dtype) -> None:
    bits = torch.randint(0, 256, (6, 16), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    tensor = bits.view(dtype)  # every bit pattern, NaN payloads included
    save_file({"a": tensor, "pad": torch.zeros(3, dtype=torch.uint8)}, tmp_path / "x.safetensors")
    found = read_tensor(read_safetensors(tmp_path / "x.safetensors").tensors["a"])
    assert found.dtype == dtype
    assert torch.equal(found.view(torch.uint8), bits)


def test_booleans_are_read_as_booleans(tmp_path: Path) -> None:
    path = raw(tmp_path / "x.safetensors", {"a": entry("BOOL", [4], 0, 4)}, bytes([0, 1, 2, 255]))
    assert read_tensor(read_safetensors(path).tensors["a"]).tolist() == [False, True, True, True]


def test_header_keeps_metadata_order_and_positions(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    save_file({"b": torch.ones(2), "a": torch.zeros(3, 1)}, path, metadata={"format": "pt"})
    header = read_safetensors(path)
    assert header.metadata == {"format": "pt"}
    assert header.tensors["a"].shape == (3, 1)
    with safe_open(path, "pt") as reference:
        assert set(reference.keys()) == set(header.tensors)
    stops = [item.stop for item in header.tensors.values()]
    assert stops == sorted(stops)
    assert stops[-1] == path.stat().st_size


def test_scalars_and_empty_tensors_are_read(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    save_file({"one": torch.tensor(2.5), "none": torch.empty(0, 4), "more": torch.ones(2)}, path)
    tensors = read_safetensors(path).tensors
    assert read_tensor(tensors["one"]).item() == 2.5
    assert read_tensor(tensors["none"]).shape == (0, 4)


def test_a_tensor_of_a_known_but_unreadable_dtype_does_not_stop_the_others(tmp_path: Path) -> None:
    header = {"packed": entry("F4", [3, 2], 0, 3), "scale": entry("F8_E8M0", [1], 3, 4), "w": entry("F32", [1], 4, 8)}
    tensors = read_safetensors(raw(tmp_path / "x.safetensors", header, bytes(8))).tensors
    assert read_tensor(tensors["w"]).tolist() == [0.0]
    with pytest.raises(UnsupportedCheckpointError, match="F4"):
        read_tensor(tensors["packed"])


def test_valid_header_with_a_magic_number_length_is_read(tmp_path: Path) -> None:
    text = json.dumps({"a": entry("F32", [1], 0, 4)})
    path = raw(tmp_path / "x.safetensors", text.ljust(0x0280), bytes(4))  # its first bytes are those of a pickle
    assert path.read_bytes()[:2] == b"\x80\x02"
    assert list(read_safetensors(path).tensors) == ["a"]


def test_streaming_yields_the_stored_bytes(tmp_path: Path) -> None:
    tensor = torch.arange(5_000_000, dtype=torch.float32)
    save_file({"a": tensor}, tmp_path / "x.safetensors")
    pieces = [bytes(piece) for piece in stream_tensor(read_safetensors(tmp_path / "x.safetensors").tensors["a"])]
    assert len(pieces) == 3
    assert b"".join(pieces) == tensor.numpy().tobytes()


@pytest.mark.parametrize(
    "value",
    [
        "text",
        [],
        {},
        {"dtype": "F32", "shape": [1]},
        {**entry("F32", [1], 0, 4), "zip": 1},
        {"dtype": "F32", "shape": 1, "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": [1], "data_offsets": [0]},
        {"dtype": "F32", "shape": [1], "data_offsets": [4, 0]},
        {"dtype": "F32", "shape": [1], "data_offsets": [0, 4.0]},
        {"dtype": "F32", "shape": [1] * 65, "data_offsets": [0, 4]},
    ],
    ids=str,
)
def test_malformed_entries_name_file_and_tensor(tmp_path: Path, value: object) -> None:
    path = raw(tmp_path / "x.safetensors", {"w": value}, bytes(4))
    with pytest.raises(CorruptCheckpointError) as caught:
        read_safetensors(path)
    assert caught.value.file == str(path)
    assert caught.value.tensor == "w"


@pytest.mark.parametrize("header", ["{}", '{"__metadata__": {}}', '{"a": 1'])
def test_headers_without_tensors_or_closing_brace_are_refused(tmp_path: Path, header: str) -> None:
    with pytest.raises(CorruptCheckpointError):
        read_safetensors(raw(tmp_path / "x.safetensors", header))


def test_a_name_that_is_half_a_surrogate_pair_is_refused(tmp_path: Path) -> None:
    path = raw(tmp_path / "x.safetensors", '{"\\ud800": ' + json.dumps(entry("U8", [1], 0, 1)) + "}", b"x")
    with pytest.raises(CorruptCheckpointError, match="Unicode"):
        read_safetensors(path)


def test_a_number_of_ten_thousand_digits_is_refused(tmp_path: Path) -> None:
    text = '{"a": {"dtype": "F32", "shape": [' + "9" * 10_000 + '], "data_offsets": [0, 4]}}'
    with pytest.raises(CorruptCheckpointError):
        read_safetensors(raw(tmp_path / "x.safetensors", text, bytes(4)))


NUMBERS = st.one_of(st.integers(-2, 12), st.integers(2**61, 2**65), st.sampled_from([1.5, True, None, "4"]))
ENTRIES = st.fixed_dictionaries(
    {
        "dtype": st.sampled_from(["F32", "BF16", "U8", "F4", "BOOL", "f32", 7]),
        "shape": st.lists(NUMBERS, max_size=3),
        "data_offsets": st.lists(NUMBERS, min_size=1, max_size=3),
    }
)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(st.text(max_size=3), ENTRIES, max_size=3), st.binary(max_size=24))
def test_any_header_is_read_or_refused_by_name(tmp_path: Path, header: dict, data: bytes) -> None:
    path = raw(tmp_path / "x.safetensors", header, data)
    refused = None
    try:
        tensors = read_safetensors(path).tensors
    except IrwmError as error:
        refused = error
    if refused is not None:
        assert refused.file == str(path)
        return
    assert sum(item.nbytes for item in tensors.values()) == len(data)
    for item in tensors.values():
        if item.dtype != "F4":
            assert read_tensor(item).shape == item.shape


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=64), st.integers(0, 200), st.integers(0, 255))
def test_a_damaged_file_never_escapes_the_error_tree(tmp_path: Path, junk: bytes, at: int, byte: int) -> None:
    path = tmp_path / "x.safetensors"
    save_file({"a": torch.ones(3), "b": torch.ones(2, 2, dtype=torch.bfloat16)}, path)
    content = bytearray(path.read_bytes() + junk)
    content[at % len(content)] = byte
    path.write_bytes(content)
    try:
        read_safetensors(path)
    except IrwmError:
        return
    try:
        with safe_open(path, "pt"):  # ours is the stricter parser: what it accepts, the library accepts
            pass
    except SafetensorError as error:
        pytest.fail(f"accepted what safetensors refuses: {error}")
