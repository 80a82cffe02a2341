"""The rules alone, over every table of findings that two claims could produce."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st

from irwm.ownership import rules
from irwm.ownership.key_search import Standing, standing

MODELS = (("original", "A"), ("release", "A"), ("original", "B"), ("release", "B"), ("exhibit", ""))
DATES = (None, "2025-01-01T00:00:00Z", "2026-01-01T00:00:00Z")
STRONG, WEAK = -60.0, -8.0


@dataclass(frozen=True)
class Row:
    """One line of a table of findings."""

    claimant: str
    kind: str
    brought_by: str
    verdict: str
    related: bool
    log10_risk: float
    refused: str = ""
    unrelated: bool = False

    @property
    def model(self) -> str:
        return f"{self.kind} of {self.brought_by}" if self.brought_by else self.kind

    @property
    def found(self) -> bool:
        return self.verdict == "found"

    @property
    def absent(self) -> bool:
        return self.verdict == "not found"

    def standing(self, committed_utc: str | None, seen_utc: str | None) -> Standing:
        return standing(self.log10_risk, committed_utc, seen_utc)


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[Row], str | None, str | None]:
    rows = []
    unfit = draw(st.sampled_from(["", "", "", "A", "B", "AB"]))
    for claimant in "AB":
        for kind, by in MODELS:
            verdict = draw(st.sampled_from(["found", "not found", "inconclusive"]))
            risk = draw(st.sampled_from([STRONG, WEAK])) if verdict == "found" else 0.0
            related, unrelated = draw(st.sampled_from([(True, False), (False, True), (False, False)]))
            row = Row(claimant, kind, by, verdict, related, risk, unrelated=unrelated)
            if claimant in unfit:
                row = replace(row, verdict="refused", related=False, log10_risk=0.0, refused="of another original")
                row = replace(row, unrelated=False)
            rows.append(row)
    return rows, draw(st.sampled_from(DATES)), draw(st.sampled_from(DATES))


def swapped(rows: list[Row]) -> list[Row]:
    other = {"A": "B", "B": "A", "": ""}
    return [replace(row, claimant=other[row.claimant], brought_by=other[row.brought_by]) for row in rows]


@given(tables())
@settings(max_examples=400)
def test_a_ruling_depends_neither_on_order_nor_on_names(table: tuple[list[Row], str | None, str | None]) -> None:
    rows, first, second = table
    ruling = rules.rule(("A", first), ("B", second), rows)
    assert ruling == rules.rule(("B", second), ("A", first), rows[::-1])
    mirrored = rules.rule(("A", second), ("B", first), swapped(rows))
    assert mirrored.rule == ruling.rule
    assert mirrored.winner == {"A": "B", "B": "A", None: None}[ruling.winner]


@given(tables())
@settings(max_examples=400)
def test_winning_requires_unsearchable_mark_and_open_rulings_state_needs(
    table: tuple[list[Row], str | None, str | None],
) -> None:
    rows, first, second = table
    ruling = rules.rule(("A", first), ("B", second), rows)
    assert ruling.sentence.endswith(".")
    if ruling.winner is None:
        assert ruling.would_decide
        return
    assert not ruling.would_decide
    assert any(row.claimant == ruling.winner and row.log10_risk == STRONG for row in rows)
    assert not any(row.claimant == ruling.winner and row.refused for row in rows)
    assert ruling.margin_bits is not None
    assert ruling.margin_bits > 0


def table_of(**found: float) -> list[Row]:
    """Rows in which only the named findings are found, such as A_original_B=-60."""
    rows = []
    for claimant in "AB":
        for kind, by in MODELS:
            risk = found.get(f"{claimant}_{kind}_{by}".rstrip("_"), 0.0)
            rows.append(Row(claimant, kind, by, "found" if risk else "not found", True, risk))
    return rows


def test_finding_explained_by_search_is_undecided_for_any_dates() -> None:
    """A mark searched for in another's published model until it is "found", with an earlier commitment than theirs."""
    for date in DATES:
        ruling = rules.rule(("A", date), ("B", DATES[2]), table_of(A_original_B=WEAK, A_release_A=STRONG))
        assert (ruling.rule, ruling.winner) == (rules.UNDECIDED, None)


