"""The main use case: a quantised copy of a customer's release appears as a GGUF file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import pytest
from playwright.sync_api import Page, expect

from tests.checkpoint.gguf_builders import convert
from tools.officer import investigate, place, protect
from tools.running_app import RunningApp

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def document(demo_path: Path, running_app: RunningApp, page: Page) -> dict[str, Any]:
    model = place(demo_path, running_app.root, "demo")
    release = running_app.root / "release"
    protect(page, model, release, recipient="Early access 7")
    leaked = convert(release, running_app.root / "leaked-q4_0.gguf", gguf.GGMLQuantizationType.Q4_0)
    return investigate(page, leaked, model)


def test_leaked_gguf_file_is_found_with_its_recipient(document: dict[str, Any], page: Page) -> None:
    assert document["verdict"]["word"] == "found"
    assert document["items"]["suspect"]["dtype"] == "Q4_0"
    assert [file["name"] for file in document["items"]["suspect"]["files"]] == ["leaked-q4_0.gguf"]
    expect(page.locator("#verdict .verdict-word")).to_have_text("Found")
    expect(page.locator("#verdict")).to_contain_text("Early access 7")


def test_converter_changes_are_reported(document: dict[str, Any], page: Page) -> None:
    assert any("rotary" in note for note in document["items"]["suspect"]["notes"])
    expect(page.locator("#recognition")).to_contain_text("Q4_0")
    assert document["lineage"]["status"] == "derived"


def test_card_describes_the_gguf_file(document: dict[str, Any], page: Page) -> None:
    card = page.locator(".model-card").filter(has_text="leaked-q4_0.gguf")
    expect(card).to_contain_text("GGUF")
    assert page.evaluate("document.documentElement.scrollWidth") <= 1280
