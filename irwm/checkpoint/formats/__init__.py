"""The file formats of weights: each reader says which bytes of a file are which tensor, and reads no weight.

    safetensors_file   the format that releases are written in; our own strict parser
    torch_file         PyTorch's .bin and .pt; torch's own restricted unpickler, in a child process
    gguf_file          llama.cpp's GGUF; the gguf package, in a child process
    gguf_split         whether several GGUF files are the pieces of one model
    gguf_names         GGUF's names and settings as those of transformers, so that families need to know one spelling
    child              a parser run in a process of its own, under limits of time, memory and output
    confined           what that process runs: first the limits, then torch_parser or gguf_parser

A file is told by its name's suffix and must then be what it says by its first bytes.
"""

from irwm.checkpoint.formats.format import Content, Format
from irwm.checkpoint.formats.gguf_file import read_gguf
from irwm.checkpoint.formats.safetensors_file import read_safetensors
from irwm.checkpoint.formats.torch_file import read_torch

SAFETENSORS = Format(
    "safetensors", (".safetensors",), "model.safetensors", "model.safetensors.index.json", read_safetensors
)
PYTORCH = Format("PyTorch", (".bin", ".pt", ".pth"), "pytorch_model.bin", "pytorch_model.bin.index.json", read_torch)
GGUF = Format("GGUF", (".gguf",), None, None, read_gguf)
# In the order in which a folder's weights are looked for, which is transformers' own.
FORMATS = (SAFETENSORS, PYTORCH, GGUF)

__all__ = ["FORMATS", "GGUF", "PYTORCH", "SAFETENSORS", "Content", "Format"]
