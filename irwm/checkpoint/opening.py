"""From a path to a `Checkpoint`.

Only headers and the config are read; a model larger than memory opens in milliseconds.
"""

from __future__ import annotations

from pathlib import Path

from irwm.checkpoint.adapter import adapted, is_adapter
from irwm.checkpoint.formats import GGUF
from irwm.checkpoint.layout import CONFIG_NAME, CheckpointFiles, find_files
from irwm.checkpoint.model import EXAMINED_DTYPES, Checkpoint, is_examined
from irwm.checkpoint.shards import two_models
from irwm.checkpoint.tensors import same_bytes
from irwm.errors import (
    CheckpointError,
    CorruptCheckpointError,
    UnknownFamilyError,
    UnsupportedCheckpointError,
    printable,
)
from irwm.families import Layout, recognise, unnamed


def open_checkpoint(path: str | Path, base: Checkpoint | None = None) -> Checkpoint:
    """Opens a checkpoint: a folder as save_pretrained writes it, or one .safetensors, .bin, .pt, .pth or .gguf file.

    No weight is read, and no code of the model is ever run.

    Args:
        base: the model that an adapter was made for; ignored where `path` is not an adapter.

    Raises:
        NotACheckpointError: nothing there, unreadable, or nothing that is a model.
        UnsupportedCheckpointError: a format that is not read, or an adapter without its base.
        CorruptCheckpointError: the files break their format's rules or contradict each other.
        UnknownFamilyError: no known model family fits.
        CheckpointChangedError: a file shrank while it was read.
    """
    if is_adapter(path):
        return adapted(Path(path), base)
    files = find_files(path)
    layout = _recognise(files)
    _require_one_model(files, layout)
    entry = files.tensors[layout.embedding.name]
    if not is_examined(entry):
        raise UnsupportedCheckpointError(
            "The embedding is in a number format that this version does not mark or examine",
            file=entry.file,
            tensor=entry.name,
            expected=", ".join(EXAMINED_DTYPES),
            found=entry.dtype,
            advice="Dequantise the model and save it as float32, float16 or bfloat16",
        )
    # The fingerprint and the patches of a release need this: token i's row is one piece of the file.
    plain = not layout.embedding.transposed and layout.embedding.rows is None
    if not plain or entry.shape != (layout.vocab_size, layout.hidden_size):
        raise UnsupportedCheckpointError(
            "The embedding is not stored as one matrix with a row per token",
            file=entry.file,
            tensor=entry.name,
            expected=f"({layout.vocab_size}, {layout.hidden_size})",
            found=str(entry.shape),
        )
    return Checkpoint(
        path=files.path,
        config=files.config,
        tensors=files.tensors,
        shards=files.shards,
        notes=(*files.notes, *layout.notes),
        layout=layout,
        bytes_total=sum({p.file: p.seen.size for tensor in files.tensors.values() for p in tensor.parts}.values()),
        format=files.format,
        metadata=files.metadata,
    )


def _require_one_model(files: CheckpointFiles, layout: Layout) -> None:
    """Where the folder holds a whole file beside an index, both must hold the same numbers for the scheme.

    Raises:
        CorruptCheckpointError: it is not.
    """
    if not files.rivals:
        return
    rival = next(iter(files.rivals.values())).file
    for ref in layout.tensors:
        other = files.rivals.get(ref.name)
        if other is None or not same_bytes(files.tensors[ref.name], other):
            raise two_models(files.folder, rival, printable(ref.name, 80))


def _recognise(files: CheckpointFiles) -> Layout:
    """The family's layout; errors are raised with the file that they are about."""
    try:
        try:
            # A weight that could not be assembled has the shape (), which fits no role.
            shapes = {name: entry.shape for name, entry in files.tensors.items()}
            return recognise(files.config, shapes | dict.fromkeys(files.refused, ()))
        except CorruptCheckpointError as error:
            if error.tensor is not None and error.tensor in files.refused:
                raise files.refused[error.tensor] from error
            raise
        except UnknownFamilyError as error:
            plain = {name: entry.shape for name, entry in files.tensors.items() if is_examined(entry)}
            return unnamed(plain, error, files.config)
    except CheckpointError as error:
        settings = files.path if files.format is GGUF else files.folder / CONFIG_NAME
        raise type(error)(
            error.problem,
            file=settings if error.file == CONFIG_NAME else error.file or files.path,
            tensor=error.tensor,
            expected=error.expected,
            found=error.found,
            advice=error.advice,
        ) from error
