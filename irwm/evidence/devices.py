"""If a GPU's memory is not enough, the processor does the same work, and the user is notified."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch

from irwm.errors import DeviceMemoryError

Result = TypeVar("Result")
NOT_ENOUGH = "the GPU did not have enough memory; the rest was computed on the processor, with the same result"


def on_device(
    work: Callable[[str], Result], device: str, told: Callable[[str], None] = lambda said: None
) -> tuple[Result, str]:
    """`work` on a device, or on the processor if the device's memory is not enough.

    Args:
        work: called with the device; may be called twice.
        told: called with `NOT_ENOUGH`.

    Returns:
        The result, and the device that computed it.
    """
    try:
        return work(device), device
    except (torch.OutOfMemoryError, DeviceMemoryError):
        if torch.device(device).type == "cpu":
            raise
    # Outside the handler, because its traceback keeps tensors in the GPU's memory alive.
    torch.cuda.empty_cache()
    told(NOT_ENOUGH)
    return work("cpu"), "cpu"
