"""Checkpoints as files: opened without trusting them, published without ever leaving half of one.

Opening, from the path a person gave to rows of numbers:

    files              regular files only, read by position, compared with the state seen first
    magic, dtypes      what a file is instead of safetensors; the number formats
    safetensors_file   one file's header, checked in full before it is believed
    rows               a tensor or some of its rows, reading only their bytes
    layout             which shards make up a checkpoint, and its config
    model              `open_checkpoint` and what it returns, a `Checkpoint`
    tokens             ids of tokens that no text is made of

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

from irwm.checkpoint.layout import CheckpointFiles, find_files
from irwm.checkpoint.manifest import (
    MANIFEST_NAME,
    Manifest,
    ManifestCheck,
    read_manifest,
    verify_manifest,
)
from irwm.checkpoint.model import Checkpoint, open_checkpoint
from irwm.checkpoint.partial import sweep_partials
from irwm.checkpoint.patches import Patch
from irwm.checkpoint.publish import Preflight, Published, preflight, publish
from irwm.checkpoint.rows import read_tensor
from irwm.checkpoint.safetensors_file import SafetensorsHeader, TensorEntry, read_header
from irwm.checkpoint.tokens import special_token_ids

__all__ = [
    "MANIFEST_NAME",
    "Checkpoint",
    "CheckpointFiles",
    "Manifest",
    "ManifestCheck",
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
    "verify_manifest",
]
