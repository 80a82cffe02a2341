"""A handler's answer is withheld if its browser was locked in the meantime."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import gradio as gr
import pytest

from ui.components.plain_blocks import PlainBlocks


class Page:
    """A page of one browser, whose handlers lock it. Must be made in an event loop, which Gradio needs."""

    def __init__(self) -> None:
        self.unlocked = True
        with PlainBlocks() as self.blocks:
            shown, button = gr.Textbox(), gr.Button()
            for handler in (self.plain, self.secret, self.do_lock, self.steps):
                button.click(handler, None, shown)
        self.blocks.is_open, self.blocks.of_lock = lambda request: self.unlocked, frozenset({"do_lock"})

    def plain(self) -> str:
        return "what the vault holds"

    def secret(self) -> str:
        self.unlocked = False
        return "what the vault holds"

    def do_lock(self) -> str:
        self.unlocked = False
        return "locked"

    def steps(self) -> Any:
        yield "first"
        self.unlocked = False
        yield "second"

    async def answer(self, handler: Callable[..., Any], iterator: Any = None) -> dict[str, Any]:
        (function,) = [each for each in self.blocks.fns.values() if each.name == handler.__name__]
        found: dict[str, Any] = await self.blocks.process_api(function, [], None, None, iterator)
        return found


@pytest.mark.fault(98)
def test_answer_after_lock_is_withheld_and_its_next_step_too() -> None:
    async def go() -> None:
        page = Page()
        with pytest.raises(gr.Error):
            await page.answer(page.secret)
        # A browser that was not unlocked when it asked is answered.
        assert (await page.answer(page.plain))["data"] == ["what the vault holds"]
        page.unlocked = True
        assert (await page.answer(page.do_lock))["data"] == ["locked"]
        page.unlocked = True
        first = await page.answer(page.steps)
        assert first["data"] == ["first"]
        with pytest.raises(gr.Error):
            await page.answer(page.steps, first["iterator"])

    asyncio.run(go())
