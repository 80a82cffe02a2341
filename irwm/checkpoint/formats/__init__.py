"""The file formats of weights: each reader finds which bytes of a file are which tensor, and reads no weight.

    content            what a reader returns, and the checks that all readers make
    safetensors_file   the format that releases are written in; our own strict parser
    torch_file         PyTorch's .bin and .pt; torch's own restricted unpickler, in a child process
    gguf_file          llama.cpp's GGUF, also split into several files; our own parser, in a child process
    gguf_translation   GGUF's names and settings as those of transformers, so that families need only one spelling
    child              a parser run in a process of its own, under limits (torch_parser, gguf_parser)
    reading            what reading one checkpoint may touch and take in all

A file's format follows from its name's suffix, and its first bytes must agree.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from irwm.checkpoint.formats.content import Content
from irwm.checkpoint.formats.gguf_file import read_gguf
from irwm.checkpoint.formats.reading import Reading
from irwm.checkpoint.formats.safetensors_file import read_safetensors
from irwm.checkpoint.formats.torch_file import read_torch


@dataclass(frozen=True, slots=True)
class Format:
    """One format.

    Attributes:
        name: as shown: "safetensors", "PyTorch", "GGUF".
        suffixes: of its files' names, in lower case.
        whole: the usual name of a model's only file; None without one.
        index: the name of the file that says which tensor is in which shard, None where the format has none.
        read: reads and checks a file's header, as part of one `Reading`.
    """

    name: str
    suffixes: tuple[str, ...]
    whole: str | None
    index: str | None
    read: Callable[[Path, Reading], Content]

    def owns(self, name: str) -> bool:
        """Whether a file of this name is one of the format's."""
        return name.lower().endswith(self.suffixes)


SAFETENSORS = Format(
    "safetensors", (".safetensors",), "model.safetensors", "model.safetensors.index.json", read_safetensors
)
PYTORCH = Format("PyTorch", (".bin", ".pt", ".pth"), "pytorch_model.bin", "pytorch_model.bin.index.json", read_torch)
GGUF = Format("GGUF", (".gguf",), None, None, read_gguf)
# In the order in which a folder's weights are looked for, which is transformers' own.
FORMATS = (SAFETENSORS, PYTORCH, GGUF)

__all__ = ["FORMATS", "GGUF", "PYTORCH", "SAFETENSORS", "Content", "Format", "Reading"]