def test_two_originals_that_carry_each_other_s_mark_are_called_impossible() -> None:
    ruling = rules.rule(("A", DATES[1]), ("B", None), table_of(A_original_B=STRONG, B_original_A=STRONG))
    assert ruling.winner is None


def test_early_date_without_mark_does_not_decide() -> None:
    table = table_of(A_release_A=STRONG, B_release_B=STRONG, A_exhibit=STRONG)
    assert rules.rule(("A", None), ("B", DATES[1]), table).winner is None
    assert rules.rule(("A", DATES[1]), ("B", DATES[2]), table).winner == "A"


TWO_MARKS = {"A_release_A": STRONG, "B_release_B": STRONG, "A_exhibit": STRONG, "B_exhibit": STRONG}


def test_date_does_not_decide_against_claimant_without_date() -> None:
    """An attacker can have a key stamped after the dispute began; the honest release is older than any stamp."""
    one_mark = {name: risk for name, risk in TWO_MARKS.items() if name != "A_exhibit"}
    for marks in (TWO_MARKS, one_mark):
        ruling = rules.rule(("A", None), ("B", DATES[2]), table_of(**marks))
        assert (ruling.rule, ruling.winner) == (rules.UNDECIDED, None)
    assert rules.rule(("A", DATES[1]), ("B", DATES[2]), table_of(**TWO_MARKS)).winner == "A"


def with_unrelated_originals(rows: list[Row], unrelated: bool = True) -> list[Row]:
    """The same with models of the other side that are unrelated to each key's original, or of unknown origin."""
    return [row if row.claimant == row.brought_by else replace(row, related=False, unrelated=unrelated) for row in rows]


def test_originals_are_unrelated_only_if_known() -> None:
    table = table_of(A_release_A=STRONG, B_release_B=STRONG, B_exhibit=STRONG)
    for dates in product(DATES, DATES):
        known, unknown = (
            rules.rule(("A", dates[0]), ("B", dates[1]), with_unrelated_originals(table, known))
            for known in (True, False)
        )
        assert (known.rule, known.winner) == (rules.ONLY_ONE, "B")
        assert (unknown.rule, unknown.winner) == (rules.UNDECIDED, None)


def test_inconclusive_exhibit_does_not_count_as_unmarked() -> None:
    table = with_unrelated_originals(table_of(B_exhibit=STRONG))
    unread = [
        replace(row, verdict="inconclusive", unrelated=False) if (row.claimant, row.kind) == ("A", "exhibit") else row
        for row in table
    ]
    assert rules.rule(("A", None), ("B", None), table).winner == "B"
    assert rules.rule(("A", None), ("B", None), unread).winner is None


def test_claimants_own_model_shows_nothing_as_exhibit() -> None:
    apart = with_unrelated_originals(table_of(A_release_A=STRONG, A_exhibit=STRONG))
    kin = table_of(A_release_A=STRONG, A_exhibit=STRONG)
    for table, winner in ((apart, (None, None)), (kin, (DATES[1], DATES[2]))):
        own = [replace(row, brought_by="A") if row.kind == "exhibit" else row for row in table]
        assert rules.rule(("A", winner[0]), ("B", winner[1]), table).winner == "A"
        assert rules.rule(("A", winner[0]), ("B", winner[1]), own).winner is None


def test_key_that_does_not_fit_is_undecided_by_mark_in_exhibit() -> None:
    """An honest owner whose original was saved again, and an attacker who marked the exhibit over the owner's mark."""
    for place, winner in (("B_exhibit", None), ("B_release_A", "B"), ("B_original_A", "B")):
        table = [
            replace(row, verdict="refused", log10_risk=0.0, refused="saved again") if row.claimant == "A" else row
            for row in table_of(**{"B_release_B": STRONG, place: STRONG})
        ]
        for dates in product(DATES, DATES):
            ruling = rules.rule(("A", dates[0]), ("B", dates[1]), table)
            assert (ruling.rule, ruling.winner) == (rules.UNFIT, winner)
