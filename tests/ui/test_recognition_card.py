"""The card is drawn from documents of real examinations (tests/report/conftest.py)."""

from __future__ import annotations

import copy
import re

import pytest

from irwm.report.numbers import sure
from tests.report.conftest import disguised, found, gone, inconclusive, world
from tests.ui.tags import assert_balanced
from ui.components.finding_card import finding_card
from ui.components.icons import icon
from ui.components.recognition_card import recognition_html
from ui.components.verdict_card import verdict_html

__all__ = ["disguised", "found", "gone", "inconclusive", "world"]


def test_each_step_shows_its_sentence_confidence_and_measure(request) -> None:
    document = request.getfixturevalue("disguised").document
    page = recognition_html(document)
    items = re.findall(r"<li>.*?</li>", page)
    assert len(items) == len(document["alignment"]["steps"]) >= 2
    assert "600 of 600 token ids were changed; matched by the rows’ own content." in items[0]
    for item, step in zip(items, document["alignment"]["steps"], strict=True):
        assert step["measure"].replace("'", "’") in item
        assert f'<span class="unseen">Confidence </span>{sure(step["confidence"])}' in item
    assert "No change had to be undone" not in page


@pytest.mark.parametrize(
    ("status", "word", "shape", "caveat"),
    [
        ("derived", "Same origin", "found", "separate finding"),
        ("not derived", "No resemblance", "not found", "about the embedding alone"),
        ("cannot tell", "Cannot tell", "inconclusive", "separate finding"),
    ],
)
def test_lineage_has_icon_word_and_separate_finding(request, status, word, shape, caveat) -> None:
    document = copy.deepcopy(request.getfixturevalue("disguised").document)
    document["lineage"]["status"] = status
    aside = re.search(r"<aside.*</aside>", recognition_html(document))[0]
    assert f'aria-label="Origin: {word}"' in aside
    assert f"{icon(shape)}<span>{word}</span>" in aside
    assert caveat in aside
    assert re.search(r"0\.9\d\d in layer 0", aside)


def test_verdict_refers_to_the_undone_steps(request) -> None:
    found, disguised = (request.getfixturevalue(name).document for name in ("found", "disguised"))
    assert "2 changes had to be undone; they are listed below" in verdict_html(finding_card(disguised))
    assert "undone" not in verdict_html(finding_card(found))


@pytest.mark.parametrize(
    ("case", "said"),
    [
        ("found", ("No change had to be undone",)),
        ("gone", ("60 of the original’s 600 are gone", "of this key’s 50 are gone")),
        ("inconclusive", ("<h3>Cannot be aligned</h3>", "the suspect’s rows have 32 coordinates", "Cannot tell")),
        ("disguised", ()),
    ],
)
def test_card_of_each_case_says_what_was_undone_or_is_gone(request, case: str, said: tuple[str, ...]) -> None:
    page = recognition_html(request.getfixturevalue(case).document)
    assert_balanced(page)
    assert case != "found" or "<li>" not in page
    for words in said:
        assert words in page.replace("\u00a0", " ")
