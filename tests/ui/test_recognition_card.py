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


def test_unmoved_suspect_is_stated_on_the_card(request) -> None:
    page = recognition_html(request.getfixturevalue("found").document)
    assert "No change had to be undone" in page
    assert "<li>" not in page


def test_lost_tokens_and_rows_are_counted(request) -> None:
    page = recognition_html(request.getfixturevalue("gone").document)
    assert "60 of the original’s 600 are gone" in page.replace("\u00a0", " ")
    assert "of this key’s 50 are gone" in page


def test_unaligned_suspect_states_reason_and_meaning(request) -> None:
    page = recognition_html(request.getfixturevalue("inconclusive").document)
    assert "<h3>Cannot be aligned</h3>" in page
    assert "The suspect cannot be aligned: the suspect’s rows have 32 coordinates" in page
    assert "does not mean “not ours”" in page
    assert "Cannot tell" in page


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


def test_a_hostile_lineage_is_inert(request) -> None:
    document = copy.deepcopy(request.getfixturevalue("found").document)
    document["lineage"] |= {"status": "<img src=x>", "reason": "<img src=x>"}
    assert "<img" not in recognition_html(document)


def test_verdict_refers_to_the_undone_steps(request) -> None:
    found, disguised = (request.getfixturevalue(name).document for name in ("found", "disguised"))
    assert "2 changes had to be undone; they are listed below" in verdict_html(finding_card(disguised))
    assert "undone" not in verdict_html(finding_card(found))


@pytest.mark.parametrize("case", ["found", "gone", "inconclusive", "disguised"])
def test_tags_are_balanced(request, case: str) -> None:
    assert_balanced(recognition_html(request.getfixturevalue(case).document))
