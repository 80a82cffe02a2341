"""The model card in a real browser: what it shows, when and where, and that text from a model's files stays text."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect
from safetensors.torch import load_file, save_file

from tests.browser.test_axe import check
from tests.checkpoint.builders import entry, raw
from tools.officer import choose_original, fill_path, open_tab, place
from tools.running_app import RunningApp

pytestmark = pytest.mark.browser
NASTY = "<img src=x onerror=\"document.title='run'\"><script>document.title='run'</script>\u202e\x1b[31m"


def fact(page: Page, card: str, label: str):
    """The value next to a label, including folded ones."""
    term = page.locator(f"#{card} dt", has_text=re.compile(f"^{re.escape(label)}$"))
    return term.locator("xpath=following-sibling::dd[1]")


def fits(page: Page) -> bool:
    return page.evaluate("document.documentElement.scrollWidth") <= 1280


@pytest.fixture(scope="module")
def demo(demo_path: Path, running_app: RunningApp) -> Path:
    return place(demo_path, running_app.root, "demo")


@pytest.fixture(scope="module")
def hostile(tiny_path: Path, running_app: RunningApp) -> Path:
    """An unknown family whose folder, tensor and config names try to run as a script or to reverse the text."""
    folder = running_app.root / "<img src=x onerror=alert(1)>\u202e"
    folder.mkdir()
    tensors = load_file(tiny_path / "model.safetensors")
    save_file(
        {f"{NASTY}{i}{'x' * 90}": value for i, value in enumerate(tensors.values())}, folder / "model.safetensors"
    )
    (folder / "config.json").write_text(json.dumps({"model_type": NASTY, "auto_map": {"AutoModel": "x.py"}}))
    return folder


def test_demo_card_has_two_columns_and_parts_that_open_by_keyboard(demo: Path, page: Page) -> None:
    open_tab(page, "protect")
    choose_original(page, demo)
    expect(page.locator("#protect-model .model-markable")).to_have_text("Can be marked")
    expect(fact(page, "protect-model", "Fingerprint").locator("code")).to_have_text(
        "45a79e73a4a0e02a05619af85d79d3f9287212b3aadd0c461be8634d8509e1b3"
    )
    left, right = (page.locator("#protect-model .model-facts dl").nth(n).bounding_box() for n in (0, 1))
    assert left is not None
    assert right is not None
    assert left["y"] == right["y"]
    assert left["x"] + left["width"] < right["x"]
    expect(page.locator("#protect-model .model-table").first).to_contain_text("model.layers.0.self_attn.q_proj.weight")
    assert fits(page)
    files = page.locator("#protect-model details").last
    expect(files.locator("table")).to_be_hidden()
    files.locator("summary").focus()
    page.keyboard.press("Enter")
    expect(files.locator("table")).to_be_visible()
    expect(files).to_contain_text("model.safetensors")


@pytest.mark.fault(64)
def test_hostile_names_are_text_and_an_unknown_family_is_not_marked(hostile: Path, page: Page) -> None:
    fill_path(page, "original", hostile)
    card = page.locator("#protect-model .model-card")
    expect(card.locator("h2")).to_have_text("<img src=x onerror=alert(1)>\\u202e")
    expect(card.locator(".model-markable")).to_have_text("Cannot be marked")
    expect(card).to_contain_text("Can be examined, but not marked. A mark requires layer 0's q and k")
    expect(card).to_contain_text("IRWM Studio never runs code from a model")
    expect(card.locator(".model-table code").first).to_contain_text("<script>document.title='run'</script>\\u202e\\x1b")
    expect(fact(page, "protect-model", "Tokenizer")).to_have_text("none; rows will be matched by content")
    expect(page.locator("#to-names")).to_be_disabled()
    assert page.locator("#protect-model img, #protect-model script").count() == 0
    assert page.title() == "IRWM Studio"
    assert fits(page)
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        expect(page.locator("body.dark")).to_have_count(int(scheme == "dark"))
        check(page, "a model that cannot be marked", "color-contrast")
    page.emulate_media(color_scheme="light")


def test_both_models_have_a_card_or_an_error_in_investigate(
    demo: Path, hostile: Path, running_app: RunningApp, page: Page
) -> None:
    broken = running_app.root / "cut-short"
    broken.mkdir()
    raw(broken / "model.safetensors", {"t": entry("F32", [4, 4], 0, 64)}, bytes(60))
    open_tab(page, "investigate")
    for purpose, card in (("suspect", "suspect-model"), ("original-of", "original-model")):
        fill_path(page, purpose, broken)
        expect(page.locator(f"#{card} .notice-fault")).to_contain_text("truncated")
        expect(page.locator(f"#{card} .model-card")).to_have_count(0)
    expect(page.locator("#start-investigate")).to_be_disabled()
    fill_path(page, "suspect", hostile)
    fill_path(page, "original-of", demo)
    for card in ("suspect-model", "original-model"):
        expect(fact(page, card, "Fingerprint").locator("code")).to_have_text(re.compile("^[0-9a-f]{64}$"))
        expect(page.locator(f"#{card} .model-table").first).to_be_hidden()
        page.locator(f"#{card} summary", has_text="Layers, attention and tensors").click()
        expect(page.locator(f"#{card} .model-table").first).to_be_visible()
    assert page.locator("#suspect-model img, #suspect-model script").count() == 0
    assert fits(page)
