"""Gradio's document in the chosen language, without internal values in its messages and without answers after Lock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gradio as gr

from irwm.language import ENGLISH, catalogue_of
from irwm.language.markup import translated
from ui import language
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
        language: the current one of `irwm.language.LANGUAGES`.
    """

    is_open: Callable[[Any], bool] = staticmethod(lambda request: False)
    of_lock: frozenset[str] = frozenset()
    language: Callable[[], str] = staticmethod(lambda: ENGLISH)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._documents: dict[str, Any] = {}  # by language
        super().__init__(*args, **kwargs)
        self._seen = ErrorsSeen()

    @property
    def config(self) -> Any:
        """What Gradio sends as the document."""
        chosen = self.language()
        if chosen not in self._documents:
            self._documents[chosen] = language.document_in(self._documents[ENGLISH], catalogue_of(chosen))
        return self._documents[chosen]

    @config.setter
    def config(self, english: Any) -> None:
        self._documents = {ENGLISH: english}

    async def process_api(
        self, block_fn: Any, inputs: list[Any], state: Any = None, request: Any = None, *args: Any, **kwargs: Any
    ) -> dict[str, Any]:
        was_open = self.is_open(request)
        try:
            answer = await super().process_api(block_fn, inputs, state, request, *args, **kwargs)
        except gr.Error as error:
            if block_fn.api_visibility == "private":  # not for programs, which compare texts
                error.message, error.title = self._said(error.message), self._said(error.title)
            raise
        except Exception as error:
            if was_open:
                raise
            # Gradio prints a traceback for each error, such as for a call with too few values.
            self._seen.note(error)
            raise gr.Error(self._said(UNANSWERED), title=self._said("Error"), print_exception=False) from None
        if was_open and not self.is_open(request) and block_fn.name not in self.of_lock:
            raise gr.Error(self._said(LOCKED), visible=False, print_exception=False)
        return answer

    async def postprocess_data(self, block_fn: Any, *args: Any, **kwargs: Any) -> list[Any]:
        answers = await super().postprocess_data(block_fn, *args, **kwargs)
        if self.language() == ENGLISH:
            return answers
        kinds = [block.get_block_name() for block in block_fn.outputs][: len(answers)]
        return language.answers_in(kinds, answers, catalogue_of(self.language()))

    def _said(self, text: str) -> str:
        return translated(text, catalogue_of(self.language()))

    async def preprocess_data(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return await super().preprocess_data(*args, **kwargs)
        except gr.Error as error:
            if _REFUSED not in str(error):
                raise
            raise gr.Error(NOT_OFFERED, print_exception=False) from None
