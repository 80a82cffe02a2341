"""A new passphrase must be hard to guess."""

from __future__ import annotations

import pytest

from ui.passphrases import PassphraseRefusedError, check_new


@pytest.mark.parametrize("guessable", ["password1234", "aaaaaaaaaaaa", "qwertyuiop123", "abcdefghijklm", "short"])
def test_guessable_passphrase_is_refused(guessable: str) -> None:
    with pytest.raises(PassphraseRefusedError):
        check_new(guessable, guessable)


@pytest.mark.parametrize("words", ["four unrelated plain words", "Tr0ub4dor & lamp-oil", "x" * 5 + "qZ7!" * 40])
def test_long_or_unusual_passphrase_is_accepted(words: str) -> None:
    check_new(words, words)
    with pytest.raises(PassphraseRefusedError):
        check_new(words, words[:-1])
