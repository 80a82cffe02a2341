"""The Lab as a user works with it: a rehearsal on the demo model, its table, figures and case; a release, and Stop."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

import irwm
from storage.vault import Vault
from tests.jobs.recipients import put_in_vault
from tools.officer import download, fill_path, open_tab, place, points
from tools.running_app import PASSPHRASE, RunningApp
from tools.waiting import until

pytestmark = pytest.mark.browser


def tick(page: Page, attack: str, *labels: str) -> None:
    """Leaves exactly these entries of a list ticked."""
    boxes = page.locator(f"#lab-{attack} label:has(input[type=checkbox])")
    for at in range(boxes.count()):
        box = boxes.nth(at)
        box.locator("input").set_checked(box.inner_text().strip() in labels)


def newest_job(app: RunningApp) -> Path:
    return max((app.home / "jobs").iterdir(), key=lambda folder: folder.stat().st_ctime)


def names(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def tick_nothing(page: Page) -> None:
    """Chooses the demo model, one owner, and no attack."""
    open_tab(page, "lab")
    expect(page.locator("#lab-obstacles")).to_contain_text("cannot run on the demo model")
    page.locator("#lab-preset label", has_text="My own choice").click()
    expect(page.locator("#lab-prune")).to_be_visible()
    for attack in ("prune", "noise", "round", "finetune", "merge-linear", "components", "once-4", "serve"):
        tick(page, attack)
    page.locator("#lab-modes label", has_text="Many recipients").locator("input").uncheck()


@pytest.fixture(scope="module")
def lab(page: Page) -> Page:
    tick_nothing(page)
    return page


def test_a_rehearsal_fills_the_table_and_the_figures(lab: Page, running_app: RunningApp) -> None:
    tick(lab, "prune", "30 %", "90 %")
    lab.click("#start-lab")
    expect(lab.locator("#lab-table tbody tr")).to_have_count(4)
    expect(lab.locator("#job-lab .state-done")).to_be_visible()
    expect(lab.locator("#lab-summary h2")).to_contain_text("The mark was found in the one trial that left the model")
    expect(lab.locator("#lab-table tbody tr").nth(2)).to_contain_text(re.compile(r"Pruned.*30 %.*Found.*50 / 50", re.S))
    expect(lab.locator("#lab-table tbody tr").nth(3)).to_contain_text("ruined")
    expect(lab.locator("#lab-trials .plotly")).to_be_visible()
    expect(lab.locator("#lab-curve .gtitle").first).to_have_text("Pruned: the mark, and the model")
    assert points(lab, "lab-trials") == 4
    assert points(lab, "lab-curve") >= 3 * 3
    before = points(lab, "lab-curve")
    lab.locator("#lab-ways label", has_text="Joint, suspect’s A").click()
    expect(lab.locator("#lab-curve .legendtext", has_text="Joint, suspect’s A")).to_have_count(1)
    assert points(lab, "lab-curve") > before
    document = json.loads(download(lab, "lab-json"))
    assert [row["attack"] for row in document["marks"][0]["rows"]] == ["none", "original", "prune", "prune"]
    assert document["status"]["signed"]
    assert "<h2>1 One owner</h2>" in download(lab, "lab-html")
    assert names(newest_job(running_app)) == {
        "lab.json.sealed",
        "lab.html.sealed",
        "lab.signature.json.sealed",
        "log.txt",
    }


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


def test_lab_on_a_release_names_unrunnable_attacks_and_can_be_stopped(
    lab: Page, running_app: RunningApp, demo_path: Path
) -> None:
    original = place(demo_path, running_app.root, "own-model")
    model = irwm.open_checkpoint(original)
    key = irwm.generate_key(model, owner="Example Labs", recipient="Early access 7")
    release = irwm.insert(model, key, running_app.root / "own-model-marked").path
    vault = Vault.open(running_app.home)
    vault.unlock(PASSPHRASE)
    put_in_vault(vault, [key])
    tick_nothing(lab)
    lab.locator("#lab-what label", has_text="One of my releases").click()
    fill_path(lab, "lab-original", original)
    fill_path(lab, "lab-release", release)
    for words in ("cannot run on own-model-marked", "Tables shifted: its embedding does not go through a LayerNorm"):
        expect(lab.locator("#lab-obstacles")).to_contain_text(words)
    expect(lab.locator("#lab-key input")).to_have_value(re.compile("Early access 7"))
    tick(lab, "prune", "30 %")
    tick(lab, "finetune", "100 steps")
    expect(lab.locator("#lab-once-4 label", has_text="Tables shifted")).to_have_count(0)
    lab.click("#start-lab")
    expect(lab.locator("#job-lab .job-head h2")).to_have_text("Lab on own-model-marked")
    expect(lab.locator("#job-lab .job-what")).to_contain_text("Fine-tuned, 100 steps")
    rows = lab.locator("#lab-table tbody tr")
    expect(rows).to_have_count(3)
    for at, words in enumerate(("Not attacked.*Found", "Unmarked original.*Not found", "Pruned.*Found")):
        expect(rows.nth(at)).to_contain_text(re.compile(words, re.DOTALL))
    expect(lab.locator("#lab-summary")).not_to_contain_text("rehearsal")
    lab.locator("#job-lab .job-stop").click()
    expect(lab.locator("#job-lab .state-stopped")).to_be_visible()
    expect(lab.locator("#lab-summary")).to_contain_text("ended early")
    expect(lab.locator("#lab-go-on")).to_be_visible()
    assert lab.locator("#lab-html").is_hidden()
    until(lambda: names(newest_job(running_app)) == {"lab.json.sealed", "log.txt"}, "the scratch files to go")
