"""The pages in Simplified Chinese in a real browser: chosen in Settings, complete, and English again."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tools.officer import open_tab
from tools.page_events import settled
from tools.running_app import RunningApp, opened_context, pass_the_gate, start_app

pytestmark = pytest.mark.browser

PAGES = ("protect", "investigate", "cases", "explore", "lab", "vault", "verify", "jobs", "settings", "about")
# Words of a sentence; names, file names, units and symbols have capitals, dots, digits or fewer letters.
WORDS = re.compile(r"(?<![\w./:@-])[a-z]{3,}(?![\w./:@-])(?: [a-z]{2,}){2,}")


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningApp]:
    with start_app(tmp_path_factory.mktemp("app")) as app:
        yield app


@pytest.fixture(scope="module")
def page(app: RunningApp, chromium: Browser) -> Iterator[Page]:
    """A page whose user has chosen Chinese."""
    context = opened_context(chromium, color_scheme="light")
    page = context.new_page()
    page.goto(app.url)
    pass_the_gate(page)
    choose(page, "简体中文")
    yield page
    context.close()


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
