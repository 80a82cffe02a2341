"""Texts in another language: which messages are found, and that everything else stays the same."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import polib
import pytest

import irwm.language
from irwm.errors import ParameterError
from irwm.language import LANGUAGES, Catalogue, catalogue_of
from irwm.language.catalogue import paragraphs
from irwm.language.markup import translated
from irwm.language.message import Message, compared

CHINESE = Path(irwm.language.__file__).with_name("zh_CN.po")

CATALOGUE = Catalogue(
    [
        ("Found", "已检出"),
        ("The suspect carries the mark.", "可疑模型带有水印。"),
        ("{0} of {1} positions count", "{1} 个位点中有 {0} 个计入"),
        ("The suspect carries this key’s mark{0}: {1}; {2}.", "可疑模型{0:t}带有此密钥的水印：{1:t}；{2:t}。"),
        (" in its output head", "的输出头"),
        ("the key of {0} was not made for {1}", "{0} 的密钥不是为 {1} 生成的"),
        ("{0} of {1}", "{1} 的 {0}"),
        ("read: {0}", "读取：{0:t}"),
        ("q", "q"),
        ("rows and columns", "行和列"),
        ("layers", "层"),
        ("under 1 in 10³⁰", "低于 10³⁰ 分之一"),
        ("a set {{a, b}}", "集合 {{a, b}}"),
    ]
)


@pytest.mark.parametrize(
    ("english", "expected"),
    [
        ("Found", "已检出"),
        ("found", "已检出"),
        ("Found.", "已检出。"),
        ("Found:", "已检出："),
        ("  Found\n", "  已检出\n"),
        ("## Found\n\n- Found\n- Else", "## 已检出\n\n- 已检出\n- Else"),
        ("The suspect\ncarries the mark.", "可疑模型带有水印。"),
        ("Found. The suspect carries the mark.", "已检出。可疑模型带有水印。"),
        ("Found. Not in the catalogue. Found.", "已检出。Not in the catalogue. 已检出。"),
        ("49 of 50 positions count", "50 个位点中有 49 个计入"),
        ("1\u00a0234 of 5\u00a0000 positions count", "5\u00a0000 个位点中有 1\u00a0234 个计入"),
        (
            "The suspect carries this key’s mark in its output head: 49 of 50 positions count; under 1 in 10³⁰.",
            "可疑模型的输出头带有此密钥的水印：50 个位点中有 49 个计入；低于 10³⁰ 分之一。",
        ),
        (
            "The suspect carries this key’s mark: 49 of 50 positions count; under 1 in 10³⁰.",
            "可疑模型带有此密钥的水印：50 个位点中有 49 个计入；低于 10³⁰ 分之一。",
        ),
        ("read: rows and columns, layers", "读取：行和列、层"),
        ("A set {a, b}", "集合 {a, b}"),
        ("3 of 4", "4 的 3"),
    ],
)
def test_a_text_is_found_as_a_whole_or_in_parts(english: str, expected: str) -> None:
    assert CATALOGUE.text(english) == expected


@pytest.mark.parametrize(
    "english",
    [
        "",
        "12.5%",
        "Nothing of this is known",
        "The mark of a leaked model of another company",
        "the key of Ann; it was read, and Bob was not made for Carol",
    ],
)
def test_a_text_that_is_not_known_stays(english: str) -> None:
    assert CATALOGUE.text(english) == english


def test_a_name_is_not_translated_inside_a_message() -> None:
    assert CATALOGUE.text("the key of Found was not made for Layers") == "Found 的密钥不是为 Layers 生成的"


def test_a_quoted_name_is_not_cut() -> None:
    english = "the key of “A, B. Found and C (D): E” was not made for “Layers, rows and columns”"
    expected = "“A, B. Found and C (D): E” 的密钥不是为 “Layers, rows and columns” 生成的"
    assert CATALOGUE.text(english) == expected


def test_both_apostrophes_are_the_same() -> None:
    assert Catalogue([("the original's rows", "原始模型的行")]).text("The original’s rows") == "原始模型的行"
    assert Catalogue([("the original’s {0}", "原始模型的 {0}")]).text("The original's 3") == "原始模型的 3"


def test_a_capital_decides_between_two_words() -> None:
    both = Catalogue([("Copy", "复制"), ("copy", "副本")])
    assert [both.text(word) for word in ("Copy", "copy", "copy.")] == ["复制", "副本", "副本。"]


def test_data_stays_in_its_place_if_the_order_changes() -> None:
    catalogue = Catalogue([("{0} is made from {1}", "{1} 做成 {0}")])
    page = '<p><code>a</code> is made from <span translate="no">b</span></p>'
    assert translated(page, catalogue) == '<p><span translate="no">b</span> 做成 <code>a</code></p>'


def test_english_changes_nothing() -> None:
    english = catalogue_of("en")
    assert not english
    assert english.text("Found") == "Found"


def test_an_unknown_language_is_refused() -> None:
    with pytest.raises(ParameterError) as error:
        catalogue_of("xx")
    assert error.value.found == "xx"


@pytest.mark.parametrize("language", [each for each in LANGUAGES if each != "en"])
def test_every_language_has_a_catalogue(language: str) -> None:
    assert catalogue_of(language).text("Found") != "Found"


def test_paragraphs_keep_every_line() -> None:
    text = "# Title\nOne line\nand its end\n\n- first\n  goes on\n- second\n\n1. number"
    found = list(paragraphs(text))
    assert "\n".join(beginning + paragraph for beginning, paragraph in found) == text
    assert ("", "One line\nand its end") in found
    assert ("- ", "first\n  goes on") in found


def test_a_text_made_to_match_slowly_is_soon_given_up() -> None:
    # Every "of" could end each of the first three values: a matcher that tries all of them would take years.
    slow = Catalogue([("{0} of {1} of {2} of {3}: {4} to {5}, {6} first", "{0}{1}{2}{3}{4}{5}{6}")])
    english = "a of: b to, " * 400
    assert slow.text(english) == english


class Counting(Catalogue):
    """Counts how often a part of a text is compared with the messages that have places."""

    compared = 0

    def likely(self, text: str) -> Iterator[Message]:
        self.compared += 1
        return super().likely(text)


def test_a_text_of_many_parts_is_compared_a_limited_number_of_times() -> None:
    counting = Counting([("{0} of {1}", "{1} 的 {0}"), ("{0}: {1}", "{0:t}：{1:t}"), ("Found", "已检出")])
    counting.text(" ".join(f"Part {number} of it: and so, on." for number in range(5000)))
    assert counting.compared <= 2000


def test_each_value_is_as_short_as_possible() -> None:
    text = "1 of 2 of 3, 4, 5"
    assert Message.of("{1} of {0}, {2}", "").values(text, compared(text)) == {1: "1", 0: "2 of 3", 2: "4, 5"}
    catalogue = Catalogue([("Not signed. {0}", "未签名。{0}")])
    assert catalogue.text("Not signed") == "未签名"
    assert catalogue.text("Not signed. 12") == "未签名。12"


NEGATION = re.compile(r"\b(?:not|no|none|never|cannot|neither|nor|without|nothing|nobody)\b|n[’']t")
IN_CHINESE = re.compile("[不未无没非勿别免否莫]|缺|失败|拒|除|空|均|仅|只")
# Their Chinese says the same without a negative word: "exactly these", "number".
WITHOUT_ONE = ("the folder contains the suspects in the overview ({0}) and no others", "No.")


def test_no_translation_lacks_a_negation() -> None:
    entries = polib.pofile(str(CHINESE))
    lacking = [e.msgid for e in entries if NEGATION.search(e.msgid.lower()) and not IN_CHINESE.search(e.msgstr)]
    assert len(entries) > 6000
    assert {*lacking} - {e.msgid for e in entries if not e.translated()} == {*WITHOUT_ONE}
