"""Errors next to their field, each in one place: below the field, or above the button that was pressed.

Messages in the corner are for errors without a place on the page. Here every handler of a form gets one more output for
each place. An error stays there until the next try, and the rest of the form does not change. A fold that hides the
place of an error is opened.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any

import gradio as gr
from gradio.blocks import Block

from irwm.errors import IrwmError
from ui.components import notices

FORM = "form"
# A fold that was opened may move its error out of sight: it has room for more than the error.
TO_ERROR = """
() => setTimeout(() => {
  const errors = [...document.querySelectorAll('.gr-accordion .notice-fault')];
  errors.find((error) => error.checkVisibility())?.scrollIntoView({block: 'nearest'});
}, 100)
"""


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


def folds_around(component: Block) -> list[gr.Accordion]:
    """The accordions that a component is in, the innermost first."""
    inside, found = component.parent, []
    while inside is not None:
        if isinstance(inside, gr.Accordion):
            found.append(inside)
        inside = inside.parent
    return found


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
        self._around = {name: folds_around(place) for name, place in places.items()}
        self._folds = list(dict.fromkeys(fold for around in self._around.values() for fold in around))
        for fold in self._folds:
            fold.expand(None, js=TO_ERROR)

    @property
    def outputs(self) -> list[Block]:
        """The additional outputs of a handler that was wrapped by `told`: the places, and the folds around them."""
        return [*self._places.values(), *self._folds]

    def told(self, handler: Callable[..., Any], own: int, emptied: int = 0, hidden: int = 0) -> Callable[..., Any]:
        """The handler with one more output for each place; all are emptied except the one that shows an error.

        Args:
            own: number of the handler's own outputs; they do not change if it raises an error.
            emptied: the first of them are emptied then, such as the text that an earlier try succeeded.
            hidden: the next of them are hidden then, such as the column with the result of an earlier try.
        """
        old = *("",) * emptied, *(gr.update(visible=False),) * hidden
        unchanged = *old, *(gr.skip(),) * (own - len(old))

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
        at_fault = self._around[where] if error is not None else []
        folds = (gr.Accordion(open=True) if fold in at_fault else gr.skip() for fold in self._folds)
        said = (
            gr.HTML(notices.error_html(error), visible=True)
            if error is not None and name == where
            else gr.skip()
            if name in self._kept
            else gr.HTML("", visible=False)
            for name in self._places
        )
        return *said, *folds
