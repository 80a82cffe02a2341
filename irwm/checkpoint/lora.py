"""One weight of a base model with a low-rank adapter's change applied.

    a matrix      W + s B A                    A (r, in), B (out, r); DoRA scales each row to a learnt length
    an embedding  W + s (B A)^T                A (r, vocabulary), B (width, r)
    some tokens   rows of W replaced           like peft's trainable tokens

s is alpha / r, or alpha / sqrt(r) with rank-stabilised LoRA. W is the base's, or one from the adapter.
Sums are float32, as the model computes them with the adapter attached. Merging rounds them once more.

Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", 2022; Liu et al., "DoRA", 2024.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

import torch

from irwm.checkpoint.dtypes import VIEW
from irwm.checkpoint.tensors import ROWS, PackedTensor, Tensor, TensorEntry, parameters_of
from irwm.errors import CorruptCheckpointError, UnsupportedCheckpointError

# The tensors that an adapter may contain for one weight, and the base's own.
BASE, WHOLE, A, B, LENGTHS, TOKENS = "base", "whole", "A", "B", "lengths", "tokens"
EMBEDDING_A, EMBEDDING_B = "embedding A", "embedding B"
# Separates a packed piece's role from the role of a stored tensor within that piece.
_WITHIN = "/"
_NUMBERS = ("F64", "F32", "F16", "BF16")


@dataclass(frozen=True, slots=True)
class Change:
    """An adapter's change to one weight.

    Attributes:
        pieces: the adapter's tensors by `WHOLE`, `A`, `B`, ...
        alpha: the numerator of s.
        stabilised: s is alpha / sqrt(r) instead of alpha / r.
        turned: the base may store (in, out), as GPT-2 does.
        tokens: the rows that `TOKENS` replaces.
        scale: s itself, where the adapter states it instead of alpha.
    """

    pieces: Mapping[str, Tensor]
    alpha: float
    stabilised: bool = False
    turned: bool = False
    tokens: tuple[int, ...] = ()
    scale: float | None = None


def changed(name: str, base: Tensor, change: Change, *, resizable: bool) -> Tensor:
    """The weight to read instead of the base's.

    Args:
        name: the weight's name in the base.
        base: the weight there.
        change: the adapter's change to it.
        resizable: whether the adapter may change the number of rows, as for an embedding.

    Raises:
        CorruptCheckpointError: the adapter was made for a weight of another shape, or its pieces contradict each other.
        UnsupportedCheckpointError: an unsupported number format, or a combination that peft itself rejects.
    """
    pieces = dict(change.pieces)
    for piece in pieces.values():
        _require_numbers(piece)
    whole = pieces.pop(WHOLE, None)
    if whole is not None:
        _require_shape(whole, (whole.shape[:1] if resizable else base.shape[:1]) + base.shape[1:], base)
        base = replace(whole, name=name)
    if not pieces:
        return base
    turned = change.turned and A in pieces
    _require_shapes(pieces, base.shape[::-1] if turned else base.shape, base, change.tokens)
    pairs = [(one, other) for one, other in ((A, B), (EMBEDDING_A, EMBEDDING_B)) if one in pieces]
    rank = pieces[pairs[0][0]].shape[0] if pairs else 1
    scaling = change.alpha / (rank**0.5 if change.stabilised else rank) if change.scale is None else change.scale
    every: dict[str, Tensor] = {BASE: base, **pieces}
    decode = partial(_decoded, every, scaling, turned, change.tokens)
    stored, by_rows = _flattened(every, () if turned else (BASE, B, LENGTHS))
    inner = {role: piece.recipe.decode() for role, piece in every.items() if isinstance(piece, PackedTensor)}
    parameters = parameters_of(scaling=scaling, turned=turned, tokens=change.tokens, inner=inner)
    return PackedTensor(name, f"{base.dtype} with LoRA", base.shape, stored, by_rows, decode, parameters)


def crosswise(piece: Tensor) -> Tensor:
    """A transposed piece of a matrix."""
    if not isinstance(piece, TensorEntry) or len(piece.shape) != 2:
        return piece

    def decode(values: Mapping[str, torch.Tensor]) -> torch.Tensor:
        return values["elements"].to(torch.float32).T.contiguous()

    parameters = parameters_of(crosswise=True)
    stored = {"elements": piece}
    return PackedTensor(piece.name, piece.dtype + VIEW, piece.shape[::-1], stored, frozenset(), decode, parameters)


def _require_shapes(
    pieces: Mapping[str, Tensor], shape: tuple[int, ...], base: Tensor, tokens: tuple[int, ...]
) -> None:
    """Checks that the pieces fit a weight of `shape` (out, in), or (vocabulary, width), and each other."""
    first = next(iter(pieces.values()))
    if len(shape) != 2:
        raise _mismatch(first, "a matrix", str(base.shape), base)
    for one, other in ((A, B), (EMBEDDING_A, EMBEDDING_B)):
        if (one in pieces) != (other in pieces):
            raise _mismatch(pieces.get(one) or pieces[other], "both A and B for each weight", "only one of them", base)
    if len(pieces.keys() & {A, EMBEDDING_A}) == 2 or (LENGTHS in pieces and A not in pieces):
        raise UnsupportedCheckpointError(
            "The adapter changes a weight in several ways, and this combination is not supported",
            file=first.file,
            tensor=first.name,
            found=", ".join(sorted(pieces)),
        )
    rank = next((pieces[one].shape[0] for one in (A, EMBEDDING_A) if one in pieces and pieces[one].shape), 0)
    if rank == 0 and (A in pieces or EMBEDDING_A in pieces):
        raise _mismatch(first, "a rank of at least 1", "rank 0", base)
    out, inputs = shape
    if tokens and max(tokens) >= out:
        raise _mismatch(pieces[TOKENS], f"token IDs below {out}", f"token ID {max(tokens)}", base)
    expected: dict[str, tuple[int, ...]] = {
        A: (rank, inputs),
        B: (out, rank),
        LENGTHS: (out,),
        EMBEDDING_A: (rank, out),
        EMBEDDING_B: (inputs, rank),
        TOKENS: (len(tokens), inputs),
    }
    for role, piece in pieces.items():
        _require_shape(piece, expected[role], base)


def _require_shape(piece: Tensor, shape: tuple[int, ...], base: Tensor) -> None:
    if piece.shape != shape or not all(shape):
        raise _mismatch(piece, str(shape), str(piece.shape), base)


def _require_numbers(piece: Tensor) -> None:
    if piece.dtype.removesuffix(VIEW) not in _NUMBERS:
        raise UnsupportedCheckpointError(
            "The adapter uses an unsupported number format",
            file=piece.file,
            tensor=piece.name,
            expected=", ".join(_NUMBERS),
            found=piece.dtype,
            advice="Save the adapter as float32, float16 or bfloat16",
        )


def _mismatch(piece: Tensor, expected: str, found: str, base: Tensor) -> CorruptCheckpointError:
    return CorruptCheckpointError(
        f"The adapter does not fit the base model, whose weight {base.name} has the shape {base.shape}",
        file=piece.file,
        tensor=piece.name,
        expected=expected,
        found=found,
        advice="Provide the base model that the adapter was trained on",
    )


def _flattened(pieces: Mapping[str, Tensor], by_rows: tuple[str, ...]) -> tuple[dict[str, TensorEntry], frozenset[str]]:
    """All stored tensors of all pieces by role, and those that must be read in full."""
    stored: dict[str, TensorEntry] = {}
    cut: set[str] = set()
    whole = not by_rows
    for role, piece in pieces.items():
        if isinstance(piece, TensorEntry):
            stored[role] = piece
            cut |= {role} & set(by_rows)
            continue
        stored |= {f"{role}{_WITHIN}{inner}": entry for inner, entry in piece.stored.items()}
        if role in by_rows:
            cut |= {f"{role}{_WITHIN}{inner}" for inner in piece.by_rows}
            whole |= not piece.by_rows  # if one piece must be read in full, all are
    return stored, frozenset() if whole else frozenset(cut)


def _decoded(
    pieces: Mapping[str, Tensor],
    scaling: float,
    turned: bool,
    tokens: tuple[int, ...],
    values: Mapping[str, torch.Tensor],
) -> torch.Tensor:
    """The changed weight, or its rows `values[ROWS]`, as float32 in the base's orientation."""
    rows = values.get(ROWS)
    found = {role: _value(role, piece, values) for role, piece in pieces.items()}
    result = found[BASE].T if turned else found[BASE]
    if A in found:
        result = result + scaling * (found[B] @ found[A])
    if LENGTHS in found:
        result = found[LENGTHS][:, None] / torch.linalg.norm(result, dim=1, keepdim=True) * result
    if EMBEDDING_A in found:
        columns = found[EMBEDDING_A] if rows is None else found[EMBEDDING_A][:, rows]
        result = result + scaling * (columns.T @ found[EMBEDDING_B].T)
    if TOKENS in found:
        replaced = torch.full(pieces[BASE].shape[:1], -1)
        replaced[list(tokens)] = torch.arange(len(tokens))
        place = replaced if rows is None else replaced[rows]
        result = torch.where((place >= 0)[:, None], found[TOKENS][place.clamp(min=0)], result)
    return result.T.contiguous() if turned else result


def _value(role: str, piece: Tensor, values: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """A piece's numbers, float32."""
    if isinstance(piece, TensorEntry):
        return values[role].float()
    inner = {name: values[f"{role}{_WITHIN}{name}"] for name in piece.stored}
    return piece.decode(inner | {ROWS: values[ROWS]} if ROWS in values and piece.by_rows else inner)
