"""The pages in Simplified Chinese in a real browser: chosen in Settings, complete, and English again."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tools.officer import open_tab
from tools.page_events import settled

pytestmark = pytest.mark.browser

PAGES = ("protect", "investigate", "cases", "explore", "lab", "vault", "verify", "jobs", "settings", "about")
# Words of a sentence; names, file names, units and symbols have capitals, dots, digits or fewer letters.
WORDS = re.compile(r"(?<![\w./:@-])[a-z]{3,}(?![\w./:@-])(?: [a-z]{2,}){2,}")


@pytest.fixture(scope="module", autouse=True)
def chinese(page: Page) -> None:
    """The user has chosen Chinese."""
    choose(page, "简体中文")


def choose(page: Page, language: str) -> None:
    open_tab(page, "settings")
    settled(page)
    with page.expect_navigation():
        page.locator("#set-language").get_by_label(language, exact=True).check()
        page.click("#save-settings")
    settled(page)


def test_the_document_is_in_chinese(page: Page) -> None:
    expect(page.locator("html")).to_have_attribute("lang", "zh-CN")
    expect(page.locator("#pages button[role=tab]").first).to_have_text("保护")
    expect(page.locator("#save-settings")).to_have_text("保存")


def test_the_app_has_the_characters(page: Page) -> None:
    loaded = "[...document.fonts].filter(face => face.status === 'loaded').map(face => face.unicodeRange)"
    assert any("U+4E00-9FFF" in characters for characters in page.evaluate(loaded))


@pytest.mark.parametrize("name", PAGES)
def test_a_page_has_no_english_sentence(page: Page, name: str) -> None:
    open_tab(page, name)
    settled(page)
    text = page.locator(f"#page-{name}").inner_text()
    assert re.search("[\u4e00-\u9fff]", text)
    assert WORDS.findall(text) == []


def test_an_error_is_in_chinese(page: Page) -> None:
    open_tab(page, "settings")
    settled(page)
    page.fill("#set-idle input", "500")
    page.click("#save-settings")
    notice = page.locator("#set-idle-notice")
    expect(notice).to_be_visible()
    assert WORDS.findall(notice.inner_text()) == []
    page.fill("#set-idle input", "15")


def test_english_comes_back(page: Page) -> None:
    choose(page, "English")
    expect(page.locator("html")).to_have_attribute("lang", "en")
    expect(page.locator("#save-settings")).to_have_text("Save")
