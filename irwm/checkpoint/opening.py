"""Opens a path as a `Checkpoint`.

Only headers and the config are read; a model larger than memory opens in milliseconds.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from irwm.checkpoint.adapter import adapted, is_adapter
from irwm.checkpoint.candidates import SweepFolderError, find_checkpoints
from irwm.checkpoint.files import listed, resolved
from irwm.checkpoint.formats import GGUF
from irwm.checkpoint.layout import CONFIG_NAME, CheckpointFiles, find_files
from irwm.checkpoint.model import EXAMINED_DTYPES, Checkpoint, Given, is_examined
from irwm.checkpoint.remote.opening import local_path, source_notes
from irwm.checkpoint.shards import EXPECTED, holds_weights, two_models
from irwm.checkpoint.tensors import same_bytes
from irwm.errors import (
    CheckpointError,
    CorruptCheckpointError,
    IrwmError,
    NotACheckpointError,
    UnknownFamilyError,
    UnsupportedCheckpointError,
    printable,
)
from irwm.families import Layout, names_an_embedding, recognise, unnamed
from irwm.families.configvalues import ConfigJson
from irwm.families.schema import Shapes


def open_checkpoint(path: str | Path, base: Checkpoint | None = None) -> Checkpoint:
    """Opens a checkpoint: a folder as save_pretrained writes it, or one weight file. Each file of a
    set of shards, and its index, opens the whole set. A folder without weights opens the only checkpoint below it.

    A checkpoint on a server opens by its address: `hf://ORGANISATION/NAME@REVISION`, `https://HOST/FILE`,
    `s3://BUCKET/FOLDER`, `gs://BUCKET/FOLDER`. Only the bytes that are needed are read, each once.

    No weight is read, and no code of the model is ever run. If config and tensors contradict each other and the
    embedding is intact, only the embedding is used (`Checkpoint.contradiction`).

    Args:
        base: the model that an adapter was made for; ignored if `path` is not an adapter.

    Raises:
        NotACheckpointError: the path does not exist, is unreadable, or is not a model.
        UnsupportedCheckpointError: an unsupported format, or an adapter without its base.
        CorruptCheckpointError: the files break their format's rules or contradict each other.
        UnknownFamilyError: no known model family fits.
        CheckpointChangedError: a file shrank while it was read.
        RemoteError: the server cannot be reached, refuses, or has another file than before.
    """
    if str(path) == "":
        return _of_file(Path(path), base)
    path = local_path(path)
    found = _of_folder_given(resolved(path), base) if os.path.isdir(path) else _of_file(path, base)
    return replace(found, notes=(*source_notes(found.path), *found.notes))


def _of_folder_given(folder: Path, base: Checkpoint | None) -> Checkpoint:
    place, notes = _only_checkpoint(folder)
    found = _of_folder(place, base) if place.is_dir() else _of_file(place, base)
    # A whole file next to an index's shards was compared with them.
    read = () if found.given is None else found.given.read
    return replace(found, notes=(*notes, *found.notes), given=Given(folder, (*found.shards, *read)))


def _only_checkpoint(folder: Path) -> tuple[Path, tuple[str, ...]]:
    """The folder, if it contains weights or an adapter, else the only checkpoint below it, with a note.

    Raises:
        NotACheckpointError: there are several.
    """
    if is_adapter(folder) or holds_weights(folder):
        return folder, ()
    found = find_checkpoints(folder)
    if not found.paths:
        return folder, ()
    names = [found.name_of(path) for path in found.paths]
    if len(names) > 1:
        raise NotACheckpointError(
            "The folder contains several checkpoints",
            file=folder,
            expected=EXPECTED,
            found=listed(names),
            advice="Choose one of them. irwm.find_checkpoints lists them, and Investigate can examine all of them",
        )
    return found.paths[0], (
        f"The checkpoint was found in a subfolder of the chosen folder: {printable(names[0], 80)}.",
    )


def needs_base(path: str | Path) -> bool:
    """Whether a path leads to an adapter; the merged weights may be next to it."""
    try:
        path = local_path(path)
        return is_adapter(_only_checkpoint(resolved(path))[0] if os.path.isdir(path) else path)
    except IrwmError:
        return False


def _of_folder(folder: Path, base: Checkpoint | None) -> Checkpoint:
    """The model in a folder, or else the adapter in it."""
    if not is_adapter(folder):
        return _model(find_files(folder))
    if not holds_weights(folder, beside_adapter=True):
        return adapted(folder, base)
    try:
        return _model(find_files(folder))
    except (CheckpointError, SweepFolderError) as error:
        # An adapter's trainer leaves files that are not models.
        found = adapted(folder, base)
        note = f"The weights next to the adapter were not read: {error.problem[:1].lower()}{error.problem[1:]}."
        return replace(found, notes=(*found.notes, note))


def _of_file(path: Path, base: Checkpoint | None) -> Checkpoint:
    return adapted(path, base) if is_adapter(path) else _model(find_files(path))


def _model(files: CheckpointFiles) -> Checkpoint:
    layout, contradiction = _recognise(files)
    _require_one_model(files, layout)
    entry = files.tensors[layout.embedding.name]
    if not is_examined(entry):
        raise UnsupportedCheckpointError(
            "The embedding is in a number format that cannot be marked or examined",
            file=entry.file,
            tensor=entry.name,
            expected=", ".join(EXAMINED_DTYPES),
            found=entry.dtype,
            advice="Dequantise the model and save it as float32, float16 or bfloat16",
        )
    # The fingerprint and the patches of a release require that token i's row is one piece of the file.
    plain = not layout.embedding.transposed and layout.embedding.rows is None
    if not plain or entry.shape != (layout.vocab_size, layout.hidden_size):
        raise UnsupportedCheckpointError(
            "The embedding is not stored as a single matrix with one row per token",
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
        given=None if files.rival is None else Given(files.folder, (files.rival,)),
        contradiction=contradiction,
        unread_tensors=_unread_embeddings(files, layout),
    )


def _require_one_model(files: CheckpointFiles, layout: Layout) -> None:
    """If the folder holds a whole file next to an index, checks that both have the same numbers for the scheme.

    Raises:
        CorruptCheckpointError: they differ.
    """
    if not files.rivals:
        return
    rival = next(iter(files.rivals.values())).file
    for ref in (*layout.tensors, *filter(None, (layout.head,)), *layout.alternatives):
        other = files.rivals.get(ref.name)
        if other is None or not same_bytes(files.tensors[ref.name], other):
            raise two_models(files.folder, rival, printable(ref.name, 80))


def _recognise(files: CheckpointFiles) -> tuple[Layout, CheckpointError | None]:
    """The family's layout. If config and tensors contradict each other, the layout of the embedding, and the
    contradiction. Errors name the file that they concern."""
    # A weight that could not be assembled has the shape (), which matches no role.
    shapes = {name: entry.shape for name, entry in files.tensors.items()}
    plain = {name: entry.shape for name, entry in files.tensors.items() if is_examined(entry)}
    try:
        return recognise(files.config, shapes | dict.fromkeys(files.refused, ())), None
    except CorruptCheckpointError as error:
        refusal: CheckpointError = files.refused.get(error.tensor or "", error)
        contradiction: CheckpointError | None = _about(files, refusal)
        config: ConfigJson = {}
    except UnknownFamilyError as error:
        refusal, contradiction, config = error, None, files.config
    try:
        layout = unnamed(plain, refusal, config)
    except CheckpointError as error:
        raise _about(files, _gathered_first(shapes) or error) from error
    return layout, contradiction


def _gathered_first(shapes: Shapes) -> CheckpointError | None:
    """The error for a model whose trainer stored the weights elsewhere; None for any other model."""
    empty = next((name for name, shape in shapes.items() if 0 in shape and names_an_embedding(name)), None)
    if empty is None:
        return None
    return UnsupportedCheckpointError(
        "The embedding is empty, as happens when DeepSpeed ZeRO-3 saves a model without gathering its weights",
        tensor=empty,
        expected="a matrix",
        found=str(shapes[empty]),
        advice="Gather the weights in the trainer's folder: python zero_to_fp32.py . OUT",
    )


def _unread_embeddings(files: CheckpointFiles, layout: Layout) -> tuple[str, ...]:
    """Tensors that cannot be read and that are named like an embedding or a piece of one. If a readable embedding has
    one of these names, only tensors with a row for each token are included."""
    by_shape = not layout.names_known and not names_an_embedding(layout.embedding.name)
    unread = [name for name, entry in files.tensors.items() if not is_examined(entry)]
    if not by_shape:
        unread = [name for name in unread if files.tensors[name].shape[:1] == (layout.vocab_size,)]
    names = (*files.refused, *unread)
    return tuple(dict.fromkeys(name for name in names if names_an_embedding(name, or_a_piece=True)))


def _about(files: CheckpointFiles, error: CheckpointError) -> CheckpointError:
    """The error, with the file that it concerns."""
    settings = files.path if files.format is GGUF else files.folder / CONFIG_NAME
    return type(error)(
        error.problem,
        file=settings if error.file == CONFIG_NAME else error.file or files.path,
        tensor=error.tensor,
        expected=error.expected,
        found=error.found,
        advice=error.advice,
    )
