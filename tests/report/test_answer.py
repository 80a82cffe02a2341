"""A report begins with the result of all its evidence and whose key it is; the lines below do not contradict it."""

from __future__ import annotations

import copy
from typing import Any

import pytest

import irwm
from irwm.report import ItemDescription, SelfTest, finding_document
from irwm.report.answer import MADE, UNPROVEN, answer, is_original, keys_tried, named
from irwm.report.blocks import blocks_of
from irwm.report.consistency import contradictions
from irwm.report.html import render_html
from irwm.report.likelihood import standing_section
from tests.report.conftest import Examined
from ui.components.finding_card import finding_card
from ui.components.verdict_card import verdict_html

WEAK = -7.0  # log10 of odds that give "found", but fewer bits than a search for a key


def with_standing(document: dict[str, Any], *times: str | None, odds: float = WEAK) -> dict[str, Any]:
    """The document as if its evidence had these log10 odds, with these dates."""
    stamped, seen = (*times, None, None)[:2]
    stamp = None if stamped is None else {"time_utc": stamped, "authority": "Example Time"}
    weighed = {**document, "evidence": [{**each, "log10_risk": odds} for each in document["evidence"]]}
    return {**copy.deepcopy(document), "standing": standing_section(stamp, seen, weighed)}


def first_and_rest(page: str) -> tuple[str, str]:
    """A page's text before and after its figures begin."""
    first, _, rest = page.partition('<dl class="figures">')
    return first, rest


def test_strong_evidence_or_a_key_older_than_the_suspect_is_found_without_a_caution(found: Examined) -> None:
    for document in (found.document, with_standing(found.document, "2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z")):
        said = answer(document)
        assert (said.word, said.fault, said.caution) == ("Found", "", "")
        assert "Northwind" in said.sentence


@pytest.mark.parametrize("times", [
    (), ("2026-01-01T00:00:00Z",), ("2026-03-01T00:00:00Z", "2026-02-01T00:00:00Z"),
], ids=["no date", "suspect not dated", "dated later"])  # fmt: skip
def test_evidence_within_reach_of_a_search_is_found_but_not_yet_proof(found, times) -> None:
    document = with_standing(found.document, *times)
    said = answer(document)
    assert (said.kind, said.word) == (UNPROVEN, "Found, not yet proof")
    first, rest = first_and_rest(verdict_html(finding_card(document)))
    for shown in (said.word, said.caution, "verdict-amber"):
        assert shown in first
    assert "alone explains the finding" in rest, "the standing further down agrees with the caution"


@pytest.mark.parametrize(
    ("stamped", "seen", "told"),
    [
        ("2026-03-01T10:00:00Z", "2026-02-28T00:00:00Z", True),
        ("2026-03-01T10:00:00Z", "2026-03-01T00:00:00+00:00", False),
        ("2026-03-01T10:00:00Z", "2026-03-02T00:00:00Z", False),
    ],
)
def test_time_stamp_after_the_suspects_day_is_stated_above_the_figures(found, stamped, seen, told: bool) -> None:
    document = with_standing(found.document, stamped, seen, odds=-80.0)
    assert answer(document).kind == "found"
    first, _ = first_and_rest(verdict_html(finding_card(document)))
    assert ("timestamped later, on 2026-03-01" in first) == told
    assert ("timestamped later, on 2026-03-01" in render_html(document)) == told


@pytest.mark.parametrize(
    ("made", "seen", "told"),
    [
        ("2026-03-01", "2025-05-03T00:00:00Z", True),
        ("2026-03-01", "2026-03-01T00:00:00Z", False),
        ("2026-03-01", None, False),
        ("zzz <b>certified</b>", "2025-05-03T00:00:00Z", False),  # a received report may contain any text
    ],
)
def test_day_of_the_key_after_the_suspects_day_comes_first_on_page_and_in_pdf(found, made, seen, told: bool) -> None:
    document = with_standing(found.document, None, seen, odds=-80.0)
    document["case"][MADE] = made
    words = "but according to the vault’s clock the key was made later, on 2026-03-01"
    first, _ = first_and_rest(verdict_html(finding_card(document)))
    assert (words in first) == told
    assert (words in str(blocks_of(render_html(document)))) == told
    assert "certified" not in first


