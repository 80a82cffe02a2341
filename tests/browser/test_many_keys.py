"""A vault with more keys and releases than a page shows, in a real browser: searched, paged, chosen, locked."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
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


def commitment(n: int) -> str:
    return f"{n:064x}"[::-1]


@pytest.fixture(scope="module")
def key(tiny_path: Path) -> irwm.Key:
    """The one key with valid key bytes, for tests that read the bytes."""
    return irwm.generate_key(irwm.open_checkpoint(tiny_path), owner=NEW.owner, recipient="Recipient 042")


@pytest.fixture(scope="module")
def filled(running_app: RunningApp, page: Page, key: irwm.Key) -> Vault:
    """The app's own vault, to which a second process has added keys and releases that the page does not show yet."""
    open_tab(page, "vault")
    expect(page.locator("#vault-keys-empty")).to_contain_text("No keys yet")
    expect(page.locator("#vault-releases-empty")).to_contain_text("No releases yet")
    expect(page.locator("#vault-keys")).to_have_count(0)
    vault = Vault.open(running_app.home)
    vault.unlock(PASSPHRASE)
    new = {n: replace(NEW, recipient=f"Recipient {n:03}", commitment=commitment(n)) for n in range(1, KEYS + 1)}
    new[42] = replace(new[42], sealed=key.to_bytes(), commitment=key.commitment)
    keys = vault.add_keys(new.values())
    receipt = {"count": 50, "present": 50, "log10_p": -41.5}
    for key in keys[:60]:
        vault.add_release(key.id, f"/srv/copies/{key.recipient}", {"model.safetensors": "ab" * 32}, receipt)
    page.click("#vault-refresh")
    return vault


def where(page: Page, table: str = "vault-keys") -> str:
    return page.locator(f"#{table}-where .note").inner_text().replace("\u00a0", " ")


def search(page: Page, text: str, table: str = "vault-keys") -> None:
    page.fill(f"#{table}-search input, #{table}-search textarea", text)


def test_a_page_of_keys_is_shown_with_their_number(filled: Vault, page: Page) -> None:
    expect(page.locator("#vault-keys-where .note")).to_contain_text("120")
    assert where(page) == "Page 1 of 3: 1 to 50 of 120 keys, newest first"
    expect(page.locator("#vault-keys")).to_contain_text("Recipient 120")
    expect(page.locator("#vault-keys")).not_to_contain_text("Recipient 070")
    expect(page.locator("#vault-keys-back")).to_be_disabled()
    assert page.content().count("Recipient 0") < 50 * 4, "the document holds at most one page of them"
    assert page.evaluate("document.documentElement.scrollWidth") <= 1280


def test_pages_are_turned_by_keyboard(filled: Vault, page: Page) -> None:
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


def test_a_search_shows_what_it_finds_from_its_first_page(filled: Vault, page: Page) -> None:
    search(page, "RECIPIENT 11")
    expect(page.locator("#vault-keys-where .note")).to_contain_text("keys found")
    assert where(page) == "11 keys found", "011, and 110 to 119"
    expect(page.locator("#vault-keys")).to_contain_text("Recipient 119")
    expect(page.locator("#vault-keys-forth")).to_have_count(0)
    search(page, commitment(77)[:16])
    expect(page.locator("#vault-keys-where .note")).to_have_text("1 key found")
    expect(page.locator("#vault-keys")).to_contain_text("Recipient 077")
    search(page, "nobody <b>")
    expect(page.locator("#vault-keys-empty")).to_contain_text("None of the keys contains “nobody <b>”")
    expect(page.locator("#vault-keys")).to_have_count(0)
    search(page, "")
    expect(page.locator("#vault-keys-where .note")).to_contain_text("Page 1 of 3")


def test_key_of_a_commitment_is_found_by_search(filled: Vault, key: irwm.Key, page: Page) -> None:
    search(page, "Recipient 042")
    expect(page.locator("#vault-keys-where .note")).to_have_text("1 key found")
    page.click("#commitments > button.label-wrap")
    page.click("#commit-key input")
    options = page.locator("[role=option]")
    expect(options).to_have_count(1)
    options.first.click()
    expect(page.locator("#commitment")).to_be_enabled()
    assert json.loads(download(page, "commitment"))["commitment"] == key.commitment
    assert filled.audit_log()[-1].event == "commitment exported"
    search(page, "")
    expect(page.locator("#vault-keys-where .note")).to_contain_text("Page 1 of 3")


def test_releases_are_paged_and_searched_by_their_recipient(filled: Vault, page: Page) -> None:
    assert where(page, "vault-releases") == "Page 1 of 2: 1 to 50 of 60 releases, newest first"
    expect(page.locator("#vault-releases")).to_contain_text("/srv/copies/Recipient 060")
    search(page, "recipient 007", "vault-releases")
    expect(page.locator("#vault-releases-where .note")).to_have_text("1 release found")
    expect(page.locator("#vault-releases")).to_contain_text("50 of 50")
    search(page, "", "vault-releases")


def test_a_damaged_key_is_named_above_the_others(filled: Vault, page: Page) -> None:
    gone = filled.find_keys("Recipient 100").records[0]
    with closing(sqlite3.connect(filled.path)) as conn, conn:
        (meta,) = conn.execute("SELECT meta FROM keys WHERE id = ?", [gone.id]).fetchone()
        conn.execute("UPDATE keys SET meta = ? WHERE id = ?", [meta[:-1] + bytes([meta[-1] ^ 1]), gone.id])
    page.click("#vault-refresh")
    expect(page.locator(".notice-fault", has_text=f"keys {gone.id}")).to_be_visible()
    assert where(page) == "Page 1 of 3: 1 to 50 of 119 keys, newest first"
    if not page.locator("#check-vault").is_visible():
        page.click("#audit > button.label-wrap")
    page.click("#check-vault")
    expect(page.locator("#audit .notice-fault")).to_contain_text(f"changed: keys {gone.id}")
    with closing(sqlite3.connect(filled.path)) as conn, conn:
        conn.execute("UPDATE keys SET meta = ? WHERE id = ?", [meta, gone.id])
    page.click("#vault-refresh")
    expect(page.locator("#vault-keys-where .note")).to_contain_text("120 keys")
    page.click("#check-vault")
    expect(page.locator("#audit")).to_contain_text("No entry or record was changed")
    expect(page.locator(".notice-fault", has_text=gone.id)).to_have_count(0)


def test_locked_page_holds_no_names_and_is_restored(filled: Vault, page: Page) -> None:
    search(page, "Recipient 042")
    expect(page.locator("#vault-keys-where .note")).to_have_text("1 key found")
    page.click("#lock")
    page.wait_for_selector("#passphrase input")
    assert "Recipient 04" not in page.content()
    pass_the_gate(page)
    expect(page.locator("#vault-keys-where .note")).to_have_text("1 key found")
    expect(page.locator("#vault-keys")).to_contain_text("Recipient 042")
