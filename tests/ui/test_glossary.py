"""The words that an officer needs: plain language first, then the paper's symbol; and the gate's one line."""

from __future__ import annotations

import sys

import pytest

from tests.ui.handlers import Pages
from ui import server
from ui.components.glossary import TERMS, glossary_html
from ui.components.lock_gate import ABOUT
from ui.settings import Settings


def test_glossary_explains_words_used_on_pages() -> None:
    assert {"Rank", "Null", "Origin (lineage)"} <= {term.word for term in TERMS}
    assert {"A", "ρ", "β"} <= {term.symbol for term in TERMS}
    page = glossary_html()
    for term in TERMS:
        assert page.index(term.word) < page.index(term.meaning)
        assert term.meaning.endswith(".")
        if term.symbol:
            assert f"{term.word} <span>({term.symbol})</span>" in page


def test_glossary_is_next_to_figures(pages: Pages) -> None:
    parts = (pages.find(name) for name in ("glossary", "explore-glossary"))
    texts = [child.value for part in parts for child in part.children]
    assert texts == [glossary_html()] * 2
    assert pages.find("about-glossary").value == glossary_html()


def test_gate_describes_the_app_and_focuses_the_passphrase(pages: Pages) -> None:
    assert ABOUT in pages.find("gate-about").value
    assert pages.find("passphrase").autofocus
    assert pages.find("first-passphrase").autofocus


def test_tab_follows_a_lock_message_at_once(pages: Pages) -> None:
    pages.lock()
    out = pages.call("follow-lock", "click", 1)
    assert (out["gate-about"].visible, out["gate-again"].visible, out["desk"].visible) == (True, True, False)


@pytest.mark.parametrize(("value", "opens"), [("1", True), ("yes", True), ("0", False), ("", False)])
def test_browser_opens_if_the_environment_says_so(tmp_path, value: str, opens: bool) -> None:
    assert Settings.from_environment({"IRWM_HOME": str(tmp_path / "home"), "IRWM_BROWSER": value}).open_browser is opens


def test_browser_does_not_open_without_a_display(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr(server.webbrowser, "open", lambda url: not opened.append(url))
    monkeypatch.setattr(sys, "platform", "linux")
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    assert not server.open_in_browser("http://127.0.0.1:7860/")
    assert opened == []
    monkeypatch.setenv("DISPLAY", ":0")
    assert server.open_in_browser("http://127.0.0.1:7860/")
    assert opened == ["http://127.0.0.1:7860/"]
