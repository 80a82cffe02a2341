"""What a format's reader answers, and what the search for shards must know of a format."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from irwm.checkpoint.tensors import Tensor


@dataclass(frozen=True, slots=True)
class Content:
    """What one weight file holds.

    Attributes:
        tensors: its tensors by name.
        metadata: what else its header says; GGUF keeps the model's settings and vocabulary here.
        notes: sentences a person should see.
    """

    tensors: Mapping[str, Tensor]
    metadata: Mapping[str, Any]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Format:
    """One format.

    Attributes:
        name: as shown: "safetensors", "PyTorch", "GGUF".
        suffixes: of its files' names, in lower case.
        whole: the name of a model's only file; None where there is no usual one.
        index: the name of the file that says which tensor is in which shard, None where the format has none.
        read: reads and checks a file's header.
    """

    name: str
    suffixes: tuple[str, ...]
    whole: str | None
    index: str | None
    read: Callable[[Path], Content]

    def owns(self, name: str) -> bool:
        """Whether a file of this name is one of the format's."""
        return name.lower().endswith(self.suffixes)
