"""How every event of the pages is wired: unseen from outside, in turn, and without Gradio's progress marks.

Our jobs show their own progress. In Gradio 6.31.0 each component that an event could mark as busy is looked up in the
whole tree of the page two or three times whenever *any* event begins or ends, marks or not; with some two hundred
events a single one cost the browser half a second of processor time, and a running job that is looked at once a second
kept a core busy. An empty list of components to mark takes all of them out (`benchmarks/page.py`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import gradio as gr

PRIVATE: dict[str, Any] = {"show_progress": "hidden", "show_progress_on": [], "api_visibility": "private"}


def in_turn(place: str) -> dict[str, Any]:
    """The same, for events that show or change the same thing: the first one asked for is answered first.

    Gradio's queue takes waiting events of different functions in any order (`queueing.py` shuffles them): what a page
    filled in when it came into view could replace what an officer had chosen on it since.

    Args:
        place: what the events are about; all of one name wait for each other, in all browsers together. So nothing of
            them may take long: what reads a model, or a folder that may be on a network, is not wired so.
    """
    return {**PRIVATE, "concurrency_id": f"in turn: {place}", "concurrency_limit": 1}


def said_once(handler: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
    """A handler that yields what it finds bit by bit, each bit of which reaches the page once.

    Gradio 6.31.0 sends the last one again when the handler has ended (`Blocks.handle_streaming_diffs`), and so would
    undo what was chosen or pasted in the moment between.
    """

    @functools.wraps(handler)  # Gradio reads the signature to see which arguments it fills in itself
    def wrapper(*args: Any, **kwargs: Any) -> Iterator[Any]:
        found: Any = None
        for found in handler(*args, **kwargs):
            yield found
        yield (gr.skip(),) * len(found) if isinstance(found, tuple) else gr.skip()

    return wrapper
