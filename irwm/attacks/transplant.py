"""A new tokenizer for a trained model: shared tokens keep their rows, and new tokens get means of old rows.

The tokenizer is trained on the attacker's text, with the old one's rules for splitting text. A new token's row is the
mean of the rows of the old tokens that spell it (fast vocabulary transfer, Gee et al., arXiv:2402.09977).
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from irwm.attacks.equivalence.draft import Draft
from irwm.attacks.equivalence.state import State, read_state, write_state
from irwm.attacks.equivalence.structure import structure_of
from irwm.attacks.equivalence.tokenizer import renumbered, without_tokenizer
from irwm.errors import ParameterError
from irwm.inference.loading import open_tokenizer, typed
from irwm.release.partial import require_absent


def exchange_tokenizer(model_dir: str | Path, out_dir: str | Path, text: str, size: float) -> Path:
    """Train a tokenizer on `text` and give the model an embedding and an output head for it.

    Args:
        model_dir: a model folder in safetensors with a tokenizer that transformers opens.
        out_dir: must not exist.
        text: the training text; a short text supports fewer tokens than requested.
        size: tokens of the new tokenizer, as a share of the old one's.

    Raises:
        ParameterError: a share outside (0, 1], or an empty text.
        NotApplicableError: a family whose tensors are not known.
        UnsupportedCheckpointError: another format, no tokenizer, or one that cannot be trained.
        OutputExistsError, CheckpointError: as `irwm.attacks.rewrite.rewrite`.
    """
    if not 0.0 < size <= 1.0:
        raise ParameterError("the share is out of range", expected="above 0 and at most 1", found=str(size))
    if not text.strip():
        raise ParameterError("the text is empty", expected="a text to train the tokenizer on")
    require_absent(Path(out_dir))
    state = read_state(model_dir)
    old: Any = open_tokenizer(model_dir)
    tokens = max(1, round(size * len(old)))
    with typed(Path(model_dir), "transformers cannot train a tokenizer of this kind", "Choose another attack"):
        new = old.train_new_from_iterator(text.splitlines(), tokens, show_progress=False)
    return write_state(_with_tokenizer(state, old, new), out_dir)


def _with_tokenizer(state: State, old: Any, new: Any) -> State:
    structure, draft = structure_of(state), Draft(state)
    spelled = _spellings(old, new, structure.vocab_size)
    rows = torch.tensor([i for i, pieces in enumerate(spelled) for _ in pieces])
    olds = torch.tensor([piece for pieces in spelled for piece in pieces])
    weights = torch.tensor([1 / len(pieces) for pieces in spelled for _ in pieces], dtype=torch.float64)

    def means(table: torch.Tensor) -> torch.Tensor:
        shares = weights.reshape(-1, *[1] * (table.ndim - 1))
        return table.new_zeros(len(spelled), *table.shape[1:]).index_add_(0, rows, shares * table[olds])

    head = () if structure.head is None else (structure.head,)
    draft.change((structure.embedding, *head, *structure.head_biases), means)
    ids = torch.full((structure.vocab_size,), -1)
    ours, theirs = old.get_vocab(), new.get_vocab()
    for token in ours.keys() & theirs.keys():
        if ours[token] < len(ids):
            ids[ours[token]] = theirs[token]
    config, files = renumbered(replace(state, files=without_tokenizer(state)), ids.tolist())
    draft.config.update(config)
    draft.config["vocab_size"] = len(spelled)
    with tempfile.TemporaryDirectory() as folder:
        new.save_pretrained(folder)
        files |= {file.name: file.read_bytes() for file in Path(folder).iterdir() if file.is_file()}
    return replace(draft.done(), files=files, token_ids=ids)


def _spellings(old: Any, new: Any, rows: int) -> list[list[int]]:
    """For each id of the new tokenizer the old ids that spell its token, at least one."""
    ours, model = old.get_vocab(), old.backend_tokenizer.model
    prefix = getattr(model, "continuing_subword_prefix", None) or ""
    tokens = {i: token for token, i in new.get_vocab().items()}
    spelled = []
    for i in range(max(tokens) + 1):
        token = tokens.get(i, "")
        pieces = [ours[token]] if token in ours else [piece.id for piece in model.tokenize(token.removeprefix(prefix))]
        known = [piece for piece in pieces if piece < rows]
        spelled.append(known or list(range(rows)))  # nothing spells it: the mean of all rows
    return spelled
