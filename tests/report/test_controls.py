"""A failed control makes the verdict inconclusive in the document, in its check and when it is run again."""

from __future__ import annotations

from typing import Any

import pytest

from irwm.report import SelfTest, from_json, reproduce, to_json
from irwm.report.consistency import contradictions
from tests.report.conftest import Examined, examine
from tests.report.leaves import changed


def control(expected: str, verdict: str) -> SelfTest:
    return SelfTest("a key that was never inserted", expected, verdict, 40, 50, -8.0)


@pytest.fixture(scope="module")
def doubtful(world: dict[str, Any]) -> Examined:
    """The marked copy, with a wrong key that is "found" in it."""
    return examine(world, "copy", self_tests=[control("not found", "found")])


def test_a_control_that_fails_makes_the_verdict_inconclusive(doubtful: Examined) -> None:
    verdict = doubtful.document["verdict"]
    assert (verdict["word"], verdict["mark"]) == ("inconclusive", "found")
    assert "a key that was never inserted" in verdict["reason"]
    assert reproduce(doubtful.document, doubtful.suspect, doubtful.model, doubtful.key) == []


@pytest.mark.parametrize(
    ("expected", "came", "word"),
    [
        ("not found", "not found", "found"),
        ("not found", "inconclusive", "found"),  # weak evidence: one unmarked key in a thousand gives it
        ("inconclusive", "inconclusive", "found"),
        ("inconclusive", "not found", "inconclusive"),
        ("inconclusive", "found", "inconclusive"),
    ],
)
def test_which_control_results_are_failures(world: dict[str, Any], expected: str, came: str, word: str) -> None:
    document = examine(world, "copy", self_tests=[control(expected, came)]).document
    assert document["verdict"]["word"] == word


def test_a_verdict_that_ignores_a_failed_control_is_a_contradiction(doubtful: Examined) -> None:
    document = from_json(to_json(doubtful.document))
    assert contradictions(document) == []
    for place, word in ((("verdict", "word"), "found"), (("self_tests", 0, "verdict"), "not found")):
        assert "verdict.word" in {each.where for each in contradictions(changed(document, place, word))}
