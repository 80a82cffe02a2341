"""How every event of the pages is wired: unseen from outside, in turn, and without Gradio's progress marks.

Our jobs show their own progress. In Gradio 6.31.0 each component that an event could mark as busy is looked up in the
whole tree of the page two or three times whenever *any* event begins or ends, marks or not; with some two hundred
events a single one cost the browser half a second of processor time, and a running job that is looked at once a second
kept a core busy. An empty list of components to mark takes all of them out (`benchmarks/page.py`).

One event of a component calls at most one function with `trigger_mode="always_last"`, which is also the default of
every `change`. Where such a function is called while it runs, the page calls *all* functions of the event once more
when it has ended, each of which may be running again by then: two of them called each other for ever (6.31.0,
`Blocks.js`). The change of a `gr.State` calls each function by itself, and so does `then`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gradio as gr

PRIVATE: dict[str, Any] = {"show_progress": "hidden", "show_progress_on": [], "api_visibility": "private"}


def in_turn(place: str) -> dict[str, Any]:
    """The same, for events that show or change the same thing: the first one asked for is answered first.

    Gradio's queue takes waiting events of different functions in any order (`queueing.py` shuffles them): what a page
    filled in when it came into view could replace what an officer had chosen on it since.

    Args:
        place: what the events are about; all of one name wait for each other, in all browsers together.
    """
    return {**PRIVATE, "concurrency_id": f"in turn: {place}", "concurrency_limit": 1}


def unchanged(outputs: Sequence[Any]) -> tuple[Any, ...]:
    """What a handler returns to leave all of its outputs as they are."""
    return (gr.skip(),) * len(outputs)
