"""The cost of the mark to the model, measured on request and shown on the receipt."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tools.officer import place, set_up_release
from tools.running_app import RunningApp

pytestmark = pytest.mark.browser


def test_receipt_states_the_cost_of_the_mark(page: Page, running_app: RunningApp, demo_path: Path) -> None:
    model = place(demo_path, running_app.root, "costed")
    set_up_release(page, model, running_app.root, "costed-release", "Example Labs", "")
    page.locator("#measure-cost").get_by_label("Yes", exact=True).check()
    page.click("#start-protect")
    card = page.locator("#receipt")
    expect(card).to_contain_text("Cost to the model")
    expect(card).to_contain_text(re.compile(r"perplexity \d+\.\d\d before, \d+\.\d\d after"))
    expect(card).to_contain_text("the bundled text")
