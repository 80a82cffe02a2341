"""Gradio's document, without internal values in its messages and without answers after Lock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gradio as gr

from ui.errors_seen import ErrorsSeen
from ui.guard import UNANSWERED

# Gradio 6.31.0 refuses a choice that a list does not offer with these words, then prints all values, with keys' ids.
_REFUSED = "is not in the list of choices"
NOT_OFFERED = "This choice is no longer available. Choose again, or reload the page."


LOCKED = "The vault was locked before this request was answered."


class PlainBlocks(gr.Blocks):
    """`gr.Blocks` with a clear message for choices that no longer exist, for instance after a restart of the app.

    It withholds answers of handlers that finish after their browser was locked.

    Attributes:
        is_open: whether the browser behind a `gr.Request` is unlocked.
        of_lock: names of handlers whose answers show the locked state.
    """

    is_open: Callable[[Any], bool] = staticmethod(lambda request: False)
    of_lock: frozenset[str] = frozenset()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._seen = ErrorsSeen()

    async def process_api(
        self, block_fn: Any, inputs: list[Any], state: Any = None, request: Any = None, *args: Any, **kwargs: Any
    ) -> dict[str, Any]:
        was_open = self.is_open(request)
        try:
            answer = await super().process_api(block_fn, inputs, state, request, *args, **kwargs)
        except gr.Error:
            raise
        except Exception as error:
            if was_open:
                raise
            # Gradio prints a traceback for each error, such as for a call with too few values.
            self._seen.note(error)
            raise gr.Error(UNANSWERED, print_exception=False) from None
        if was_open and not self.is_open(request) and block_fn.name not in self.of_lock:
            raise gr.Error(LOCKED, visible=False, print_exception=False)
        return answer

    async def preprocess_data(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return await super().preprocess_data(*args, **kwargs)
        except gr.Error as error:
            if _REFUSED not in str(error):
                raise
            raise gr.Error(NOT_OFFERED, print_exception=False) from None
