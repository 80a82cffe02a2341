"""Which device a task computes on."""

from __future__ import annotations

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
