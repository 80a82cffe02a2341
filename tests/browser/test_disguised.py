"""A disguised copy that computes the same is found; the page shows what was undone and how certain that is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from irwm.attacks.equivalence import disguise
from irwm.report.numbers import sure
from storage.vault import Vault
from tests.jobs.recipients import jobs_of
from tools.copies import DISGUISES
from tools.officer import download, investigate, place, protect
from tools.running_app import PASSPHRASE, RunningApp

pytestmark = pytest.mark.browser
story = pytest.mark.quick("the one story in a browser: protect, disguise, investigate, report")


@pytest.fixture(scope="module")
def document(demo_path: Path, running_app: RunningApp, page: Page) -> dict[str, Any]:
    """The examination of a disguised copy, which the page then shows."""
    model = place(demo_path, running_app.root, "demo")
    release = running_app.root / "release"
    protect(page, model, release, recipient="Early access 7")
    suspect = disguise(release, running_app.root / "leaked", DISGUISES, seed=1)
    return investigate(page, Path(suspect), model)


@story
def test_the_disguised_copy_is_found(document: dict[str, Any], page: Page) -> None:
    assert document["verdict"]["word"] == "found"
    assert document["verdict"]["count"] >= 49
    assert all(test["verdict"] == test["expected"] for test in document["self_tests"])
    expect(page.locator("#verdict .verdict-word")).to_have_text("Found")
    expect(page.locator("#verdict")).to_contain_text("they are listed below")


@story
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


@story
def test_lineage_is_a_separate_finding(document: dict[str, Any], page: Page) -> None:
    lineage = page.locator("#recognition .lineage")
    expect(lineage.locator(".lineage-word")).to_have_text("Same origin")
    expect(lineage).to_contain_text(f"{document['lineage']['attention']:.3f} in layer 0")


@story
def test_similarities_are_drawn_against_decoys(document: dict[str, Any], page: Page) -> None:
    figure = page.locator("#figure-lineage")
    expect(figure.locator(".plotly .main-svg").first).to_be_visible()
    expect(figure).to_contain_text("in minor components")
    expect(figure).to_contain_text("the median must reach 0.25")
    expect(figure).to_contain_text(f"median {document['alignment']['median_cosine']:.3f}")
    expect(figure).to_contain_text("wrong row (decoy)")
    assert page.evaluate("document.documentElement.scrollWidth") <= 1280


def test_reload_restores_the_finding(document: dict[str, Any], page: Page) -> None:
    page.reload()
    page.click("#page-investigate-button")
    expect(page.locator("#recognition .undone li")).to_have_count(len(document["alignment"]["steps"]))
    expect(page.locator("#figure-lineage .plotly .main-svg").first).to_be_visible()


def test_report_of_another_version_is_offered_with_a_note(document, page: Page, running_app: RunningApp) -> None:
    (recorded,) = running_app.home.rglob("report.json.sealed")
    vault = Vault.open(running_app.home)
    vault.unlock(PASSPHRASE)
    older = json.dumps(document | {"schema": {"name": "irwm-report", "version": 1}}).encode()
    jobs_of(vault).files(recorded.parent.name).write("report.json", older)
    page.reload()
    page.click("#page-investigate-button")
    expect(page.locator("#verdict")).to_contain_text("The report has another schema")
    expect(page.locator("#recognition .undone li")).to_have_count(0)
    expect(page.locator("#keys-tried")).to_contain_text("Early access 7")
    assert download(page, "report-html").startswith("<!doctype html>")
