"""The file formats of weights: each reader locates the tensors in a file, and reads no weights.

    content            the result of a reader, and the checks that all readers make
    safetensors_file   the format that releases are written in; our own strict parser
    torch_file         PyTorch's .bin and .pt; torch's own restricted unpickler, in a child process
    gguf_file          llama.cpp's GGUF, also split into several files; our own parser, in a child process
    gguf_translation   converts GGUF's names and settings to those of transformers, so that families need only one
                       spelling
    parser_child       runs a parser in a separate process, under limits (torch_parser, gguf_parser)
    read_budget        the limits for reading one checkpoint as a whole

A file's format follows from its name's suffix, and its first bytes must agree.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from irwm.checkpoint.formats.content import Content
from irwm.checkpoint.formats.gguf_file import read_gguf
from irwm.checkpoint.formats.read_budget import ReadBudget
from irwm.checkpoint.formats.safetensors_file import read_safetensors
from irwm.checkpoint.formats.torch_file import read_torch


@dataclass(frozen=True, slots=True)
class Format:
    """One format.

    Attributes:
        name: for display: "safetensors", "PyTorch", "GGUF".
        suffixes: of its files' names, in lower case.
        whole: the usual name of a model's only file; None without one.
        index: the name of the file that lists the shard of each tensor; None if the format has none.
        read: reads and checks a file's header, as part of one `ReadBudget`.
    """

    name: str
    suffixes: tuple[str, ...]
    whole: str | None
    index: str | None
    read: Callable[[Path, ReadBudget], Content]

    def owns(self, name: str) -> bool:
        """Whether a file name belongs to the format."""
        return name.lower().endswith(self.suffixes)


SAFETENSORS = Format(
    "safetensors", (".safetensors",), "model.safetensors", "model.safetensors.index.json", read_safetensors
)
PYTORCH = Format("PyTorch", (".bin", ".pt", ".pth"), "pytorch_model.bin", "pytorch_model.bin.index.json", read_torch)
GGUF = Format("GGUF", (".gguf",), None, None, read_gguf)
# The order in which a folder's weights are searched, the same as in transformers.
FORMATS = (SAFETENSORS, PYTORCH, GGUF)

__all__ = ["FORMATS", "GGUF", "PYTORCH", "SAFETENSORS", "Content", "Format", "ReadBudget"]
