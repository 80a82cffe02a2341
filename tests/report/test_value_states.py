"""The state of each value (derived, consistent or stated), and its description in docs/verifying.md."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from irwm.report import consistency, lab_claims, rulings, sweep_claims, verify_review
from irwm.report import value_states as module
from irwm.report.checks import CHOICES, NEEDED
from irwm.report.value_states import CONSISTENT, DERIVED, MORE, STATED, UNKNOWN, Stated, holds_field, leaves, states

PAGE = Path(__file__).parents[2] / "docs" / "verifying.md"
KINDS = {
    "a report": consistency.STATED,
    "a dispute": rulings.STATED,
    "a lab": lab_claims.STATED,
    "a sweep, in addition to those of its reports": sweep_claims.STATED,
    "a review": verify_review.STATED,
}


def table(kind: str, groups: Sequence[Stated]) -> Iterator[str]:
    yield f"| inputs of {kind} | without it | what shows it |"
    yield "|---|---|---|"
    for group in groups:
        shows = "; ".join(NEEDED[need] for need in group.bring) or f"nothing: {group.why}"
        if not group.bring and group.only == (CHOICES,):
            shows = "the report itself, since the method fixes it"
        yield f"| {group.name} | {'exit code 2' if group.carries else 'listed'} | {shows} |"
    yield ""


def test_the_page_lists_every_group_of_inputs() -> None:
    section = PAGE.read_text(encoding="utf-8").split("## Derived, consistent or stated")[1].split("\n## ")[0]
    written = "\n".join(line for line in section.splitlines() if line.startswith("|"))
    expected = "\n".join(line for kind, groups in KINDS.items() for line in table(kind, groups))
    assert written == "\n".join(filter(None, expected.splitlines())), f"docs/verifying.md should have:\n{expected}"


@pytest.mark.parametrize("kind", KINDS)
def test_basis_of_the_verdict_can_be_verified(kind: str) -> None:
    """If a group that carries could not be shown, no report of its kind could be established."""
    unshown = [group.name for group in KINDS[kind] if group.carries and not group.bring and not group.only]
    assert (unshown != []) == (kind in ("a lab", "a review")), unshown


GROUPS = (
    Stated("names", "there is only the signer’s word for this", ("name",), ("key",), carries=True),
    Stated("texts", "nothing shows them", ("rows[].text",), only=()),
    Stated("rows", "only the models show them", ("rows*",), ("suspect",), carries=True),
)
SHOWN = {"key": ("name",), "examination": ("rows*", "sum")}
DOCUMENT = {"name": "Ada", "rows": [{"text": "a", "rank": 1}, {"text": "b", "rank": 2}], "sum": 3}


def test_value_is_only_stated_until_verified() -> None:
    alone = states(DOCUMENT, {"sum"}, GROUPS, SHOWN, ())
    assert alone.fields == {DERIVED: (), CONSISTENT: ("sum",), STATED: ("name", "rows[].text", "rows[].rank")}
    assert alone.left == GROUPS
    again = states(DOCUMENT, {"sum"}, GROUPS, SHOWN, {"key", "examination"})
    assert again.fields == {DERIVED: ("name", "rows[].rank", "sum"), CONSISTENT: (), STATED: ("rows[].text",)}
    assert again.left == (GROUPS[1],)


def test_a_field_is_as_weak_as_its_weakest_value() -> None:
    assigned = {"sum", "rows[0].rank"}
    assert "rows[].rank" in states(DOCUMENT, assigned, GROUPS, SHOWN, ()).fields[STATED]
    both = assigned | {"rows[1].rank"}
    assert "rows[].rank" in states(DOCUMENT, both, GROUPS, SHOWN, ()).fields[CONSISTENT]


def test_a_value_without_a_group_is_listed_as_unknown() -> None:
    found = states({**DOCUMENT, "more": 1, "none": []}, {"sum"}, GROUPS, SHOWN, {"key", "examination"})
    assert found.left[-1] == Stated(UNKNOWN, "this program has no check for them", ("more", "none"), carries=True)


@pytest.mark.parametrize(
    ("pattern", "place", "holds"),
    [
        ("a.b", ("a", "b"), True),
        ("a.b", ("a",), False),
        ("a.b", ("a", "b", "c"), False),
        ("a*", ("a", "b", "c"), True),
        ("a*", ("a",), True),
        ("a*", ("ab",), False),
        ("a[].b", ("a", 3, "b"), True),
        ("a[].b", ("a", "x", "b"), False),
        ("a.*", ("a", "x"), True),
        ("a.*", ("a", 1), False),
    ],
)
def test_a_pattern_matches_the_values_at_its_places(pattern: str, place: tuple[str | int, ...], holds: bool) -> None:
    assert holds_field(pattern, place) == holds


def test_an_empty_list_is_a_value() -> None:
    assert list(leaves({"a": [], "b": [1]})) == [(("a",), []), (("b", 0), 1)]


@pytest.mark.parametrize(
    ("limit", "document"), [("MOST_FIELDS", {"a": 1, "b": 2, "c": 3}), ("MOST_VALUES", {"a": [1] * 4})]
)
def test_values_beyond_the_limit_are_not_checked(
    monkeypatch: pytest.MonkeyPatch, limit: str, document: dict[str, object]
) -> None:
    assert states(document, (), (Stated("all", "", ("a*", "b", "c")),), {}, ()).left[-1] != MORE
    monkeypatch.setattr(module, limit, 1)
    left = states(document, (), (Stated("all", "", ("a*", "b", "c")),), {}, ()).left
    assert left[-1] == MORE
    assert MORE.carries
