"""The checks of a report as a list: each with a sign, a word and its sentence."""

from __future__ import annotations

import pytest

from irwm.report.checks import BY_WHOM
from ui.components.checks import checks_html, summary

GOOD, BAD, LEFT = (
    ("signature", True, "it fits"),
    ("numbers", False, "report.json was changed"),
    ("models", None, "none"),
)
KNOWN, UNKNOWN = ("identity", True, "as expected"), ("identity", None, "whose key that is, is not known here")


@pytest.mark.parametrize(
    ("checks", "said"),
    [
        ([GOOD], f"All that was checked holds. {BY_WHOM}"),
        ([GOOD, LEFT], f"All that was checked holds; 1 check left out. {BY_WHOM}"),
        ([GOOD, UNKNOWN], f"All that was checked holds; 1 check left out. {BY_WHOM}"),
        ([GOOD, KNOWN, LEFT], "All that was checked holds; 1 check left out"),
        ([GOOD, BAD, LEFT], "This report does not hold: numbers"),
        ([LEFT], "Nothing could be checked"),
        ([], "Nothing could be checked"),
    ],
)
def test_the_outcome_is_one_sentence(checks: list, said: str) -> None:
    assert summary(checks) == said


def test_every_check_has_a_word_and_not_only_a_colour() -> None:
    html = checks_html([GOOD, BAD, LEFT])
    assert [html.count(f"</svg>{word}<") for word in ("Holds", "Fails", "Not checked")] == [1, 1, 1]
    assert html.count("<svg") == 3


def test_what_a_check_says_is_inert() -> None:
    assert "<b>" not in checks_html([("<b>name", False, "<b>said")])
