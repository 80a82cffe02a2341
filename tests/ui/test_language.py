"""Pages in another language: what a browser gets, and what stays as the user typed it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import gradio as gr
import pytest

from irwm.language import ENGLISH, Catalogue, catalogue_of
from tests.ui.conftest import loops_closed
from tests.ui.handlers import Pages
from ui import language
from ui.components.plain_blocks import PlainBlocks
from ui.preferences import Preferences

CHINESE = "zh-CN"
CATALOGUE = Catalogue([("Found", "已检出"), ("Choose a folder", "选择文件夹"), ("Owner", "所有者")])


@pytest.mark.parametrize(
    ("kind", "answer", "expected"),
    [
        ("html", "<p>Found</p>", "<p>已检出</p>"),
        ("markdown", "## Found\nElse", "## 已检出\nElse"),
        ("button", "Found", "已检出"),
        ("textbox", "Found", "Found"),
        ("radio", "Found", "Found"),
        ("number", 3, 3),
        ("html", None, None),
        ("textbox", {"__type__": "update", "label": "Owner", "value": "Owner"}, {"label": "所有者", "value": "Owner"}),
        ("html", {"__type__": "update", "value": "<b>Found</b>"}, {"value": "<b>已检出</b>"}),
        ("button", {"__type__": "update", "value": "Found", "interactive": False}, {"value": "已检出"}),
        (
            "dropdown",
            {"__type__": "update", "choices": [("Owner", "Owner"), ["Ann", 2]], "value": "Owner"},
            {"choices": [["所有者", "Owner"], ["Ann", 2]], "value": "Owner"},
        ),
        ("textbox", {"__type__": "validate", "is_valid": False, "message": "Found"}, {"message": "已检出"}),
        ("plot", {"type": "plotly", "plot": '{"layout": {"title": {"text": "Found"}}}'}, {"type": "plotly"}),
    ],
)
def test_texts_are_translated_and_values_are_not(kind: str, answer: Any, expected: Any) -> None:
    (made,) = language.answers_in([kind], [answer], CATALOGUE)
    if isinstance(expected, dict):
        assert {name: made[name] for name in expected} == expected
        assert made.keys() == answer.keys()
    else:
        assert made == expected


def test_the_document_is_sent_in_the_chosen_language(monkeypatch: pytest.MonkeyPatch) -> None:
    with loops_closed(monkeypatch), PlainBlocks(title="IRWM Studio") as blocks:
        gr.Textbox(label="Settings", value="Settings")
        gr.Button("Save")
    blocks.config = blocks.get_config_file()
    english = [each["props"] for each in blocks.config["components"]]
    blocks.language = lambda: CHINESE
    chinese = [each["props"] for each in blocks.config["components"]]
    assert (english[0]["label"], chinese[0]["label"]) == ("Settings", "设置")
    assert chinese[0]["value"] == "Settings"
    assert (english[1]["value"], chinese[1]["value"]) == ("Save", catalogue_of(CHINESE).text("Save"))
    blocks.language = lambda: ENGLISH
    assert [each["props"] for each in blocks.config["components"]] == english


def test_a_page_says_its_errors_in_the_chosen_language(pages: Pages) -> None:
    context = pages.context
    context.settings = context.settings.with_preferences(Preferences(language=CHINESE))
    assert context.said("Settings") == "设置"
    context.settings = replace(context.settings, preferences=Preferences())
    assert context.said("Settings") == "Settings"
