"""An attacker who has read the manual: changes of the embedding without the key or the original, and their readings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

import irwm
from irwm.alignment.rows import draw, sample_size
from irwm.attacks.adaptive import MORE_TENSORS, drop_components
from irwm.attacks.attack import Setup
from irwm.attacks.catalogue import ADAPTIVE, ATTACKS, Steps, composed
from irwm.attacks.equivalence import Step
from irwm.evidence.detection import detect_marks
from irwm.evidence.examination import CLOSE_DISTANCE, CLOSE_SHARE
from irwm.inference.text import default_text
from irwm.tracing import trace_each
from tools.copies import copy_of, keys_for, write_embedding
from tools.small_models import write_llama


def bare(model: irwm.Checkpoint, key: irwm.Key, folder: Path, *more: Step, kept: float = 0.75) -> irwm.Checkpoint:
    """A release without its minor components, and then rotated: no rotation fits."""
    irwm.insert(model, key, folder / "release")
    drop_components(folder / "release", folder / "bare", kept)
    irwm.attacks.equivalence.disguise(folder / "bare", folder / "x", ["rotate", *more], seed=1)
    return irwm.open_checkpoint(folder / "x")


@pytest.mark.fault(85)
@pytest.mark.parametrize(
    ("kept", "scale"), [(0.75, "auto"), pytest.param(0.5, "auto", marks=pytest.mark.slow),
                        pytest.param(0.75, 1000.0, marks=pytest.mark.slow)],
)  # fmt: skip
def test_mark_is_found_without_components_used_for_alignment(
    gemma_path: Path, tmp_path: Path, kept: float, scale: float | str
) -> None:
    """The least-squares map reads the mark."""
    model = irwm.open_checkpoint(gemma_path)
    key = irwm.generate_key(model, irwm.Parameters(scale=scale), secret=bytes(32))
    examination = irwm.Examination(bare(model, key, tmp_path, kept=kept), model)
    others = [irwm.generate_key(model, key.parameters, secret=bytes([n]) * 32) for n in range(1, 9)]
    found, *wrong = irwm.detect_each(examination, [key, *others])
    assert found.verdict == "found"
    assert not found.alignment.aligned
    assert found.log10_p < -25
    assert found.lineage.status == "derived"  # by the neurons
    assert not [finding for finding in wrong if finding.verdict == "found"]


@pytest.mark.fault(85)
@pytest.mark.slow
def test_leaker_is_named_without_alignment(gemma_path: Path, tmp_path: Path) -> None:
    """The fingerprint is read under the same maps as the mark, for any alignment score."""
    model = irwm.open_checkpoint(gemma_path)
    params = irwm.Parameters(scale="auto", noise_coordinates=8, spread=0.25)
    keys = [irwm.generate_key(model, params, secret=bytes(32), recipient=name) for name in ("ann", "bob", "cid")]
    tracing = trace_each(irwm.Examination(bare(model, keys[1], tmp_path), model), keys)
    assert not tracing.alignment.aligned
    assert [trace.recipient for trace in tracing.named] == ["bob"]
    assert max(abs(z) for z in tracing.decoys) < 4.5


@pytest.mark.slow
@pytest.mark.parametrize("tokenizer", ["keep", "drop"])
def test_moved_rows_are_found_without_alignment(gemma_path: Path, tmp_path: Path, tokenizer: str) -> None:
    """If alignment fails, rows are placed by their names, or else by their content."""
    model = irwm.open_checkpoint(gemma_path)
    key = irwm.generate_key(model, secret=bytes(32))
    wrong = irwm.generate_key(model, secret=bytes([1]) * 32)
    suspect = bare(model, key, tmp_path, ("reorder_tokens", {"tokenizer": tokenizer}))
    found, missed = irwm.detect_each(irwm.Examination(suspect, model), [key, wrong])
    assert not found.alignment.aligned
    assert found.verdict == "found"
    assert found.log10_p < -25
    assert missed.verdict == "inconclusive"


@pytest.mark.fault(85)
@pytest.mark.slow
def test_mark_is_found_with_corrupted_public_sample_rows(tmp_path: Path) -> None:
    """All rows of the public samples are redrawn. Those that depend on the key's secret also show the descent."""
    names = Tokenizer(WordLevel({f"word{i}": i for i in range(12_288)}, "word0"))
    original = write_llama(tmp_path / "model", vocab_size=12_288)
    names.save(str(original / "tokenizer.json"))
    model = irwm.open_checkpoint(original)
    key = irwm.generate_key(model, secret=bytes(32))
    release = irwm.open_checkpoint(irwm.insert(model, key, tmp_path / "release").path)
    embedding = release.embedding()
    known = torch.as_tensor(draw(model.vocab_size, sample_size(model.hidden_size)))
    assert len(known) < model.vocab_size / 2
    drawn = torch.randn(len(known), model.hidden_size, generator=torch.Generator().manual_seed(3))
    embedding[known] = drawn * embedding.std()
    made = write_embedding(release, embedding, tmp_path / "corrupted").path
    names.save(str(made / "tokenizer.json"))
    suspect = irwm.open_checkpoint(made)
    found = irwm.detect(suspect, model, key)
    assert found.verdict == "found"
    assert found.lineage.status == "derived", "the output head shows it"
    other = irwm.generate_key(model, secret=bytes([1]) * 32)
    assert irwm.detect(suspect, model, other).verdict != "found"
    (aligned,) = irwm.Examination(suspect, model).aligned
    for each in (key, other):
        lineage = aligned.lineage(each.derivation.sample_key())
        assert lineage.status == "cannot tell"
        assert lineage.fitted > 0.65
    kin = aligned.lineage()
    assert kin.status == "cannot tell"
    assert "could not be compared" in kin.reason, "a single layer has no neighbour, and the public samples show nothing"
    public = aligned.least_squares()
    assert public is not None
    assert public.agreement < 0.65


