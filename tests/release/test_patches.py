"""Patches: refused if they are not within a shard's tensors, otherwise applied to the pieces of a stream."""

from __future__ import annotations

import threading
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import irwm
import irwm.release.insertion as insertion
from irwm.errors import MarginError, ParameterError
from irwm.release import Patch, publish
from irwm.release.patches import NoisyRows, checked_patches, overlay
from irwm.scheme.parameters import many_recipients
from tests.checkpoint.builders import EMBEDDING
from tools.copies import keys_for, written_rows
from tools.small_models import write_llama


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


def test_noisy_rows_do_not_depend_on_the_pieces_they_are_written_in(tiny_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("irwm.release.patches.BLOCK_NUMBERS", 64 * 37)  # 17 blocks, the last one shorter
    model = irwm.open_checkpoint(tiny_path)
    (key,) = keys_for(model, ["Ann"], many_recipients(model.hidden_size))
    marked, rows = np.array([400, 3, 36, 37]), torch.randn(4, 64).to(getattr(torch, model.dtype))
    noise = key.noise(model, key.choices())
    expected = torch.from_numpy(noise.over(model.embedding().double().numpy(), np.arange(600))).to(rows.dtype)
    expected[marked] = rows
    raw = expected.view(torch.uint8).numpy().tobytes()
    for size in (len(raw), 64 * 37 * 4, 7919):
        noisy = NoisyRows(model, noise, marked, rows)
        ((patch,),) = noisy.patches([EMBEDDING]).values()
        ends = [*range(patch.start, patch.stop, size), patch.stop]
        pieces = [bytearray(end - begin) for begin, end in pairwise(ends)]
        for begin, piece in zip(ends[:-1], pieces, strict=True):
            patch.write(begin, memoryview(piece))
        assert b"".join(pieces) == raw
        differs = (expected.float() != model.embedding()).any(dim=1).numpy()
        assert np.array_equal(noisy.changed_rows, np.flatnonzero(differs))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_noise_in_float32_changes_few_numbers_of_16_bits(tmp_path: Path, dtype: torch.dtype) -> None:
    model = irwm.open_checkpoint(write_llama(tmp_path, dtype=dtype, hidden_size=512))
    (key,) = keys_for(model, ["Ann"], many_recipients(model.hidden_size))
    noise, none = key.noise(model, key.choices()), np.empty(0, dtype=np.int64)
    like = torch.empty((0, 512), dtype=dtype)
    written = written_rows(NoisyRows(model, noise, none, like), 0, model.vocab_size, like)
    exact = noise.over(model.embedding().double().numpy(), np.arange(model.vocab_size))
    defined = torch.from_numpy(exact).to(dtype)
    assert 0 < (written != defined).float().mean() < 5e-4
    # A float32 sum is within 2^-20 of a row's largest number, and a number within that of a tie is rounded to either.
    slack = np.abs(exact).max(axis=1, keepdims=True) * 2.0**-20 + np.abs(exact) * torch.finfo(dtype).eps
    assert (np.abs(written.double().numpy() - exact) <= slack).all()


@pytest.mark.parametrize("factor", [1e-24, 1e22])
def test_noise_in_float32_reaches_rows_whose_squares_exceed_its_range(tmp_path: Path, factor: float) -> None:
    model = irwm.open_checkpoint(write_llama(tmp_path, dtype=torch.bfloat16, hidden_size=512))
    (key,) = keys_for(model, ["Ann"], many_recipients(model.hidden_size))
    noise, tokens = key.noise(model, key.choices()), np.arange(model.vocab_size)
    rows = model.embedding().double().numpy() * factor
    found = noise.over(rows.astype(np.float32), tokens) / factor
    assert np.allclose(found, noise.over(rows, tokens) / factor, rtol=1e-5, atol=1e-6)
    assert not np.allclose(found, rows / factor, rtol=1e-5, atol=1e-6)


def test_rows_can_be_read_again_from_any_row_on(tiny_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("irwm.release.patches.BLOCK_NUMBERS", 64 * 10)
    model = irwm.open_checkpoint(tiny_path)
    (key,) = keys_for(model, ["Ann"], many_recipients(model.hidden_size))
    noise, rows = key.noise(model, key.choices()), torch.empty((0, 64), dtype=getattr(torch, model.dtype))
    noisy = NoisyRows(model, noise, np.empty(0, dtype=np.int64), rows)
    whole = written_rows(noisy, 0, 600, rows)
    for first, last in ((0, 5), (3, 200), (595, 600), (195, 600), (20, 30)):
        assert torch.equal(written_rows(noisy, first, last, rows), whole[first:last])
    before = threading.active_count()
    written_rows(noisy, 0, 5, rows)
    noisy.close()
    assert threading.active_count() <= before


@pytest.mark.parametrize("tied", [True, False])
def test_a_further_copy_is_verified_on_all_cores(tmp_path: Path, monkeypatch, tied: bool) -> None:
    model = irwm.open_checkpoint(write_llama(tmp_path / "model", tie_word_embeddings=tied))
    ann, bob = keys_for(model, ["Ann", "Bob"], many_recipients(model.hidden_size))
    shared, verified = irwm.insert(model, ann, tmp_path / "ann").shared, insertion._verified
    seen, before = [], torch.get_num_threads()

    def noted(*given: object, **named: object) -> irwm.Finding:
        seen.append(torch.get_num_threads())
        return verified(*given, **named)

    monkeypatch.setattr(insertion, "_verified", noted)
    torch.set_num_threads(2)
    try:
        irwm.insert(model, bob, tmp_path / "bob", shared=shared)
    finally:
        torch.set_num_threads(before)
    assert seen == ([2] if tied else [1, 1])


@pytest.mark.parametrize("further", [False, True])
def test_copy_with_another_recipients_noise_is_not_published(
    demo_path: Path, tmp_path: Path, monkeypatch, further: bool
) -> None:
    model = irwm.open_checkpoint(demo_path)
    ann, bob = keys_for(model, ["Ann", "Bob"], many_recipients(model.hidden_size))
    shared = irwm.insert(model, ann, tmp_path / "ann").shared if further else None
    theirs, prepare = ann.noise(model, ann.choices()), NoisyRows.__init__
    monkeypatch.setattr(
        NoisyRows,
        "__init__",
        lambda self, model, noise, *rows: prepare(self, model, replace(noise, stream_key=theirs.stream_key), *rows),
    )
    with pytest.raises(MarginError) as caught:
        irwm.insert(model, bob, tmp_path / "bob", shared=shared)
    assert caught.value.tensor == EMBEDDING
    assert not (tmp_path / "bob").exists()
