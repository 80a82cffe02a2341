"""The card is drawn from documents of real examinations (tests/report/conftest.py)."""

from __future__ import annotations

import copy
import re

import pytest

from tests.report.conftest import disguised, found, gone, inconclusive, world
from tests.ui.tags import assert_balanced
from ui.components.icons import icon
from ui.components.recognition_card import recognition_html

__all__ = ["disguised", "found", "gone", "inconclusive", "world"]


@pytest.mark.parametrize(
    ("status", "word", "shape", "caveat"),
    [
        ("derived", "Same origin", "found", "separate finding"),
        ("not derived", "No resemblance", "not found", "The embedding and the layers were compared"),
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


@pytest.mark.parametrize(
    ("case", "said"),
    [
        ("found", ("No changes had to be undone",)),
        ("gone", ("60 of the original’s 600", "of this key’s 50")),
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
