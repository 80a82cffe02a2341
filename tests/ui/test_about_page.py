"""The content of the page About, and its sources."""

from __future__ import annotations

import re
from email.message import Message
from importlib.metadata import version
from typing import Any

import pytest

import irwm
from tests.ui.handlers import Pages
from ui.licences import bundled, libraries, licence_of, version_lines
from ui.settings import REPOSITORY


def test_every_direct_dependency_is_listed_with_the_version_that_runs() -> None:
    found = {library.name.lower(): library for library in libraries()}
    asked = re.findall(r"^([A-Za-z0-9._-]+)", (REPOSITORY / "requirements.txt").read_text("utf-8"), re.MULTILINE)
    assert len(asked) > 10
    for name in asked:
        assert found[name.lower()].version == version(name)
        assert found[name.lower()].licence not in ("", "not stated"), name
    texts = {part.licence: part.text for part in bundled()}
    assert texts.keys() >= {"OFL-1.1", "PSF-2.0", "Apache-2.0"}
    assert all(len(text) > 1000 for text in texts.values())


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


def test_the_page_names_the_method_and_where_the_data_are(pages: Pages) -> None:
    page = pages.handler("fill", "about").fn(pages.request)
    for text in ("2507.08288", str(pages.context.settings.home), 'data-copy="IRWM Studio'):
        assert text in page
