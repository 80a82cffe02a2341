"""Patches: refused if they are not within a shard's tensors, otherwise applied to the pieces of a stream."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from irwm.errors import ParameterError
from irwm.release import Patch, publish
from irwm.release.patches import checked_patches, overlay
from tests.checkpoint.builders import EMBEDDING


def test_patches_are_sorted_by_position(model) -> None:
    assert checked_patches(model, {}) == {}
    assert checked_patches(model, {model.shards[0]: []}) == {model.shards[0]: ()}
    start, file = model.tensors[EMBEDDING].start, model.shards[0]
    patches = checked_patches(model, {file: [Patch(start + 4, b"ab"), Patch(start, b"abcd")]})
    assert patches == {file: (Patch(start, b"abcd"), Patch(start + 4, b"ab"))}


def test_patches_outside_the_tensors_are_refused(model, tmp_path: Path) -> None:
    file = model.shards[0]
    first, end = min(e.start for e in model.tensors.values()), file.stat().st_size
    for bad in (
        [Patch(first - 1, b"a")],
        [Patch(0, b"a")],
        [Patch(-1, b"a")],
        [Patch(end - 1, b"ab")],
        [Patch(first, b"abc"), Patch(first + 2, b"a")],
        [Patch(first, b"a"), Patch(first, b"b")],
    ):
        with pytest.raises(ParameterError) as caught:
            publish(model, tmp_path / "out", {file: bad})
        assert caught.value.file == str(file)
    with pytest.raises(ParameterError):
        publish(model, tmp_path / "out", {model.path / "config.json": [Patch(0, b"a")]})
    assert not (tmp_path / "out").exists()


@given(
    st.lists(st.tuples(st.integers(0, 15), st.integers(0, 40)), max_size=8),
    st.integers(1, 70),
)
def test_a_stream_of_any_piece_size_gets_every_patched_byte(gaps: list[tuple[int, int]], size: int) -> None:
    original = np.arange(200, dtype=np.uint8)
    patches, at = [], 0
    for gap, length in gaps:
        at += gap
        if at + length > 200:
            break
        patches.append(Patch(at, bytes([255 - at % 50]) * length))
        at += length
    expected = bytearray(original.tobytes())
    for patch in patches:
        expected[patch.start : patch.stop] = patch.data
    out, first = b"", 0
    for begin in range(0, 200, size):
        piece = memoryview(bytearray(original[begin : begin + size].tobytes()))
        first = overlay(piece, begin, patches, first)
        out += bytes(piece)
    assert out == bytes(expected)
