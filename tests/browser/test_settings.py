"""Settings, history and About in a real browser: choices survive a reload, and the browser stores nothing."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from storage.jobs import Jobs
from storage.vault import Vault
from tools.officer import open_tab
from tools.page_events import settled
from tools.running_app import PASSPHRASE, VIEWPORT, RunningApp, opened_context, pass_the_gate, start_app

pytestmark = pytest.mark.browser

PAGES = ("protect", "investigate", "cases", "explore", "lab", "vault", "verify", "jobs", "settings", "about")


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningApp]:
    """The app without device and folders in its environment, so that the page can set them."""
    folder = tmp_path_factory.mktemp("app")
    with start_app(folder, extra={"IRWM_ROOTS": "", "IRWM_DEVICE": ""}) as app:
        yield app


@pytest.fixture(scope="module")
def page(app: RunningApp, chromium: Browser) -> Iterator[Page]:
    context = opened_context(chromium, color_scheme="light")
    page = context.new_page()
    page.goto(app.url)
    pass_the_gate(page)
    yield page
    context.close()


def choose(page: Page, field: str, words: str) -> None:
    page.locator(f"#{field}").get_by_label(words, exact=True).check()


def test_choices_apply_at_once_and_after_a_reload(page: Page, app: RunningApp) -> None:
    open_tab(page, "settings")
    expect(page.locator("#set-idle input")).to_have_value("15")
    # The page has filled in its fields, which would replace text typed earlier.
    expect(page.locator("#set-theme").get_by_label("Same as the system", exact=True)).to_be_checked()
    expect(page.locator("#settings-fixed")).to_contain_text("IRWM_HOME")
    settled(page)
    expect(page.locator("body.dark")).to_have_count(0)
    choose(page, "set-theme", "Dark")
    page.fill("#set-idle input", "7")
    page.fill("#set-roots textarea", str(app.root))
    page.click("#save-settings")
    expect(page.locator("#settings-saved")).to_contain_text("Saved")
    expect(page.locator("body.dark")).to_have_count(1)

    page.reload()
    expect(page.locator("#page-settings-button[aria-selected=true]")).to_be_visible()
    expect(page.locator("#set-idle input")).to_have_value("7")
    expect(page.locator("#set-theme").get_by_label("Dark", exact=True)).to_be_checked()
    expect(page.locator("#set-roots textarea")).to_have_value(str(app.root))
    expect(page.locator("body.dark")).to_have_count(1)  # although the system is light
    kept = app.home / "preferences.json"
    assert kept.stat().st_mode & 0o777 == 0o600
    assert json.loads(kept.read_text())["idle_minutes"] == 7
    choose(page, "set-theme", "Same as the system")
    page.click("#save-settings")
    expect(page.locator("body.dark")).to_have_count(0)
    page.emulate_media(color_scheme="dark")
    expect(page.locator("body.dark")).to_have_count(1)
    page.emulate_media(color_scheme="light")
    boxes = [page.locator(f"#page-{name}-button").bounding_box() for name in PAGES]
    assert len({box["y"] for box in boxes if box}) == 1, "all tabs are in one row"
    assert all(box and box["x"] + box["width"] <= VIEWPORT["width"] for box in boxes)


def test_the_history_shows_a_finished_and_an_interrupted_job(page: Page, app: RunningApp) -> None:
    vault = Vault.open(app.home)
    vault.unlock(PASSPHRASE)
    jobs = Jobs(app.home).opened(vault.jobs_keys_to_seal())
    for title in ("Verify the first report", "Verify the second report"):
        job = jobs.create("verify", title, {"report": "/models/r.json"})
        jobs.start(job.id, os.getpid())
        jobs.log(job.id, "Reading the report")
        if "first" in title:
            jobs.finish(job.id, "done", result={"ok": True})
        else:
            jobs.finish(job.id, "interrupted", error={"problem": "it ended", "advice": "start again"})
    open_tab(page, "jobs")
    rows = page.locator("#jobs-list tbody tr")
    expect(rows).to_have_count(2)
    expect(rows.nth(1)).to_contain_text("Done")
    expect(rows.nth(0)).to_contain_text("Interrupted")
    rows.nth(0).get_by_role("button").click()
    expect(page.locator("#job-chosen")).to_contain_text("Start again")
    expect(page.locator("#job-chosen .log")).to_contain_text("Reading the report")
    expect(page.locator("#run-again")).to_be_visible()
    # Works by keyboard as by mouse; a redraw keeps the place in the list.
    expect(rows.nth(0).get_by_role("button")).to_be_focused()
    page.keyboard.press("Tab")
    expect(rows.nth(1).get_by_role("button")).to_be_focused()
    rows.nth(1).get_by_role("button").press("Enter")
    expect(page.locator("#job-chosen .job-head")).to_contain_text("Verify the first report")
    expect(page.locator("#run-again")).to_be_hidden()


def test_versions_are_copied_and_a_licence_unfolds(page: Page) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    open_tab(page, "about")
    page.get_by_role("button", name="Copy the list").click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    assert "gradio 6.31.0" in page.evaluate("navigator.clipboard.readText()")
    expect(page.get_by_role("button", name="Copy the list")).to_be_visible()
    page.locator(".licence summary", has_text="IBM Plex Sans").first.press("Enter")
    expect(page.locator(".licence[open] pre")).to_contain_text("SIL OPEN FONT LICENSE")


def test_every_new_control_is_reached_by_tab_with_a_visible_focus(page: Page) -> None:
    open_tab(page, "settings")
    page.locator("#page-settings-button").focus()
    seen = set()
    for _ in range(14):
        page.keyboard.press("Tab")
        outline = page.evaluate("getComputedStyle(document.activeElement).outline")
        if "solid 2px" in outline:
            seen.add(page.evaluate("document.activeElement.closest('[id^=set-], #save-settings')?.id"))
    assert seen >= {"set-theme", "set-idle", "set-device", "set-roots", "save-settings"}
