"""Count the bytes that this process reads from each folder's files, at the system call."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def counted() -> Iterator[Callable[[str], int]]:
    """Count the bytes that `os.pread`, `os.preadv` and `os.read` return, by file, inside the context.

    Yields:
        A function from a folder to the number of bytes read from its files. Every result also has `rchar`, the kernel's
        count for the whole process. `irwm` reads weights only with these calls and maps no file.
    """
    taken: Counter[str] = Counter()
    kept = {name: getattr(os, name) for name in ("pread", "preadv", "read")}

    def counting(call: Callable[..., Any]) -> Callable[..., Any]:
        def counts(descriptor: int, *arguments: Any) -> Any:
            got = call(descriptor, *arguments)
            taken[os.readlink(f"/proc/self/fd/{descriptor}")] += got if isinstance(got, int) else len(got)
            return got

        return counts

    for name, call in kept.items():
        setattr(os, name, counting(call))
    try:
        yield lambda folder: sum(n for file, n in taken.items() if Path(folder).resolve() in Path(file).parents)
    finally:
        for name, call in kept.items():
            setattr(os, name, call)
