"""The Lab as a user works with it: a rehearsal on the demo model and a release from Protect, its table and figures,
Stop, resuming, and the case."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from storage.vault import Vault
from tests.jobs.recipients import jobs_of
from tools.officer import download, fill_path, open_tab, place, points, protect
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


def numbers(app: RunningApp, folder: Path) -> dict[str, Any]:
    """The lab's document, which is sealed in the job's folder."""
    vault = Vault.open(app.home)
    vault.unlock(PASSPHRASE)
    found: dict[str, Any] = json.loads(jobs_of(vault).files(folder.name).read("lab.json"))
    return found


def names(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


@pytest.fixture(scope="module")
def lab(page: Page) -> Page:
    open_tab(page, "lab")
    expect(page.locator("#lab-obstacles")).to_contain_text("cannot run on the demo model")
    page.locator("#lab-preset label", has_text="My own choice").click()
    expect(page.locator("#lab-prune")).to_be_visible()
    for attack in ("noise", "round", "finetune", "merge-linear", "components", "once-4", "serve"):
        tick(page, attack)
    tick(page, "prune", "30 %", "90 %")
    page.locator("#lab-modes label", has_text="Many recipients").locator("input").uncheck()
    return page


def test_a_rehearsal_fills_the_table_and_the_figures(lab: Page, running_app: RunningApp) -> None:
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


def test_lab_stop_keeps_rows_and_resume_runs_the_rest(lab: Page, running_app: RunningApp) -> None:
    lab.locator("#lab-preset label", has_text="My own choice").click()
    expect(lab.locator("#lab-prune")).to_be_visible()
    for attack in ("noise", "round", "merge-linear", "components", "once-4", "serve"):
        tick(lab, attack)
    tick(lab, "prune", "30 %")
    tick(lab, "finetune", "100 steps")
    lab.locator("#lab-modes label", has_text="Many recipients").locator("input").uncheck()
    lab.click("#start-lab")
    expect(lab.locator("#job-lab .job-what")).to_contain_text("Fine-tuned, 100 steps")
    expect(lab.locator("#lab-table tbody tr")).to_have_count(3)
    lab.locator("#job-lab .job-stop").click()
    expect(lab.locator("#job-lab .state-stopped")).to_be_visible()
    folder = newest_job(running_app)
    until(lambda: names(folder) == {"lab.json.sealed", "log.txt"}, "the scratch files to go")
    expect(lab.locator("#lab-summary")).to_contain_text("ended early")
    assert lab.locator("#lab-html").is_hidden()

    lab.click("#lab-go-on")
    expect(lab.locator("#job-lab .state-done")).to_be_visible()
    expect(lab.locator("#lab-table tbody tr")).to_have_count(4)
    expect(lab.locator("#lab-summary h2")).to_contain_text("each of the 2 trials")
    done = numbers(running_app, newest_job(running_app))["marks"][0]["rows"]
    kept = numbers(running_app, folder)["marks"][0]["rows"]
    assert done[: len(kept)] == kept


def test_release_from_protect_is_attacked_and_unrunnable_attacks_say_why(
    lab: Page, running_app: RunningApp, demo_path: Path
) -> None:
    original = place(demo_path, running_app.root, "own-model")
    release = running_app.root / "own-model-marked"
    protect(lab, original, release, recipient="Early access 7")
    there = names(running_app.root)
    open_tab(lab, "lab")
    lab.locator("#lab-what label", has_text="One of my releases").click()
    fill_path(lab, "lab-original", original)
    fill_path(lab, "lab-release", release)
    expect(lab.locator("#lab-obstacles")).to_contain_text("cannot run on own-model-marked")
    expect(lab.locator("#lab-obstacles")).to_contain_text(
        "Tables shifted: its embedding does not go through a LayerNorm"
    )
    expect(lab.locator("#lab-key input")).to_have_value(re.compile("Early access 7"))
    tick(lab, "finetune")
    tick(lab, "prune", "30 %")
    tick(lab, "round", "4 bits")
    tick(lab, "once-4")
    expect(lab.locator("#lab-once-4 label", has_text="Tables shifted")).to_have_count(0)
    lab.click("#start-lab")
    expect(lab.locator("#job-lab .job-head h2")).to_have_text("Lab on own-model-marked")
    expect(lab.locator("#job-lab .state-done")).to_be_visible()
    rows = lab.locator("#lab-table tbody tr")
    expect(rows).to_have_count(4)
    for at, words in enumerate(
        ("Not attacked.*Found", "Unmarked original.*Not found", "Pruned.*Found", "4 bits.*Found")
    ):
        expect(rows.nth(at)).to_contain_text(re.compile(words, re.S))
    expect(lab.locator("#lab-summary")).not_to_contain_text("rehearsal")
    assert points(lab, "lab-trials") == 4
    assert names(running_app.root) == there
    document = numbers(running_app, newest_job(running_app))
    assert not document["rehearsal"]
    assert document["marks"][0]["key"]["recipient"] == "Early access 7"
