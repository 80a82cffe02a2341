"""Each peer has its maximum on a copy, finds no relation to an unrelated model, and agrees with its authors' code.

The authors' numbers come from their repositories at the named commits, run on `permuted`, `noisy` and `both` of the
demo (see conftest), on one CPU; the only change was to run cuda calls on the CPU.
"""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

import irwm
from benchmarks.peers import (
    awm,
    cisco,
    csu,
    emmark,
    fernandez,
    ghostspec,
    huref,
    match,
    mdir,
    reef,
    seedprints,
    self_,
)
from benchmarks.peers.weights import load, shared_tokens
from irwm.attacks.equivalence import disguise
from irwm.inference.loading import open_weights

LINEAGE = [huref, awm, csu, match, seedprints]
# A random model is not near zero for these.
POSITIVE = [mdir, ghostspec, self_, reef]


def _names(modules: list[ModuleType]) -> list[str]:
    return [module.__name__.rsplit(".", 1)[1] for module in modules]


@pytest.mark.sweep
@pytest.mark.parametrize("peer", LINEAGE, ids=_names(LINEAGE))
def test_a_copy_scores_one_and_an_unrelated_model_near_zero(peer, demo_path: Path, unrelated: Path) -> None:
    score = peer.score(demo_path, demo_path)
    assert score.value == pytest.approx(1.0)
    assert score.says == "derived"
    score = peer.score(demo_path, unrelated)
    assert abs(score.value) < 0.05
    assert score.says == "not derived"


@pytest.mark.sweep
@pytest.mark.parametrize("peer", POSITIVE, ids=_names(POSITIVE))
def test_a_copy_is_derived_and_an_unrelated_model_is_not(peer, demo_path: Path, unrelated: Path) -> None:
    score = peer.score(demo_path, demo_path)
    assert score.value == pytest.approx(1.0)
    assert score.says == "derived"
    assert peer.score(demo_path, unrelated).says == "not derived"


@pytest.mark.sweep
@pytest.mark.parametrize(("variant", "theirs"), [("permuted", 0.62684767), ("noisy", 0.89401400), ("both", 0.56694208)])
def test_huref_agrees_with_its_authors(variant: str, theirs: float, demo_path: Path, variants: dict[str, Path]) -> None:
    """LUMIA-Group/HuRef 9c34548: get_invariant_terms2save on ids 3096 to 4095, key and value heads repeated for it."""
    ours = huref.ics(load(demo_path), load(variants[variant]), tokens=1000, gated=True)
    assert ours == pytest.approx(theirs, abs=1e-6)


@pytest.mark.parametrize(("variant", "theirs"), [("permuted", 1.0), ("noisy", 0.98661757), ("both", 0.98662850)])
def test_awm_agrees_with_its_authors(variant: str, theirs: float, demo_path: Path, variants: dict[str, Path]) -> None:
    """LUMIA-Group/AWM bc20ff8: the alignment of main.py, then calculate_attention_cka_similarities."""
    assert awm.similarity(load(demo_path), load(variants[variant])) == pytest.approx(theirs, abs=1e-6)


@pytest.mark.parametrize(("variant", "theirs"), [("permuted", 0.3208458335), ("noisy", 0.0), ("both", 0.4151547921)])
def test_csu_agrees_with_its_authors(variant: str, theirs: float, demo_path: Path, variants: dict[str, Path]) -> None:
    """ahmeda14960/model-tracing 5e65e7b: tracing.statistics.csu.statistic."""
    assert csu.statistic(load(demo_path), load(variants[variant]))[1] == pytest.approx(theirs, abs=1e-9)


@pytest.mark.parametrize(("variant", "theirs"), [("permuted", 0.0), ("noisy", 0.20734049), ("both", 0.20734049)])
def test_self_agrees_with_its_authors(variant: str, theirs: float, demo_path: Path, variants: dict[str, Path]) -> None:
    """HanxiuZhang/SELF_v2 0ee8245: get_fp_distance of four layers, in float32."""
    original, suspect = load(demo_path), load(variants[variant])
    largest = (2 * 4 * original.layers) ** 0.5
    assert self_.distance(original, suspect) * largest == pytest.approx(theirs, abs=2e-5)


@pytest.mark.parametrize(("mix", "theirs"), [(0.0, 0.6650945961885886), (0.5, 1.9897795303447778e-47)])
def test_seedprints_agrees_with_its_authors(mix: float, theirs: float) -> None:
    """YnezT0311/SeedPrints 1ceb956: run_test with a buffer of 6."""
    generator = torch.Generator().manual_seed(0)
    x = 3 * torch.randn(200, 64, generator=generator) + torch.randn(64, generator=generator)
    # The same draws as for each mix in one run of their function.
    noise = [torch.randn(200, 64, generator=generator) for _ in range(2)][round(2 * mix)]
    assert seedprints.statistic(x, x * mix + 3 * noise + x.mean(0))[1] == pytest.approx(theirs, rel=1e-6)


