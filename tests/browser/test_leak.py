"""A leak by three customers: the rotated mean of their copies, as Q8_0 GGUF, names exactly those three."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import gguf
import pytest
from playwright.sync_api import Page, expect

import irwm
from irwm.attacks.equivalence import disguise
from irwm.report.signature_file import read_signature
from storage import Vault
from tests.checkpoint.gguf_builders import convert
from tests.jobs.recipients import make_keys, put_in_vault
from tools.officer import download, fill_path, investigate, open_tab, place
from tools.page_events import settled
from tools.running_app import PASSPHRASE, RunningApp

pytestmark = pytest.mark.browser

NAMES = [f"Customer {number}" for number in range(1, 13)]
LEAKERS = {"Customer 2", "Customer 5", "Customer 11"}
PARAMETERS = irwm.Parameters(constraints=5, scale="auto", noise_coordinates=5)


@pytest.fixture(scope="module")
def leak(demo_path: Path, running_app: RunningApp, page: Page) -> dict[str, Any]:
    """Twelve customers' keys in the vault, the merged copies of three, and the page's finding on them."""
    path = place(demo_path, running_app.root, "demo")
    model = irwm.open_checkpoint(path)
    keys = make_keys(model, NAMES, PARAMETERS)
    vault = Vault.open(running_app.home)
    vault.unlock(PASSPHRASE)
    put_in_vault(vault, keys)
    work = running_app.root.parent / "work"
    work.mkdir()
    copies = [irwm.insert(model, key, work / key.recipient).path for key in keys if key.recipient in LEAKERS]
    merged = irwm.attacks.collude(copies, work / "merged")
    turned = disguise(merged, work / "turned", ["rotate"], seed=3)
    suspect = convert(Path(turned), running_app.root / "leaked-q8_0.gguf", gguf.GGMLQuantizationType.Q8_0)
    document = investigate(page, suspect, path)
    return {"document": document, "keys": keys, "model": model, "suspect": suspect, "copies": copies}


def test_exactly_the_three_are_named_with_the_error_rate(leak: dict[str, Any], page: Page) -> None:
    document = leak["document"]
    assert document["verdict"]["word"] == "found"
    assert {row["recipient"] for row in document["tracing"]["ranked"] if row["named"]} == LEAKERS
    assert document["tracing"]["log10_risk"] <= -6
    sentence = page.locator("#verdict .verdict-sentence")
    for name in LEAKERS:
        expect(sentence).to_contain_text(f"“{name}”")
    expect(sentence).to_contain_text("(about 3 copies in all)")
    expect(sentence).to_contain_text("The chance of naming anyone whose copy was not used is less than 1 in 10")
    for name in set(NAMES) - LEAKERS:
        expect(sentence).not_to_contain_text(f"“{name}”")


def test_ranking_shows_all_recipients_and_names_only_three(leak: dict[str, Any], page: Page) -> None:
    rows = page.locator("#recipients tbody tr")
    expect(rows).to_have_count(len(NAMES))
    for row in rows.all():
        name = row.locator("th").inner_text()
        expect(row).to_contain_text("named" if name in LEAKERS else "not named")
    expect(page.locator("#recipients tr.is-named")).to_have_count(3)
    figure = page.locator("#figure-recipients")
    expect(figure.locator(".plotly .main-svg").first).to_be_visible()
    for words in ("3 recipients named; 12 keys tried", "decoys: expected by chance", "named at z ≥"):
        expect(figure).to_contain_text(words)
    assert page.evaluate("document.documentElement.scrollWidth") <= 1280


def test_another_suspect_clears_the_verdict_and_an_unchecked_path_is_refused(leak: dict[str, Any], page: Page) -> None:
    field = page.locator("#path-suspect input, #path-suspect textarea").first
    expect(page.locator("#verdict .verdict-sentence")).to_be_visible()
    fill_path(page, "suspect", leak["model"].path)
    expect(page.locator("#suspect-model .model-card h2")).to_have_text(leak["model"].path.name)
    expect(page.locator("#finding")).to_be_hidden()
    # Neither Enter nor blur: a script presses the button, as if both happened at the same moment.
    page.evaluate(
        """([path]) => {
            const field = document.querySelector('#path-suspect input, #path-suspect textarea');
            const set = Object.getOwnPropertyDescriptor(Object.getPrototypeOf(field), 'value').set;
            set.call(field, path);
            field.dispatchEvent(new Event('input', {bubbles: true}));
        }""",
        [str(leak["suspect"])],
    )
    settled(page)
    page.evaluate("document.querySelector('#start-investigate').click()")
    expect(page.locator("#picker-suspect .notice-fault")).to_contain_text("does not match the model card")
    field.press("Enter")


def test_a_folder_of_suspects_is_swept_and_a_broken_one_does_not_end_it(
    leak: dict[str, Any], page: Page, running_app: RunningApp
) -> None:
    folder = running_app.root / "from-the-net"
    folder.mkdir()
    (folder / "a-leak.gguf").symlink_to(leak["suspect"])  # points outside the folder: refused
    place(Path(leak["copies"][0]), folder, "b-copy")
    (folder / "c-broken.gguf").write_bytes(b"GGUF" + bytes(40))
    place(Path(leak["model"].path), folder, "d-original")
    page.reload()
    open_tab(page, "investigate")
    fill_path(page, "suspect", folder)
    expect(page.locator("#suspect-model")).to_contain_text("3 suspects in this folder")
    expect(page.locator("#suspect-model")).to_contain_text("a-leak.gguf")
    fill_path(page, "original-of", leak["model"].path)
    expect(page.locator("#start-investigate")).to_be_enabled()
    page.click("#start-investigate")
    expect(page.locator("#sweep-summary")).to_contain_text("Found in 1 of 3 suspects")
    table = page.locator("#sweep-table")
    for words in ("b-copy", "c-broken.gguf", "could not be examined", "d-original", "not found"):
        expect(table).to_contain_text(words)
    expect(page.locator("#verdict .verdict-sentence")).to_contain_text("“Customer 2”")
    overview = json.loads(download(page, "sweep-json"))
    assert [row["verdict"] for row in overview["rows"] if row["error"] is None] == ["found", "not found"]
    assert overview["refused"] == ["a-leak.gguf"]
    signed = read_signature(download(page, "sweep-signature").encode())
    assert signed.holds()
    assert signed.files["sweep.json"] == hashlib.sha256(download(page, "sweep-json").encode()).hexdigest()
    assert "Found in 1 of 3 suspects" in re.sub(r"<[^>]+>", "", download(page, "sweep-html"))