CASES = [
    (attack.name, strength.value)
    for attack in ATTACKS.values()
    if attack.group == ADAPTIVE
    for strength in attack.strengths
]
# Attack, strength, and whether the model is also disguised. Without half of the components, or with a quarter of each
# row left, no row is recognised by its content; perplexity rises by half, and by a seventh. Rows that were made random
# completely, and then learned again, hold nothing of the mark.
LOST = {
    *(("components", 0.5, True), ("learn-again", 0.75, True)),
    *(("learn-again", 1.0, False), ("learn-again", 1.0, True)),
}
DISGUISES: Steps = [(name, 1) for name in ("rescale", "permute-residual", "map-qk", "reorder-heads", "reorder-tokens")]


@pytest.fixture(scope="module")
def sold(gemma_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Setup:
    """A release with one owner's preset, and the attacker's resources."""
    folder = tmp_path_factory.mktemp("sold")
    model = irwm.open_checkpoint(gemma_path)
    key = irwm.generate_key(model, irwm.one_owner(model.hidden_size), secret=bytes(range(32)), owner="us")
    return Setup(gemma_path, irwm.insert(model, key, folder / "release").path, key, default_text(), folder)


@pytest.mark.fault(85)
@pytest.mark.sampled(2)
@pytest.mark.sweep
@pytest.mark.parametrize("disguises", [[], DISGUISES], ids=["alone", "disguised"])
@pytest.mark.parametrize(("name", "value"), CASES)
def test_every_adaptive_attack_leaves_a_found_release(
    sold: Setup, tmp_path: Path, name: str, value: float | str, disguises: Steps
) -> None:
    # Disguises refuse a model with tensors that its family does not have, so those are added last.
    steps = [*disguises, (name, value)] if value == MORE_TENSORS else [(name, value), *disguises]
    attacked = composed(replace(sold, scratch=tmp_path / "steps"), steps, tmp_path / "out")
    model = irwm.open_checkpoint(sold.original)
    wrong = irwm.generate_key(model, sold.key.parameters, secret=bytes([9]) * 32, owner="us")
    suspect = irwm.open_checkpoint(attacked.path)
    found = irwm.detect(suspect, model, sold.key)
    lost = (name, value, bool(disguises)) in LOST
    assert found.verdict == ("inconclusive" if lost else "found"), found.reason
    assert found.lineage.status != "not derived"
    assert irwm.detect(suspect, model, wrong).verdict != "found"


def rotated(rows: torch.Tensor, strength: float) -> torch.Tensor:
    skew = torch.randn(rows.shape[1], rows.shape[1], generator=torch.Generator().manual_seed(1), dtype=rows.dtype)
    return rows @ torch.linalg.matrix_exp(strength * (skew - skew.T) / rows.shape[1] ** 0.5)


def stretched(rows: torch.Tensor, strength: float) -> torch.Tensor:
    factors = torch.randn(rows.shape[1], generator=torch.Generator().manual_seed(2), dtype=rows.dtype)
    return rows * torch.exp(strength * factors)


def components(rows: torch.Tensor, factors: torch.Tensor) -> torch.Tensor:
    """The rows with each of their principal components, leading ones first, multiplied by its factor."""
    centre = rows.mean(dim=0)
    _, _, directions = torch.linalg.svd(rows - centre, full_matrices=False)
    return centre + (rows - centre) @ (directions.T * factors) @ directions


def without_minor(rows: torch.Tensor, strength: float) -> torch.Tensor:
    return components(rows, (torch.linspace(0, 1, rows.shape[1]) < 1 - min(strength, 0.9)).to(rows.dtype))


def with_major(rows: torch.Tensor, strength: float) -> torch.Tensor:
    return components(rows, 1 + strength * (torch.linspace(0, 1, rows.shape[1]) < 0.05).to(rows.dtype))


@pytest.mark.parametrize("change", [rotated, stretched, without_minor, with_major])
@pytest.mark.parametrize("name", ["demo", "gemma"])
def test_close_suspect_shows_mark_and_fingerprint_without_a_fitted_map(
    request: pytest.FixtureRequest, tmp_path: Path, name: str, change: Callable[[torch.Tensor, float], torch.Tensor]
) -> None:
    """The attacker uses the largest change for which only the alignment is read."""
    model = irwm.open_checkpoint(request.getfixturevalue(f"{name}_path"))
    key, other = keys_for(model, ["Ann", "Bob"])
    copy = copy_of(model, key).double()
    lengths, low, high = (copy - copy.mean(dim=0)).norm(dim=1), 0.0, 1.0
    for _ in range(12):
        middle = (low + high) / 2
        share = ((change(copy, middle) - copy).norm(dim=1) <= (CLOSE_DISTANCE - 0.03) * lengths).double().mean()
        low, high = (middle, high) if share >= CLOSE_SHARE else (low, middle)
    suspect = write_embedding(model, change(copy, low), tmp_path / "suspect")
    examination = irwm.Examination(suspect, model)
    assert examination.aligned[0].maps(key.derivation.sample_key()) == ("aligned",)
    assert [found.verdict for found in detect_marks(examination, [key, other])] == ["found", "not found"]
    tracing = trace_each(examination, [key, other])
    assert [trace.recipient for trace in tracing.named] == ["Ann"]
    assert tracing.by == "aligned"


@pytest.mark.parametrize("kept", ["public sample", "half of the rows"])
def test_rows_left_unchanged_do_not_hide_the_mark_in_the_others(tmp_path: Path, kept: str) -> None:
    """The alignment's sample is public. Whoever leaves its rows and turns all others has a loader that turns them back.
    With half of the rows unchanged, these are enough."""
    model = irwm.open_checkpoint(write_llama(tmp_path / "model", vocab_size=60_000, dtype=torch.bfloat16))
    key, other = (irwm.generate_key(model, irwm.Parameters(), secret=bytes([n]) * 32) for n in (1, 2))
    copy = irwm.open_checkpoint(irwm.insert(model, key, tmp_path / "copy").path).embedding().double()
    turn = torch.linalg.qr(torch.randn(64, 64, generator=torch.Generator().manual_seed(0), dtype=torch.float64)).Q
    suspect, rows = copy @ turn, torch.from_numpy(draw(60_000, sample_size(64)))
    if kept == "half of the rows":
        rows = torch.randperm(60_000, generator=torch.Generator().manual_seed(1))[:31_000]
    suspect[rows] = copy[rows]
    examination = irwm.Examination(write_embedding(model, suspect, tmp_path / "suspect"), model)
    found, missed = irwm.detect_each(examination, [key, other])
    assert found.alignment.similarity > 0.98
    assert (found.verdict, missed.verdict) == ("found", "not found")
    assert found.reading.by == ("least squares" if kept == "public sample" else "aligned")
    assert found.log10_p < -25
