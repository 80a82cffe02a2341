"""Handlers with plain error messages: an `IrwmError` becomes a message in the corner, never a traceback."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from irwm.errors import IrwmError
from ui.components import notices


def guarded(handler: Callable[..., Any]) -> Callable[..., Any]:
    """The handler with every `IrwmError` turned into Gradio's own error, escaped."""

    @functools.wraps(handler)  # Gradio reads the signature to see which arguments it must fill in
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        try:
            return handler(*args, **kwargs)
        except IrwmError as error:
            raise notices.alarm(error) from error

    return wrapper
