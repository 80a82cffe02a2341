"""The report's language: every sentence of a report, its figures or the pages is compared with a list."""

from __future__ import annotations

import ast
import re
from itertools import product
from pathlib import Path

import pytest

from irwm.ownership.key_search import Standing, standing
from irwm.report import wording

ROOT = Path(__file__).parents[2]
SPOKEN = [
    *sorted((ROOT / "ui").rglob("*.py")),
    *sorted((ROOT / "irwm" / "report").rglob("*.j2")),
    *sorted((ROOT / "irwm").rglob("*.py")),
]
# A probability of a proposition, or of what only a court can find. "Not the probability of innocence" is a warning.
FORBIDDEN = (
    r"probability of (?:theft|guilt|a leak)",
    r"(?<!not the )probability of innocence",
    r"(?:probably|likely|certainly|surely|definitely) (?:stole|stolen|leaked|guilty|the thief)",
    r"\d+ ?% (?:sure|certain|likely) that",
    r"proves that (?:the|it|he|she|they) (?:was|were|is|are)? ?(?:stole|stolen|leaked)",
    r"(?:odds|chance|probability) that (?:the|this) (?:suspect|model) (?:is|was) (?:unmarked|innocent|ours|stolen|a c)",
    r"beyond (?:any|all|reasonable) doubt",
    r"identical beyond",
    r"zero (?:error|chance|probability)",
    r"error rate (?:of|is) (?:zero|0\b)",
)  # fmt: skip


def spoken(path: Path) -> str:
    """The text of a file that a reader can see: Python strings that are not docstrings, or a template's text."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        return text
    tree = ast.parse(text)
    documentation = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))
        and node.body
        and isinstance(node.body[0], ast.Expr)
        and isinstance(node.body[0].value, ast.Constant)
    }
    strings = [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documentation
    ]
    return "\n".join(strings)


def test_no_page_or_report_makes_forbidden_statements() -> None:
    said = {path.relative_to(ROOT).as_posix(): spoken(path) for path in SPOKEN}
    assert len(said) > 100
    found = [
        (name, match[0])
        for name, text in said.items()
        for pattern in FORBIDDEN
        for match in re.finditer(pattern, text, re.IGNORECASE)
    ]
    assert found == []


def test_no_verdict_mentions_guilt() -> None:
    """The word is only for the simulated colluders on Explore's pages, whose guilt is known."""
    folders = ROOT / "irwm" / "report", ROOT / "ui" / "components"
    files = [path for folder in folders for path in folder.rglob("*")] + [ROOT / "irwm" / "evidence" / "verdict.py"]
    said = {path.name: spoken(path) for path in files if path.suffix in (".py", ".j2")}
    assert [name for name, text in said.items() if re.search(r"\bguilt", text, re.IGNORECASE)] == []


def test_every_ratio_names_both_propositions() -> None:
    assert "transposed conditional" in wording.NOT_INNOCENCE
    for ratio in (-9.0, -0.5, 0.0, 0.5, 85.0):
        said = wording.likelihood(ratio)
        assert all(proposition in said for proposition in wording.LR_PROPOSITIONS)


@pytest.mark.parametrize(
    ("ratio", "said"),
    [
        (0.31, "2"),
        (0.9999, "9"),
        (1.0, "10"),
        (2.84, "600"),
        (4.1, "10 000"),
        (29.9, "10²⁹"),
        (85.05, "more than 10³⁰"),
    ],
)
def test_a_ratio_is_rounded_down_to_one_digit(ratio: float, said: str) -> None:
    assert wording.times(ratio) == said


def test_a_ratio_below_one_supports_the_second_proposition() -> None:
    said = wording.likelihood(-1.0)
    assert said.index(wording.LR_PROPOSITIONS[1]) < said.index(wording.LR_PROPOSITIONS[0])
    assert "10 times" in said


TIMES = ((None, None), ("2026-01-01T00:00:00Z", None), ("2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z"))


@pytest.mark.parametrize(("times", "word"), list(product(TIMES, ("found", "not found", "inconclusive"))))
def test_every_standing_has_a_sentence(times, word: str) -> None:
    committed, seen = times
    found: Standing = standing(-88.0, committed, seen)
    said = wording.standing_sentence(found, "Example Time" if committed else "", word)
    assert said.endswith(".")
    assert ("292" in said) == (word == "found")  # bits of evidence, of which a search could have gained 80
    assert ("212" in said) == (word == "found")
    assert ("Example Time" in said) == (committed is not None)


@pytest.mark.parametrize("times", [(), TIMES[2]], ids=["without a date", "dated before"])
def test_evidence_within_reach_of_a_search_leaves_none(times: tuple[str | None, ...]) -> None:
    said = wording.standing_sentence(standing(-7.0, *times), "Example Time" if times else "", "found")
    assert "23 bits" in said
    assert "leaves none" in said
