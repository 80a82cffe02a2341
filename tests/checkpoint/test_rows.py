"""Rows of a tensor: correct, in the requested order, without reading other bytes, and not read twice."""

from __future__ import annotations

import os
import pickle
import shutil
import subprocess
import sys
import threading
import weakref
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

import irwm
import irwm.checkpoint.rows as rows_module
from irwm.checkpoint import TensorEntry, read_tensor
from irwm.checkpoint.formats.safetensors_file import read_safetensors
from irwm.checkpoint.rows import RowCache, row_numbers
from irwm.errors import CheckpointChangedError, RowIndexError
from tests.checkpoint.builders import sparse

MATRIX = torch.randn(40, 7, generator=torch.Generator().manual_seed(0)).to(torch.bfloat16)


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> dict[str, TensorEntry]:
    path = tmp_path_factory.mktemp("rows") / "x.safetensors"
    save_file({"m": MATRIX, "s": torch.tensor(1.0), "v": torch.arange(9.0), "e": torch.empty(4, 0)}, path)
    return read_safetensors(path).tensors


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.integers(0, 39), max_size=30))
def test_rows_are_read_in_any_order_with_repeats(stored: dict[str, TensorEntry], rows: list[int]) -> None:
    assert torch.equal(read_tensor(stored["m"], rows), MATRIX[torch.tensor(rows, dtype=torch.long)])


@pytest.mark.parametrize("rows", [slice(None), slice(3, 9), slice(30, 99), slice(None, None, -2), slice(5, 5)], ids=str)
def test_row_slices_follow_python_rules(stored: dict[str, TensorEntry], rows: slice) -> None:
    wanted = list(range(40))[rows]
    assert torch.equal(read_tensor(stored["m"], rows), MATRIX[wanted])


def test_rows_come_as_tensor_array_range_or_tuple(stored: dict[str, TensorEntry]) -> None:
    frozen = np.array([4, 2])
    frozen.flags.writeable = False
    for rows in (torch.tensor([4, 2]), torch.tensor([4, 2], dtype=torch.int32), frozen, range(4, 0, -2), (4, 2)):
        assert torch.equal(read_tensor(stored["m"], rows), MATRIX[[4, 2]])
    assert read_tensor(stored["m"], range(0)).shape == (0, 7)


def test_vectors_and_empty_rows_are_read(stored: dict[str, TensorEntry]) -> None:
    assert read_tensor(stored["v"], [8, 0]).tolist() == [8.0, 0.0]
    assert read_tensor(stored["e"], [3, 3]).shape == (2, 0)
    assert row_numbers(None, 3).tolist() == [0, 1, 2]


@pytest.mark.parametrize("rows", [[-1], [40], [0, 99], [1.5], [True], ["a"], [[1]], 3, [2**70], [None]], ids=str)
def test_missing_rows_are_refused(stored: dict[str, TensorEntry], rows: object) -> None:
    with pytest.raises(RowIndexError) as caught:
        read_tensor(stored["m"], rows)  # type: ignore[arg-type]
    assert isinstance(caught.value, IndexError)
    assert caught.value.tensor == "m"
    with pytest.raises(RowIndexError):
        read_tensor(stored["s"], [0])


def test_only_bytes_of_rows_are_read_and_neighbours_in_one_piece(stored: dict, monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[tuple[int, int]] = []
    preadv = os.preadv

    def counting(descriptor: int, buffers: list[memoryview], offset: int) -> int:
        reads.append((offset - stored["m"].start, sum(len(buffer) for buffer in buffers)))
        return preadv(descriptor, buffers, offset)

    monkeypatch.setattr(os, "preadv", counting)
    read_tensor(stored["m"], [20, 3, 5, 4, 20, 39])
    assert reads == [(3 * 14, 3 * 14), (20 * 14, 14), (39 * 14, 14)]


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such limit for one process")
def test_a_tensor_larger_than_the_memory_is_a_typed_error(tmp_path: Path) -> None:
    """A sparse file may claim 64 GiB; the process here may use 8."""
    path = sparse(tmp_path / "holes.safetensors", {"a": [1 << 22, 4096]})
    program = """
import resource, sys
from irwm.checkpoint import read_tensor
from irwm.checkpoint.formats.safetensors_file import read_safetensors
from irwm.errors import CheckpointError
from pathlib import Path
resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
tensor = read_safetensors(Path(sys.argv[1])).tensors["a"]
assert not read_tensor(tensor, [5]).any()
try:
    read_tensor(tensor)
except CheckpointError as error:
    print(error.tensor, type(error) is CheckpointError)
"""
    done = subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=True)
    assert done.stdout == "a True\n"


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
    monkeypatch.setattr(rows_module, "MOST_WHOLE", most * entry.nbytes // entry.shape[0])
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
    monkeypatch.setattr(rows_module, "MOST_WHOLE", 0)
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


def test_a_closed_checkpoint_keeps_no_rows_and_reads_them_again(demo_path: Path) -> None:
    model = irwm.open_checkpoint(demo_path)
    assert model.output_head is not None
    matrices = (model, model.output_head)
    first = [matrix.embedding([1, 5, 9]) for matrix in matrices]
    kept = [weakref.ref(cache) for matrix in matrices for cache in matrix._row_caches.values()]
    assert len(kept) == 2
    model.close()
    assert all(cache() is None for cache in kept)
    assert all(torch.equal(matrix.embedding([1, 5, 9]), rows) for matrix, rows in zip(matrices, first, strict=True))
