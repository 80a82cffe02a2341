"""A case from the finding to the archive, and a report that anyone can check, in a real browser on the demo model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

import irwm
from irwm.report.checks import NOT_ESTABLISHED
from storage import Vault
from tests.jobs.recipients import put_in_vault
from tools.officer import fetch, fill_path, investigate_as, open_tab, place, type_into
from tools.running_app import PASSPHRASE, RunningApp

pytestmark = pytest.mark.browser
TITLE = "Leak of January"


@pytest.fixture(scope="module")
def case(demo_path: Path, running_app: RunningApp, page: Page) -> Path:
    """Examines a release of the demo model under a case's title; returns the release."""
    model = place(demo_path, running_app.root, "demo")
    original = irwm.open_checkpoint(model)
    key = irwm.generate_key(original, secret=bytes(32), owner="Example Labs", recipient="Early access 7")
    release = irwm.insert(original, key, running_app.root / "leaked").path
    vault = Vault.open(running_app.home)
    vault.unlock(PASSPHRASE)
    put_in_vault(vault, [key])
    investigate_as(page, release, model, title=TITLE, examiner="A. Officer", seen="2024-01-28")
    return Path(release)


@pytest.fixture(scope="module")
def report(case: Path, page: Page, running_app: RunningApp) -> Path:
    """The report's files, downloaded from the case into a folder that the app may read."""
    open_tab(page, "cases")
    page.locator("#case-runs button.place").first.click()
    expect(page.locator("#run-card .verdict-word")).to_have_text("Found")
    folder = running_app.root / "received-report"
    folder.mkdir()
    for button in ("run-pdf", "run-html", "run-json", "run-signature"):
        fetch(page, button, folder)
    return folder


def test_the_case_shows_its_items_with_hashes_and_its_runs(case: Path, page: Page) -> None:
    open_tab(page, "cases")
    expect(page.locator("#cases-list tr.chosen")).to_contain_text(TITLE)
    items = page.locator("#case-items")
    expect(items).to_contain_text("leaked")
    expect(items).to_contain_text("added by A. Officer")
    expect(items).to_contain_text("known to exist since 2024-01-28")
    expect(items.locator(".copyable").first).to_be_visible()
    expect(page.locator("#case-runs")).to_contain_text("Found")


def test_the_report_comes_as_pdf_html_numbers_and_signature(report: Path) -> None:
    names = sorted(path.name for path in report.iterdir())
    assert names == ["report.html", "report.json", "report.pdf", "report.signature.json"]
    assert (report / "report.pdf").read_bytes()[:4] == b"%PDF"
    document = json.loads((report / "report.json").read_text(encoding="utf-8"))
    assert document["case"]["Examiner"] == "A. Officer"
    assert document["standing"]["suspect_seen_utc"].startswith("2024-01-28")


def test_item_is_hashed_in_place(case: Path, page: Page, running_app: RunningApp) -> None:
    letter = running_app.root / "letter.eml"
    letter.write_text("Dear Sirs", encoding="utf-8")
    open_tab(page, "cases")
    page.click("#add-item button.label-wrap")
    fill_path(page, "item", letter)
    type_into(page, "item-from", "Example Press")
    page.click("#start-item")
    expect(page.locator("#case-items")).to_contain_text("letter.eml")
    expect(page.locator("#case-items")).to_contain_text("from Example Press")


def test_a_report_is_checked_without_the_passphrase(report: Path, page: Page) -> None:
    page.click("#lock")
    page.click("#verify-outside button.label-wrap")
    page.locator("#outside-files input[type=file]").set_input_files(sorted(report.iterdir()))
    expect(page.locator("#outside-files")).to_contain_text("report.signature")
    page.click("#outside-verify")
    expect(page.locator("#outside-verified h2")).to_contain_text(NOT_ESTABLISHED)
