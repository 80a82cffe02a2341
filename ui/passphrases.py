"""The requirements for a first passphrase."""

from __future__ import annotations

from irwm.errors import IrwmError

# Short enough to type, long enough that Argon2id makes guessing impractical.
LEAST_CHARACTERS = 12


class PassphraseTooShortError(IrwmError):
    """A first passphrase that could be guessed, or whose two entries differ."""


def check_new(first: str, second: str) -> None:
    """Whether this may become the passphrase.

    Raises:
        PassphraseTooShortError
    """
    if first != second:
        raise PassphraseTooShortError("the two entries differ", advice="type the passphrase again in both fields")
    if len(first.strip()) < LEAST_CHARACTERS:
        raise PassphraseTooShortError(
            "this passphrase is too short",
            expected=f"at least {LEAST_CHARACTERS} characters",
            found=f"{len(first.strip())}",
            advice="four unrelated words are easier to remember and harder to guess",
        )
