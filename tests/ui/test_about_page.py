"""The content of the page About, and its sources."""

from __future__ import annotations

import re
from email.message import Message
from importlib.metadata import version
from typing import Any

import gradio as gr
import pytest

import irwm
from tests.ui.handlers import Pages
from ui.licences import Library, bundled, libraries, licence_of, version_lines
from ui.pages.about import about_html, libraries_html
from ui.settings import REPOSITORY

NASTY = "<img src=x onerror=alert(1)>"


def test_every_direct_dependency_is_listed_with_the_version_that_runs() -> None:
    found = {library.name.lower(): library for library in libraries()}
    asked = re.findall(r"^([A-Za-z0-9._-]+)", (REPOSITORY / "requirements.txt").read_text("utf-8"), re.MULTILINE)
    assert len(asked) > 10
    for name in asked:
        assert found[name.lower()].version == version(name)
        assert found[name.lower()].licence not in ("", "not stated"), name


def test_bundled_parts_have_licence_texts() -> None:
    texts = {part.licence: part.text for part in bundled()}
    assert "SIL OPEN FONT LICENSE Version 1.1" in texts["OFL-1.1"]
    assert "PYTHON SOFTWARE FOUNDATION LICENSE" in texts["PSF-2.0"].upper()
    assert "Apache License" in texts["Apache-2.0"]


def test_fault_report_list_names_versions_and_no_person() -> None:
    lines = version_lines()
    for name in ("torch", "gradio", "safetensors", "gguf"):
        assert any(line.startswith(f"{name} ") and version(name) in line for line in lines)
    assert lines[0] == f"IRWM Studio {irwm.__version__}"
    assert not [line for line in lines if "/" in line or "\\" in line]


@pytest.mark.parametrize(
    ("fields", "licence"),
    [
        ([("License-Expression", "MIT"), ("License", "x")], "MIT"),
        ([("Classifier", "License :: OSI Approved :: Apache Software License")], "Apache-2.0"),
        ([("License", "Apache 2.0\nmore"), ("Classifier", "Topic :: X")], "Apache-2.0"),
        ([("License", "x" * 500)], "not stated"),
        ([], "not stated"),
    ],
)
def test_licence_is_read_from_package_metadata(fields: list[tuple[str, str]], licence: str) -> None:
    about: Any = Message()
    for name, text in fields:
        about[name] = text
    assert licence_of(about) == licence


def test_names_of_packages_are_inert() -> None:
    assert "<img" not in libraries_html([Library(NASTY, NASTY, NASTY)])


def fill(pages: Pages) -> Any:
    return pages.handler("fill", "about").fn(pages.request)


def test_the_page_names_the_method_and_where_the_data_are(pages: Pages) -> None:
    page = fill(pages)
    assert page == about_html(pages.context)
    for text in ("Invariant-based Robust Weights Watermark for LLMs", "2507.08288", str(pages.context.settings.home)):
        assert text in page
    assert 'data-copy="IRWM Studio' in page


def test_locked_browser_sees_no_about_data(pages: Pages) -> None:
    pages.lock()
    found = fill(pages)
    assert found == gr.skip()
    assert str(pages.context.settings.home) not in str(found)
