from __future__ import annotations

import pytest

from storage import RecordName
from storage.vault import PAGE_SIZE
from ui.components.markup import table
from ui.components.paged_table import damage_html, nothing_found_html, table_html, where_html


def where(page: int, total: int, found: bool = False) -> str:
    return where_html(page, total, "key", "keys", found=found).replace("\u00a0", " ")


@pytest.mark.parametrize(
    ("page", "total", "found", "text"),
    [
        (0, 2, True, "2 keys found"),
        (0, PAGE_SIZE, False, "50 keys"),
        (0, PAGE_SIZE + 1, False, "Page 1 of 2: 1 to 50 of 51 keys, newest first"),
        (1999, 100_000, False, "Page 2 000 of 2 000: 99 951 to 100 000 of 100 000 keys, newest first"),
        (0, 1234, True, "Page 1 of 25: 1 to 50 of 1 234 keys found, newest first"),
    ],
)
def test_table_states_shown_rows_and_total(page: int, total: int, found: bool, text: str) -> None:
    assert where(page, total, found) == f'<p class="note" role="status">{text}</p>'


def test_empty_search_result_is_reported() -> None:
    page = nothing_found_html("x" * 10_000, "keys")
    assert "None of the keys" in page
    assert len(page) < 1000


def test_damaged_records_are_named_and_many_are_counted() -> None:
    lost = [RecordName("keys", f"{n:016x}") for n in range(1, 1501)]
    assert "keys 0000000000000001." not in damage_html(lost[:1])
    assert "keys 0000000000000001" in damage_html(lost[:1])
    assert "more" not in damage_html(lost[:10])
    many = damage_html(lost)
    assert "keys 000000000000000a and 1490 more" in many
    assert "keys 000000000000000b" not in many


def test_every_table_has_one_box_that_scrolls_sideways_and_takes_the_keyboard() -> None:
    box = '<div class="table-scroll" tabindex="0" role="region" aria-label="Keys"><table class="case-table"'
    for page in (table("Keys", ("Owner",), ()), table_html(("Owner",), [["Labs"]], "keys")):
        assert page.startswith(box)
        assert page.count("table-scroll") == 1
        assert page.endswith("</table></div>")
