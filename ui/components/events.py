"""Options for all events of the pages: hidden from the API, one after the other, without Gradio's progress marks.

Our jobs show their own progress. In Gradio 6.31.0, each time *any* event begins or ends, the browser searches the whole
page tree two or three times for each component that an event could mark as busy, even if it marks none. With about two
hundred events, one event cost half a second of processor time, and a running job that is refreshed once a second kept a
core busy. An empty list of components to mark avoids this (`benchmarks/page.py`).

One event of a component calls at most one function with `trigger_mode="always_last"`, which is also the default of
every `change`. If this function is called while it runs, the page calls *all* functions of the event once more when
it has ended. Each of them may be running again by then, so that two functions called each other forever (6.31.0,
`Blocks.js`). The change of a `gr.State` calls each function separately, and so does `then`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gradio as gr

PRIVATE: dict[str, Any] = {"show_progress": "hidden", "show_progress_on": [], "api_visibility": "private"}
# Of calls that arrive while one runs, only the last is answered.
LAST: dict[str, Any] = {**PRIVATE, "trigger_mode": "always_last"}


def in_turn(place: str) -> dict[str, Any]:
    """The same, for events that show or change the same thing: they are answered in the order of their calls.

    Gradio's queue takes waiting events of different functions in any order (`queueing.py` shuffles them). Without this,
    values that a page fills in when it comes into view could replace a later choice of the officer.

    Args:
        place: the subject of the events; all events with the same name wait for each other, in all browsers together.
    """
    return {**PRIVATE, "concurrency_id": f"in turn: {place}", "concurrency_limit": 1}


def unchanged(outputs: Sequence[Any]) -> tuple[Any, ...]:
    """The return value of a handler that changes none of its outputs."""
    return (gr.skip(),) * len(outputs)
