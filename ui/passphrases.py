"""The requirements for a new passphrase."""

from __future__ import annotations

from irwm.errors import IrwmError

# Short enough to type, long enough that Argon2id makes guessing impractical.
LEAST_CHARACTERS = 12
# zxcvbn's score of 0 to 4: 3 is more than 10^8 guesses, which Argon2id makes slow.
LEAST_SCORE = 3
# zxcvbn refuses longer texts.
_MOST_RATED = 72
FOUR_WORDS = "four unrelated words are easier to remember and harder to guess"


class PassphraseRefusedError(IrwmError):
    """A new passphrase that could be guessed, or whose two entries differ."""


def check_new(first: str, second: str) -> None:
    """Whether this may become the passphrase.

    Raises:
        PassphraseRefusedError
    """
    if first != second:
        raise PassphraseRefusedError("the two entries differ", advice="type the passphrase again in both fields")
    if len(first.strip()) < LEAST_CHARACTERS:
        raise PassphraseRefusedError(
            "this passphrase is too short",
            expected=f"at least {LEAST_CHARACTERS} characters",
            found=f"{len(first.strip())}",
            advice=FOUR_WORDS,
        )
    from zxcvbn import zxcvbn  # its lists of words take a tenth of a second to load

    rated = zxcvbn(first.strip()[:_MOST_RATED], user_inputs=["irwm", "studio", "watermark"])
    if rated["score"] < LEAST_SCORE:
        why = str(rated["feedback"]["warning"] or "a pattern that password-cracking programs try first").rstrip(".")
        raise PassphraseRefusedError("this passphrase is easy to guess", found=why, advice=FOUR_WORDS)
