"""A refused start: its error is visible even in a closed fold, no old result stays, and no result is awaited."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

import irwm
from storage import Vault
from tests.jobs.recipients import put_in_vault
from tools.officer import fill_path, investigate_as, open_tab, place, type_into
from tools.page_events import settled
from tools.running_app import PASSPHRASE, RunningApp

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def original(demo_path: Path, running_app: RunningApp) -> Path:
    return place(demo_path, running_app.root, "original")


@pytest.fixture(scope="module")
def investigated(original: Path, running_app: RunningApp, page: Page) -> Page:
    """A page with a verdict, which is filed under a case."""
    model = irwm.open_checkpoint(original)
    key = irwm.generate_key(model, owner="Example Labs", recipient="Early access 1")
    suspect = running_app.root / ("leaked-checkpoint-with-a-long-name-" * 2 + "end")
    irwm.insert(model, key, suspect)
    vault = Vault.open(running_app.home)
    vault.unlock(PASSPHRASE)
    put_in_vault(vault, [key])
    investigate_as(page, suspect, original, title="Leak", examiner="A. Officer", seen="")
    return page


def toggle(page: Page, fold: str) -> None:
    page.click(f"#{fold} > button.label-wrap")


def leave_and_return(page: Page, name: str) -> None:
    open_tab(page, "vault")
    expect(page.locator("#vault-keys")).to_be_visible()
    open_tab(page, name)
    settled(page)


def focused(page: Page, card: str) -> bool:
    return bool(page.evaluate("card => Boolean(document.activeElement.closest(card))", card))


def test_long_name_leaves_room_for_the_words_after_it(investigated: Page) -> None:
    page = investigated
    page.set_viewport_size({"width": 390, "height": 800})
    line = page.locator("#investigate-summary .note > *")
    expect(line).to_have_count(1)
    expect(line).to_contain_text("end against original")
    page.set_viewport_size({"width": 1280, "height": 800})


def test_wrong_date_in_a_closed_fold_is_shown_and_the_old_verdict_is_not(investigated: Page) -> None:
    page = investigated
    page.click("#investigate-change")
    type_into(page, "suspect-seen", "soon")
    for _ in range(2):  # a fold that is closed again is opened again
        toggle(page, "investigate-advanced")
        expect(page.locator("#suspect-seen")).to_be_hidden()
        page.click("#start-investigate")
        expect(page.locator("#suspect-seen-notice .notice-fault")).to_be_in_viewport()
        expect(page.locator("#finding")).to_be_hidden()


def test_refused_dispute_leaves_the_focus(investigated: Page) -> None:
    page = investigated
    open_tab(page, "cases")
    page.locator("#case-runs [data-record]").first.click()
    expect(page.locator("#run-card .verdict")).to_be_visible()
    toggle(page, "dispute")
    page.click("#start-dispute")
    expect(page.locator("#path-dispute-original-note .notice-fault")).to_be_visible()
    leave_and_return(page, "cases")
    expect(page.locator("#run-card .verdict")).to_be_visible()
    assert not focused(page, "#run-card")


def test_wrong_key_file_in_a_fold_says_why_the_button_is_disabled(investigated: Page) -> None:
    page = investigated
    open_tab(page, "verify")
    toggle(page, "verify-models")
    fill_path(page, "verify-key", "/etc/passwd")
    expect(page.locator("#start-verify")).to_be_disabled()
    toggle(page, "verify-models")
    expect(page.locator("#path-verify-key-note .notice-fault")).to_be_in_viewport()
    fill_path(page, "verify-key", "")
    expect(page.locator("#start-verify")).to_be_enabled()
    toggle(page, "verify-models")
    expect(page.locator("#path-verify-key")).to_be_hidden()


def test_wrong_certificate_in_a_closed_fold_is_shown(investigated: Page, original: Path) -> None:
    page = investigated
    fill_path(page, "report", original / "config.json")
    toggle(page, "verify-authorities")
    page.locator("#verify-roots input[type=file]").set_input_files(original / "config.json")
    expect(page.locator("#verify-roots")).to_contain_text("config")
    toggle(page, "verify-authorities")
    page.click("#start-verify")
    expect(page.locator("#verify-roots-notice .notice-fault")).to_be_in_viewport()
