"""What to do where a GPU's memory is not enough: the same on the processor, and say so."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch

from irwm.errors import DeviceMemoryError

Result = TypeVar("Result")
NOT_ENOUGH = "the GPU's memory was not enough; what follows was computed on the processor, with the same result"


def on_device(
    work: Callable[[str], Result], device: str, told: Callable[[str], None] = lambda said: None
) -> tuple[Result, str]:
    """`work` on a device, or on the processor where the device has not the memory for it.

    Args:
        work: gets the device; it must be possible to begin it again.
        told: is told `NOT_ENOUGH`.

    Returns:
        Its result and the device that it comes from.
    """
    try:
        return work(device), device
    except (torch.OutOfMemoryError, DeviceMemoryError):
        if torch.device(device).type == "cpu":
            raise
    # Outside of the handler, whose traceback keeps what lies in the GPU's memory alive.
    torch.cuda.empty_cache()
    told(NOT_ENOUGH)
    return work("cpu"), "cpu"
