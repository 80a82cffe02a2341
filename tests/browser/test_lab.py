"""The Lab as a user works with it: a rehearsal on the demo model, its table, figures and case."""

from __future__ import annotations

import json
import re

import pytest
from playwright.sync_api import Page, expect

from tools.officer import download, open_tab, points
from tools.running_app import RunningApp

pytestmark = pytest.mark.browser


def tick(page: Page, attack: str, *labels: str) -> None:
    """Leaves exactly these entries of a list ticked."""
    boxes = page.locator(f"#lab-{attack} label:has(input[type=checkbox])")
    for at in range(boxes.count()):
        box = boxes.nth(at)
        box.locator("input").set_checked(box.inner_text().strip() in labels)


@pytest.fixture(scope="module")
def lab(page: Page) -> Page:
    """The page with the demo model, one owner, and no attack."""
    open_tab(page, "lab")
    expect(page.locator("#lab-obstacles")).to_contain_text("cannot run on the demo model")
    page.locator("#lab-preset label", has_text="My own choice").click()
    expect(page.locator("#lab-prune")).to_be_visible()
    for attack in ("noise", "round", "finetune", "merge-linear", "components", "once-4", "serve"):
        tick(page, attack)
    page.locator("#lab-modes label", has_text="Many recipients").locator("input").uncheck()
    return page


def test_a_rehearsal_fills_the_table_and_the_figures(lab: Page, running_app: RunningApp) -> None:
    tick(lab, "prune", "30%", "90%")
    lab.click("#start-lab")
    expect(lab.locator("#lab-table tbody tr")).to_have_count(4)
    expect(lab.locator("#job-lab .state-done")).to_be_visible()
    expect(lab.locator("#lab-summary h2")).to_contain_text("The mark was found in the one trial that left the model")
    expect(lab.locator("#lab-table tbody tr").nth(2)).to_contain_text(re.compile(r"Pruned.*30%.*Found.*50 / 50", re.S))
    expect(lab.locator("#lab-table tbody tr").nth(3)).to_contain_text("ruined")
    expect(lab.locator("#lab-trials .plotly")).to_be_visible()
    expect(lab.locator("#lab-curve .gtitle").first).to_have_text("Pruned: the mark and the model")
    assert points(lab, "lab-trials") == 4
    assert points(lab, "lab-curve") >= 3 * 3
    before = points(lab, "lab-curve")
    lab.locator("#lab-ways label", has_text="Joint, suspect’s A").click()
    expect(lab.locator("#lab-curve .legendtext", has_text="Joint, suspect’s A")).to_have_count(1)
    assert points(lab, "lab-curve") > before
    lab.locator("#lab-top input").click()
    lab.get_by_role("option", name="in the top 1%", exact=True).click()
    expect(lab.locator("#lab-curve .ytitle")).to_have_text("Positions in the top 1% (share)")
    document = json.loads(download(lab, "lab-json"))
    assert [row["attack"] for row in document["marks"][0]["rows"]] == ["none", "original", "prune", "prune"]
    assert document["status"]["signed"]
    assert "<h2>1 One owner</h2>" in download(lab, "lab-html")
    (folder,) = (running_app.home / "jobs").iterdir()
    kept = {"lab.json.sealed", "lab.html.sealed", "lab.signature.json.sealed", "log.txt"}
    assert {path.name for path in folder.iterdir()} == kept


def test_lab_results_remain_after_a_reload_and_in_the_case(lab: Page) -> None:
    lab.reload()
    open_tab(lab, "lab")
    expect(lab.locator("#lab-table tbody tr")).to_have_count(4)
    expect(lab.locator("#lab-trials .plotly")).to_be_visible()
    expect(lab.locator("#lab-history")).to_be_visible()
    open_tab(lab, "cases")
    lab.locator("#case-runs button.place").first.click()
    expect(lab.locator("#run-card")).to_contain_text("The mark was found in the one trial")
    expect(lab.locator("#run-card tbody tr")).to_have_count(4)
    expect(lab.locator("#run-html")).to_be_visible()
    open_tab(lab, "lab")
