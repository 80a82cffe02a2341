"""Text files as answers."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

import irwm
from irwm.answers.suspect import holds_generated, open_generated
from irwm.answers.text_files import holds_text, read_texts
from irwm.errors import AnswersFileError


@pytest.mark.parametrize(
    ("content", "texts"),
    [
        ("One text.\n", ("One text.",)),
        ("\ufeffOne\r\ntext.\r\n", ("One\ntext.",)),
        ("one\n---\n\n two\n\nmore\n", ("one", " two\n\nmore")),
        ("---\none\n --- \n---\n\n", ("one",)),
        ("a --- b", ("a --- b",)),
    ],
)
def test_lines_separate_texts(tmp_path: Path, content: str, texts: tuple[str, ...]) -> None:
    file = tmp_path / "said.TXT"
    file.write_bytes(content.encode())
    found = read_texts(file)
    assert found.texts == texts
    assert (found.bytes, found.sha256) == (len(content.encode()), hashlib.sha256(content.encode()).hexdigest())


@pytest.mark.parametrize("content", [b"", b"\n---\n \n", b"caf\xe9", b"\xff\xfeo\x00n\x00e\x00"])
def test_files_without_text_are_refused(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "said.txt"
    file.write_bytes(content)
    with pytest.raises(AnswersFileError) as caught:
        read_texts(file)
    assert (caught.value.file, caught.value.advice) == (
        str(file),
        "Save the generated text as UTF-8, and only this text",
    )


def test_only_files_with_the_name_of_a_text_are_texts(tmp_path: Path) -> None:
    for name in ("a.txt", "a.md", "a.jsonl", "model.safetensors"):
        (tmp_path / name).write_text("text")
    assert [each.name for each in sorted(tmp_path.iterdir()) if holds_text(each)] == ["a.md", "a.txt"]
    assert not holds_text(tmp_path / "missing.txt")
    assert not holds_text("\0.txt")


def test_a_text_is_encoded_by_the_original(gemma_path: Path, tmp_path: Path) -> None:
    original, file = irwm.open_checkpoint(gemma_path), tmp_path / "said.txt"
    file.write_text("The first text.\n---\nThe second text is longer.\n")
    assert holds_generated(file)
    suspect = open_generated(file, original)
    expected = irwm.answers_from_responses(["", ""], ["The first text.", "The second text is longer."], original)
    assert [each.tolist() for each in suspect.generated.sequences] == [each.tolist() for each in expected.sequences]
    assert suspect.generated.log_probabilities is None
    assert (suspect.answers.form, suspect.answers.generated, suspect.answers.recording) == ("text", True, None)
    assert (suspect.answers.given, suspect.answers.used, suspect.answers.tokens) == (2, 2, expected.tokens)
