"""Checkpoints as files, opened without trusting them: from a path to rows of numbers.

    files              regular files only, read by position, compared with the state seen first
    magic, dtypes      file formats by their first bytes; the number formats, also GGML's
    formats            which bytes of a safetensors, PyTorch or GGUF file are which tensor
    confined           what the process of a parser runs: first the limits, then the parser
    tensors            a piece of a file, or a weight that several pieces make up
    rows               a tensor or some of its rows, reading only their bytes, each once
    shards             which files make up a checkpoint
    layout             its tensors, its config
    quantised          weights stored as codes and scales, as one weight each
    adapter, lora      a low-rank adapter on its base model, and one weight's change
    card               facts about a checkpoint for a person, from its headers
    remembered         fingerprints of large originals, for as long as their files do not change
    model              `open_checkpoint` and what it returns, a `Checkpoint`
    answers            a served model that is known by its answers alone, as a checkpoint of one tensor
    heard              what is known of such a model, and who was asked, as a report prints it
    recorded           the file that answers are kept in, with the evidence of where they came from
    suspects           a suspect, whatever there is of it: weights, an adapter, or answers
    tokens             which string has which id, and which ids no text is made of

Below all of them, and below `irwm.release`, which writes checkpoints, is `platform`: what POSIX and Windows do
differently with files.

Everything raised on purpose is an `irwm.errors.IrwmError` that names the file. Tensor names, file names and config
values are untrusted text: they are keys here and never paths, and must be escaped where they are shown.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from irwm.checkpoint.layout import CheckpointFiles, find_files
    from irwm.checkpoint.model import Checkpoint
    from irwm.checkpoint.opening import open_checkpoint
    from irwm.checkpoint.rows import read_tensor
    from irwm.checkpoint.tensors import PackedTensor, TensorEntry
    from irwm.checkpoint.tokens import special_token_ids, token_ids

__all__ = [
    "Checkpoint",
    "CheckpointFiles",
    "PackedTensor",
    "TensorEntry",
    "find_files",
    "open_checkpoint",
    "read_tensor",
    "special_token_ids",
    "token_ids",
]

# Where each of them lives: what is offered here is imported when it is first used, so that files are read and limits
# set without torch.
_HOMES = {
    "Checkpoint": "model",
    "CheckpointFiles": "layout",
    "PackedTensor": "tensors",
    "TensorEntry": "tensors",
    "find_files": "layout",
    "open_checkpoint": "opening",
    "read_tensor": "rows",
    "special_token_ids": "tokens",
    "token_ids": "tokens",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
