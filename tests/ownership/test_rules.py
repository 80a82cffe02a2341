"""The rules by themselves, over every table of findings that two claims could lead to."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from irwm.ownership import rules
from irwm.ownership.search import Standing, standing

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
            row = Row(claimant, kind, by, verdict, draw(st.booleans()), risk)
            if claimant in unfit:
                row = replace(row, verdict="refused", related=False, log10_risk=0.0, refused="of another original")
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
def test_nobody_wins_without_a_mark_that_no_search_explains_and_somebody_must_say_what_is_missing(
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
    """Rows in which nothing is found but what is named, such as A_original_B=-60."""
    rows = []
    for claimant in "AB":
        for kind, by in MODELS:
            risk = found.get(f"{claimant}_{kind}_{by}".rstrip("_"), 0.0)
            rows.append(Row(claimant, kind, by, "found" if risk else "not found", True, risk))
    return rows


def test_a_find_that_a_search_explains_decides_nothing_whatever_the_dates() -> None:
    """A mark searched for in another's published model until it is "found", and committed to before the other did."""
    for date in DATES:
        ruling = rules.rule(("A", date), ("B", DATES[2]), table_of(A_original_B=WEAK, A_release_A=STRONG))
        assert (ruling.rule, ruling.winner) == (rules.UNDECIDED, None)
        assert "a key searched for after the fact could show as much" in ruling.sentence


def test_two_originals_that_carry_each_other_s_mark_are_called_impossible() -> None:
    ruling = rules.rule(("A", DATES[1]), ("B", None), table_of(A_original_B=STRONG, B_original_A=STRONG))
    assert ruling.winner is None
    assert "Both cannot be" in ruling.sentence


def test_an_early_date_wins_nothing_where_the_mark_is_not() -> None:
    table = table_of(A_release_A=STRONG, B_release_B=STRONG, A_exhibit=STRONG)
    assert rules.rule(("A", None), ("B", DATES[1]), table).winner is None
    assert rules.rule(("A", DATES[1]), ("B", DATES[2]), table).winner == "A"
