"""Many small pieces of work at the same time, one on each core."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

import torch
from threadpoolctl import ThreadpoolController

Item = TypeVar("Item")
Result = TypeVar("Result")
# With fewer items of a few milliseconds each, a pool costs more than it saves.
FEWEST = 8


def in_order(
    work: Callable[[Item], Result], items: Sequence[Item], device: str, fewest: int = FEWEST
) -> Generator[Result, None, None]:
    """`work` of each item, in order; on a CPU in as many threads as torch may use, each on one core.

    The work for a key takes milliseconds: too little to split between two cores, but enough to keep each of them busy.
    Meanwhile torch and the BLAS of NumPy may use one thread each. Only a few results are computed ahead. Errors of
    `work` are raised when their item is reached. Fewer items than `fewest` are computed one after the other.
    """
    threads = torch.get_num_threads()
    if threads < 2 or len(items) < fewest or torch.device(device).type != "cpu":
        yield from map(work, items)
        return
    made: deque[Future[Result]] = deque()
    controller = ThreadpoolController()
    with ThreadPoolExecutor(threads, "irwm-keys") as pool:
        try:
            rest = iter(items)
            while True:
                torch.set_num_threads(1)
                with controller.limit(limits=1, user_api="blas"):
                    made.extend(pool.submit(work, item) for item in islice(rest, 2 * threads + 1 - len(made)))
                    if not made:
                        return
                    found = made.popleft().result()
                torch.set_num_threads(threads)  # the caller may compute with all cores
                yield found
        finally:
            for waiting in made:
                waiting.cancel()
            torch.set_num_threads(threads)
