"""The device that a task computes on, and how much of its memory it uses."""

from __future__ import annotations

import contextlib
import sys

import psutil

from irwm.errors import IrwmError


def device_of(wanted: str) -> str:
    """ "cpu" or "cuda" for the setting "auto", "cpu" or "cuda".

    Raises:
        IrwmError: a GPU is requested and there is none.
    """
    if wanted == "cpu":
        return wanted  # without importing torch, which takes a quarter of a gigabyte also in tasks that wait
    import torch

    if wanted == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if wanted == "cuda" and not torch.cuda.is_available():
        raise IrwmError(
            "this computer has no usable GPU",
            advice="Choose another device in the settings, or set IRWM_DEVICE to auto or cpu",
        )
    return wanted


def memory_in_use(device: str) -> int:
    """Bytes: the peak of the GPU's memory for "cuda", else the current memory of this process and its children."""
    if device == "cuda":
        torch = sys.modules.get("torch")  # no GPU memory is used before it is loaded
        return int(torch.cuda.max_memory_allocated()) if torch is not None and torch.cuda.is_initialized() else 0
    total = 0
    with contextlib.suppress(psutil.Error):
        own = psutil.Process()
        for process in (own, *own.children(recursive=True)):
            with contextlib.suppress(psutil.Error):  # a process that has ended in the meantime
                total += process.memory_info().rss
    return total
