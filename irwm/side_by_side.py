"""Many small jobs on the cores that one large one would use."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import torch

Item, Result = TypeVar("Item"), TypeVar("Result")
# With fewer jobs it is not worth a pool.
FEWEST = 8


def in_order(work: Callable[[Item], Result], items: Sequence[Item], device: str) -> Iterator[Result]:
    """`work` of each item, in order; on a CPU by as many threads as torch may use, each of which computes alone.

    What a key asks for takes milliseconds: too little for two cores to share, and enough to keep each of them busy. Not
    many results are made before they are asked for. Errors are those of `work`, when their item is reached.
    """
    threads = torch.get_num_threads()
    if threads < 2 or len(items) < FEWEST or torch.device(device).type != "cpu":
        yield from map(work, items)
        return
    torch.set_num_threads(1)
    try:
        with ThreadPoolExecutor(threads, "irwm-keys") as pool:
            made: deque[Future[Result]] = deque()
            try:
                for item in items:
                    made.append(pool.submit(work, item))
                    if len(made) > 2 * threads:
                        yield made.popleft().result()
                while made:
                    yield made.popleft().result()
            finally:
                for waiting in made:
                    waiting.cancel()
    finally:
        torch.set_num_threads(threads)
