"""How the pages' events are wired, and in what order Gradio answers them."""

from __future__ import annotations

import pytest

from tests.ui.handlers import Pages, pages

__all__ = ["pages"]


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
def test_what_shows_one_thing_is_answered_in_turn(pages: Pages, element: str, event: str, names: set[str]) -> None:
    (component,) = [each for each in pages.blocks.blocks.values() if getattr(each, "elem_id", None) == element]
    (one,) = [each for each in pages.blocks.fns.values() if (component._id, event) in each.targets]
    same = [each for each in pages.blocks.fns.values() if each.concurrency_id == one.concurrency_id]
    assert names <= {each.name for each in same}
    assert {each.concurrency_limit for each in same} == {1}
