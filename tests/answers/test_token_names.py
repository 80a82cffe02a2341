"""Tokens by the text that servers write for them, with a real tokenizer."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from irwm.answers.token_names import Names
from irwm.errors import UnsupportedCheckpointError
from irwm.inference.loading import open_tokenizer


def test_ambiguous_text_names_no_token(gemma_path: Path) -> None:
    names, tokenizer = Names(gemma_path, 4096), open_tokenizer(gemma_path)
    written = [str(tokenizer.decode([token])) for token in range(4096)]
    found = [names.token(text) for text in written]
    assert all(token in (None, number) for number, token in enumerate(found))
    assert sum(token is not None for token in found) > 3000
    twice = next(text for text in written if written.count(text) > 1)
    assert names.token(twice) is None
    assert names.token("no token has this text") is None


def test_tokens_are_also_named_by_id_and_by_the_vocabularys_spelling(gemma_path: Path) -> None:
    names, tokenizer = Names(gemma_path, 4096), open_tokenizer(gemma_path)
    assert names.token("token_id:17") == 17
    assert names.sayable(np.arange(5)).all(), "no token was looked up so far"
    token = next(i for i in range(300, 4096) if str(tokenizer.convert_ids_to_tokens(i))[:1] in "▁Ġ")
    assert names.token(str(tokenizer.convert_ids_to_tokens(token))) == token
    sayable = names.sayable(np.arange(4096))
    assert 3000 < sayable.sum() < 4096
    assert all(names.token(str(tokenizer.decode([i]))) == i for i in np.flatnonzero(sayable)[:50])


def test_a_text_without_a_tokenizer_is_an_error(gemma_path: Path, tmp_path: Path) -> None:
    shutil.copy(gemma_path / "config.json", tmp_path)
    assert Names(tmp_path, 4096).token("token_id:3") == 3
    with pytest.raises(UnsupportedCheckpointError):
        Names(tmp_path, 4096).token("the")
