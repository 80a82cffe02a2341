"""A lab's document and page: the document has every number, the page is drawn from it, other documents are refused."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import irwm
from irwm.attacks.attack import Setup
from irwm.attacks.catalogue import ATTACKS
from irwm.attacks.trial import Trial, try_attack
from irwm.errors import IrwmError
from irwm.inference import default_text, reference
from irwm.report.document import ReportError, schema_of, to_json
from irwm.report.items import ItemDescription, installed_versions
from irwm.report.lab import figures, from_json, lab_document, lab_html, mark_section
from irwm.report.lab_rows import HELD, LOST, UNMEASURED, headline, remarks, word
from irwm.tracing.result import Trace, Tracing
from tests.ui.lab_documents import crafted, row
from tools.small_models import DEMO
from ui.services.lab_row import row_of


@pytest.fixture(scope="module")
def trial(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Trial]:
    """A document with one real disguise of the demo model, and its trial."""
    folder = tmp_path_factory.mktemp("lab")
    original = irwm.open_checkpoint(DEMO)
    key = irwm.generate_key(original, irwm.Parameters(permutations=200), bytes(32), "Example Labs")
    release = irwm.insert(original, key, folder / "release").path
    (folder / "scratch").mkdir()
    setup = Setup(DEMO, Path(release), key, "", folder / "scratch")
    tried = try_attack(setup, ATTACKS["rotate"], 1, reference(release, default_text(), 128))
    document = lab_document(
        original=ItemDescription.of(original), rehearsal=False, trials=1,
        settings={"text": {"name": "bundled", "characters": 10, "sha256": "00"}, "tokens": 128, "seed": 0,
                  "companions_sha256": "00"},
        case={"Case": "<img src=x onerror=alert(1)>"}, created_utc="2026-01-02T03:04:05+00:00",
        tool_versions=installed_versions(), extra={"Device": "cpu"},
    )  # fmt: skip
    item = ItemDescription.of(irwm.open_checkpoint(release))
    document["marks"].append(mark_section("single", key, item, ""))
    document["marks"][0]["rows"].append(row_of(tried, ATTACKS["rotate"], "attack", 1.234))
    return document, tried


def test_the_document_has_the_results_of_the_trial(trial: tuple[dict[str, Any], Trial]) -> None:
    document, tried = trial
    read = from_json(to_json(document))
    assert read == document
    (found,) = read["marks"][0]["rows"]
    assert found["verdict"] == tried.finding.verdict == "found"
    for way in found["ways"]:
        reading = tried.findings[way["statistic"], way["invariant"]].reading
        assert (way["count"], way["present"], way["log10_p"]) == (reading.count, reading.present, reading.log10_p)
    assert found["proof"]["same"] is True
    assert found["utility"]["kl"] == tried.utility.kl
    assert (found["label"], found["strength"], found["seconds"]) == ("Rotated", "once", 1.23)


def test_lab_verdict_counts_a_named_recipient_as_found(trial: tuple[dict[str, Any], Trial]) -> None:
    _, tried = trial
    weak = replace(tried.finding, verdict="inconclusive")
    for (z, named), found in (((50.0, True), ("found", "tracing")), ((3.0, False), ("inconclusive", "mark"))):
        trace = Trace("Customer 7", "Example Labs", z, -z * z / 5, -z * z / 5, named, 1.0, 4096)
        traced = Tracing((trace,), np.zeros(0), 1, 1e-6, weak.alignment, 1, 2, "aligned", 1, 4096, 4096, "")
        row = row_of(
            replace(tried, findings={("joint", "original"): weak}, traced=traced), ATTACKS["rotate"], "attack", 1
        )
        assert (row["traced"]["z"], row["traced"]["named"]) == (z, named)
        assert (row["verdict"], row["rests_on"]) == found
        assert row["ways"][0]["verdict"] == "inconclusive"


def test_the_page_is_drawn_from_the_json_alone_and_runs_only_its_own_scripts(
    trial: tuple[dict[str, Any], Trial],
) -> None:
    document, _ = trial
    page = lab_html(from_json(to_json(document)), "lab.json")
    assert page == lab_html(document, "lab.json")
    assert "<img" not in page
    assert "default-src &#39;none&#39;" in page
    for words in ("Rotated", "proved", headline(document), document["marks"][0]["key"]["commitment"]):
        assert words in page


@pytest.mark.parametrize("rows", [
    [row("prune", 0.1, change=math.inf)],
    [row("prune", 0.1, change=None)],
    [row("prune", 0.1, ran=False)],
    [row("prune", 0.1, present=0, verdict="inconclusive")],
    [],
])  # fmt: skip
def test_page_with_missing_values_is_drawn(rows: list[dict[str, Any]]) -> None:
    document = crafted(rows)
    page = lab_html(from_json(to_json(document)))
    assert headline(document) in page
    for figure in figures(document).values():
        json.loads(figure.to_json())


def test_lab_table_has_no_empty_column_and_readable_numbers() -> None:
    proof = {"same": True, "largest": 2e-5, "scale": 9.0, "tolerance": 0.1, "positions": 9, "dtype": "float32"}
    rows = [
        row("prune", 0.1, change=0.00243),
        row("prune", 0.9, change=-1e-7, present=0, verdict="inconclusive"),
        row("noise", 1.0, change=math.inf),
        row("noise", 0.5, change=80.2),
        row("rotate", 1, change=-0.0001) | {"proof": proof},
    ]
    rows[4]["utility"] |= {"kl": 1.2e-12, "compared": 700}
    page = lab_html(crafted(rows))
    assert "Recipient</span></th>" not in page
    assert "Recipient</span></th>" in lab_html(crafted(rows, noise=5))
    for words in ("+0.243%", ">0%<", "too large to measure", "× 81", "−0.01%", "under 0.0001",
                  "proved for the remaining tokens", "2.00 × 10<sup>−5</sup>"):  # fmt: skip
        assert words in page, words
    assert "0 / 0" not in page


@pytest.mark.parametrize(("rows", "expected"), [
    ([row("prune", 0.1), row("prune", 0.9, verdict="not found", change=40.0)], HELD),
    ([row("prune", 0.1), row("noise", 0.1, verdict="not found")], LOST),
    ([row("prune", 0.1, verdict="inconclusive", change=0.249)], LOST),
    ([row("prune", 0.1, change=0.251)], UNMEASURED),
    ([row("prune", 0.1, change=None)], UNMEASURED),
    ([row("none", 0, role="release")], UNMEASURED),
])  # fmt: skip
def test_the_outcome_follows_from_the_rows(rows: list[dict[str, Any]], expected: str) -> None:
    assert word(crafted(rows)) == expected


def test_an_unmarked_release_and_a_marked_original_are_reported() -> None:
    wrong = crafted([row("none", 0, role="release", verdict="not found"), row("prune", 0.1)])
    assert any("not found in the release itself" in text for text in remarks(wrong))
    worse = crafted([row("none", 0, role="release"), row("original", 0, role="control"), row("prune", 0.1)])
    assert any("mean nothing" in text for text in remarks(worse))


@pytest.mark.parametrize("path", [("settings",), ("marks", 0, "key"), ("marks", 0, "rows", 0, "ways"), ("schema",)])
def test_incomplete_lab_document_is_refused(path: tuple[Any, ...]) -> None:
    document = crafted([row("prune", 0.1)])
    part: Any = document
    for name in path[:-1]:
        part = part[name]
    del part[path[-1]]
    with pytest.raises(ReportError):
        from_json(to_json(document))


@pytest.mark.parametrize("data", [
    b"", b"[]", b"null", b'{"schema": {"name": "irwm-lab", "version": 6}}', b'{"schema": 1}', b"[" * 100_000,
    b'{"schema": {"name": "irwm-lab", "version": 1}, "marks": 3}',
])  # fmt: skip
def test_other_documents_than_a_lab_are_refused(data: bytes) -> None:
    with pytest.raises(IrwmError):
        from_json(data)
    schema_of(data)  # it returns a value and does not raise
