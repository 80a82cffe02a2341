"""Opens untrusted checkpoint files and reads rows of weights from them.

    files              regular files only, read by position, compared with their first state
    magic, dtypes      file formats by their first bytes; number formats, including GGML's
    formats            where each tensor is in a safetensors, PyTorch or GGUF file
    parser_process     the program of a parser's process: it sets limits, then runs the parser
    tensors            a tensor in a file, or a weight that is made up of several tensors
    rows               reads a tensor or some of its rows, and only their bytes, each once
    shards             which files make up a checkpoint
    layout             a checkpoint's tensors and config
    quantised          weights stored as codes and scales, each presented as one weight
    adapter, lora      a low-rank adapter on its base model, and its change to one weight
    card               facts about a checkpoint for users, from its headers
    fingerprint_cache  cached fingerprints of large originals, valid while their files do not change
    model              `open_checkpoint` and what it returns, a `Checkpoint`
    matrix, mlps       a matrix of which rows can be read; the rows by which the neurons of MLPs read the stream
    served_model       a served model of which only answers are known, as a checkpoint of one tensor
    served_source      facts about a served model and its server, as a report prints them
    recorded           the file format for answers and the evidence of their source
    remote             checkpoints on servers, of which only the needed bytes are read
    suspects           a suspect in any form: weights, an adapter, or answers
    tokens             which string has which id, and which ids never occur in text

Below all of them, and below `irwm.release`, which writes checkpoints, is `platform`: what POSIX and Windows do
differently with files.

Everything raised on purpose is an `irwm.errors.IrwmError` that names the file. Tensor names, file names and config
values are untrusted text: here they are keys, never paths, and must be escaped where they are shown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from irwm.lazy import imported_on_use

if TYPE_CHECKING:
    from irwm.checkpoint.layout import CheckpointFiles as CheckpointFiles
    from irwm.checkpoint.layout import find_files as find_files
    from irwm.checkpoint.model import Checkpoint as Checkpoint
    from irwm.checkpoint.opening import open_checkpoint as open_checkpoint
    from irwm.checkpoint.rows import read_tensor as read_tensor
    from irwm.checkpoint.tensors import PackedTensor as PackedTensor
    from irwm.checkpoint.tensors import TensorEntry as TensorEntry
    from irwm.checkpoint.tokens import special_token_ids as special_token_ids
    from irwm.checkpoint.tokens import token_ids as token_ids

__getattr__, __dir__ = imported_on_use(__name__)
