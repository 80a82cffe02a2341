"""The PDF has the HTML's text, is the same bytes for the same document, and sets untrusted text as text."""

from __future__ import annotations

import copy
import html as html_text
import re
import subprocess
import sys
from typing import Any

import pytest

import irwm
import irwm.report.pdf as pdf
from irwm.report import KeyInfo, finding_document, render_html, to_json
from irwm.report.blocks import _BREAK_HERE, blocks_of, figures_of
from irwm.report.document import ReportError
from irwm.report.drawings import _drawn, drawn, words
from irwm.report.figures import FIGURES
from irwm.report.pdf import SPELLED, page_data, render_pdf, report_id
from irwm.report.typefaces import files, settable
from tests.report.conftest import examine
from tools.waiting import PATIENCE

HOSTILE = '#eval("1") $x$ *b* \\u{1F4A9} `raw` <img src=x> ]] #import "/etc/passwd": * // @ref'
TURNING = "\u202eabc \x1b[31mred\x07 \u2066x"


def text_of(blocks: Any) -> str:
    """All text of the blocks."""
    if isinstance(blocks, list):
        return "".join(map(text_of, blocks))
    if isinstance(blocks, dict):
        return str(blocks.get("text", "")) + "".join(map(text_of, blocks.values()))
    return ""


def squeezed(text: str) -> str:
    return re.sub(r"\s+", "", text)


@pytest.mark.slow
def test_the_same_document_gives_the_same_bytes_of_an_archival_pdf(found):
    one = render_pdf(found.document, "report.json")
    two = subprocess.run(
        [sys.executable, "-c", _AGAIN], input=to_json(found.document), capture_output=True, check=True, timeout=PATIENCE
    ).stdout
    assert one == two
    assert one.startswith(b"%PDF-1.7")
    assert b"<pdfaid:part>2</pdfaid:part>" in one
    assert b"<pdfaid:conformance>A</pdfaid:conformance>" in one
    assert b"2026-11-21T02:00:00" in one  # the document's time, not the clock's


_AGAIN = """
import sys
from irwm.report import from_json
from irwm.report.pdf import render_pdf
sys.stdout.buffer.write(render_pdf(from_json(sys.stdin.buffer.read()), "report.json"))
"""


def test_every_word_of_the_page_is_in_the_pdf(any_case):
    html = render_html(any_case.document, "report.json")
    main = html[html.index("<main>") : html.index("</main>")]
    main = re.sub(r"<noscript>.*?</noscript>|<svg.*?</svg>", "", main, flags=re.DOTALL)
    main = re.sub(r"<q>(.*?)</q>", r"“\1”", main)
    seen = html_text.unescape(re.sub(r"<[^<>]*>", "", main))
    blocks = blocks_of(html)
    assert squeezed(text_of(blocks).replace(_BREAK_HERE, "")) == squeezed(settable(seen))
    assert {block["name"] for block in blocks if block["kind"] == "figure"} == set(figures_of(html))


@pytest.mark.sweep
def test_every_figure_of_the_page_is_drawn(any_case):
    data = page_data(any_case.document, render_html(any_case.document))
    assert set(data["figures"]) <= {figure.name for figure in FIGURES}
    assert all(svg.rstrip().endswith("</svg>") and "<path" in svg for svg in data["figures"].values())
    assert not any("<text" in svg or "<dc:date" in svg for svg in data["figures"].values())
    assert data["id"] == report_id(any_case.document)


def test_a_figure_is_drawn_the_same_each_time(found):
    spec = figures_of(render_html(found.document))["figure-lineage"]
    one = drawn(spec)
    _drawn.cache_clear()
    assert drawn(spec) == one


def test_an_unsupported_kind_of_trace_is_refused():
    with pytest.raises(ReportError):
        drawn({"data": [{"type": "pie", "values": [1]}], "layout": {}})


@pytest.mark.parametrize(
    ("given", "plain"),
    [
        ("10<sup>−9</sup>", "10⁻⁹"),
        ("a<br>b", "a\nb"),
        ("&lt;b&gt;x", "<b>x"),
        ("$x^2$", "$x^2$"),
        ("말", "\\ub9d0"),
    ],
)
def test_words_of_a_figure_are_plain_characters(given, plain):
    assert words(given) == plain


def test_untrusted_text_is_not_interpreted(world):
    key = irwm.generate_key(world["model"], secret=b"\x01" * 32, owner=HOSTILE, recipient="Ж말שλ🦙")
    finding = irwm.detect(world["copy"], world["model"], world["key"], seed=7)
    particulars = examine(world, "copy").particulars
    document = finding_document(
        finding,
        **particulars
        | {
            "key_info": KeyInfo.of(key),
            "case": {"Case": HOSTILE, "Note": TURNING, "Long": "x" * 1500},
            "tokens": dict.fromkeys(world["key"].marked_rows.tolist(), HOSTILE),
        },
    )
    data = page_data(document, render_html(document))
    said = text_of(data["blocks"]).replace(_BREAK_HERE, "")
    assert squeezed(HOSTILE) in squeezed(said)
    assert "\\u202eabc \\x1b[31mred\\x07" in said
    assert "\u202e" not in said
    assert "Ж\\ub9d0\\u05e9λ\\U0001f999" in said
    assert data["blocks"][-1]["runs"][0]["text"] == SPELLED
    assert render_pdf(document).startswith(b"%PDF")


def test_a_hash_is_whole_so_that_it_can_be_copied_and_other_long_words_may_break(found):
    facts = [block for block in blocks_of(render_html(found.document)) if block["kind"] == "facts"]
    texts = [run["text"] for block in facts for row in block["rows"] for part in row for run in part]
    hashes = [text for text in texts if re.fullmatch("[0-9a-f]{64}", text)]
    assert found.document["items"]["suspect"]["fingerprint"] in hashes
    assert not any("\u200b" in text and re.fullmatch("[0-9a-f\u200b]{64,}", text) for text in texts)


def test_a_report_without_a_readable_time_is_dated_1970(not_found):
    document = copy.deepcopy(not_found.document) | {"created_utc": "once"}
    assert b"1970-01-01T00:00:00" in render_pdf(document)


def test_errors_of_typst_become_report_errors(found, monkeypatch, tmp_path):
    broken = tmp_path / "broken.typ"
    broken.write_text('#panic("no such thing")')
    monkeypatch.setattr(pdf, "_TEMPLATE", broken)
    with pytest.raises(ReportError, match="no such thing"):
        render_pdf(found.document)


def test_the_fonts_are_files_of_this_program_and_of_its_libraries():
    assert all(path.is_file() for path in files())
    assert settable("aßЖλ≥⁻‖“”–\n") == "aßЖλ≥⁻‖“”–\n"
    assert settable("말\u05d0\u0661") == "\\ub9d0\\u05d0\\u0661"


def test_neither_matplotlib_nor_typst_is_imported_before_a_pdf_is_asked_for():
    code = "import sys, irwm.report.write; print(sorted({'matplotlib', 'typst', 'fontTools'} & set(sys.modules)))"
    said = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=PATIENCE
    ).stdout
    assert said.strip() == "[]"
