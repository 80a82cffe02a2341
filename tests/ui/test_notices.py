from __future__ import annotations

from markupsafe import Markup

from irwm.errors import CorruptCheckpointError
from ui.components import notices


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
    row = {name: getattr(error, name) for name in ("problem", "file", "tensor", "expected", "found", "advice")}
    assert notices.error_html(row) == page, "as from the list of jobs"


def test_a_note_is_one_text_even_with_markup() -> None:
    page = notices.note_html(Markup("<strong>leaked</strong> against <strong>original</strong>"))
    assert page == '<p class="note"><span><strong>leaked</strong> against <strong>original</strong></span></p>'


def test_missing_parts_leave_no_gap() -> None:
    page = notices.error_html(CorruptCheckpointError("cut short"))
    assert "facts" not in page
    assert "advice" not in page
    assert "Something went wrong" in notices.error_html({})


def test_copied_text_equals_shown_text() -> None:
    page = notices.copyable("/models/a\nrm -rf ~\n")
    assert "\n" not in page
    assert 'data-copy="/models/a\\nrm -rf ~\\n"' in page


def test_very_long_texts_are_cut() -> None:
    assert len(notices.error_html({"problem": "x" * 100_000})) < 3000


def test_sentences() -> None:
    assert notices.sentence("what now?") == "What now?"
    assert notices.sentence("done") == "Done."
    assert notices.sentence("  ") == ""
