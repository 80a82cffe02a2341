"""A verdict in a real browser: it moves into view and focus, says whose mark it is, and how many keys were read."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

import irwm
from storage import Vault
from tests.jobs.recipients import put_in_vault
from tools.officer import fill_path, open_tab, place
from tools.running_app import PASSPHRASE, RunningApp

pytestmark = pytest.mark.browser
NAMES = ("Early access 1", "Early access 2")


@pytest.fixture(scope="module")
def vault(running_app: RunningApp, page: Page) -> Vault:
    """The app's own vault, to which a second process adds keys while the page is open."""
    vault = Vault.open(running_app.home)
    vault.unlock(PASSPHRASE)
    return vault


@pytest.fixture(scope="module")
def original(demo_path: Path, running_app: RunningApp) -> Path:
    return place(demo_path, running_app.root, "original")


@pytest.fixture(scope="module")
def keys(original: Path) -> list[irwm.Key]:
    model = irwm.open_checkpoint(original)
    return [irwm.generate_key(model, owner="Example Labs", recipient=name) for name in NAMES]


@pytest.fixture(scope="module")
def suspect(original: Path, keys: list[irwm.Key], running_app: RunningApp) -> Path:
    """The copy of the first recipient."""
    target = running_app.root / "leaked"
    irwm.insert(irwm.open_checkpoint(original), keys[0], target)
    return target


def chips(page: Page):
    return page.locator("#keys .token")


def in_view(page: Page) -> bool:
    return bool(
        page.evaluate(
            """() => {
                const card = document.querySelector('#verdict .verdict'), top = card?.getBoundingClientRect().top;
                return document.activeElement === card && top >= 0 && top < 100;
            }"""
        )
    )


def test_new_keys_are_listed_when_the_page_is_shown(vault, original, suspect, keys, page: Page) -> None:
    open_tab(page, "investigate")
    fill_path(page, "suspect", suspect)
    fill_path(page, "original-of", original)
    expect(page.locator("#key-summary")).to_contain_text("No key fits this original")
    expect(page.locator("#start-investigate")).to_be_disabled()
    put_in_vault(vault, keys[:1])
    open_tab(page, "vault")
    open_tab(page, "investigate")
    expect(chips(page)).to_have_count(1)
    expect(page.locator("#start-investigate")).to_be_enabled()


def test_finding_is_shown_before_the_job_is_done_and_counts_new_keys(vault, keys, page: Page) -> None:
    """The observer records, at each change of the page, the first reading and the job's state."""
    put_in_vault(vault, keys[1:2])  # the page does not know of it
    page.evaluate(
        """() => {
            window.early = [];
            new MutationObserver(() => {
                const card = document.querySelector('#first-verdict .verdict');
                const state = document.querySelector('#job-investigate .job-state')?.className;
                if (card) window.early.push([card.innerText, state, document.activeElement === card]);
            }).observe(document.body, {subtree: true, childList: true});
        }"""
    )
    page.click("#start-investigate")
    expect(page.locator("#page-investigate .model-fold[open]")).to_have_count(0)
    expect(page.locator("#verdict .verdict-about")).to_contain_text("keys tried: 2 of 2")
    expect(page.locator("#first-verdict .verdict")).to_have_count(0)
    page.wait_for_function("document.activeElement?.matches('#verdict .verdict')")
    assert in_view(page)
    expect(page.locator("#verdict .verdict-sentence")).to_contain_text("“Early access 1”")
    expect(page.locator("#figure-positions")).to_contain_text("Early access 1")
    early = page.evaluate("window.early")
    assert early, "the word appeared before the report"
    text, state, _ = early[0]
    assert text.startswith("Found")
    assert "still running" in text
    assert "state-running" in state


@pytest.mark.parametrize("width", [390, 1280])
def test_inputs_fold_to_one_line_above_the_verdict(page: Page, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 800})
    line = page.locator("#investigate-folded")
    expect(line).to_contain_text("leaked against original")
    expect(page.locator("#start-investigate")).to_be_hidden()
    assert line.bounding_box()["height"] < 60
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    if width == 1280:
        page.click("#investigate-change")
        expect(page.locator("#path-suspect :is(input, textarea)")).to_be_focused()
        expect(page.locator("#path-suspect :is(input, textarea)")).to_have_value(re.compile("leaked$"))
        expect(page.locator("#start-investigate")).to_be_enabled()


def test_restored_verdict_after_a_reload_takes_no_focus(page: Page) -> None:
    page.reload()
    expect(page.locator("#verdict .verdict-about")).to_contain_text("keys tried: 2 of 2")
    assert not in_view(page)
