"""Checkpoints as files: opened without trusting them, published without ever leaving half of one.

Opening, from the path a person gave to rows of numbers:

    files              regular files only, read by position, compared with the state seen first
    magic, dtypes      what a file is instead of safetensors; the number formats
    formats            which bytes of a safetensors, PyTorch or GGUF file are which tensor
    tensors            a piece of a file, or a weight that several pieces make up
    rows               a tensor or some of its rows, reading only their bytes
    shards             which files make up a checkpoint
    layout             its tensors, its config
    quantised          weights stored as codes and scales, put together
    adapter, lora      a low-rank adapter on its base model, and one weight's change
    card               what a person should know of a checkpoint, from its headers
    model              `open_checkpoint` and what it returns, a `Checkpoint`
    tokens             which string has which id, and which ids no text is made of

Publishing, from an opened checkpoint to a new folder:

    patches            the byte ranges that change
    selection          which files come along, and which would give unmarked weights away
    partial            the locked NAME.partial folder, and sweeping those of dead runs
    publish            copy, hash, verify, rename
    manifest           SHA256SUMS, for `sha256sum -c`

Below both is `platform`, what POSIX and Windows do differently with files.

Everything raised on purpose is an `irwm.errors.IrwmError` that names the file. Tensor names, file names and config
values are a stranger's text: keys here, never paths, and to be escaped where they are shown.
"""

from irwm.checkpoint.formats.safetensors_file import SafetensorsHeader, read_header
from irwm.checkpoint.layout import CheckpointFiles, find_files
from irwm.checkpoint.manifest import (
    MANIFEST_NAME,
    Manifest,
    ManifestCheck,
    read_manifest,
    verify_manifest,
)
from irwm.checkpoint.model import Checkpoint
from irwm.checkpoint.opening import open_checkpoint
from irwm.checkpoint.partial import sweep_partials
from irwm.checkpoint.patches import LazyPatch, Patch
from irwm.checkpoint.publish import Preflight, Published, preflight, publish
from irwm.checkpoint.rows import read_tensor
from irwm.checkpoint.tensors import PackedTensor, TensorEntry
from irwm.checkpoint.tokens import special_token_ids, token_ids

__all__ = [
    "MANIFEST_NAME",
    "Checkpoint",
    "CheckpointFiles",
    "LazyPatch",
    "Manifest",
    "ManifestCheck",
    "PackedTensor",
    "Patch",
    "Preflight",
    "Published",
    "SafetensorsHeader",
    "TensorEntry",
    "find_files",
    "open_checkpoint",
    "preflight",
    "publish",
    "read_header",
    "read_manifest",
    "read_tensor",
    "special_token_ids",
    "sweep_partials",
    "token_ids",
    "verify_manifest",
]
