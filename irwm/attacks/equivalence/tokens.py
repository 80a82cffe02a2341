"""Reordered, trimmed and padded vocabularies; the tokenizer is changed to match or left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import torch

from irwm.attacks.equivalence.draft import Draft, generator
from irwm.attacks.equivalence.state import State
from irwm.attacks.equivalence.structure import Structure, structure_of
from irwm.attacks.equivalence.tokenizer import (
    BINARY_FILES,
    alphabet_ids,
    renumbered,
    special_ids,
    without_tokenizer,
)
from irwm.attacks.equivalence.transform import transform
from irwm.errors import NotApplicableError, ParameterError

Tokenizer = Literal["keep", "drop"]
Rows = Literal["random", "zero"]


@transform()
def reorder_tokens(state: State, seed: int = 0, tokenizer: Tokenizer = "keep") -> State:
    """Permutes the vocabulary: rows of embedding and head, entries of the head's biases, and every id in the files;
    "drop" leaves the tokenizer's files out."""
    size = structure_of(state).vocab_size
    return _with_rows(state, torch.randperm(size, generator=generator(seed)), tokenizer)


@transform()
def trim_tokens(
    state: State,
    seed: int = 0,
    keep: Sequence[int] | None = None,
    fraction: float = 0.1,
    tokenizer: Tokenizer = "keep",
) -> State:
    """Drops rows: all but `keep` (present ids) and the special tokens, or a random `fraction` of the others.

    A kept tokenizer also keeps its single characters, and drops the merges that need a dropped token. The model is
    unchanged for texts of kept tokens: it gives the same logits for each of them, up to the softmax's sum.
    """
    size = structure_of(state).vocab_size
    needed = special_ids(state) | (alphabet_ids(state) if tokenizer == "keep" else frozenset())
    needed = frozenset(i for i in needed if 0 <= i < size)
    if keep is not None:
        if any(not 0 <= i < size for i in keep):
            raise ParameterError(
                "a token to be kept is not in the vocabulary", expected=f"token IDs from 0 to {size - 1}"
            )
        kept = needed | set(keep)
    else:
        if not 0 <= fraction < 1:
            raise ParameterError("the share to trim is out of range", expected="0 <= share < 1", found=str(fraction))
        others = torch.tensor([i for i in range(size) if i not in needed], dtype=torch.int64)
        order = torch.randperm(len(others), generator=generator(seed))
        kept = needed | set(others[order[round(fraction * len(others)) :]].tolist())
    return _with_rows(state, torch.tensor(sorted(kept), dtype=torch.int64), tokenizer)


@transform()
def pad_tokens(
    state: State,
    count: int = 64,
    seed: int = 0,
    rows: Rows = "random",
    interleave: bool = False,
    tokenizer: Tokenizer = "keep",
) -> State:
    """Adds `count` rows, zero or with the mean and deviation of the embedding and the head, at the end or scattered
    between the others. The logits of the existing tokens do not change."""
    size = structure_of(state).vocab_size
    if count < 0 or rows not in ("random", "zero"):
        raise ParameterError(
            "unknown padding", expected="a count of 0 or more, and random or zero rows", found=f"{count} {rows}"
        )
    source = generator(seed)
    new = torch.cat([torch.arange(size), torch.full((count,), -1)])
    if interleave:
        places = torch.randperm(size + count, generator=source)[:size].sort().values
        new = torch.full((size + count,), -1).index_copy(0, places, torch.arange(size))
    return _with_rows(state, new, tokenizer, source if rows == "random" else None)


def _with_rows(state: State, rows: torch.Tensor, tokenizer: Tokenizer, source: torch.Generator | None = None) -> State:
    """The state with a vocabulary whose row i is the present row `rows[i]`, or a new one where that is -1."""
    structure, draft = structure_of(state), Draft(state)
    _check_tokenizer(state, tokenizer)
    own = [structure.embedding, *([structure.head] if structure.head is not None else []), *structure.head_biases]
    draft.change(own, lambda table: _picked(table, rows, source))
    new_ids = torch.full((structure.vocab_size,), -1)
    there = rows >= 0
    new_ids[rows[there]] = torch.arange(len(rows))[there]
    config, files = renumbered(state, new_ids.tolist())
    draft.config.update(config)
    draft.config["vocab_size"] = len(rows)
    done = replace(draft.done(), files=files, token_ids=_composed(state, structure, new_ids))
    return done if tokenizer == "keep" else replace(done, files=without_tokenizer(done))


def _check_tokenizer(state: State, tokenizer: Tokenizer) -> None:
    if tokenizer not in ("keep", "drop"):
        raise ParameterError("unknown option for the tokenizer", expected="keep or drop", found=str(tokenizer))
    binary = [name for name in BINARY_FILES if name in state.files]
    if tokenizer == "keep" and binary and "tokenizer.json" not in state.files:
        raise NotApplicableError(
            "the token IDs in the tokenizer's binary file cannot be changed",
            file=binary[0],
            expected="a tokenizer.json",
            advice="Convert the tokenizer to tokenizer.json, or leave it out with tokenizer='drop'",
        )


def _picked(table: torch.Tensor, rows: torch.Tensor, source: torch.Generator | None) -> torch.Tensor:
    new = table[rows.clamp(min=0)]
    holes = rows < 0
    if source is None or not holes.any():
        return torch.where(holes.reshape(-1, *[1] * (table.ndim - 1)), 0.0, new)
    drawn = torch.randn(int(holes.sum()), *table.shape[1:], generator=source, dtype=torch.float64)
    new[holes] = table.mean(dim=0) + drawn * table.std(dim=0)
    return new


def _composed(state: State, structure: Structure, new_ids: torch.Tensor) -> torch.Tensor:
    """The present row of each token that the model was read with."""
    before = state.token_ids if state.token_ids is not None else torch.arange(structure.vocab_size)
    return torch.where(before >= 0, new_ids[before.clamp(min=0)], -1)
