"""Lineage and the agreement of attention, on descendants and unrelated models."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import irwm
from irwm.alignment import Alignment
from irwm.attacks.rewrite import rewrite
from irwm.evidence.attention import Attention, attention
from irwm.evidence.circuits import Circuits
from irwm.evidence.lineage import CANNOT_TELL, DERIVED, NOT_DERIVED, lineage, with_mark
from irwm.evidence.neurons import NeuronMatch
from irwm.scheme.parameters import many_recipients


def noisy(source: Path, out: Path, share: float) -> irwm.Checkpoint:
    generator = torch.Generator().manual_seed(1)

    def add(_name: str, x: torch.Tensor) -> torch.Tensor:
        return x if x.ndim < 2 else x.float() + share * x.float().std() * torch.randn(x.shape, generator=generator)

    return irwm.open_checkpoint(rewrite(source, out, add))


def read(suspect: irwm.Checkpoint, model: irwm.Checkpoint) -> irwm.Lineage:
    return irwm.Examination(suspect, model).aligned[0].lineage()


@pytest.fixture(scope="module")
def alignment(demo_path: Path) -> Alignment:
    """A model compared with itself."""
    model = irwm.open_checkpoint(demo_path)
    return irwm.align(model, model)


@pytest.mark.sweep
@pytest.mark.parametrize("share", [0.1, 0.5])
def test_descendants_under_noise_are_derived(trained_path: Path, tmp_path: Path, share: float) -> None:
    model = irwm.open_checkpoint(trained_path)
    kin = read(noisy(trained_path, tmp_path / "x", share), model)
    assert kin.status == DERIVED
    assert kin.similarity > 0.85
    assert kin.attention > 5 * kin.attention_decoy


def test_suspect_unlike_the_original_is_not_derived_unless_it_has_a_mark(alignment: Alignment) -> None:
    cosines = np.random.default_rng(0).normal(0, 0.03, alignment.cosines.size)
    unlike = replace(alignment, aligned=False, exhausted=True, cosines=cosines)
    layers = Circuits(0.03, np.linspace(-0.06, 0.06, 99))
    apart = lineage(unlike, fitted=lambda: 0.3, layers=lambda: layers)
    assert apart.status == NOT_DERIVED
    assert (apart.circuits, apart.circuits_decoy) == (0.03, 0.06)
    assert lineage(unlike, fitted=lambda: 0.7, layers=lambda: pytest.fail("without need")).status == CANNOT_TELL
    none = lineage(unlike, fitted=lambda: float("nan"))
    assert none.status == lineage(unlike).status == CANNOT_TELL
    for same in (Circuits(0.3, layers.decoys), Circuits(0.11, layers.decoys * 2), None):
        kin = lineage(unlike, fitted=lambda: 0.3, layers=lambda same=same: same)
        agrees = same is None or same.agreement > 0.12
        assert kin.status == (CANNOT_TELL if agrees else NOT_DERIVED)
    for match, status in (
        (NeuronMatch(0.02, 0.01, 300, 0.0, 0.0, ()), NOT_DERIVED),
        (NeuronMatch(0.2, 0.01, 300, 0.9, 0.9, ((0, 0),)), CANNOT_TELL),
        (NeuronMatch(0.9, 0.85, 300, 0.0, 0.0, ()), NOT_DERIVED),
        (NeuronMatch(0.9, 0.01, 300, 0.9, 0.1, ((0, 0),)), CANNOT_TELL),
        (NeuronMatch(0.9, 0.01, 300, 0.9, 0.9, ((0, 0),)), DERIVED),
        (None, CANNOT_TELL),  # a failed comparison clears nobody
    ):
        kin = lineage(unlike, fitted=lambda: 0.3, layers=lambda: layers, neurons=lambda match=match: match)
        assert kin.status == status
    marked = with_mark(apart)
    assert marked.status == CANNOT_TELL
    assert with_mark(marked) == marked


@pytest.mark.slow
def test_marked_copy_is_never_called_not_derived(gpt2_path: Path, tmp_path: Path) -> None:
    """Under noise of three times the rows' size only the fingerprint is left."""
    model = irwm.open_checkpoint(gpt2_path)
    key = irwm.generate_key(model, many_recipients(model.hidden_size), bytes(32), "Example Labs", "Ada")
    copy = irwm.insert(model, key, tmp_path / "copy")
    found = irwm.detect(noisy(copy.path, tmp_path / "x", 3.0), model, key)
    assert found.verdict == "found"
    assert found.lineage.status == CANNOT_TELL


def test_attention_does_not_depend_on_the_coordinates(phi3_path: Path, tmp_path: Path) -> None:
    steps = ["rotate", "regain", "map_qk", "reorder_heads", "reorder_tokens"]
    out = irwm.attacks.equivalence.disguise(phi3_path, tmp_path / "x", steps, seed=1, dtype="float32")
    kin = read(irwm.open_checkpoint(out), irwm.open_checkpoint(phi3_path))
    assert kin.status == DERIVED
    assert kin.attention > 0.999


def test_wrong_tokens_agree_no_more_than_decoys(demo_path: Path, alignment: Alignment) -> None:
    """The calibration of the decoys: a model against itself with all rows shifted is one more decoy."""
    model = irwm.open_checkpoint(demo_path)
    rows = np.arange(model.vocab_size)
    shifted = [replace(alignment, rows=np.roll(rows, k)) for k in (500, 1000, 1500)]
    found = [attention(model, model, each) for each in shifted]
    assert all(each is not None and each.agreement < 2 * each.largest_decoy for each in found)


@pytest.mark.slow
def test_rows_decide_without_readable_attention(demo_path: Path, tmp_path: Path) -> None:
    scrambled = [("rename_tensors", {"scheme": "scrambled"})]
    out = irwm.attacks.equivalence.disguise(demo_path, tmp_path / "x", scrambled)
    model = irwm.open_checkpoint(demo_path)
    kin = read(irwm.open_checkpoint(out), model)
    assert kin.status == DERIVED
    assert np.isnan(kin.attention)
    assert np.isnan(kin.attention_decoy)


def test_similar_rows_without_attention_are_not_enough(alignment: Alignment) -> None:
    """Two models from one random start (benchmarks/lineage.py measures real ones): rows 0.46, attention 0.02."""
    alike = replace(alignment, cosines=np.full_like(alignment.cosines, 0.46))
    decoys = np.linspace(-0.06, 0.06, 99)
    assert lineage(alike, Attention(0.02, decoys)).status == CANNOT_TELL
    assert lineage(alike, Attention(0.5, decoys)).status == DERIVED
    assert lineage(alike).status == CANNOT_TELL  # renaming the tensors must not switch the safeguard off
    # Rows that clearly match are sufficient evidence: q and k can be replaced or mapped beyond recognition.
    assert lineage(alignment, Attention(0.02, decoys)).status == DERIVED
