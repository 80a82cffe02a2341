"""Ids of tokens that never occur in text, from every file that may list them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from irwm.checkpoint import open_checkpoint, special_token_ids
from irwm.checkpoint.files import MOST_CONTAINERS, MOST_VALUES
from irwm.errors import CorruptCheckpointError
from irwm.families.building import MOST_ROWS


def set_config(folder: Path, **values: Any) -> None:
    config = json.loads((folder / "config.json").read_text())
    for key in [key for key in config if key.endswith("_token_id")]:
        del config[key]
    (folder / "config.json").write_text(json.dumps(config | values))


@pytest.fixture
def bare(folder: Path) -> Path:
    """The tiny model without token files and without ids in its config."""
    (folder / "tokenizer.json").unlink()
    set_config(folder)
    return folder


def ids(folder: Path) -> frozenset[int]:
    return special_token_ids(open_checkpoint(folder))


def test_config_ids_may_be_single_or_listed_and_are_in_the_vocabulary(bare: Path) -> None:
    assert ids(bare) == frozenset()
    set_config(bare, bos_token_id=1, eos_token_id=[2, 3], pad_token_id=None, sep_token_id=True, cls_token_id=-1)
    assert ids(bare) == {1, 2, 3}
    set_config(bare, bos_token_id=600, eos_token_id=599)
    assert ids(bare) == {599}


def test_added_tokens_of_every_file_are_read(bare: Path) -> None:
    (bare / "tokenizer.json").write_text(
        json.dumps({"added_tokens": [{"id": 5, "content": "<a>"}, {"content": "no id"}, "text", {"id": "6"}]})
    )
    (bare / "tokenizer_config.json").write_text(
        json.dumps({"added_tokens_decoder": {"7": {"content": "<b>"}, "x": {}, "9" * 5000: {}}})
    )
    (bare / "added_tokens.json").write_text(json.dumps({"<c>": 8, "<d>": None}))
    assert ids(bare) == {5, 7, 8}


@pytest.mark.parametrize(
    ("vocab", "expected"),
    [
        ({"[PAD]": 0, "[unused0]": 1, "the": 2, "[unused99]": 3, "unused1": 4}, {1, 3}),
        ({"<unused7>": 6, "word": 7}, {6}),
        ([["<unk>", 0.0], ["<0x00>", 0.0], ["<0xFF>", 0.0], ["<0xGG>", 0.0], ["a", -1.0], "odd", []], {1, 2}),
    ],
)
def test_unused_and_byte_tokens_of_the_vocabulary_are_special(bare: Path, vocab: Any, expected: set[int]) -> None:
    (bare / "tokenizer.json").write_text(json.dumps({"model": {"vocab": vocab}}))
    assert ids(bare) == expected


def test_unused_tokens_of_a_vocabulary_file_are_special(bare: Path) -> None:
    (bare / "vocab.txt").write_bytes("[PAD]\n[unused0]\r\nthe\n\u2028\n[unused1]\n".encode())
    assert ids(bare) == {1, 4}


def test_tokenizer_files_next_to_a_single_weight_file_are_used(folder: Path) -> None:
    set_config(folder)
    assert special_token_ids(open_checkpoint(folder / "model.safetensors")) == {2}


@pytest.mark.parametrize("content", [b"[]", b"{", b"\xff"])
@pytest.mark.parametrize("name", ["tokenizer.json", "vocab.txt"])
def test_a_malformed_tokenizer_is_named(bare: Path, content: bytes, name: str) -> None:
    (bare / name).write_bytes(content)
    if name == "vocab.txt" and content != b"\xff":
        assert ids(bare) == frozenset()
        return
    assert refused(bare).file == str(bare / name)


def refused(folder: Path) -> CorruptCheckpointError:
    with pytest.raises(CorruptCheckpointError) as caught:
        ids(folder)
    return caught.value


def test_a_tokenizer_linked_from_outside_is_refused(bare: Path, tmp_path: Path) -> None:
    (tmp_path / "secret.json").write_text("{}")
    (bare / "tokenizer.json").symlink_to(tmp_path / "secret.json")
    assert refused(bare).found == str(tmp_path / "secret.json")


def test_a_real_bert_tokenizer(minilm_path: Path) -> None:
    found = special_token_ids(open_checkpoint(minilm_path))
    assert {0, 100, 101, 102, 103} <= found  # [PAD] [UNK] [CLS] [SEP] [MASK]
    assert set(range(1, 100)) <= found  # [unused0] to [unused98]
    assert 1996 not in found  # "the"


@pytest.mark.parametrize("section", ["text_config", "llm_config", "language_config"])
def test_ids_in_the_section_of_a_multimodal_models_language_model(bare: Path, section: str) -> None:
    inner = json.loads((bare / "config.json").read_text()) | {"bos_token_id": 11, "eos_token_id": [12]}
    (bare / "config.json").write_text(json.dumps({"model_type": "some_vlm", section: inner}))
    assert ids(bare) == {11, 12}


@pytest.mark.parametrize(("piece", "of"), [("[]", "[ and {"), ("{}", "[ and {"), ("0", ",")])
def test_a_file_with_too_many_values_is_refused_unparsed(bare: Path, piece: str, of: str) -> None:
    """The allowed 128 MB would become gigabytes of empty lists."""
    most = MOST_VALUES if piece == "0" else MOST_CONTAINERS
    (bare / "tokenizer.json").write_text('{"x":[' + ",".join([piece] * (most + 2)) + "]}")
    assert refused(bare).expected == f"at most {most} occurrences of {of}"


def test_a_vocabulary_of_empty_lines_is_refused(bare: Path) -> None:
    (bare / "vocab.txt").write_bytes(b"\n" * (MOST_ROWS + 1))
    assert refused(bare).file == str(bare / "vocab.txt")
