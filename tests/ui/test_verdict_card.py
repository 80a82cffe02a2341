from __future__ import annotations

import pytest
from markupsafe import Markup

from tests.ui.tags import assert_balanced
from ui.components.icons import icon
from ui.components.verdict_card import WORDS, Figure, VerdictCard, verdict_html

FIGURES = (
    Figure("48 of 50", "Passes", "ρ = 0.2"),
    Figure("2 in 10⁷⁷", "Chance", "p"),
    Figure("10⁶² : 1", "Ratio", "LR"),
)


@pytest.mark.parametrize(("verdict", "word"), list(WORDS.items()))
def test_each_verdict_has_its_own_word_and_icon(verdict: str, word: str) -> None:
    page = verdict_html(VerdictCard(verdict, "The sentence.", FIGURES))
    assert f"<span>{word}</span>" in page
    assert f'aria-label="Verdict: {word}"' in page
    assert icon(verdict) in page
    assert [icon(verdict) == icon(other) for other in WORDS].count(True) == 1


def test_the_order_is_word_sentence_figures_why() -> None:
    page = verdict_html(VerdictCard("found", "The sentence.", FIGURES, ("First.", "Second.")))
    places = [
        page.index(text) for text in ("Found", "The sentence.", "48 of 50", "10⁷⁷", "10⁶²", "Why", "First.", "Second.")
    ]
    assert places == sorted(places)
    for figure in FIGURES:
        for text in (figure.value, figure.label, figure.help):
            assert text in page


def test_every_text_is_escaped() -> None:
    nasty = "<img src=x onerror=alert(1)>&\"'{0}"
    card = VerdictCard("found", nasty, (Figure(nasty, nasty, nasty),) * 3, (nasty,), nasty)
    page = verdict_html(card)
    assert "<img" not in page
    assert page.count("&lt;img src=x onerror=alert(1)&gt;&amp;&#34;&#39;{0}") == 12


def test_open_points_and_errors_appear_above_the_figures() -> None:
    page = verdict_html(VerdictCard("unproven", "S.", FIGURES, ("Because.",), "about", "A control failed.", "Not all."))
    places = [page.index(text) for text in (WORDS["unproven"], "S.", "A control failed.", "Not all.", "48 of 50")]
    assert places == sorted(places)
    assert_balanced(page)
    assert "Why" not in verdict_html(VerdictCard("found", "S.", FIGURES))
    own = VerdictCard("found", "S.", FIGURES, (Markup("<b>{}</b>").format("<i>"),))
    assert "<p><b>&lt;i&gt;</b></p>" in verdict_html(own), "our own markup is kept"
    assert "verdict-first" not in verdict_html(VerdictCard("found", "S.", FIGURES, ("Because.",)))


@pytest.mark.parametrize(
    ("word", "figures"), [("found", ()), ("found", FIGURES[:2]), ("found", FIGURES * 2), ("probably", FIGURES)]
)
def test_a_card_has_a_known_verdict_and_three_figures(word: str, figures: tuple[Figure, ...]) -> None:
    with pytest.raises(ValueError, match=r"verdict|figures"):
        VerdictCard(word, "S.", figures)
