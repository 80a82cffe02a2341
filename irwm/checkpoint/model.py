"""An opened checkpoint: what it is, and rows of its weights on request.

Opening reads headers and the config only; a model larger than memory opens in milliseconds. Weights come out as
float32, since every step of the scheme counts in it, and are read anew on each call.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from irwm.checkpoint.dtypes import torch_name
from irwm.checkpoint.layout import CONFIG_NAME, CheckpointFiles, find_files
from irwm.checkpoint.rows import Rows, read_tensor, row_numbers
from irwm.checkpoint.safetensors_file import TensorEntry, stream_tensor
from irwm.errors import CheckpointError, CorruptCheckpointError, UnsupportedCheckpointError
from irwm.families import Layout, TensorRef, recognise

# The embedding is marked in its own dtype, and these are the ones a mark is known to survive.
EMBEDDING_DTYPES = ("F32", "F16", "BF16")
# What may be read as plain numbers. Anything narrower is a quantised weight that means nothing without its scales.
_PLAIN_DTYPES = (*EMBEDDING_DTYPES, "F64")
# Bytes of stored rows converted at a time, which bounds what a read needs beside its result.
_BLOCK = 64 * 1024 * 1024
_FINGERPRINT_DOMAIN = b"irwm-embedding-v1"


@dataclass(frozen=True, slots=True, eq=False)
class Checkpoint:
    """A checkpoint on disk; made by `open_checkpoint`. Two of them are equal only if they are the same object.

    Attributes:
        path: the folder or the single .safetensors file.
        config: config.json's content, {} where there is none.
        tensors: every tensor of every shard by name; the names are the author's and must be escaped where shown.
        shards: the weight files.
        notes: sentences a person should see, such as code in the model that was not run.
        layout: where the embedding and layer 0's q and k are, and the conventions of the family.
        bytes_total: size of the weight files.
    """

    path: Path
    config: Mapping[str, Any]
    tensors: Mapping[str, TensorEntry]
    shards: tuple[Path, ...]
    notes: tuple[str, ...]
    layout: Layout
    bytes_total: int
    _cache: dict[str, str] = field(default_factory=dict, init=False, repr=False)

    @property
    def family(self) -> str:
        return self.layout.family

    @property
    def vocab_size(self) -> int:
        """s, rows of the embedding as stored, padded ones included."""
        return self.layout.vocab_size

    @property
    def hidden_size(self) -> int:
        """d, columns of the embedding."""
        return self.layout.hidden_size

    @property
    def tied(self) -> bool:
        """Whether the model uses its embedding as output head."""
        return self.layout.tied

    @property
    def dtype(self) -> str:
        """torch's name for the embedding's number format: "float32", "float16" or "bfloat16"."""
        return torch_name(self.tensors[self.layout.embedding.name].dtype)

    @property
    def fingerprint(self) -> str:
        """SHA-256, in hex, that identifies the embedding; computed on first use by reading it once.

        Hashed are, in this order: the length of the domain string "irwm-embedding-v1" and its bytes, the length of
        the dtype's name and its bytes (ASCII), vocab_size, hidden_size, and the embedding's bytes as stored (row by
        row, little-endian). Lengths and sizes are unsigned 64-bit little-endian integers.

        Raises:
            CheckpointChangedError: the file is not what it was when it was opened.
        """
        if "fingerprint" not in self._cache:
            digest = hashlib.sha256()
            for text in (_FINGERPRINT_DOMAIN, self.dtype.encode("ascii")):
                digest.update(len(text).to_bytes(8, "little") + text)
            digest.update(self.vocab_size.to_bytes(8, "little") + self.hidden_size.to_bytes(8, "little"))
            for piece in stream_tensor(self.tensors[self.layout.embedding.name]):
                digest.update(piece)
            self._cache["fingerprint"] = digest.hexdigest()
        return self._cache["fingerprint"]

    def embedding(self, rows: Rows = None, device: str | torch.device = "cpu") -> torch.Tensor:
        """Rows of W_e as float32 of shape (n, hidden_size).

        Args:
            rows: None for all, a slice, or token ids in any order, repeats allowed.
            device: where the result is put.

        Raises:
            RowIndexError: an id outside 0 to vocab_size - 1.
            CheckpointChangedError: the file is not what it was when it was opened.
        """
        return self.read(self.layout.embedding, rows, device)

    def read(self, ref: TensorRef, rows: Rows = None, device: str | torch.device = "cpu") -> torch.Tensor:
        """A tensor of the layout as float32, in its logical (out, in) orientation.

        Args:
            ref: the tensor; `ref.rows` picks a role's rows out of a fused one.
            rows: which of the role's rows: None for all, a slice, or numbers counted within the role.
            device: where the result is put.

        Returns:
            Shape (n, in) for a matrix, (n,) for a vector.

        Raises:
            RowIndexError: a row the role does not have.
            UnsupportedCheckpointError: a quantised weight.
            CorruptCheckpointError: no such tensor, or it is too small for `ref`.
            CheckpointChangedError: the file is not what it was when it was opened.
        """
        entry = self._entry(ref)
        height = entry.shape[-1] if ref.transposed else entry.shape[0]
        first, last = ref.rows if ref.rows is not None else (0, height)
        if not 0 <= first <= last <= height:
            raise CorruptCheckpointError(
                "The tensor is smaller than its role needs",
                file=entry.file,
                tensor=entry.name,
                expected=f"at least {last} rows",
                found=f"{height} rows",
            )
        numbers = row_numbers(rows, last - first, entry.name) + first
        if ref.transposed and len(entry.shape) == 2:
            # Rows of the logical matrix are columns of the file, so all of it passes by.
            columns = numbers if rows is not None or ref.rows is not None else slice(None)
            return read_tensor(entry).T[columns].to(device).to(torch.float32).contiguous()
        result = torch.empty((numbers.numel(), *entry.shape[1:]), dtype=torch.float32, device=device)
        step = max(1, _BLOCK * entry.shape[0] // max(entry.nbytes, 1))
        for begin in range(0, numbers.numel(), step):
            block = numbers[begin : begin + step]
            result[begin : begin + step] = read_tensor(entry, block).to(device)
        return result

    def _entry(self, ref: TensorRef) -> TensorEntry:
        """The entry behind a reference, known to hold plain numbers with at least one dimension."""
        entry = self.tensors.get(ref.name)
        if entry is None:
            raise CorruptCheckpointError("A tensor is missing", file=self.path, tensor=ref.name)
        if entry.dtype not in _PLAIN_DTYPES:
            raise UnsupportedCheckpointError(
                "The tensor is quantised, and this version does not read this kind of quantisation",
                file=entry.file,
                tensor=ref.name,
                expected=", ".join(_PLAIN_DTYPES),
                found=entry.dtype,
                advice="Dequantise the model and save it as float32, float16 or bfloat16",
            )
        if not entry.shape:
            raise CorruptCheckpointError("The tensor is a single number", file=entry.file, tensor=ref.name)
        return entry


def folder_of(checkpoint: Checkpoint) -> Path:
    """The folder that the checkpoint's config and tokenizer are in."""
    return checkpoint.path.parent if is_single_file(checkpoint) else checkpoint.path


