"""Likeness of embeddings: high for a model's descendants under any invertible map, low for models trained apart."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import irwm
from irwm.attacks import adaptive, equivalence, exchange_tokenizer, quantize
from irwm.evidence.likeness import FEW_ROWS, Reference, Sketch, likeness, sketch
from irwm.inference import default_text
from tools.copies import write_embedding
from tools.small_models import write_llama

# Unrelated models with the same tokenizer and text stay below it; descendants that still work stay above it.
BETWEEN = 0.24


@pytest.fixture(scope="module")
def sketches(demo_path: Path, gemma_path: Path, phi3_path: Path, minilm_path: Path) -> dict[str, Sketch]:
    paths = {"demo": demo_path, "gemma": gemma_path, "phi3": phi3_path, "minilm": minilm_path}
    return {name: sketch(irwm.open_checkpoint(path)) for name, path in paths.items()}


ATTACKS: dict[str, Callable[[Path, Path], Path]] = {
    "disguised": lambda model, out: equivalence.disguise(model, out, ["rotate", "regain", "reorder_tokens"]),
    "4 bits": lambda model, out: quantize(model, out, 4),
    "half of the components": lambda model, out: adaptive.drop_components(model, out, 0.5),
    "stored otherwise": lambda model, out: adaptive.store_otherwise(model, out, 0.75),
    "rare rows flattened": lambda model, out: adaptive.flatten_seldom(model, out, 0.75),
    "a huge row": lambda model, out: adaptive.confuse(model, out, "huge-row"),
    "a row of NaN": lambda model, out: adaptive.confuse(model, out, "nan-row"),
    "another tokenizer": lambda model, out: exchange_tokenizer(model, out, default_text(), 0.5),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_descendant_is_most_like_its_original(
    sketches: dict[str, Sketch], phi3_path: Path, tmp_path: Path, attack: str
) -> None:
    made = sketch(irwm.open_checkpoint(ATTACKS[attack](phi3_path, tmp_path / "out")))
    found = {name: likeness(made, each) for name, each in sketches.items()}
    assert found.pop("phi3") > BETWEEN
    assert all(value < BETWEEN for value in found.values() if not math.isnan(value))


def test_models_that_were_trained_apart_are_not_alike(sketches: dict[str, Sketch]) -> None:
    for one, ours in sketches.items():
        for other, theirs in sketches.items():
            found = likeness(ours, theirs)
            assert found == pytest.approx(likeness(theirs, ours), abs=1e-5)
            assert (found > 0.999) if one == other else (found < BETWEEN)


@pytest.mark.parametrize("columns", [64, 32, 96])
def test_invertible_and_other_maps_of_the_columns(tmp_path: Path, columns: int) -> None:
    """A map to as many or more coordinates changes nothing; one to fewer loses a part."""
    model = irwm.open_checkpoint(write_llama(tmp_path / "model", vocab_size=3000))
    body = irwm.open_checkpoint(write_llama(tmp_path / "body", vocab_size=3000, hidden_size=columns, seed=5))
    mixing = torch.randn(64, columns, generator=torch.Generator().manual_seed(0))
    suspect = write_embedding(body, model.embedding() @ mixing, tmp_path / "suspect")
    found = likeness(sketch(model), sketch(suspect))
    assert (found > 0.99) if columns >= 64 else (0.3 < found < 0.9)


def test_too_few_common_tokens_have_no_likeness(tmp_path: Path) -> None:
    small, large = (
        sketch(irwm.open_checkpoint(write_llama(tmp_path / str(size), vocab_size=size))) for size in (50, 3000)
    )
    assert math.isnan(likeness(small, large))


def test_tokens_are_paired_by_id_without_a_tokenizer(demo_path: Path, tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    bare.mkdir()
    for name in ("config.json", "model.safetensors"):
        shutil.copyfile(demo_path / name, bare / name)
    own, without = sketch(irwm.open_checkpoint(demo_path)), sketch(irwm.open_checkpoint(bare))
    assert (bool(own.named), bool(without.named)) == (True, False)
    assert likeness(own, without) > 0.9  # of two samples


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> irwm.Checkpoint:
    """A model of which a small part of the rows is sampled."""
    return irwm.open_checkpoint(write_llama(tmp_path_factory.mktemp("large") / "model", vocab_size=40_000))


def few(model: irwm.Checkpoint, draw: bytes = b"secret") -> Sketch:
    return sketch(model, most=FEW_ROWS, draw=draw)


def test_reference_is_read_at_the_tokens_of_the_sample(large: irwm.Checkpoint, tmp_path: Path) -> None:
    """Two samples of a large vocabulary have few tokens in common; a sample and the original have all of them."""
    reference = Reference(large, most=FEW_ROWS)
    assert reference.likeness(few(large)) > 0.95
    mixing = torch.randn(64, 64, generator=torch.Generator().manual_seed(0))
    mixed = write_embedding(large, large.embedding() @ mixing, tmp_path / "mixed")
    assert reference.likeness(few(mixed)) > 0.9
    other = irwm.open_checkpoint(write_llama(tmp_path / "other", vocab_size=40_000, seed=5))
    assert abs(reference.likeness(few(other))) < BETWEEN
    small = irwm.open_checkpoint(write_llama(tmp_path / "small", vocab_size=50))
    assert math.isnan(reference.likeness(few(small)))


def test_attacker_who_replaces_the_rows_of_another_draw_hides_nothing(large: irwm.Checkpoint, tmp_path: Path) -> None:
    reference, rows = Reference(large, most=FEW_ROWS), large.embedding()
    drawn = list(few(large, b"").numbered)
    rows[drawn] = torch.randn(len(drawn), rows.shape[1], generator=torch.Generator().manual_seed(1)) * rows.std()
    suspect = write_embedding(large, rows, tmp_path / "suspect")
    assert reference.likeness(few(suspect, b"")) < BETWEEN
    assert reference.likeness(few(suspect)) > 0.7


def test_shuffled_texts_of_a_tokenizer_hide_nothing(demo_path: Path, tmp_path: Path) -> None:
    shuffled = tmp_path / "shuffled"
    shutil.copytree(demo_path, shuffled)
    content = json.loads((shuffled / "tokenizer.json").read_text("utf-8"))
    vocabulary = content["model"]["vocab"]
    content["model"]["vocab"] = dict(zip(vocabulary, reversed(vocabulary.values()), strict=True))
    (shuffled / "tokenizer.json").write_text(json.dumps(content), "utf-8")
    suspect = sketch(irwm.open_checkpoint(shuffled))
    model = irwm.open_checkpoint(demo_path)
    assert likeness(suspect, sketch(model)) < BETWEEN
    assert Reference(model).likeness(suspect) > 0.99


def test_equal_rows_and_an_empty_embedding_do_not_fail(tmp_path: Path) -> None:
    model = irwm.open_checkpoint(write_llama(tmp_path / "model", vocab_size=500))
    for name, rows in (
        ("zero", torch.zeros(500, 64)),
        ("alike", torch.ones(500, 64)),
        ("nan", torch.full((500, 64), torch.nan)),
    ):
        made = sketch(write_embedding(model, rows, tmp_path / name))
        assert not likeness(sketch(model), made) > BETWEEN
        assert not Reference(model).likeness(made) > BETWEEN
