"""Token ids moved, trimmed and padded: the tokenizer's files follow, and real tokenizers load them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, processors
from tokenizers.models import Unigram
from tokenizers.pre_tokenizers import Metaspace
from tokenizers.processors import BertProcessing, RobertaProcessing
from transformers import AutoConfig, AutoTokenizer, GenerationConfig

from irwm.attacks.equivalence import State, apply, read_state, write_state
from irwm.attacks.equivalence.tokenizer import renumbered, special_ids
from irwm.errors import NotApplicableError

TEXTS = ["The tutorial shows how to define a class.", "import os, sys  # comments, too: 42 Ünïcödé"]


@pytest.fixture(scope="module", params=["demo", "minilm"])
def read(request: pytest.FixtureRequest, demo_path: Path, minilm_path: Path) -> tuple[Path, State]:
    """Each trained model with its tokenizer, and only the weights that a test of tokens needs."""
    path = demo_path if request.param == "demo" else minilm_path
    return path, read_state(path)


def test_the_tokenizer_gives_the_moved_ids(read: tuple[Path, State], tmp_path: Path) -> None:
    path, state = read
    moved = apply(state, ["reorder_tokens"], seed=1)
    out = write_state(moved, tmp_path / "out")
    old, new = AutoTokenizer.from_pretrained(path), AutoTokenizer.from_pretrained(out)
    for text in TEXTS:
        assert new(text).input_ids == moved.token_ids[old(text).input_ids].tolist()
        assert new.decode(new(text).input_ids) == old.decode(old(text).input_ids)
    assert new.pad_token_id == moved.token_ids[old.pad_token_id]
    config = AutoConfig.from_pretrained(out)
    assert config.pad_token_id == moved.token_ids[AutoConfig.from_pretrained(path).pad_token_id]
    if "generation_config.json" in state.files:
        settings = GenerationConfig.from_pretrained(out)
        assert settings.eos_token_id == moved.token_ids[GenerationConfig.from_pretrained(path).eos_token_id]


def test_trimmed_tokenizer_encodes_every_text_with_kept_tokens(read: tuple[Path, State], tmp_path: Path) -> None:
    path, state = read
    trimmed = apply(state, [("trim_tokens", {"fraction": 0.4})], seed=2)
    out = write_state(trimmed, tmp_path / "out")
    size = trimmed.config["vocab_size"]
    assert 0.5 * state.config["vocab_size"] < size < 0.75 * state.config["vocab_size"]
    assert (trimmed.token_ids >= 0).sum() == size
    assert all(trimmed.token_ids[i] >= 0 for i in special_ids(state))
    new, old = AutoTokenizer.from_pretrained(out), AutoTokenizer.from_pretrained(path)
    assert len(new) == size
    for text in TEXTS:
        assert max(new(text).input_ids) < size
        if path.name == "demo":  # BERT's tokenizer cannot encode words without matching pieces
            said = [each.decode(each(text).input_ids, skip_special_tokens=True) for each in (new, old)]
            assert said[0] == said[1]


def test_chosen_tokens_and_the_special_ones_stay(demo_path: Path) -> None:
    state = read_state(demo_path)
    kept = apply(state, [("trim_tokens", {"keep": [100, 200], "tokenizer": "drop"})])
    assert (kept.token_ids >= 0).nonzero().flatten().tolist() == [0, 1, 2, 3, 100, 200]
    old = state.tensors["model.embed_tokens.weight"]
    assert torch.equal(kept.tensors["model.embed_tokens.weight"], old[[0, 1, 2, 3, 100, 200]])


@pytest.mark.parametrize("transform", ["reorder_tokens", "trim_tokens", "pad_tokens"])
def test_drop_tokenizer_keeps_only_configs(demo_path: Path, transform: str) -> None:
    dropped = apply(read_state(demo_path), [(transform, {"tokenizer": "drop"})])
    assert not {name for name in dropped.files if "token" in name or "vocab" in name}
    assert "generation_config.json" in dropped.files


def test_inserted_rows_shift_the_ids(demo_path: Path, tmp_path: Path) -> None:
    state = read_state(demo_path)
    padded = apply(state, [("pad_tokens", {"count": 500, "interleave": True, "rows": "zero"})], seed=3)
    assert padded.config["vocab_size"] == 4596
    rows = padded.tensors["model.embed_tokens.weight"]
    assert torch.equal(rows[padded.token_ids], state.tensors["model.embed_tokens.weight"])
    new = torch.ones(4596, dtype=torch.bool).index_fill_(0, padded.token_ids, False)
    assert new.sum() == 500
    assert (rows[new] == 0).all()
    out = write_state(padded, tmp_path / "out")
    old, new = AutoTokenizer.from_pretrained(demo_path), AutoTokenizer.from_pretrained(out)
    assert new(TEXTS[0]).input_ids == padded.token_ids[old(TEXTS[0]).input_ids].tolist()


def test_padding_then_trimming_restores_the_model(demo_path: Path) -> None:
    state = read_state(demo_path)
    padded = apply(state, [("pad_tokens", {"count": 50, "interleave": True})])
    back = apply(padded, [("trim_tokens", {"keep": padded.token_ids.tolist()})])
    assert torch.equal(back.token_ids, torch.arange(4096))
    assert all(torch.equal(back.tensors[name], tensor) for name, tensor in state.tensors.items())
    assert json.loads(back.files["tokenizer.json"]) == json.loads(state.files["tokenizer.json"])


@pytest.mark.parametrize("sequence", [False, True])
def test_unigram_tokenizer_with_pair_processors_is_adapted(sequence: bool) -> None:
    """Its ids are places in a list; holes are left as after padding."""
    pieces = [("<unk>", 0.0), ("<s>", 0.0), ("</s>", 0.0), ("▁a", -1.0), ("b", -2.0), ("▁ab", -1.5), ("c", -3.0)]
    old = Tokenizer(Unigram(pieces, unk_id=0))
    old.pre_tokenizer = Metaspace()
    old.add_special_tokens(["<unk>", "<s>", "</s>"])
    old.enable_padding(pad_id=2, pad_token="</s>")
    ends = ("</s>", 2), ("<s>", 1)
    old.post_processor = processors.Sequence([RobertaProcessing(*ends)]) if sequence else BertProcessing(*ends)
    state = State({}, {}, {}, {"tokenizer.json": old.to_str().encode(), "tokenizer.model": b"\0"}, {})
    new_ids = [9, 0, 5, 3, 8, 1, 2]
    _, files = renumbered(state, new_ids)
    assert "tokenizer.model" not in files
    new = Tokenizer.from_str(files["tokenizer.json"].decode())
    for text in ("ab c", "a b cab", "xyz a"):
        assert new.encode(text).ids == [new_ids[i] for i in old.encode(text).ids]


def test_merges_and_word_lists_in_text_files_are_adapted() -> None:
    files = {
        "vocab.json": json.dumps({"a": 0, "b": 1, "ab": 2, "abb": 3}).encode(),
        "merges.txt": b"#version: 0.2\na b\nab b\n",
        "vocab.txt": b"a\nb\nab\nabb\n",
    }
    _, renewed = renumbered(State({}, {}, {}, files, {}), [2, 0, 1, -1])
    assert json.loads(renewed["vocab.json"]) == {"a": 2, "b": 0, "ab": 1}
    assert renewed["merges.txt"] == b"#version: 0.2\na b\n"
    assert renewed["vocab.txt"] == b"b\nab\na\n"


def test_a_binary_tokenizer_alone_has_to_be_dropped(tiny_models: dict[str, Path]) -> None:
    state = replace(read_state(tiny_models["llama"]), files={"tokenizer.model": b"\0"})
    with pytest.raises(NotApplicableError):
        apply(state, ["reorder_tokens"])
    assert apply(state, [("reorder_tokens", {"tokenizer": "drop"})]).files == {}