def test_reef_agrees_with_its_authors() -> None:
    """tmylla/REEF 48329f6: linear_CKA of CudaCKA on the CPU, with its matrices in float64."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(50, 24, generator=generator)
    y = x @ torch.randn(24, 16, generator=generator) + 2 * torch.randn(50, 16, generator=generator)
    assert reef.cka(x, y) == pytest.approx(0.6765774096549837, abs=1e-6)


def test_ghostspec_matches_layers_in_order() -> None:
    """Rows may be matched with any columns, but no later row with an earlier column."""
    alike = np.array([[0.1, 0.9, 0.0], [0.8, 0.2, 0.3]])
    assert ghostspec.matched(alike) == pytest.approx((0.9 + 0.3) / 2)


@pytest.mark.parametrize("variant", ["permuted", "both"])
def test_mdir_reads_through_a_permutation(variant: str, demo_path: Path, variants: dict[str, Path]) -> None:
    value, log_p = mdir.statistic(load(demo_path), load(variants[variant]))
    assert value > 0.9
    assert log_p < -1000


def test_mdir_bounds_the_trace_of_random_maps() -> None:
    """The exponent is continuous at one half, and no random map is called significant."""
    assert mdir.rate(0.5) == pytest.approx(mdir.rate(0.5 + 1e-9), abs=1e-8)
    generator = torch.Generator().manual_seed(0)
    for _ in range(20):
        across = mdir.polar(torch.randn(64, 64, dtype=torch.float64, generator=generator))
        assert mdir.trace(across)[1] == 0.0


@pytest.mark.slow
def test_match_detects_a_copy_that_csu_misses(demo_path: Path, variants: dict[str, Path]) -> None:
    """The same commit's match.statistic gives p = 0 in every layer, too."""
    assert csu.score(demo_path, variants["both"]).says == "not derived"
    assert match.score(demo_path, variants["both"]).p == 0.0


@pytest.mark.parametrize("bits", [4, 8])
def test_emmark_reads_back_what_it_wrote_and_nothing_else(
    bits: int, demo_path: Path, unrelated: Path, tmp_path: Path
) -> None:
    score = emmark.score(demo_path, emmark.mark(demo_path, tmp_path / "release", bits), bits)
    assert (score.value, score.says) == (1.0, "derived")
    assert emmark.score(demo_path, demo_path, bits).value == 0.0
    assert emmark.score(demo_path, unrelated, bits).says == "not derived"


def test_emmark_changes_a_code_by_one_level_at_each_position(demo_path: Path) -> None:
    one = emmark.signature(demo_path)["model.layers.0.mlp.up_proj.weight"]
    change = ((one.marked() / one.step).round() + one.zero - one.code).flatten()
    assert change.nonzero().flatten().tolist() == sorted(one.positions.tolist())
    assert (change[one.positions] == one.bits).all()
    assert len(one.bits) == emmark.LENGTH


def test_functional_invariants_are_read_back_and_change_no_output(
    demo_path: Path, unrelated: Path, tmp_path: Path
) -> None:
    release = fernandez.mark(demo_path, tmp_path / "release")
    score = fernandez.score(demo_path, release)
    assert (score.value, score.says) == (1.0, "derived")
    assert fernandez.score(demo_path, demo_path).says == "not derived"
    assert fernandez.score(demo_path, unrelated).says == "not derived"
    tokens = torch.arange(64)[None]
    with torch.no_grad():
        before, after = (open_weights(path).model(input_ids=tokens).logits for path in (demo_path, release))
    torch.testing.assert_close(after, before, rtol=1e-3, atol=1e-3)


def test_functional_invariants_survive_damage_and_no_other_permutation(demo_path: Path, tmp_path: Path) -> None:
    release = fernandez.mark(demo_path, tmp_path / "release")
    rounded = irwm.attacks.quantize(release, tmp_path / "rounded", 4)
    assert fernandez.score(demo_path, rounded).says == "derived"
    disguise(release, tmp_path / "permuted", ("permute_residual",), seed=5)
    assert fernandez.score(demo_path, tmp_path / "permuted").says == "not derived"


def test_equal_ids_are_used_without_a_tokenizer(demo_path: Path, trimmed: Path) -> None:
    ids, others = shared_tokens(load(demo_path), load(trimmed))
    assert len(ids) == 3000
    assert (ids == others).all()
    for peer in (huref, awm):
        assert peer.score(demo_path, trimmed).value == pytest.approx(1.0)


def test_a_model_without_llama_names_cannot_be_scored(demo_path: Path, minilm_path: Path) -> None:
    for peer in (*LINEAGE, mdir, ghostspec, self_, emmark, fernandez):
        score = peer.score(demo_path, minilm_path)
        assert score.says == "cannot run"
        assert "tensor" in score.reason or "layers" in score.reason


def test_the_kits_answer_is_read(demo_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another path than the copy's, because answers are cached; the text is what version 1.0.0 prints."""
    monkeypatch.delenv(cisco.PROGRAM, raising=False)
    missing = cisco.score(demo_path, demo_path)
    assert (missing.says, cisco.PROGRAM in missing.reason) == ("cannot run", True)
    scores = {"identity_score": 0.3613, "pipeline_score": 1.0, "provenance_decision": "Confirmed Match"}
    program = tmp_path / "provenancekit"
    program.write_text(f"#!/bin/sh\necho '{json.dumps({'scores': scores})}'\n", encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setenv(cisco.PROGRAM, str(program))
    suspect = tmp_path / "suspect"
    suspect.mkdir()
    assert cisco.score(demo_path, suspect).says == "derived"
    assert cisco.score_weights(demo_path, suspect).value == pytest.approx(0.3613)
