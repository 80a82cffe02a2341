"""Gradio's document, in whose messages no inner values stand."""

from __future__ import annotations

from typing import Any

import gradio as gr

# How Gradio 6.31.0 refuses a choice that a list does not offer; the value and all others follow, keys' ids among them.
_REFUSED = "is not in the list of choices"
NOT_OFFERED = "What was chosen is no longer offered. Choose again, or reload the page."


class PlainBlocks(gr.Blocks):
    """`gr.Blocks` that says in words that a choice is gone, as one is after the app was started again."""

    async def preprocess_data(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return await super().preprocess_data(*args, **kwargs)
        except gr.Error as error:
            if _REFUSED not in str(error):
                raise
            raise gr.Error(NOT_OFFERED, print_exception=False) from None
