"""How every event of the pages is wired: unseen from outside, and without Gradio's progress marks.

Our jobs show their own progress. In Gradio 6.31.0 each component that an event could mark as busy is looked up in the
whole tree of the page two or three times whenever *any* event begins or ends, marks or not; with some two hundred
events a single one cost the browser half a second of processor time, and a running job that is looked at once a second
kept a core busy. An empty list of components to mark takes all of them out (`benchmarks/page.py`).
"""

from __future__ import annotations

from typing import Any

PRIVATE: dict[str, Any] = {"show_progress": "hidden", "show_progress_on": [], "api_visibility": "private"}
