"""Errors beside what they are about, each in one place: below its field, or above the button that was pressed.

A message in the corner is for what has no place on the page. Here every handler of a form gets one output more for each
place; what it refuses stands there until it is tried again, and nothing else of the form changes.
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
    """An error, and the place where it is said."""

    def __init__(self, place: str, error: IrwmError) -> None:
        super().__init__(place)
        self.place, self.error = place, error


@contextmanager
def at(place: str) -> Iterator[None]:
    """What is refused inside is said at this place of the form."""
    try:
        yield
    except IrwmError as error:
        raise _At(place, error) from error


class Places:
    """The places of one form, by name; `FORM` is the one for all that is about no field in particular.

    Args:
        kept: places that say other things too, and are not emptied: they change when their field does.
        places: what shows an error there.
    """

    def __init__(self, kept: Collection[str] = (), **places: gr.HTML) -> None:
        if FORM not in places:
            raise ValueError(f"a form needs the place {FORM!r}")
        self._places, self._kept = places, frozenset(kept)

    @property
    def outputs(self) -> list[gr.HTML]:
        """What a handler that was `told` has for outputs after its own."""
        return list(self._places.values())

    def told(self, handler: Callable[..., Any], own: int) -> Callable[..., Any]:
        """The handler with an output more for each place, all of them emptied but the one of what it refuses.

        Args:
            own: how many outputs the handler has itself; they stay as they are where it refuses.
        """

        @functools.wraps(handler)  # Gradio reads the signature to see which arguments it fills in itself
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            try:
                found = handler(*args, **kwargs)
            except _At as refused:
                return *(gr.skip(),) * own, *self._said(refused.place, refused.error)
            except IrwmError as error:
                return *(gr.skip(),) * own, *self._said(FORM, error)
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
