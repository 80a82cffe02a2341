"""The next steps that Protect offers once a release is written, and where they lead."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gradio as gr
import pytest

from tests.ui.handlers import Pages, hidden
from ui.components.next_steps import NextSteps

DONE: dict[str, Any] = {
    "path": "/models/demo-marked",
    "model": "/models/demo",
    "commitment": "ab" * 32,
    "key_id": "none",
    "recipient": "Zoë",
}


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRADIO_TEMP_DIR", str(tmp_path))


def test_the_receipt_is_a_file_named_after_release_and_recipient() -> None:
    box, file, done = NextSteps.shown(DONE)
    assert box.visible
    assert done == DONE
    assert (
        Path(file.value["path"] if isinstance(file.value, dict) else file.value).name
        == "receipt-demo-marked-Zoe-ababab.json"
    )
    name = file._constructor_args[0]["value"]
    assert json.loads(Path(name).read_text(encoding="utf-8")) == DONE
    box, _, done = NextSteps.shown(None)
    assert (box.visible, done) == (False, None)
    box, file, _ = NextSteps.shown({**DONE, "many": True})
    assert (box.visible, file.visible) == (True, False), "many copies have a table"


def test_investigate_gets_the_release_and_its_original(pages: Pages) -> None:
    click = pages.find("next-investigate")
    fill = pages.handler("take_release")
    assert (click._id, "click") in fill.targets
    way, *filled, asked, folded, inputs = fill.fn(DONE, pages.request)
    assert way == "weights"
    for given, path in ((filled[:4], DONE["path"]), (filled[4:], DONE["model"])):
        field, note, chosen, faulty = given
        assert (field, hidden(note), chosen, faulty) == (path, True, path, False)
    assert (asked, folded.visible, inputs.elem_classes) == (None, False, []), "the inputs are not folded"
    assert all(each == gr.skip() for each in fill.fn(None, pages.request))


def test_key_is_preselected_for_its_time_stamp(pages: Pages) -> None:
    vault = pages.vault
    record = vault.add_key(
        b"key", owner="Example Labs", recipient="Early access 7", model_name="demo", model_fingerprint="c" * 64,
        family="llama", commitment="a" * 64, parameters={}, label="",
    )  # fmt: skip
    choose = pages.handler("choose_key")
    chosen = choose.fn({**DONE, "key_id": record.id}, pages.request)
    assert chosen.value == record.id
    assert "Early access 7" in chosen.choices[0][0]
    assert choose.fn(None, pages.request) == gr.skip()
