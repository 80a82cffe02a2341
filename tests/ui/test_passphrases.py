"""A new passphrase must be hard to guess."""

from __future__ import annotations

import pytest

from ui.passphrases import PassphraseRefusedError, check_new


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("password1234", "password1234"),
        ("aaaaaaaaaaaa", "aaaaaaaaaaaa"),
        ("qwertyuiop123", "qwertyuiop123"),
        ("abcdefghijklm", "abcdefghijklm"),
        ("short", "short"),
        ("four unrelated plain words", "four unrelated plain word"),
    ],
)
def test_guessable_passphrase_is_refused(first: str, second: str) -> None:
    with pytest.raises(PassphraseRefusedError):
        check_new(first, second)


@pytest.mark.parametrize("words", ["four unrelated plain words", "Tr0ub4dor & lamp-oil", "x" * 5 + "qZ7!" * 40])
def test_long_or_unusual_passphrase_is_accepted(words: str) -> None:
    check_new(words, words)
