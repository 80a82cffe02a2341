"""The wiring of the pages' events, and the order in which Gradio answers them."""

from __future__ import annotations

from collections import defaultdict

import gradio as gr
import pytest

from tests.ui.handlers import Pages


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("element", "event", "names"),
    [
        ("jobs-refresh", "click", {"fill", "choose", "run_again", "to"}),
        ("add-note", "click", {"fill", "choose", "finished"}),
        ("start-verify", "click", {"begin", "forget", "show"}),
        ("suspect-files", "upload", {"take_upload", "look_at_upload", "look_at_suspect", "drop_upload"}),
    ],
)
def test_events_of_one_output_are_answered_in_order(pages: Pages, element: str, event: str, names: set[str]) -> None:
    component = pages.find(element)
    (one,) = [each for each in pages.blocks.fns.values() if (component._id, event) in each.targets]
    same = [each for each in pages.blocks.fns.values() if each.concurrency_id == one.concurrency_id]
    assert names <= {each.name for each in same}
    assert {each.concurrency_limit for each in same} == {1}


def test_event_functions_do_not_call_each_other_endlessly(pages: Pages) -> None:
    """While one of two `always_last` functions of an event runs, the end of the other calls both again."""
    last = defaultdict(list)
    for function in pages.blocks.fns.values():
        for component, event in function.targets:
            if function.trigger_mode == "always_last" and component is not None:
                last[component, event].append(function.name)
    by_a_component = {
        (getattr(pages.blocks.blocks[component], "elem_id", None), event): names
        for (component, event), names in last.items()
        if not isinstance(pages.blocks.blocks[component], gr.State)
    }
    assert len(by_a_component) > 20, "events are still wired this way"
    assert {event: names for event, names in by_a_component.items() if len(names) > 1} == {}
