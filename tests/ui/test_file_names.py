"""Names of the files that a user gets."""

from __future__ import annotations

import pytest

from ui.file_names import LONGEST, plain_name


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (("receipt", "demo-marked", "Zoë & Co"), "receipt-demo-marked-Zoe---Co"),
        (("report", "../../etc/passwd"), "report-..-..-etc-passwd"),
        (("receipt", "demo", ""), "receipt-demo"),
        (("report", "模型"), "report"),
        (("...",), "file"),
    ],
)
def test_names_say_what_a_file_is_in_characters_of_every_system(words: tuple[str, ...], name: str) -> None:
    assert plain_name(*words) == name


def test_long_names_are_cut_before_their_mark() -> None:
    name = plain_name("report", "m" * 300, mark="abc123")
    assert len(name) == LONGEST
    assert name.endswith("m-abc123")
    assert plain_name("receipt", "東京", mark="1") != plain_name("receipt", "大阪", mark="2")