def is_single_file(checkpoint: Checkpoint) -> bool:
    """Whether it was opened from one weight file instead of a folder."""
    return checkpoint.path in checkpoint.shards


def open_checkpoint(path: str | Path) -> Checkpoint:
    """Opens a checkpoint: a folder as save_pretrained writes it, or one .safetensors file.

    No weight is read, and no code of the model is ever run.

    Raises:
        NotACheckpointError: nothing there, unreadable, or nothing that is a model.
        UnsupportedCheckpointError: another format, an adapter, or a quantised embedding.
        CorruptCheckpointError: the files break their format's rules or contradict each other.
        UnknownFamilyError: no known model family fits.
        CheckpointChangedError: a file shrank while it was read.
    """
    files = find_files(path)
    layout = _recognise(files)
    entry = files.tensors[layout.embedding.name]
    if entry.dtype not in EMBEDDING_DTYPES:
        raise UnsupportedCheckpointError(
            "The embedding is in a number format that this version does not mark or examine",
            file=entry.file,
            tensor=entry.name,
            expected=", ".join(EMBEDDING_DTYPES),
            found=entry.dtype,
            advice="Dequantise the model and save it as float32, float16 or bfloat16",
        )
    # What the fingerprint and the patches of a release rely on: token i's row is one piece of the file.
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
        bytes_total=sum({entry.file: entry.seen.size for entry in files.tensors.values()}.values()),
    )


def _recognise(files: CheckpointFiles) -> Layout:
    """The family's layout; an error on the way gets to know which files it is about."""
    try:
        return recognise(files.config, {name: entry.shape for name, entry in files.tensors.items()})
    except CheckpointError as error:
        raise type(error)(
            error.problem,
            file=files.folder / CONFIG_NAME if error.file == CONFIG_NAME else error.file or files.path,
            tensor=error.tensor,
            expected=error.expected,
            found=error.found,
            advice=error.advice,
        ) from error
