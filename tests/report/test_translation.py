"""A report in another language: the same numbers, verified like the English one, and names stay as they are."""

from __future__ import annotations

import copy
import html as html_text
import re
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from irwm.language import ENGLISH, LANGUAGES
from irwm.report import render_html, to_json
from irwm.report.blocks import figures_of
from irwm.report.translation import in_language, language_of
from irwm.report.verify import verify_report
from irwm.report.write import write_document

CHINESE = "zh-CN"
NUMBER = re.compile(r"\d[\d.,\u00a0]*\d|\d")
# Elements that hold data, in which no word is looked for.
DATA = re.compile(r'<(?:code|pre|svg|noscript)\b.*?</(?:code|pre|svg|noscript)>|<span translate="no">.*?</span>', re.S)
ENGLISH_WORD = re.compile(r"(?<![\w./-])[a-z]{3,}(?![\w./-])")


def words(page: str) -> str:
    """The text of a page."""
    main = page[page.index("<main>") : page.index("</main>")]
    return html_text.unescape(re.sub(r"<[^<>]*>", " ", DATA.sub(" ", main)))


def text_of_pdf(path: Path) -> str:
    return subprocess.run(["pdftotext", "-layout", path, "-"], capture_output=True, check=True, text=True).stdout


def test_english_is_the_page_as_drawn(found: Any) -> None:
    page = render_html(found.document)
    assert in_language(page, ENGLISH) is page
    assert language_of(page) == ENGLISH


@pytest.mark.sweep
def test_numbers_and_figures_are_the_same(any_case: Any) -> None:
    page = render_html(any_case.document, "report.json")
    other = in_language(page, CHINESE)
    assert language_of(other) == CHINESE
    # Chinese says "1 in 10" without the 1.
    ours_in_words = NUMBER.findall(re.sub(r"\b1 in ", "", words(page)))
    assert Counter(NUMBER.findall(words(other))) == Counter(ours_in_words)
    ours, theirs = figures_of(page), figures_of(other)
    assert ours.keys() == theirs.keys()
    for name, figure in ours.items():
        for one, two in zip(figure["data"], theirs[name]["data"], strict=True):
            assert [one.get(axis) for axis in "xy"] == [two.get(axis) for axis in "xy"]


@pytest.mark.sweep
def test_the_verdict_is_the_same(any_case: Any) -> None:
    words_of = {"found": "已检出", "not found": "未检出", "inconclusive": "无法判定"}
    page = in_language(render_html(any_case.document), CHINESE)
    said = re.search(r'<p class="word">(.*?)</p>', page)
    assert said is not None
    assert said[1] == words_of[any_case.document["verdict"]["word"]]


@pytest.mark.sweep
def test_nearly_every_word_is_translated(any_case: Any) -> None:
    page = render_html(any_case.document, "report.json")
    left = ENGLISH_WORD.findall(words(in_language(page, CHINESE)))
    # Names of models, files, parameters and programs stay.
    assert len(left) < len(ENGLISH_WORD.findall(words(page))) / 20, sorted(left)


def test_a_report_in_chinese_is_verified_and_printed(found: Any, tmp_path: Path) -> None:
    html, _ = write_document(tmp_path, found.document, language=CHINESE)
    checks = {check.name: check.ok for check in verify_report(tmp_path).checks}
    assert (checks["page"], checks["pdf"], checks["numbers"]) == (True, True, True)
    assert html.with_suffix(".json").read_bytes() == to_json(found.document)
    text = text_of_pdf(tmp_path / "report.pdf")
    assert "可疑模型" in text
    assert "第 1 页，共" in text
    assert "\\u" not in text


def test_a_changed_word_of_a_chinese_page_is_found(found: Any, tmp_path: Path) -> None:
    html, _ = write_document(tmp_path, found.document, language=CHINESE)
    page = html.read_text(encoding="utf-8")
    assert "已检出" in page
    html.write_text(page.replace("已检出", "未检出"), encoding="utf-8")
    checks = {check.name: check.ok for check in verify_report(tmp_path).checks}
    assert (checks["page"], checks["pdf"]) == (False, True)


@pytest.mark.parametrize("language", ["de-DE", "zh", "zh-CN<script>"])
def test_a_language_that_does_not_exist_counts_as_english(found: Any, tmp_path: Path, language: str) -> None:
    html, _ = write_document(tmp_path, found.document)
    html.write_text(html.read_text(encoding="utf-8").replace('lang="en-GB"', f'lang="{language}"'), encoding="utf-8")
    assert {check.name: check.ok for check in verify_report(tmp_path).checks}["page"] is False


def test_names_that_are_words_of_the_program_stay(found: Any) -> None:
    document = copy.deepcopy(found.document)
    document["items"]["suspect"]["name"] = "Found"
    document["key"] |= {"owner": "Original", "recipient": "Layers"}
    document["case"] |= {"Note": "Not found", "Examiner": "Owner"}
    page = in_language(render_html(document), CHINESE)
    for name in ("Found", "Original", "Layers", "Not found", "Owner"):
        assert f'<span translate="no">{name}</span>' in page


def test_every_language_names_itself() -> None:
    assert LANGUAGES[ENGLISH] == "English"
    assert all(names for names in LANGUAGES.values())
