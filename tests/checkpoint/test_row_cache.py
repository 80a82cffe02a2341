"""Rows that were read once are not read again, and equal the file's rows."""

from __future__ import annotations

import os
import pickle
import shutil
import threading
from pathlib import Path

import pytest
import torch

import irwm
import irwm.checkpoint.rows as rows_module
from irwm.checkpoint.rows import RowCache, read_tensor
from irwm.errors import CheckpointChangedError


@pytest.fixture
def entry(tiny_path: Path):
    model = irwm.open_checkpoint(tiny_path)
    return model.tensors[model.layout.embedding.name]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Bytes of every read."""
    taken: list[int] = []
    real = rows_module.read_into

    def counting(descriptor: int, path: Path, offset: int, target: memoryview) -> None:
        taken.append(len(target))
        real(descriptor, path, offset, target)

    monkeypatch.setattr(rows_module, "read_into", counting)
    return taken


def test_a_row_is_read_once_in_any_order_and_with_repeats(entry, asked: list[int]) -> None:
    kept, row = RowCache(entry), entry.nbytes // entry.shape[0]
    for numbers in ([5, 3, 3, 40], [3, 40], [41, 5, 2], [0]):
        ids = torch.tensor(numbers)
        del asked[:]
        got = kept.read(ids)
        took = sum(asked)
        assert torch.equal(got, read_tensor(entry, ids))
        assert took == row * {4: 3, 2: 0, 3: 2, 1: 1}[len(numbers)]


@pytest.mark.parametrize("most", [0, 3, 1000])
def test_cached_rows_are_correct_for_any_cache_size(entry, monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    monkeypatch.setattr(rows_module, "MOST_KEPT", most * entry.nbytes // entry.shape[0])
    kept, generator = RowCache(entry), torch.Generator().manual_seed(most)
    for _ in range(60):
        count = int(torch.randint(0, 9, (), generator=generator))
        numbers = torch.randint(0, entry.shape[0], (count,), generator=generator)
        assert torch.equal(kept.read(numbers), read_tensor(entry, numbers))
        start = int(torch.randint(0, entry.shape[0] - 8, (), generator=generator))
        numbers = torch.arange(start, start + count)
        assert torch.equal(kept.read(numbers), read_tensor(entry, numbers))


def test_a_full_read_does_not_evict_cached_rows(entry, monkeypatch, asked: list[int]) -> None:
    monkeypatch.setattr(rows_module, "MOST_KEPT", 10 * entry.nbytes // entry.shape[0])
    kept, some = RowCache(entry), torch.tensor([7, 1, 90])
    kept.read(some)
    for start in range(0, entry.shape[0] - 8, 8):
        kept.read(torch.arange(start, start + 8))
    del asked[:]
    kept.read(some)
    assert not asked


def test_a_changed_file_is_detected_even_for_cached_rows(tiny_path: Path, tmp_path: Path) -> None:
    model = irwm.open_checkpoint(shutil.copytree(tiny_path, tmp_path / "copy"))
    model.embedding([1, 5])
    os.utime(model.shards[0], ns=(1, 1))
    with pytest.raises(CheckpointChangedError):
        model.embedding([1, 5])


def test_pickled_cache_carries_the_file_without_rows(entry) -> None:
    kept = RowCache(entry)
    whole = kept.read(torch.arange(entry.shape[0]))
    copy = pickle.dumps(kept)
    assert len(copy) < 4096
    assert torch.equal(pickle.loads(copy).read(torch.tensor([3, 1])), whole[[3, 1]])


def test_row_cache_is_thread_safe(entry) -> None:
    kept, wrong = RowCache(entry), []

    def read(seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        for _ in range(200):
            numbers = torch.randint(0, entry.shape[0], (6,), generator=generator)
            if not torch.equal(kept.read(numbers), read_tensor(entry, numbers)):
                wrong.append(numbers)

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
