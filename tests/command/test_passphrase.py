"""One line from a pipe, or the keyboard: only its line end is removed."""

from __future__ import annotations

import os
import pty
import sys
from collections.abc import Iterator

import pytest

from irwm.errors import IrwmError
from storage.errors import PassphraseError
from tests.command.commands import piped
from ui.command import passphrase
from ui.command.passphrase import MOST_BYTES


def through_a_pipe(content: bytes) -> str:
    return passphrase.read(stdin=False, descriptor=piped(content))


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"four words\n", "four words"),
        (b" spaces count \r\n", " spaces count "),
        (b"no line end", "no line end"),
        ("Spätlese\n".encode(), "Spätlese"),
        (b"a\rb\n", "a\rb"),
    ],
)
def test_passphrase_line_is_used_unchanged(content: bytes, text: str) -> None:
    assert through_a_pipe(content) == text


@pytest.mark.parametrize("content", [b"", b"\n", b"\r\n", b"\xff\xfe\n", b"x" * (MOST_BYTES + 10)])
def test_invalid_passphrase_is_refused_without_quoting_it(content: bytes) -> None:
    with pytest.raises(PassphraseError) as refused:
        through_a_pipe(content)
    assert "xxx" not in str(refused.value)
    assert "\\xff" not in str(refused.value)
    assert refused.value.__cause__ is None


def test_only_one_line_is_read_and_descriptor_is_closed() -> None:
    reading, writing = os.pipe()
    own = os.dup(reading)
    os.write(writing, b"first\nsecond\n")
    assert passphrase.read(stdin=False, descriptor=reading) == "first"
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(reading)
    assert os.read(own, 100) == b"second\n"
    os.close(own)
    os.close(writing)


def test_a_descriptor_that_is_not_open_is_named() -> None:
    with pytest.raises(IrwmError, match="cannot be read"):
        passphrase.read(stdin=False, descriptor=999)


def test_no_prompt_without_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    with open(os.devnull) as nothing:
        monkeypatch.setattr(sys, "stdin", nothing)
        with pytest.raises(IrwmError, match="there is no passphrase"):
            passphrase.read(stdin=False, descriptor=None)


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Standard input is a terminal."""
    ours, theirs = pty.openpty()
    with os.fdopen(theirs) as stream:
        monkeypatch.setattr(sys, "stdin", stream)
        yield
    os.close(ours)


@pytest.mark.usefixtures("terminal")
def test_terminal_prompts_once_and_twice_for_a_new_vault(monkeypatch: pytest.MonkeyPatch) -> None:
    typed = iter(["first words", "first words", "first words", "other words"])
    monkeypatch.setattr("getpass.getpass", lambda _: next(typed))
    assert passphrase.read(stdin=False, descriptor=None, again=True) == "first words"
    with pytest.raises(IrwmError, match="the two entries differ"):
        passphrase.read(stdin=False, descriptor=None, again=True)


@pytest.mark.usefixtures("terminal")
def test_passphrase_typed_on_standard_input_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("getpass.getpass", lambda _: "first words")
    assert passphrase.read(stdin=True, descriptor=None) == "first words"