def test_report_and_pdf_begin_with_the_same_verdict(found: Examined) -> None:
    page = render_html(with_standing(found.document))
    assert page.index("Found, not yet proof") < page.index("a search can reach 80") < page.index('class="three"')
    (card,) = [block for block in blocks_of(page) if block["kind"] == "card"]
    assert card["word"] == UNPROVEN
    assert "a search can reach 80" in "".join(run["text"] for block in card["first"] for run in block["runs"])


def test_a_failed_control_is_reported_once_above_the_figures(found: Examined) -> None:
    broken = SelfTest("this key on the unmarked original", "not found", "found", 40, 50, -8.0)
    document = finding_document(found.finding, **found.particulars | {"self_tests": [broken]})
    assert answer(document).word == "Inconclusive"
    first, rest = first_and_rest(verdict_html(finding_card(document)))
    fault = answer(document).fault
    assert fault in first
    assert fault not in rest
    page = render_html(document)
    assert page.index(fault) < page.index('class="three"')


def test_untried_keys_are_reported_with_not_found(not_found: Examined, found: Examined) -> None:
    def of(held: int | None) -> dict[str, Any]:
        return finding_document(not_found.finding, **not_found.particulars, keys_held=held)

    assert answer(of(None)).caution == answer(of(3)).caution == ""
    assert answer(of(4)).caution
    assert keys_tried(of(6)) == "3 of 6"
    assert "keys tried: 3 of 6" in verdict_html(finding_card(of(6)))
    assert "3 of 6 keys for this original" in render_html(of(6))
    assert contradictions(of(6)) == []
    assert {each.where for each in contradictions(of(2))} == {"keys.held"}
    assert answer(finding_document(found.finding, **found.particulars, keys_held=6)).caution == ""


def test_the_unmarked_original_is_recognised_as_suspect(world: dict[str, Any], found: Examined) -> None:
    model = world["model"]
    finding = irwm.detect(model, model, world["key"])
    item = ItemDescription.of(model, hashes={shard.name: "ab" * 32 for shard in model.shards})
    document = finding_document(finding, **found.particulars | {"suspect": item, "original": item, "self_tests": []})
    assert is_original(document)
    assert finding_card(document).figures[2].value == "same origin"
    unhashed = ItemDescription.of(model)
    document = finding_document(finding, **found.particulars | {"suspect": unhashed, "original": unhashed})
    assert not is_original(document)


def test_this_key_is_replaced_by_the_keys_name() -> None:
    key = {"recipient": "Bolt", "owner": "Labs", "commitment": "ab" * 32}
    document: dict[str, Any] = {"key": key, "verdict": {"word": "found"}}
    assert named("This key's mark is in the suspect", document) == "The mark issued to “Bolt” is in the suspect"
    assert named("carries this key’s fingerprint: x", document) == "carries the fingerprint of “Bolt”: x"
    assert named("this key on the original", document) == "the key of “Bolt” on the original"
    assert named("this key's rows", document) == "this key's rows"
    nobody = {"recipient": "", "owner": "", "commitment": "ab" * 32}
    assert named("This key's mark", document | {"key": nobody}) == "This key's mark"
    for word in ("not found", "inconclusive"):
        assert named("This key's mark", document | {"verdict": {"word": word}}) == "This key's mark"


def test_card_of_a_negative_result_names_nobody(not_found: Examined) -> None:
    key = not_found.document["key"]
    page = verdict_html(finding_card(not_found.document))
    for name in (key["recipient"], key["owner"]):
        assert not name or name not in page


def test_every_figure_and_table_of_a_key_names_it(found: Examined) -> None:
    page = render_html(found.document)
    whom = f"Key of “Northwind”, {found.document['key']['commitment'][:8]}."
    assert page.encode().count(whom.encode("ascii", "backslashreplace")) >= 3 or page.count(whom) >= 3
    assert "this key" not in verdict_html(finding_card(found.document))
