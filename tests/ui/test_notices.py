from __future__ import annotations

import pytest

from irwm.errors import CorruptCheckpointError
from ui.components import notices

NASTY = "<script>alert('x')</script>"


def test_an_error_shows_all_its_parts() -> None:
    error = CorruptCheckpointError(
        "the shard is cut short",
        file="/models/a",
        tensor="t.weight",
        expected="8 bytes",
        found="7",
        advice="copy it again",
    )
    page = notices.error_html(error)
    for text in ("The shard is cut short.", "/models/a", "t.weight", "8 bytes", "7", "Copy it again."):
        assert text in page
    assert 'role="alert"' in page
    assert page.count("data-copy=") == 2, "the path and the tensor can be copied"


def test_error_from_a_job_row_renders_the_same() -> None:
    error = CorruptCheckpointError("cut short", file="/a", advice="again")
    row = {"type": "CorruptCheckpointError", "problem": "cut short", "file": "/a", "advice": "again", "tensor": None}
    assert notices.error_html(row) == notices.error_html(error)


def test_missing_parts_leave_no_gap() -> None:
    page = notices.error_html(CorruptCheckpointError("cut short"))
    assert "facts" not in page
    assert "advice" not in page
    assert "Something went wrong" in notices.error_html({})


@pytest.mark.fault(64)
def test_markup_and_control_characters_are_inert() -> None:
    error = CorruptCheckpointError(
        NASTY, file=f"/a\x1b[31m\u202e{NASTY}", tensor=f"t\n{NASTY}", found=NASTY, advice=NASTY
    )
    for page in (notices.error_html(error), notices.empty_html(NASTY, NASTY), notices.note_html(NASTY)):
        assert "<script" not in page
        assert "\x1b" not in page
        assert "\u202e" not in page
    assert "\\x1b[31m\\u202e" in notices.error_html(error)


def test_copied_text_equals_shown_text() -> None:
    page = notices.copyable("/models/a\nrm -rf ~\n")
    assert "\n" not in page
    assert 'data-copy="/models/a\\nrm -rf ~\\n"' in page


@pytest.mark.fault(64)
def test_a_toast_is_escaped() -> None:
    message = str(notices.alarm(CorruptCheckpointError(NASTY, advice=NASTY)).message)
    assert "<script" not in message
    assert "&lt;script" in message


def test_very_long_texts_are_cut() -> None:
    assert len(notices.error_html({"problem": "x" * 100_000})) < 3000


def test_sentences() -> None:
    assert notices.sentence("what now?") == "What now?"
    assert notices.sentence("done") == "Done."
    assert notices.sentence("  ") == ""
