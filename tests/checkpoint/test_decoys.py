"""A release that an attacker surrounded with other tensors named like the embedding: the mark is still found."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import irwm
from irwm.alignment.pipeline import MOST_CHOICES
from irwm.checkpoint import Checkpoint, open_checkpoint
from irwm.errors import UnsupportedCheckpointError
from tests.checkpoint.builders import EMBEDDING
from tests.checkpoint.quantised_builders import awq, written
from tests.conftest import Marked

Tensors = dict[str, torch.Tensor]


@pytest.fixture(scope="module")
def marked(tiny_marked: Marked) -> tuple[Checkpoint, irwm.Key, Tensors, Tensors]:
    """Original, key, and the tensors of the release and of the original."""
    original, key, release = tiny_marked
    return original, key, load_file(release / "model.safetensors"), load_file(original.path / "model.safetensors")


def behind(prefix: str, tensors: Tensors) -> Tensors:
    return {prefix + n.removeprefix("model."): t for n, t in tensors.items() if n.startswith("model.")}


def config_of(model: Checkpoint) -> dict:
    return json.loads((model.path / "config.json").read_text())


def verdict(folder: Path, marked: tuple[Checkpoint, irwm.Key, Tensors, Tensors]) -> irwm.Finding:
    return irwm.detect(open_checkpoint(folder), marked[0], marked[1])


@pytest.mark.slow
def test_an_unmarked_original_under_an_earlier_path_does_not_hide_the_mark(marked, tmp_path: Path) -> None:
    """transformers loads the release and reports the whole unmarked model as unexpected."""
    original, _, release, plain = marked
    tensors = behind("model.language_model.", release) | behind("model.", plain)
    tensors["lm_head.weight"] = release[EMBEDDING].clone()
    config = {"model_type": "llava", "text_config": config_of(original), "vision_config": {}}
    found = verdict(written(tmp_path, tensors, config), marked)
    assert found.verdict == "found"
    assert found.paper is not None


@pytest.mark.slow
def test_both_of_two_indistinguishable_models_are_read(marked, tmp_path: Path) -> None:
    """Versions of transformers have loaded either of the names with and without a prefix."""
    original, _, release, plain = marked
    folder = written(tmp_path, plain | behind("", release), config_of(original))
    assert torch.equal(open_checkpoint(folder).embedding(), plain[EMBEDDING].float())
    found = verdict(folder, marked)
    assert found.verdict == "found"
    assert found.tensors_read == 2
    assert found.paper is not None


@pytest.mark.slow
def test_a_false_copy_of_the_embedding_is_read_as_well(marked, tmp_path: Path) -> None:
    original, _, release, plain = marked
    copy = "model.layers.9.embed_tokens.weight"
    config = config_of(original)
    same = open_checkpoint(written(tmp_path / "same", plain | {copy: plain[EMBEDDING].clone()}, config))
    assert same.layout.copies
    assert len(irwm.Examination(same, original).aligned) == 1
    found = verdict(written(tmp_path / "other", plain | {copy: release[EMBEDDING]}, config), marked)
    assert found.verdict == "found"
    assert found.tensors_read == 2


@pytest.mark.slow
def test_codes_next_to_a_plain_embedding_are_read_as_well(marked, tmp_path: Path) -> None:
    """Which of the two a program uses depends on its libraries and the config, not on the files."""
    original, _, release, plain = marked
    codes = awq(release[EMBEDDING].float())
    parts = {EMBEDDING.removesuffix("weight") + part: value for part, value in codes.parts.items()}
    found = verdict(written(tmp_path, plain | parts, config_of(original)), marked)
    assert found.verdict == "found"
    assert found.tensors_read == 2


@pytest.mark.fault(84)
@pytest.mark.slow
def test_many_tensors_with_the_embeddings_name_do_not_hide_the_mark(marked, tmp_path: Path) -> None:
    """Unrelated tensors, and damaged copies, which fit as well as the release does."""
    original, _, release, plain = marked
    decoys = {f"d{i}.embed_tokens.weight": torch.randn_like(plain[EMBEDDING]) for i in range(MOST_CHOICES + 1)}
    decoys |= {f"e{i}.embed_tokens.weight": plain[EMBEDDING] + i for i in range(MOST_CHOICES + 1)}
    found = verdict(written(tmp_path, release | decoys, config_of(original)), marked)
    assert found.verdict == "found"
    assert found.tensors_read <= MOST_CHOICES
    said = f"skipped because their rows are less similar: {2 * MOST_CHOICES + 3 - MOST_CHOICES}"
    assert any(said in warning for warning in found.warnings)


@pytest.mark.slow
def test_a_renamed_embedding_is_found_among_many_of_its_size_by_its_rows(marked, tmp_path: Path) -> None:
    _, _, release, plain = marked
    decoys = {f"d{i}": torch.randn_like(plain[EMBEDDING]) for i in range(3 * MOST_CHOICES)}
    turned = release[EMBEDDING].float() @ torch.linalg.qr(torch.randn(64, 64)).Q * 3
    folder = written(tmp_path, decoys | {"x": turned.to(plain[EMBEDDING].dtype)}, {"model_type": "mine"})
    assert verdict(folder, marked).verdict == "found"


@pytest.mark.slow
def test_unread_tensors_make_the_verdict_inconclusive(marked, tmp_path: Path) -> None:
    """The tensor with the mark may be among those that were not read."""
    _, _, _, plain = marked
    decoys = {f"d{i}": torch.randn_like(plain[EMBEDDING]) for i in range(MOST_CHOICES)}
    own = {"x": plain[EMBEDDING], "y": plain["lm_head.weight"]}
    few = written(tmp_path / "few", dict(list(decoys.items())[2:]) | own, {"model_type": "mine"})
    many = written(tmp_path / "many", decoys | own, {"model_type": "mine"})
    assert verdict(few, marked).verdict == "not found"
    alone = written(tmp_path / "alone", {"x": plain[EMBEDDING]}, {"model_type": "mine"})
    found = verdict(alone, marked)
    assert (found.verdict, found.elsewhere is None) == ("inconclusive", False)
    assert "output head" in found.reason
    assert verdict(many, marked).verdict == "inconclusive"


@pytest.mark.fault(84)
def test_small_decoys_do_not_push_a_renamed_embedding_out_of_the_candidates(marked, tmp_path: Path) -> None:
    _, _, release, _ = marked
    rows = len(release[EMBEDDING])
    renamed = {"x": release[EMBEDDING]}
    decoys = {f"d{i}": torch.randn(rows + 1 + i, 2) for i in range(2 * MOST_CHOICES)}
    assert verdict(written(tmp_path, renamed | decoys, {"model_type": "mine"}), marked).verdict == "found"


def test_a_model_with_two_embeddings_is_not_marked(marked, tmp_path: Path) -> None:
    original, _, _, plain = marked
    tensors = plain | {"other.embed_tokens.weight": plain[EMBEDDING] + 1}
    with pytest.raises(UnsupportedCheckpointError) as caught:
        open_checkpoint(written(tmp_path, tensors, config_of(original))).require_markable()
    assert "other.embed_tokens.weight" in str(caught.value.found)
