"""A sample of rows of the tables in docs/ is measured again, and agrees within the stated differences."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import dataclass

import pytest

from benchmarks.written import DOCS

pytestmark = pytest.mark.slow
NUMBER = re.compile(r"[-+]?\d[\d,]*(?:\.\d+)?")
# Columns that depend on the machine.
TIMES = {"s", "seconds"}
Row = tuple[str, ...]


@dataclass(frozen=True)
class Sample:
    """Some rows of a table.

    Attributes:
        page, name: the table, between `<!-- name -->` and `<!-- /name -->` of docs/`page`.
        command: the table's module and options, limited to these rows.
        keys: the first columns, which name a row.
        difference: how much a number may differ, as a share of the greater one or in units of the column.
    """

    page: str
    name: str
    command: str
    keys: int
    difference: float

    def __str__(self) -> str:
        return self.command


SAMPLES = (
    Sample("disguises.md", "demo", "benchmarks.disguises demo", 1, 0.02),
    Sample("method.md", "calibration", "benchmarks.calibration --models demo", 2, 0.01),
    Sample("ownership.md", "permutations", "benchmarks.forgery --parts permutations", 1, 0.1),
)


@pytest.mark.parametrize("sample", SAMPLES, ids=str)
def test_rows_are_measured_again(sample: Sample) -> None:
    command = [sys.executable, "-m", *sample.command.split()]
    printed = subprocess.run(command, cwd=DOCS.parent, check=True, capture_output=True, text=True).stdout
    text = (DOCS / sample.page).read_text(encoding="utf-8")
    table = text.split(f"<!-- {sample.name} -->\n")[1].split(f"<!-- /{sample.name} -->")[0]
    head, kept = rows(table)
    again_head, again = rows(printed)
    assert head == again_head
    assert again, f"no row in:\n{printed}"
    known = {row[: sample.keys]: row for row in kept}
    for row in again:
        stated = known[row[: sample.keys]]
        for column, before, now in zip(head, stated, row, strict=True):
            assert column in TIMES or alike(before, now, sample.difference), (column, stated, row)


def rows(text: str) -> tuple[Row, list[Row]]:
    """The head and the rows of the only Markdown table of a text."""
    lines = [line.strip(" |").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    head, *found = [tuple(cell.strip() for cell in line) for line in lines]
    return head, [row for row in found if row != head]


def alike(before: str, now: str, difference: float) -> bool:
    """Whether two cells have the same words, and numbers that differ by at most this."""
    if NUMBER.sub("", before) != NUMBER.sub("", now):
        return False
    pairs = zip(numbers(before), numbers(now), strict=True)
    return all(abs(one - two) <= difference * max(1.0, abs(one), abs(two)) for one, two in pairs)


def numbers(cell: str) -> list[float]:
    return [float(found.replace(",", "")) for found in NUMBER.findall(cell)]


def test_cells_are_compared_by_words_and_numbers() -> None:
    assert alike("+0.06 ± 0.02 %", "+0.07 ± 0.02 %", 0.02)
    assert not alike("+0.06 ± 0.02 %", "+0.16 ± 0.02 %", 0.05)
    assert not alike("found", "not found", 1.0)
    assert alike("1,000 of 50", "1,010 of 50", 0.02)
    assert not alike("50 of 50, -88", "49 of 50", 1.0)
