"""A checkpoint: its facts, and rows of its weights on request.

Weights are read as float32, which every step of the scheme computes in.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from irwm.checkpoint.candidates import others_in
from irwm.checkpoint.dtypes import BITS, BLOCK_FORMATS, VIEW, torch_name
from irwm.checkpoint.files import listed
from irwm.checkpoint.fingerprint_cache import fingerprint_of
from irwm.checkpoint.formats import SAFETENSORS, Format
from irwm.checkpoint.formats.content import Metadata
from irwm.checkpoint.layout import require_safetensors
from irwm.checkpoint.rows import RowCache, Rows, enough_memory, read_tensor, row_numbers
from irwm.checkpoint.served_source import Heard
from irwm.checkpoint.tensors import PackedTensor, Tensor, stream_tensor
from irwm.errors import (
    CheckpointError,
    CorruptCheckpointError,
    UnknownFamilyError,
    UnsupportedCheckpointError,
    printable,
)
from irwm.families import Layout, TensorRef
from irwm.families.configvalues import ConfigJson

# The embedding is marked in its own dtype. A mark is known to survive in these.
EMBEDDING_DTYPES = ("F32", "F16", "BF16")
# Formats that are read as plain numbers. Narrower formats are meaningless without their scales.
EXAMINED_DTYPES = (*EMBEDDING_DTYPES, "F64")
# Bytes of float32 made at a time, to bound the memory that a read needs in addition to its result.
_BLOCK = 64 * 1024 * 1024
_FINGERPRINT_DOMAIN = b"irwm-embedding-v1"


@dataclass(frozen=True, slots=True)
class Given:
    """The folder that was opened, and the weight files in and below it that were read."""

    folder: Path
    read: tuple[Path, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Checkpoint:
    """A checkpoint on disk; made by `open_checkpoint`. Two of them are equal only if they are the same object.

    Attributes:
        path: the folder or the single weight file.
        config: config.json's content, {} where there is none.
        tensors: every tensor of every shard by name, and every quantised weight under its plain name. The names come
            from the model's author and must be escaped where shown.
        shards: the weight files.
        notes: sentences for the user, for example about code in the model that was not run.
        layout: where the embedding and layer 0's q and k are, and the conventions of the family.
        bytes_total: size of the weight files.
        format: the weight files' format.
        metadata: other metadata in the first file's header; for GGUF this includes the vocabulary.
        base: the model that an adapter was applied to; None for a model without an adapter.
        tokens: (s,) int64, the token of each row of the embedding, if it differs from the row number.
        whole: for an `output_head`, the checkpoint that it belongs to, whose layer 0 is used for A.
        answers: facts about the answers, if only these are known of the model. Then the checkpoint has only an output
            head, in the embedding's place.
        given: for a checkpoint that was opened by its folder, the folder and the files read; None for a file.
        contradiction: why layer 0 is unknown although the embedding is known; None if layer 0 is known. The checkpoint
            is then examined by its embedding, and cannot be marked.
        unread_tensors: names of unreadable tensors that may be the embedding, if another one was used.
    """

    path: Path
    config: ConfigJson
    tensors: Mapping[str, Tensor]
    shards: tuple[Path, ...]
    notes: tuple[str, ...]
    layout: Layout
    bytes_total: int
    format: Format = SAFETENSORS
    metadata: Metadata = field(default_factory=dict, repr=False)
    base: Checkpoint | None = field(default=None, repr=False)
    tokens: NDArray[np.int64] | None = field(default=None, repr=False)
    whole: Checkpoint | None = field(default=None, repr=False)
    answers: Heard | None = None
    given: Given | None = None
    contradiction: CheckpointError | None = field(default=None, repr=False)
    unread_tensors: tuple[str, ...] = ()
    _heads: list[Checkpoint] = field(default_factory=list, init=False, repr=False)
    _cache: dict[str, str] = field(default_factory=dict, init=False, repr=False)
    _row_caches: dict[str, RowCache] = field(default_factory=dict, init=False, repr=False)

    @property
    def family(self) -> str:
        return self.layout.family

    @property
    def unread(self) -> tuple[str, ...]:
        """Names of what may also be the suspect and was not read: tensors, other checkpoints in and below the folder
        that was given, and folders that could not be searched.

        Raises:
            SweepFolderError: the folder can no longer be read.
        """
        others = () if self.given is None else others_in(self.given.folder, self.given.read)
        return tuple(printable(name, 80) for name in (*self.unread_tensors, *others))

    @property
    def vocab_size(self) -> int:
        """s, rows of the embedding as stored, including padding."""
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
    def output_head(self) -> Checkpoint | None:
        """The same checkpoint with the rows of its output head in the embedding's place, so that code which marks,
        aligns or reads an embedding can be applied to the head. Always the same object, so that cached values are
        reused. None if the head is the embedding, is not stored, or has another shape.
        """
        head = self.layout.head
        if head is None or self.tied or self.whole is not None:
            return None
        tensor = self.tensors.get(head.name)
        if tensor is None or tensor.shape != (self.vocab_size, self.hidden_size):
            return None
        if not self._heads:
            layout = replace(self.layout, embedding=head, head=None, copies=())
            self._heads.append(replace(self, layout=layout, whole=self))
        return self._heads[0]

    def with_matrix(self, ref: TensorRef, height: int) -> Checkpoint:
        """The same checkpoint with another matrix of the stream's width, of `height` rows, in the embedding's place."""
        layout = replace(self.layout, embedding=ref, vocab_size=height, head=None, copies=())
        width = self.tensors[ref.name].shape[0 if ref.transposed else 1]
        return replace(self, layout=replace(layout, hidden_size=width), whole=self)

    @property
    def head_alone(self) -> bool:
        """Whether only an output head is known, in the embedding's place."""
        return self.answers is not None

    @property
    def likeliest_head(self) -> Checkpoint:
        """The checkpoint with its output head in the embedding's place: the stored head, or else the embedding. Other
        tensors that may be the head are the layout's alternatives."""
        if self.head_alone or self.whole is not None:
            return self
        if self.output_head is not None:
            return self.output_head
        head = self.layout.head
        shape = () if head is None or self.tied or head.name not in self.tensors else self.tensors[head.name].shape
        layout = self.layout
        if head is not None and len(shape) == 2:
            layout = replace(layout, embedding=head, vocab_size=shape[0], hidden_size=shape[1], head=None, copies=())
        return replace(self, layout=layout, whole=self)

    @property
    def body(self) -> Checkpoint:
        """The checkpoint with the embedding and layer 0 for A; for an output head, the one that it belongs to."""
        return self if self.whole is None else self.whole

    @property
    def drops_row_constants(self) -> bool:
        """Whether adding a constant to a row leaves the model's results unchanged, see `Layout`. For an output head it
        never does."""
        return self.whole is None and self.layout.drops_row_constants

    @property
    def dtype(self) -> str:
        """The embedding's number format: torch's name "float32", "float16" or "bfloat16", or the format of a quantised
        embedding, such as "Q4_K"."""
        return torch_name(self.tensors[self.layout.embedding.name].dtype)

    @property
    def fingerprint(self) -> str:
        """SHA-256, in hex, that identifies the embedding. It is computed on first use, which reads the embedding once;
        that of a large one is cached until the file changes (`irwm.checkpoint.fingerprint_cache`).

        The hash covers, in this order: the length of the domain string "irwm-embedding-v1" and its bytes, the length of
        the dtype's name and its bytes (ASCII), vocab_size, hidden_size, and the embedding's bytes as stored (row by
        row, little-endian). If several stored tensors make up the embedding, the bytes hashed are the length of its
        `PackedTensor.recipe` and that text, then the bytes of its parts, in the order of their roles' names. Lengths
        and sizes are unsigned 64-bit little-endian integers.

        Raises:
            CheckpointChangedError: the file changed after it was opened.
        """
        tensor = self.tensors[self.layout.embedding.name]
        return self.kept(
            "fingerprint", lambda: fingerprint_of(tensor, lambda: self._hashed(tensor), _FINGERPRINT_DOMAIN)
        )

    def kept(self, name: str, make: Callable[[], str]) -> str:
        """A text about this checkpoint that is made once, for example a digest."""
        if name not in self._cache:
            self._cache[name] = make()
        return self._cache[name]

    def _hashed(self, tensor: Tensor) -> str:
        digest = hashlib.sha256()
        for text in (_FINGERPRINT_DOMAIN, self.dtype.encode("ascii")):
            digest.update(len(text).to_bytes(8, "little") + text)
        digest.update(self.vocab_size.to_bytes(8, "little") + self.hidden_size.to_bytes(8, "little"))
        if isinstance(tensor, PackedTensor):
            digest.update(len(tensor.recipe).to_bytes(8, "little") + tensor.recipe)
        for piece in stream_tensor(tensor):
            digest.update(piece)
        return digest.hexdigest()

    @property
    def markable(self) -> bool:
        """Whether the tensor has plain numbers in a format in which marks are known to survive."""
        entry = self.tensors[self.layout.embedding.name]
        return entry.dtype in EMBEDDING_DTYPES and not isinstance(entry, PackedTensor)

    def close(self) -> None:
        """Frees the rows that were read and kept. They are kept again if the checkpoint is used again."""
        # A checkpoint and its output head refer to each other, so only Python's collector frees them, and it counts
        # objects, not bytes.
        for each in (self, *self._heads):
            each._row_caches.clear()

    def require_markable(self) -> None:
        """Rejects a checkpoint that can be examined but not marked.

        Raises:
            UnknownFamilyError: the tensors' names are not understood.
            CorruptCheckpointError: the files contradict each other or their config.
            UnsupportedCheckpointError: marks are not known to survive in the embedding's number format.
        """
        if self.contradiction is not None:
            raise self.contradiction
        if not self.layout.names_known and not self.layout.known_alone:
            raise UnknownFamilyError(
                "A mark requires layer 0's q and k, which were not recognised",
                file=self.path,
                found="; ".join(self.layout.notes),
                advice="Check that the model's own config.json is in the same folder",
            )
        if self.layout.alternatives and not self.layout.known_alone:
            names = (self.layout.embedding, *self.layout.alternatives)
            raise UnsupportedCheckpointError(
                "More than one tensor could be the embedding, and marking the wrong one would have no effect",
                file=self.path,
                expected="one",
                found=listed(ref.name for ref in names),
                advice="Save the model again with save_pretrained, which writes only the tensors that the model uses",
            )
        require_safetensors(self.format, self.path, "marked")
        entry = self.tensors[self.layout.embedding.name]
        if not self.markable:
            raise UnsupportedCheckpointError(
                "The embedding is in a number format that can be examined but not marked",
                file=entry.file,
                tensor=entry.name,
                expected=", ".join(EMBEDDING_DTYPES),
                found=entry.dtype,
                advice="Save the model as float32, float16 or bfloat16",
            )

    def embedding(self, rows: Rows = None, device: str | torch.device = "cpu") -> torch.Tensor:
        """Rows of W_e as float32 of shape (n, hidden_size).

        Args:
            rows: None for all, a slice, or token ids in any order, repeats allowed.
            device: the device of the result.

        Raises:
            RowIndexError: an id outside 0 to vocab_size - 1.
            CheckpointChangedError: the file changed after it was opened.
        """
        return self.read(self.layout.embedding, rows, device)

    def sample(self, rows: Rows, device: str | torch.device = "cpu") -> torch.Tensor:
        """Rows of W_e like `embedding`, for rows that no key chooses: of a model on a server only these are requested,
        if its format allows."""
        ref = self.layout.embedding
        if ref.transposed or ref.rows is not None:
            return self.embedding(rows, device)
        return read_tensor(self._entry(ref), rows, public=True).to(device, torch.float32)

    def read(self, ref: TensorRef, rows: Rows = None, device: str | torch.device = "cpu") -> torch.Tensor:
        """A tensor of the layout as float32, in its logical (out, in) orientation.

        Args:
            ref: the tensor; `ref.rows` picks a role's rows out of a fused one.
            rows: which of the role's rows: None for all, a slice, or numbers counted within the role.
            device: the device of the result.

        Returns:
            Shape (n, in) for a matrix, (n,) for a vector.

        Raises:
            RowIndexError: a row the role does not have.
            UnsupportedCheckpointError: a quantised weight.
            CorruptCheckpointError: no such tensor, or it is too small for `ref`.
            CheckpointChangedError: the file changed after it was opened.
            CheckpointError: the machine has too little memory for it.
        """
        entry = self._entry(ref)
        with enough_memory(entry):
            return self._read(entry, ref, rows, device)

    def _read(self, entry: Tensor, ref: TensorRef, rows: Rows, device: str | torch.device) -> torch.Tensor:
        height = entry.shape[-1] if ref.transposed else entry.shape[0]
        role = _rows_of_role(ref, height, entry)
        numbers = role[row_numbers(rows, role.numel(), entry.name)]
        if ref.transposed and len(entry.shape) == 2:
            # Rows of the logical matrix are columns of the file, so the whole tensor is read.
            columns = numbers if rows is not None or ref.rows is not None else slice(None)
            return read_tensor(entry).T[columns].to(device).to(torch.float32).contiguous()
        if isinstance(entry, PackedTensor) and not entry.by_rows:  # single rows cannot be read
            return read_tensor(entry, numbers).to(device, torch.float32)
        result = torch.empty((numbers.numel(), *entry.shape[1:]), dtype=torch.float32, device=device)
        cache = self._row_caches.setdefault(ref.name, RowCache(entry))  # views share the entry's own name
        step = max(1, _BLOCK // max(4 * math.prod(entry.shape[1:]), 1))
        for begin in range(0, numbers.numel(), step):
            block = numbers[begin : begin + step]
            result[begin : begin + step] = cache.read(block).to(device)
        return result

    def _entry(self, ref: TensorRef) -> Tensor:
        """The entry behind a reference, verified to hold plain numbers with at least one dimension."""
        entry = self.tensors.get(ref.name)
        if entry is None:
            raise CorruptCheckpointError("A tensor is missing", file=self.path, tensor=ref.name)
        if not is_examined(entry):
            raise UnsupportedCheckpointError(
                "The tensor is quantised in an unsupported way",
                file=entry.file,
                tensor=ref.name,
                expected=", ".join(EXAMINED_DTYPES),
                found=entry.dtype,
                advice="Dequantise the model and save it as float32, float16 or bfloat16",
            )
        if not entry.shape:
            raise CorruptCheckpointError("The tensor is a single number", file=entry.file, tensor=ref.name)
        return entry


def is_examined(tensor: Tensor) -> bool:
    """Whether a model's weights can be read from it.

    A quantised weight's format is a phrase, such as "GPTQ, 4 bits". A view of a plain tensor has the plain format's
    name. Integers and complex numbers are never weights.
    """
    dtype = tensor.dtype.removesuffix(VIEW)
    if isinstance(tensor, PackedTensor) and dtype not in BITS:
        return True
    return dtype in EXAMINED_DTYPES or dtype in BLOCK_FORMATS


def _rows_of_role(ref: TensorRef, height: int, entry: Tensor) -> torch.Tensor:
    """(n,) int64, the rows of the logical matrix that a reference denotes."""
    first, last = ref.rows if ref.rows is not None else (0, height)
    if not 0 <= first <= last <= height or (ref.every is not None and (last > ref.every or height % ref.every)):
        raise CorruptCheckpointError(
            "The tensor has the wrong number of rows for its role",
            file=entry.file,
            tensor=entry.name,
            expected=f"at least {last} rows" if ref.every is None else f"a row count that is a multiple of {ref.every}",
            found=f"{height} rows",
        )
    if ref.every is None:
        return torch.arange(first, last)
    return (torch.arange(0, height, ref.every)[:, None] + torch.arange(first, last)).flatten()


def folder_of(checkpoint: Checkpoint) -> Path:
    """The folder that the checkpoint's config and tokenizer are in."""
    return checkpoint.path.parent if is_single_file(checkpoint) else checkpoint.path


def is_single_file(checkpoint: Checkpoint) -> bool:
    """Whether it was opened from a single weight file instead of a folder."""
    return checkpoint.path in checkpoint.shards
