"""Text files as answers: what a suspect generated, without prompts, probabilities, server or times."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from irwm.answers.answers import Answers
from irwm.answers.responses import answers_from_responses
from irwm.checkpoint import Checkpoint
from irwm.checkpoint.files import read_small
from irwm.errors import AnswersError, AnswersFileError, path_from

SUFFIXES = (".txt", ".md")
# A line that separates two texts.
SEPARATOR = "---"
MOST_BYTES = 16 << 20
_ADVICE = "Save the generated text as UTF-8, and only this text"


@dataclass(frozen=True, slots=True)
class Texts:
    """The content of a file.

    Attributes:
        texts: at least one, none of them empty.
        bytes, sha256: of the file, the digest in hex.
    """

    texts: tuple[str, ...]
    bytes: int
    sha256: str


def holds_text(path: str | Path) -> bool:
    """Whether a file's name ends like that of a text file."""
    file = path_from(path)
    return file.suffix.lower() in SUFFIXES and os.path.isfile(file)  # False also if the system rejects the path


def read_texts(path: str | Path) -> Texts:
    """The texts in a file, which lines of `SEPARATOR` separate. Line ends become those of Unix, and empty lines at the
    start and the end of a text are left out, because editors add them.

    Raises:
        AnswersFileError: the file cannot be read, is too large, is not UTF-8, or has no text.
    """
    file = path_from(path)
    content = read_small(file, MOST_BYTES, "text file")
    try:
        whole = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise AnswersFileError(
            "this file is not text in UTF-8", file=file, expected="UTF-8",
            found=f"the byte {content[error.start]:#04x} at {error.start}", advice=_ADVICE,
        ) from error  # fmt: skip
    lines = whole.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    texts: list[list[str]] = [[]]
    for line in lines:
        if line.strip() == SEPARATOR:
            texts.append([])
        else:
            texts[-1].append(line)
    found = tuple(text for text in ("\n".join(each).strip("\n") for each in texts) if text.strip())
    if not found:
        raise AnswersFileError("this file has no text", file=file, expected="generated text", found="only empty lines",
                               advice=_ADVICE)  # fmt: skip
    return Texts(found, len(content), hashlib.sha256(content).hexdigest())


def answers_from_texts(file: Path, texts: Texts, original: Checkpoint) -> Answers:
    """The texts of a file as tokens of the original, each as an answer to an empty prompt.

    Raises:
        AnswersFileError: no text has a token that carries evidence.
        UnsupportedCheckpointError: the original has no tokenizer that transformers can open.
    """
    try:
        return answers_from_responses([""] * len(texts.texts), texts.texts, original)
    except AnswersError as error:
        raise AnswersFileError(
            f"this text cannot be used: {error.problem}", file=file, expected=error.expected, found=error.found,
            advice=_ADVICE,
        ) from error  # fmt: skip
