"""Which device a task computes on, and what it takes of its memory."""

from __future__ import annotations

import contextlib
import sys

import psutil

from irwm.errors import IrwmError


def device_of(wanted: str) -> str:
    """ "cpu" or "cuda" for the setting "auto", "cpu" or "cuda".

    Raises:
        IrwmError: a GPU is asked for and there is none.
    """
    if wanted == "cpu":
        return wanted  # without the quarter of a gigabyte that asking torch takes: tasks wait their turn with it
    import torch

    if wanted == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if wanted == "cuda" and not torch.cuda.is_available():
        raise IrwmError("there is no GPU to compute on", advice="Set IRWM_DEVICE to auto or cpu")
    return wanted


def memory_in_use(device: str) -> int:
    """Bytes: the most of the GPU's memory for "cuda", else the memory of this process and of those it started, now."""
    if device == "cuda":
        torch = sys.modules.get("torch")  # nothing is taken before it is loaded
        return int(torch.cuda.max_memory_allocated()) if torch is not None and torch.cuda.is_initialized() else 0
    total = 0
    with contextlib.suppress(psutil.Error):
        own = psutil.Process()
        for process in (own, *own.children(recursive=True)):
            with contextlib.suppress(psutil.Error):  # one that has ended meanwhile
                total += process.memory_info().rss
    return total
