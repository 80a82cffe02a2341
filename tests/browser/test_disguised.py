"""A disguised copy that computes the same is found; the page shows what was undone and how certain that is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from irwm.attacks.equivalence import disguise
from irwm.report.numbers import sure
from tools.copies import DISGUISES
from tools.officer import investigate, place, protect
from tools.running_app import RunningApp

pytestmark = [
    pytest.mark.browser,
    pytest.mark.quick("the one story in a browser: protect, disguise, investigate, report"),
]


@pytest.fixture(scope="module")
def document(demo_path: Path, running_app: RunningApp, page: Page) -> dict[str, Any]:
    """The examination of a disguised copy, which the page then shows."""
    model = place(demo_path, running_app.root, "demo")
    release = running_app.root / "release"
    protect(page, model, release, recipient="Early access 7")
    suspect = disguise(release, running_app.root / "leaked", DISGUISES, seed=1)
    return investigate(page, Path(suspect), model)


def test_the_disguised_copy_is_found(document: dict[str, Any], page: Page) -> None:
    assert document["verdict"]["word"] == "found"
    assert document["verdict"]["count"] >= 49
    assert all(test["verdict"] == test["expected"] for test in document["self_tests"])
    expect(page.locator("#verdict .verdict-word")).to_have_text("Found")
    expect(page.locator("#verdict")).to_contain_text("they are listed below")


def test_every_step_is_listed_with_its_confidence(document: dict[str, Any], page: Page) -> None:
    steps = document["alignment"]["steps"]
    assert {step["name"] for step in steps} >= {"rows by content", "rotation"}
    shown = page.locator("#recognition .undone li")
    expect(shown).to_have_count(len(steps))
    for row, step in zip(shown.all(), steps, strict=True):
        expect(row).to_contain_text(step["said"][1:].replace("'", "’"))
        expect(row.locator(".undone-measure")).to_have_text(step["measure"].replace("'", "’"))
        expect(row.locator(".undone-sure")).to_have_text(f"Confidence {sure(step['confidence'])}")
    expect(page.locator("#recognition")).to_contain_text("none of the original’s")


def test_lineage_is_a_separate_finding(document: dict[str, Any], page: Page) -> None:
    lineage = page.locator("#recognition .lineage")
    expect(lineage.locator(".lineage-word")).to_have_text("Same origin")
    expect(lineage).to_contain_text(f"{document['lineage']['attention']:.3f} in layer 0")


def test_similarities_are_drawn_against_decoys(document: dict[str, Any], page: Page) -> None:
    figure = page.locator("#figure-lineage")
    expect(figure.locator(".plotly .main-svg").first).to_be_visible()
    expect(figure).to_contain_text("in minor components")
    expect(figure).to_contain_text("the median must reach 0.25")
    expect(figure).to_contain_text(f"median {document['alignment']['median_cosine']:.3f}")
    expect(figure).to_contain_text("non-matching row (decoy)")
    assert page.evaluate("document.documentElement.scrollWidth") <= 1280
