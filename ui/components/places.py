"""Errors next to their field, each in one place: below the field, or above the button that was pressed.

Messages in the corner are for errors without a place on the page. Here every handler of a form gets one more output for
each place. An error stays there until the next try, and the rest of the form does not change.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any

import gradio as gr

from irwm.errors import IrwmError
from ui.components import notices

FORM = "form"


class _At(Exception):
    """An error, and the place where it is shown."""

    def __init__(self, place: str, error: IrwmError) -> None:
        super().__init__(place)
        self.place, self.error = place, error


@contextmanager
def at(place: str) -> Iterator[None]:
    """Errors raised inside are shown at this place of the form."""
    try:
        yield
    except IrwmError as error:
        raise _At(place, error) from error


class Places:
    """The places of one form, by name; `FORM` is the place for errors that are not about one field.

    Args:
        kept: places that also show other text and are not emptied: they change when their field does.
        places: the component that shows an error at each place.
    """

    def __init__(self, kept: Collection[str] = (), **places: gr.HTML) -> None:
        if FORM not in places:
            raise ValueError(f"a form needs the place {FORM!r}")
        self._places, self._kept = places, frozenset(kept)

    @property
    def outputs(self) -> list[gr.HTML]:
        """The additional outputs of a handler that was wrapped by `told`."""
        return list(self._places.values())

    def told(self, handler: Callable[..., Any], own: int, emptied: int = 0) -> Callable[..., Any]:
        """The handler with one more output for each place; all are emptied except the one that shows an error.

        Args:
            own: number of the handler's own outputs; they do not change if it raises an error.
            emptied: the first of them are emptied then, such as the text that an earlier try succeeded.
        """
        unchanged = *("",) * emptied, *(gr.skip(),) * (own - emptied)

        @functools.wraps(handler)  # Gradio reads the signature to see which arguments it must fill in
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            try:
                found = handler(*args, **kwargs)
            except _At as refused:
                return *unchanged, *self._said(refused.place, refused.error)
            except IrwmError as error:
                return *unchanged, *self._said(FORM, error)
            return *(found if own > 1 else (found,)), *self._said("", None)

        return wrapper

    def _said(self, where: str, error: IrwmError | None) -> tuple[Any, ...]:
        return tuple(
            gr.HTML(notices.error_html(error), visible=True)
            if error is not None and name == where
            else gr.skip()
            if name in self._kept
            else gr.HTML("", visible=False)
            for name in self._places
        )
