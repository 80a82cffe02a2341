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


def test_long_names_are_cut() -> None:
    assert len(plain_name("report", "m" * 300)) == LONGEST
