"""A model that llama.cpp's gguf-split cut into several files: whether they are the pieces of one.

The first file has the model's settings; each says which piece it is, of how many, and how many tensors there are in
all. A folder's names say the same, and are nobody's word for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from irwm.checkpoint.formats.format import Content
from irwm.errors import CorruptCheckpointError

_NUMBER, _COUNT, _TENSORS = "split.no", "split.count", "split.tensors.count"
_ARCHITECTURE = "general.architecture"


def require_one_split(files: Sequence[Path], contents: Sequence[Content]) -> None:
    """Refuse files that are not the pieces of one model in their order; a single file is always one.

    Raises:
        CorruptCheckpointError: a piece says otherwise of itself, or together they hold another number of tensors.
    """
    if len(files) < 2:
        return
    architecture = contents[0].metadata.get(_ARCHITECTURE)
    total = sum(len(content.tensors) for content in contents)
    for number, (file, content) in enumerate(zip(files, contents, strict=True)):
        said = content.metadata
        stated = ((_NUMBER, number), (_COUNT, len(files)), (_TENSORS, total), (_ARCHITECTURE, architecture))
        for key, expected in stated:
            # Later pieces need not repeat the architecture.
            if said.get(key) != expected and not (key == _ARCHITECTURE and number and key not in said):
                raise _misfit(file, key, expected, said.get(key))


def _misfit(file: Path, key: str, expected: Any, found: Any) -> CorruptCheckpointError:
    return CorruptCheckpointError(
        "The files are not the pieces of one split model",
        file=file,
        expected=f"{key} {expected}",
        found="no such setting" if found is None else str(found)[:80],
        advice="Download the pieces again from one place, or give the path of the one file you mean",
    )
