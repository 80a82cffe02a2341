"""A new passphrase, set in the browser, locks another browser that had the vault open."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser, Page, expect

from tools.officer import open_tab, type_into
from tools.running_app import PASSPHRASE, RunningApp, opened_context

pytestmark = pytest.mark.browser

NEW = "another four plain words"


def test_new_passphrase_replaces_the_old_and_locks_other_browsers(
    page: Page, running_app: RunningApp, chromium: Browser
) -> None:
    other = opened_context(chromium).new_page()
    other.goto(running_app.url)
    type_into(other, "passphrase", PASSPHRASE)
    other.click("#unlock-vault")
    open_tab(other, "vault")
    expect(other.locator("#vault-refresh")).to_be_visible()
    open_tab(page, "vault")
    page.get_by_text("Backup and passphrase").click()
    for label, text in (
        ("Current passphrase", PASSPHRASE),
        ("New passphrase", NEW),
        ("Repeat the new passphrase", NEW),
    ):
        page.get_by_label(label, exact=True).fill(text)
    page.click("#change-passphrase")
    expect(page.get_by_text("Earlier backups still open with the old passphrase")).to_be_visible()
    expect(page.get_by_label("Current passphrase", exact=True)).to_have_value("")
    other.click("#vault-refresh")
    expect(other.locator("#pages")).to_be_hidden()
    type_into(other, "passphrase", PASSPHRASE)
    other.click("#unlock-vault")
    expect(other.locator(".notice-fault")).to_contain_text("does not open the vault")
    type_into(other, "passphrase", NEW)
    other.click("#unlock-vault")
    expect(other.locator("#pages")).to_be_visible()
    other.context.close()
