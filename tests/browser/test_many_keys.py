"""A vault with more keys and releases than a page shows, in a real browser: searched, paged, chosen, locked."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

import irwm
from storage import NewKey, Vault
from tools.officer import download, open_tab
from tools.running_app import PASSPHRASE, RunningApp, pass_the_gate

pytestmark = pytest.mark.browser
KEYS = 120
NEW = NewKey(b"key", "Example Labs", "", "demo", "ab" * 32, "llama", "cd" * 32, {"positions": 50})


@pytest.fixture(scope="module")
def filled(running_app: RunningApp, page: Page, tiny_path: Path) -> irwm.Key:
    """A key in the app's vault with valid key bytes, among others that a second process has added with releases."""
    open_tab(page, "vault")
    expect(page.locator("#vault-keys-empty")).to_contain_text("No keys yet")
    expect(page.locator("#vault-releases-empty")).to_contain_text("No releases yet")
    expect(page.locator("#vault-keys")).to_have_count(0)
    vault = Vault.open(running_app.home)
    vault.unlock(PASSPHRASE)
    key = irwm.generate_key(irwm.open_checkpoint(tiny_path), owner=NEW.owner, recipient="Recipient 042")
    new = {n: replace(NEW, recipient=f"Recipient {n:03}", commitment=f"{n:064x}"[::-1]) for n in range(1, KEYS + 1)}
    new[42] = replace(new[42], sealed=key.to_bytes(), commitment=key.commitment)
    receipt = {"count": 50, "present": 50, "log10_p": -41.5}
    for record in vault.add_keys(new.values())[:60]:
        vault.add_release(record.id, f"/srv/copies/{record.recipient}", {"model.safetensors": "ab" * 32}, receipt)
    page.click("#vault-refresh")
    return key


def search(page: Page, text: str, found: str, table: str = "vault-keys") -> None:
    page.fill(f"#{table}-search input, #{table}-search textarea", text)
    expect(page.locator(f"#{table}-where .note")).to_contain_text(found)


def test_one_page_of_keys_and_releases_is_shown(filled: irwm.Key, page: Page) -> None:
    expect(page.locator("#vault-keys-where .note")).to_contain_text("Page 1 of 3: 1 to 50 of 120 keys")
    expect(page.locator("#vault-releases-where .note")).to_contain_text("Page 1 of 2: 1 to 50 of 60 releases")
    expect(page.locator("#vault-keys")).to_contain_text("Recipient 120")
    expect(page.locator("#vault-keys")).not_to_contain_text("Recipient 070")
    expect(page.locator("#vault-keys-back")).to_be_disabled()
    assert page.content().count("Recipient 0") < 50 * 4, "the document holds at most one page of them"
    assert page.evaluate("document.documentElement.scrollWidth") <= 1280


def test_pages_are_turned_by_keyboard(filled: irwm.Key, page: Page) -> None:
    page.focus("#vault-keys-search input, #vault-keys-search textarea")
    page.keyboard.press("Tab")  # Previous is disabled on the first page
    assert page.evaluate("document.activeElement.id") == "vault-keys-forth"
    page.keyboard.press("Enter")
    expect(page.locator("#vault-keys-where .note")).to_contain_text("Page 2 of 3")
    expect(page.locator("#vault-keys")).to_contain_text("Recipient 070")
    assert page.evaluate("document.activeElement.id") == "vault-keys-forth", "the focus stays for the next page"
    page.keyboard.press("Enter")
    expect(page.locator("#vault-keys-where .note")).to_contain_text("Page 3 of 3: 101 to 120")
    expect(page.locator("#vault-keys")).to_contain_text("Recipient 001")
    expect(page.locator("#vault-keys-forth")).to_be_disabled()
    page.click("#vault-keys-back")
    expect(page.locator("#vault-keys-where .note")).to_contain_text("Page 2 of 3")


def test_search_starts_at_the_first_page_and_fills_the_choice_of_a_commitment(filled: irwm.Key, page: Page) -> None:
    search(page, "RECIPIENT 11", "11 keys found")  # 011, and 110 to 119
    expect(page.locator("#vault-keys-forth")).to_have_count(0)
    page.fill("#vault-keys-search input, #vault-keys-search textarea", "nobody <b>")
    expect(page.locator("#vault-keys-empty")).to_contain_text("None of the keys contains “nobody <b>”")
    search(page, "recipient 007", "1 release found", "vault-releases")
    expect(page.locator("#vault-releases")).to_contain_text("50 of 50")
    search(page, "Recipient 042", "1 key found")
    page.click("#commitments > button.label-wrap")
    page.click("#commit-key input")
    options = page.locator("[role=option]")
    expect(options).to_have_count(1)
    options.first.click()
    expect(page.locator("#commitment")).to_be_enabled()
    assert json.loads(download(page, "commitment"))["commitment"] == filled.commitment


def test_locked_page_holds_no_names_and_is_restored(filled: irwm.Key, page: Page) -> None:
    page.click("#lock")
    page.wait_for_selector("#passphrase input")
    assert "Recipient 04" not in page.content()
    pass_the_gate(page)
    expect(page.locator("#vault-keys-where .note")).to_have_text("1 key found")
    expect(page.locator("#vault-keys")).to_contain_text("Recipient 042")


@pytest.mark.parametrize("width", [1280, 390])
def test_a_chosen_release_ends_before_the_arrow(filled: irwm.Key, page: Page, width: int) -> None:
    """On a narrow screen the fields of its note have a row each."""
    page.set_viewport_size({"width": width, "height": 800})
    fold = page.locator("#note-on-release button.label-wrap")
    if "open" not in str(fold.get_attribute("class")).split():
        fold.click()
    field, note = page.locator("#note-release input"), page.locator("#note-release-text")
    expect(field).to_be_visible()
    text_ends, arrow = page.evaluate(
        """() => {
            const field = document.querySelector('#note-release input'), style = getComputedStyle(field);
            const arrow = document.querySelector('#note-release .dropdown-arrow');
            const ends = field.getBoundingClientRect().right - parseFloat(style.paddingRight);
            return [ends, arrow.getBoundingClientRect().left];
        }"""
    )
    assert text_ends <= arrow
    above, below = page.locator("#note-release").bounding_box(), note.bounding_box()
    assert above is not None
    assert below is not None
    assert (below["y"] >= above["y"] + above["height"]) == (width == 390)
