"""Marked models that were converted to GGUF: the same tokens for the same rows, and the mark is found."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import gguf
import pytest
import torch

import irwm
from irwm.checkpoint import open_checkpoint, special_token_ids, token_ids
from tests.checkpoint.gguf_builders import convert
from tests.conftest import Marked
from tests.families.cases import VOCABULARY
from tests.families.reference import save

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)


def in_order(folder: Path) -> tuple[list[str], list[int]]:
    """The texts and kinds of the tokens, as the converter takes them from a tokenizer.json."""
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    vocabulary = dict(tokenizer["model"]["vocab"]) | {t["content"]: t["id"] for t in tokenizer["added_tokens"]}
    kinds = {t["id"]: CONTROL if t["special"] else USER_DEFINED for t in tokenizer["added_tokens"]}
    rows = open_checkpoint(folder).vocab_size
    texts = {i: text for text, i in vocabulary.items()}
    return [texts.get(i, f"[PAD{i}]") for i in range(rows)], [
        kinds.get(i, NORMAL if i in texts else UNUSED) for i in range(rows)
    ]


def test_bpe_vocabulary_equals_the_original(demo_path: Path, tmp_path: Path) -> None:
    tokens, types = in_order(demo_path)
    path = convert(demo_path, tmp_path / "demo.gguf", tokens=tokens, types=types)
    original, suspect = open_checkpoint(demo_path), open_checkpoint(path)
    assert token_ids(suspect) == token_ids(original)
    assert special_token_ids(suspect) == special_token_ids(original)
    assert len(token_ids(suspect)) == 4096


def test_wordpiece_vocabulary_is_spelled_like_the_original(minilm_path: Path, tmp_path: Path) -> None:
    """llama.cpp writes SentencePiece's mark in front of a word and omits the mark of a continuation."""
    folder = tmp_path / "model"
    shutil.copytree(minilm_path, folder)
    tokens, types = in_order(folder)
    spelt = [
        token if kind == CONTROL else token[2:] if token.startswith("##") else f"▁{token}"
        for token, kind in zip(tokens, types, strict=True)
    ]
    path = convert(folder, tmp_path / "model.gguf", tokens=spelt, types=types, spelling="bert")
    original, suspect = open_checkpoint(folder), open_checkpoint(path)
    assert token_ids(suspect) == token_ids(original)
    assert {"[CLS]", "the", "##ing"} <= token_ids(suspect).keys()
    assert special_token_ids(suspect) == special_token_ids(original)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return save("llama", tmp_path / "model", torch.float32)


def test_tokens_of_every_kind_but_the_ordinary_are_special(folder: Path, tmp_path: Path) -> None:
    tokens = ["▁a", "<unk>", "</s>", "<tool>", "[PAD4]", "<0x0A>", "<0x0B>"] + [f"t{i}" for i in range(7, VOCABULARY)]
    types = [NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE, NORMAL] + [NORMAL] * (VOCABULARY - 7)
    model = open_checkpoint(convert(folder, tmp_path / "model.gguf", tokens=tokens, types=types))
    assert special_token_ids(model) == {1, 2, 3, 4, 5, 6}  # 1 and 2 by the settings as well
    assert token_ids(model)["▁a"] == 0


def test_a_gguf_file_without_a_vocabulary_ignores_tokenizers_next_to_it(folder: Path, tmp_path: Path) -> None:
    model = open_checkpoint(convert(folder, tmp_path / "model.gguf"))
    (tmp_path / "tokenizer.json").write_text(json.dumps({"model": {"vocab": {"a": 0}}}))
    assert token_ids(model) == {}
    assert special_token_ids(model) == {1, 2}, "of the settings"


@pytest.mark.parametrize("count", [VOCABULARY - 9, VOCABULARY + 9])
def test_token_count_may_differ_from_row_count(folder: Path, tmp_path: Path, count: int) -> None:
    path = convert(folder, tmp_path / "model.gguf", tokens=[f"t{i}" for i in range(count)], types=[CONTROL] * count)
    model = open_checkpoint(path)
    assert len(token_ids(model)) == len(special_token_ids(model)) == min(count, VOCABULARY)


@pytest.mark.parametrize("types", [[NORMAL] * 3, ["a"] * VOCABULARY])
def test_token_types_of_wrong_length_are_ignored(folder: Path, tmp_path: Path, types: list[int]) -> None:
    tokens = [f"t{i}" for i in range(VOCABULARY)]
    model = open_checkpoint(convert(folder, tmp_path / "model.gguf", tokens=tokens, types=types))
    assert special_token_ids(model) == {1, 2}


@pytest.fixture(scope="module")
def marked(release_of: Callable[[str], Marked]) -> Marked:
    return release_of("demo")


@pytest.mark.sweep
@pytest.mark.parametrize("kind", ["Q4_0", "F16"])
def test_the_mark_is_found_in_a_gguf_file(marked, demo_path: Path, tmp_path: Path, kind: str) -> None:
    model, key, release = marked
    tokens, types = in_order(release)
    path = convert(release, tmp_path / "stolen.gguf", gguf.GGMLQuantizationType[kind], tokens=tokens, types=types)
    found = irwm.detect(irwm.open_checkpoint(path), model, key)
    assert found.verdict == "found"
    assert found.log10_p < -40
    assert (found.ranks < 0.2).sum() >= 45
    assert found.lineage.status == "derived"
    assert found.alignment.aligned
    path = convert(demo_path, tmp_path / "original.gguf", gguf.GGMLQuantizationType[kind])
    found = irwm.detect(irwm.open_checkpoint(path), model, key)
    assert (found.verdict, found.lineage.status) == ("not found", "derived")


@pytest.mark.slow
def test_the_mark_is_found_in_a_quantised_bert(release_of: Callable[[str], Marked], tmp_path: Path) -> None:
    model, key, release = release_of("minilm")
    path = convert(release, tmp_path / "stolen.gguf", gguf.GGMLQuantizationType.Q5_1)
    found = irwm.detect(irwm.open_checkpoint(path), model, key)
    assert (found.verdict, found.lineage.status) == ("found", "derived")
