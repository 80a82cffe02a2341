"""Many small jobs run in parallel, give results in order, and restore torch's threads."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
import torch
from threadpoolctl import threadpool_info

from irwm.evidence.parallel import FEWEST, in_order
from tools.waiting import PATIENCE


@pytest.fixture(autouse=True)
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def test_results_come_in_order_from_more_than_one_thread() -> None:
    """The first item ends after the second one, and so do the third and the fourth: each pair runs at one time."""
    used: set[int] = set()
    ended = [threading.Event() for _ in range(40)]

    def work(number: int) -> int:
        used.add(threading.get_ident())
        if number % 2 == 0:
            assert ended[number + 1].wait(PATIENCE), "the next item began in another thread"
        ended[number].set()
        return 2 * number

    found = []
    for result in in_order(work, range(40), "cpu"):
        assert torch.get_num_threads() == 2  # the consumer of a result has all threads
        found.append(result)
    assert found == [2 * number for number in range(40)]
    assert len(used) == 2
    assert torch.get_num_threads() == 2


@pytest.mark.parametrize(("count", "device"), [(FEWEST - 1, "cpu"), (40, "cuda")])
def test_few_jobs_and_gpu_jobs_run_sequentially(count: int, device: str) -> None:
    used: set[int] = set()
    assert len(list(in_order(lambda number: used.add(threading.get_ident()), range(count), device))) == count
    assert used == {threading.get_ident()}


def test_few_long_jobs_run_in_parallel_on_request() -> None:
    together = threading.Barrier(2, timeout=PATIENCE)
    assert len(list(in_order(lambda number: together.wait(), range(2), "cpu", fewest=2))) == 2


def test_error_is_raised_at_its_item_and_stops_the_rest() -> None:
    begun: list[int] = []

    def work(number: int) -> int:
        begun.append(number)
        if number == 5:
            raise ValueError("the fifth")
        return number

    results = in_order(work, range(1000), "cpu")
    assert [next(results) for _ in range(5)] == [0, 1, 2, 3, 4]
    with pytest.raises(ValueError, match="the fifth"):
        next(results)
    assert len(begun) < 20
    abandoned = in_order(lambda number: number, range(1000), "cpu")
    next(abandoned)
    abandoned.close()
    assert torch.get_num_threads() == 2


def test_numpy_gets_one_thread_in_each_of_the_threads() -> None:
    def threads_of_numpy(_: int = 0) -> set[int]:
        return {each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"}

    before = threads_of_numpy()
    assert set.union(*in_order(threads_of_numpy, range(40), "cpu")) == {1}
    assert threads_of_numpy() == before
