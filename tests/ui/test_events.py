"""How the pages' events are wired, and in what order Gradio answers them."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import gradio as gr
import pytest

from tests.ui.handlers import Pages, pages
from ui.components.events import said_once

__all__ = ["pages"]


@said_once
def two_looks(path: str, request: gr.Request) -> Iterator[tuple[str, str]]:
    yield path, "at once"
    yield path, "later"


@said_once
def one_look(path: str) -> Iterator[str]:
    yield path


def test_what_a_handler_found_last_is_not_sent_twice() -> None:
    """Gradio sends the last thing that was yielded once more when the handler ends."""
    assert list(two_looks("a", None)) == [("a", "at once"), ("a", "later"), (gr.skip(), gr.skip())]  # type: ignore[arg-type]
    assert list(one_look("a")) == ["a", gr.skip()]
    assert list(inspect.signature(two_looks).parameters) == ["path", "request"]


def test_every_handler_that_yields_says_each_thing_once(pages: Pages) -> None:
    """One that does not would undo, when it ends, what an officer did since its last word."""
    yielding = [each for each in pages.blocks.fns.values() if inspect.isgeneratorfunction(each.fn)]
    assert len(yielding) >= 5
    for each in yielding:
        assert hasattr(each.fn, "__wrapped__"), each.name


@pytest.mark.parametrize(
    ("element", "event", "names"),
    [
        ("jobs-refresh", "click", {"fill", "choose", "run_again", "to"}),
        ("add-note", "click", {"fill", "choose", "finished"}),
        ("start-verify", "click", {"begin", "forget", "show"}),
    ],
)
def test_what_shows_one_thing_is_answered_in_turn(pages: Pages, element: str, event: str, names: set[str]) -> None:
    (component,) = [each for each in pages.blocks.blocks.values() if getattr(each, "elem_id", None) == element]
    (one,) = [each for each in pages.blocks.fns.values() if (component._id, event) in each.targets]
    same = [each for each in pages.blocks.fns.values() if each.concurrency_id == one.concurrency_id]
    assert names <= {each.name for each in same}
    assert {each.concurrency_limit for each in same} == {1}
