"""Help in a real browser: the gate's focus, a lock that every tab follows, a wizard that survives a reload."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tools.officer import choose_original, fill_path, open_tab, place, type_into
from tools.running_app import PASSPHRASE, RunningApp, opened_context, pass_the_gate
from ui.components.lock_gate import WATCH_SECONDS

pytestmark = pytest.mark.browser
# Gradio's timers are browser intervals. The one that checks whether the page is locked does not run here.
NEVER_WATCHES = f"""
const real = window.setInterval;
window.setInterval = (call, pause, ...more) => pause >= {1000 * WATCH_SECONDS:g} ? 0 : real(call, pause, ...more);
"""


@pytest.fixture(scope="module")
def tabs(running_app: RunningApp, chromium: Browser) -> Iterator[tuple[Page, Page]]:
    """Two tabs of one browser, unlocked."""
    context = opened_context(chromium)
    context.add_init_script(NEVER_WATCHES)
    one, other = context.new_page(), context.new_page()
    one.goto(running_app.url)
    expect(one.locator("#gate-about")).to_contain_text("embeds a different mark in the weights of each copy")
    expect(one.locator("#first-passphrase input")).to_be_focused()
    pass_the_gate(one)
    expect(one.locator("#gate-about")).to_be_hidden()
    other.goto(running_app.url)
    other.wait_for_selector("#pages")
    yield one, other
    context.close()


def test_wizard_survives_a_reload(tabs, running_app: RunningApp, tiny_path: Path, tmp_path: Path) -> None:
    """Also a list of recipients that came from a file. A file that is not UTF-8 changes nothing."""
    page, _ = tabs
    good, bad, listed = tmp_path / "list.csv", tmp_path / "old.csv", 'Name,Note\n"Ada, Inc.",x\nBjörk,\n'
    good.write_bytes(listed.replace("\n", "\r\n").encode("utf-8-sig"))
    bad.write_bytes("Name\r\nBjörk\r\n".encode("latin-1"))
    model = place(tiny_path, running_app.root, "tiny")
    open_tab(page, "protect")
    choose_original(page, model)
    page.click("#to-names")
    page.locator("#whom label", has_text="One copy per recipient").click()
    expect(page.locator("#recipients textarea")).to_be_visible()
    type_into(page, "owner", "Example Labs")
    page.set_input_files("#pages input[type=file][accept*=csv]", good)
    expect(page.locator("#recipients-preview")).to_contain_text("2 recipients, read as a table (comma)")
    page.set_input_files("#pages input[type=file][accept*=csv]", bad)
    expect(page.locator(".toast-body")).to_contain_text("not UTF-8")
    page.click("#to-setting")
    expect(page.locator("#preset")).to_be_visible()
    page.click("#advanced button.label-wrap")
    page.locator("#noise-coordinates input").fill("7")
    page.locator("#noise-coordinates input").press("Tab")
    page.click("#to-place")
    expect(page.locator("#preflight")).to_contain_text("Needs")
    fill_path(page, "target", running_app.root)
    type_into(page, "release-name", "spring-copies")
    expect(page.locator("#preflight")).to_contain_text("spring-copies")
    page.reload()
    open_tab(page, "protect")
    expect(page.locator("#release-name input, #release-name textarea").first).to_have_value("spring-copies")
    expect(page.locator("#preflight")).to_contain_text("spring-copies")
    expect(page.locator("#start-protect")).to_have_text("Write the copies")
    page.click("#back-to-3")
    page.click("#advanced button.label-wrap")
    expect(page.locator("#noise-coordinates input")).to_have_value("7")
    page.click("#back-to-2")
    expect(page.locator("#owner input, #owner textarea").first).to_have_value("Example Labs")
    expect(page.locator("#recipients textarea")).to_have_value(listed)
    expect(page.locator("#recipients-preview")).to_contain_text("2 recipients")
    page.click("#back-to-1")
    expect(page.locator("#protect-model .model-card h2")).to_have_text("tiny")
    expect(page.locator("#to-names")).to_be_enabled()


def test_a_second_tab_follows_a_lock_without_its_timer(tabs) -> None:
    """No timer checks the lock in these tabs (`NEVER_WATCHES`), so the second tab can only learn it from the first."""
    one, other = tabs
    one.click("#lock")
    expect(one.locator("#passphrase input")).to_be_focused()
    expect(other.locator("#pages")).to_be_hidden()
    expect(other.locator("#passphrase input")).to_be_visible()
    one.fill("#passphrase input", PASSPHRASE)
    one.keyboard.press("Enter")
    expect(one.locator("#pages")).to_be_visible()
