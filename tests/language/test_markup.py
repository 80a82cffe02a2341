"""HTML and figures in another language: the tags stay, data stays, and no text becomes markup."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from irwm.language import Catalogue
from irwm.language.figures import translated_figure
from irwm.language.markup import translated

CATALOGUE = Catalogue(
    [
        ("Found", "已检出"),
        ("Copy {0}", "复制 {0}"),
        ("Under 1 in 10<sup>{0}</sup>, <b>corrected</b>", "<b>校正后</b>低于 10<sup>{0}</sup> 分之一"),
        ("less than 1 in 10³⁰", "小于 10³⁰ 分之一"),
        ("The SHA-256 of <code>…</code>", "<code>…</code> 的 SHA-256"),
        ("the file {0} is missing", "缺少文件 {0}"),
        ("An < Bo & C", "甲 < 乙 & 丙"),
    ]
)
TAG = re.compile(r"<[^>]*>")


@pytest.mark.parametrize(
    ("english", "expected"),
    [
        ('<p class="a">Found</p>', '<p class="a">已检出</p>'),
        ("<p>\n  Found\n</p>", "<p>\n  已检出\n</p>"),
        (
            '<p>Under 1 in 10<sup class="s">17</sup>, <b id="x">corrected</b>.</p>',
            '<p><b id="x">校正后</b>低于 10<sup class="s">17</sup> 分之一。</p>',
        ),
        ("<td>less than 1 in 10<sup>30</sup></td>", "<td>小于 10<sup>30</sup> 分之一</td>"),
        ("<p>The SHA-256 of <code>found.json</code></p>", "<p><code>found.json</code> 的 SHA-256</p>"),
        ('<p><b>Found.</b> <i title="Found">Else</i></p>', '<p><b>已检出。</b><i title="已检出">Else</i></p>'),
        ("<p>An &lt; Bo &amp; C</p>", "<p>甲 &lt; 乙 &amp; 丙</p>"),
        ("<p>the file &lt;script&gt; is missing</p>", "<p>缺少文件 &lt;script&gt;</p>"),
        ('<button aria-label="Copy a&quot;b">x</button>', '<button aria-label="复制 a&quot;b">x</button>'),
    ],
)
def test_text_and_labels_are_translated(english: str, expected: str) -> None:
    assert translated(english, CATALOGUE) == expected


@pytest.mark.parametrize(
    "source",
    [
        "<code>Found</code>",
        "<pre>Found</pre>",
        "<script>Found</script>",
        "<style>Found</style>",
        '<span translate="no">Found</span>',
        '<td translate="no"><b>Found</b> Found</td>',
        "<!-- Found -->",
        '<a href="Found">Else</a>',
        "<p>Found \ue000</p>",
        "<p>Found \ue201</p>",
    ],
)
def test_data_is_not_translated(source: str) -> None:
    assert translated(source, CATALOGUE) == source


TEXTS = st.lists(
    st.sampled_from(
        ["Found", "<b>", "</b>", "<p>", "</p>", "<br>", " ", ". ", "&lt;b&gt;", "less than 1 in 10<sup>30</sup>", "x"]
    ),
    max_size=14,
).map("".join)


@given(TEXTS)
def test_the_tags_are_the_same_in_any_document(source: str) -> None:
    made = translated(source, CATALOGUE)
    assert sorted(TAG.findall(made)) == sorted(TAG.findall(source))


@given(st.text(max_size=40))
def test_no_text_becomes_markup(name: str) -> None:
    escaped = name.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    made = translated(f"<p>the file {escaped} is missing</p>", CATALOGUE)
    assert TAG.findall(made) == ["<p>", "</p>"]


def test_a_figure_keeps_its_numbers() -> None:
    figure = {
        "data": [{"x": [1, 2], "name": "Found", "hovertemplate": "<b>Found</b><br>%{x}", "text": ["Found", "Else"]}],
        "layout": {"title": {"text": "Found"}, "font": {"family": "Found"}},
    }
    made = translated_figure(figure, CATALOGUE)
    assert made["data"] == [
        {"x": [1, 2], "name": "已检出", "hovertemplate": "<b>已检出</b><br>%{x}", "text": ["已检出", "Else"]}
    ]
    assert made["layout"] == {"title": {"text": "已检出"}, "font": {"family": "Found"}}
