"""Investigate examines what the page shows: after uploads, cleared uploads and paths picked again."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

import irwm
from storage import Vault
from tests.jobs.recipients import put_in_vault
from tools.officer import fill_path, open_tab, place
from tools.page_events import settled
from tools.running_app import PASSPHRASE, RunningApp

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def model(demo_path: Path, running_app: RunningApp, page: Page) -> Path:
    """The original chosen on the page, with one key in the vault, and a suspect's path filled in."""
    path = place(demo_path, running_app.root, "demo")
    place(demo_path, running_app.root, "suspect")
    original = irwm.open_checkpoint(path)
    vault = Vault.open(running_app.home)
    vault.unlock(PASSPHRASE)
    put_in_vault(vault, [irwm.generate_key(original, secret=bytes(32), owner="Example Labs")])
    open_tab(page, "investigate")
    fill_path(page, "original-of", path)
    expect(page.locator("#start-investigate")).to_be_enabled()
    page.click("#upload-suspect button")
    return path


CLEAR = "#suspect-files button[aria-label='Clear'], #suspect-files button[title='Clear']"


def field(page: Page):
    return page.locator("#path-suspect input, #path-suspect textarea").first


def card(page: Page):
    return page.locator("#suspect-model .model-card h2")


def upload(page: Page, model: Path) -> None:
    page.locator("#suspect-files input[type=file]").set_input_files(model / "model.safetensors")
    expect(card(page)).to_have_text("model.safetensors")


def test_upload_replaces_a_path_and_a_path_replaces_an_upload(model: Path, running_app: RunningApp, page: Page) -> None:
    fill_path(page, "suspect", running_app.root / "suspect")
    expect(card(page)).to_have_text("suspect")
    upload(page, model)
    expect(field(page)).to_have_value("")
    page.click("#start-investigate")
    expect(page.locator("#verdict .verdict-about")).to_contain_text("model.safetensors against demo")
    assert list(running_app.home.glob("received/*/model.safetensors"))
    fill_path(page, "suspect", running_app.root / "suspect")
    expect(card(page)).to_have_text("suspect")
    expect(page.locator("#finding")).to_be_hidden()
    page.click("#start-investigate")
    expect(page.locator(".job-head h2").filter(has_text="Investigate suspect")).to_be_visible()
    page.click("#job-investigate .job-stop")
    expect(page.locator("#job-investigate .job-state")).to_have_text("Stopped")
    upload(page, model)


def test_a_folder_that_is_dropped_is_uploaded_file_by_file(model: Path, page: Page) -> None:
    """Uses real drag events, which can carry a folder on disk."""
    for clear in page.locator(CLEAR).all()[:1]:
        clear.click()
    expect(page.locator("#suspect-model .model-card")).to_have_count(0)
    place = page.locator("#suspect-files button").first
    place.scroll_into_view_if_needed()
    box = place.bounding_box()
    assert box is not None
    at = {"x": box["x"] + box["width"] / 2, "y": box["y"] + box["height"] / 2}
    dragged = {"items": [], "files": [str(model)], "dragOperationsMask": 1}
    session = page.context.new_cdp_session(page)
    for event in ("dragEnter", "dragOver", "drop"):
        session.send("Input.dispatchDragEvent", {"type": event, **at, "data": dragged})
    expect(card(page)).to_have_text("uploaded files")
    expect(page.locator("#suspect-model")).to_contain_text("4 096 tokens × 256")
    expect(page.locator("#suspect-files")).to_contain_text("tokenizer")


def test_an_upload_that_is_removed_is_not_examined(model: Path, page: Page) -> None:
    page.locator(CLEAR).first.click()
    expect(page.locator("#suspect-model .model-card")).to_have_count(0)
    expect(page.locator("#finding")).to_be_hidden()
    page.click("#start-investigate")
    expect(page.get_by_text("The suspect is missing").first).to_be_visible()


def test_second_of_two_quickly_pasted_paths_is_used(model: Path, running_app: RunningApp, page: Page) -> None:
    typed = field(page)
    typed.fill(str(running_app.root / "suspect"))
    typed.press("Enter")
    typed.fill(str(model))
    typed.press("Enter")
    expect(card(page)).to_have_text("demo")
    expect(typed).to_have_value(str(model))
    settled(page)
    expect(card(page)).to_have_text("demo")
    expect(typed).to_have_value(str(model))
