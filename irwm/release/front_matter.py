"""The YAML at the start of a model card (README.md), as model hubs read it: the base model and the licence.

Only the line of the base model is added to a card; all other bytes of it stay as they are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from irwm.checkpoint.files import read_small
from irwm.checkpoint.model import Checkpoint, folder_of
from irwm.errors import CorruptCheckpointError, ParameterError, holds_controls, printable
from irwm.extras import release_libraries
from irwm.release.selection import select_files

CARD_NAME = "README.md"
BASE_MODEL = "base_model"
MOST_NAME = 300
_MOST_CARD_BYTES = 4 << 20
_BLOCK = re.compile(rb"\A(\xef\xbb\xbf)?\s*---[ \t]*(\r?\n)(.*?)^---[ \t]*(?:\r?\n|\Z)", re.DOTALL | re.MULTILINE)

# The new content of a file of the original.
Rewrite = Callable[[Path], bytes]


def rewrites_of(model: Checkpoint, base_model: str, also: Collection[str] = ()) -> Mapping[str, Rewrite]:
    """The files that a release with this base model changes; empty for "".

    Raises:
        ParameterError: the model has no card, or the name cannot be used.
        CorruptCheckpointError: the card's front matter is not YAML.
        MissingExtraError: the extra `release` is not installed.
    """
    if not base_model:
        return {}
    if holds_controls(base_model) or len(base_model) > MOST_NAME or base_model != base_model.strip():
        raise ParameterError(
            "this is not the name of a base model",
            expected=f"at most {MOST_NAME} characters, such as example-labs/base-7b",
            found=printable(base_model, 80),
        )
    if not any(file.name == CARD_NAME for file in select_files(model, also).files):
        raise ParameterError(
            "the base model cannot be recorded, because there is no model card",
            file=folder_of(model) / CARD_NAME,
            found="no such file among the release's files",
            advice=f"Add a {CARD_NAME} to the model's folder, or leave the base model out",
        )
    with_base_model(folder_of(model) / CARD_NAME, base_model)
    return {CARD_NAME: partial(with_base_model, name=base_model)}


def front_matter(card: Path) -> Mapping[str, Any]:
    """The values in the front matter of a model card; empty if the card has none, or does not exist.

    Raises:
        CorruptCheckpointError: it is not a YAML mapping.
        MissingExtraError: the extra `release` is not installed.
    """
    return _values(card, _content(card)) if card.exists() else {}


def with_base_model(card: Path, name: str) -> bytes:
    """The content of a model card with this base model; unchanged if it names one.

    Raises:
        CorruptCheckpointError, MissingExtraError: as `front_matter`.
    """
    content = _content(card)
    values = _values(card, content)
    if any(values[BASE_MODEL]) if isinstance(values.get(BASE_MODEL), list) else values.get(BASE_MODEL):
        return content
    written = _with_line(content, name)
    try:
        kept = {**values, BASE_MODEL: name} == _values(card, written)
    except CorruptCheckpointError:
        kept = False
    if not kept:  # such as YAML in braces
        raise CorruptCheckpointError(
            "The base model cannot be added to the front matter of the model card",
            file=card,
            expected="lines such as license: apache-2.0 between two lines ---",
            advice=f"Add the line {BASE_MODEL}: {name} to the card",
        )
    return written


def _with_line(content: bytes, name: str) -> bytes:
    """A card with a line for its base model instead of one without a value."""
    with release_libraries():
        import yaml
    # One plain line: the name has no line ends, and no width folds it.
    line: bytes = yaml.safe_dump({BASE_MODEL: name}, allow_unicode=True, width=10 * MOST_NAME).encode("utf-8")
    block = _BLOCK.match(content)
    if block is None:
        end = b"\r\n" if b"\r\n" in content else b"\n"
        bom = b"\xef\xbb\xbf" if content.startswith(b"\xef\xbb\xbf") else b""
        return bom + b"---" + end + line.replace(b"\n", end) + b"---" + end + end + content.removeprefix(bom)
    # An empty value, as in a template, would make the key occur twice.
    kept = re.sub(rb"^base_model[ \t]*:[^\r\n]*\r?\n", b"", block[3], flags=re.MULTILINE)
    return content[: block.start(3)] + line.replace(b"\n", block[2]) + kept + content[block.end(3) :]


def _content(card: Path) -> bytes:
    return read_small(card, _MOST_CARD_BYTES, "model card")


def _values(card: Path, content: bytes) -> Mapping[str, Any]:
    block = _BLOCK.match(content)
    if block is None:
        return {}
    with release_libraries():
        import yaml
    try:
        values = yaml.safe_load(block[3])
    except (yaml.YAMLError, ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise _not_yaml(card, " ".join(str(error).split())) from error
    if values is not None and not isinstance(values, dict):
        raise _not_yaml(card, type(values).__name__)
    return values or {}


def _not_yaml(card: Path, found: str) -> CorruptCheckpointError:
    return CorruptCheckpointError(
        "The front matter of the model card is not a YAML mapping",
        file=card,
        expected="lines such as license: apache-2.0 between two lines ---",
        found=printable(found, 200),
        advice="Repair the card",
    )
