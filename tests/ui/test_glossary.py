"""The words that an officer needs: plain language first, then the paper's symbol."""

from __future__ import annotations

from tests.ui.handlers import Pages
from ui.components.glossary import TERMS, glossary_html


def test_glossary_explains_its_words_next_to_figures(pages: Pages) -> None:
    assert {"Rank", "Null", "Origin (lineage)"} <= {term.word for term in TERMS}
    assert {"A", "ρ", "β"} <= {term.symbol for term in TERMS}
    page = glossary_html()
    for term in TERMS:
        assert page.index(term.word) < page.index(term.meaning)
        assert term.meaning.endswith(".")
        if term.symbol:
            assert f"{term.word} <span>({term.symbol})</span>" in page
    parts = (pages.find(name) for name in ("glossary", "explore-glossary"))
    texts = [child.value for part in parts for child in part.children]
    assert texts == [glossary_html()] * 2
    assert pages.find("about-glossary").value == glossary_html()
