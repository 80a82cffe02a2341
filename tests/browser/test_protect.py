"""Protect as a user sees it: settings that need no expert, the receipt with its next steps, and the wizard again."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tools.officer import place, protect, set_up_release
from tools.running_app import RunningApp

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def model(demo_path: Path, running_app: RunningApp) -> Path:
    return place(demo_path, running_app.root, "own")


def test_odds_of_a_setting_are_shown_only_with_the_advanced_settings(page: Page, model: Path) -> None:
    set_up_release(page, model, model.parent, "marked", "Example Labs", "Early access 7")
    page.click("#back-to-3")
    expect(page.locator("#preset input:checked")).to_have_count(1)
    expect(page.locator("#to-place")).to_be_in_viewport()
    for element in ("#odds-said", "#odds-figure", "#noise-coordinates"):
        expect(page.locator(element)).to_be_hidden()
    page.click("#advanced button.label-wrap")
    expect(page.locator("#odds-figure .plotly")).to_be_visible()
    expect(page.locator("#odds-said")).to_contain_text("30 of 50 positions")
    noise = page.locator("#noise-coordinates input")
    noise.fill("-1")
    noise.press("Tab")
    error = page.locator("#setting-said .notice-fault")
    expect(error).to_be_visible()
    page.click("#advanced button.label-wrap")
    expect(page.locator("#odds-said")).to_be_hidden()
    expect(error).to_be_visible()
    page.click("#advanced button.label-wrap")
    noise.fill("8")
    noise.press("Tab")
    expect(error).to_have_count(0)


def test_log_is_folded_below_the_receipt(page: Page, model: Path) -> None:
    page.reload()
    protect(page, model, model.parent / "marked", recipient="Early access 7")
    expect(page.locator("#next-steps")).to_be_visible()
    expect(page.locator("#job-protect .job-log")).to_have_count(0)
    fold = page.locator("#page-protect .job-log")
    expect(fold.locator(".log")).to_be_hidden()
    assert fold.bounding_box()["y"] > page.locator("#next-steps").bounding_box()["y"]
    fold.locator("button.label-wrap").click()
    expect(fold.locator(".log")).to_contain_text("Verifying the written mark")


def test_next_step_protects_another_model_and_moves_the_focus(page: Page) -> None:
    page.locator("#next-steps").get_by_role("button", name="Protect another model").press("Enter")
    expect(page.locator("#path-original :is(input, textarea)")).to_be_focused()
    expect(page.locator("#receipt")).to_be_hidden()
    expect(page.locator("#page-protect .job-log")).to_be_hidden()
