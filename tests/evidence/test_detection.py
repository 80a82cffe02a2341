"""Detection on real files: a mark is found only in its release, and only by its own key."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import irwm
from irwm.errors import ParameterError
from irwm.evidence.lineage import lineage
from tests.conftest import Marked
from tools.small_models import write_llama


@pytest.fixture(scope="module", params=["demo", "minilm"])
def marked(request: pytest.FixtureRequest, release_of: Callable[[str], Marked]) -> Marked:
    """Original, key and release of a trained model."""
    return release_of(request.param)


def test_the_release_is_found(marked) -> None:
    model, key, release = marked
    found = irwm.detect(irwm.open_checkpoint(release), model, key)
    assert found.verdict == "found"
    assert (found.ranks < 0.2).sum() >= 49
    assert found.count >= 49
    assert found.passes
    assert found.log10_p < -40
    assert found.null.shape == (50, 1000)
    assert found.ranks.shape == found.observed.shape == (50,)
    assert found.lineage.status == "derived"
    assert found.alignment.aligned
    assert found.paper is not None
    assert found.paper.count >= 49


@pytest.mark.fault(34)
def test_the_original_does_not_carry_the_mark(marked) -> None:
    model, key, _ = marked
    found = irwm.detect(model, model, key)
    assert found.verdict == "not found"
    assert found.lineage.status == "derived"


@pytest.mark.fault(34)
def test_another_keys_release_does_not_carry_this_mark(marked) -> None:
    model, _, release = marked
    other = irwm.generate_key(model, secret=bytes(32), owner="them")
    assert irwm.detect(irwm.open_checkpoint(release), model, other).verdict == "not found"


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("attack", "settings"),
    [
        (irwm.attacks.prune, {"ratio": 0.3}),
        (irwm.attacks.quantize, {"bits": 8}),
        (irwm.attacks.quantize, {"bits": 4}),
    ],
    ids=["pruned 30 %", "int8", "int4"],
)
def test_mark_survives_changes_of_the_release(marked, tmp_path: Path, attack, settings: dict) -> None:
    model, key, release = marked
    suspect = irwm.open_checkpoint(attack(release, tmp_path / "attacked", **settings))
    found = irwm.detect(suspect, model, key)
    assert found.verdict == "found"
    assert found.log10_p < -40


@pytest.mark.sweep
@pytest.mark.parametrize("statistic", ["joint", "sum", "difference"])
@pytest.mark.parametrize("invariant", ["original", "suspect"])
def test_every_statistic_finds_the_release_and_not_the_original(marked, statistic: str, invariant: str) -> None:
    model, key, release = marked
    found = irwm.detect(irwm.open_checkpoint(release), model, key, statistic=statistic, invariant=invariant)
    assert (found.statistic, found.invariant, found.verdict) == (statistic, invariant, "found")
    missed = irwm.detect(model, model, key, statistic=statistic, invariant=invariant)
    assert missed.verdict == ("inconclusive" if statistic == "difference" else "not found")
    if statistic == "difference":
        assert "undefined" in missed.reason


@pytest.mark.slow
def test_same_seed_gives_same_numbers_for_any_threads(marked) -> None:
    model, key, release = marked
    suspect = irwm.open_checkpoint(release)
    one = irwm.detect(suspect, model, key, seed=7)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        two = irwm.detect(irwm.open_checkpoint(release), model, key, seed=7)
    finally:
        torch.set_num_threads(before)
    assert np.array_equal(one.ranks, two.ranks)
    assert np.allclose(one.null, two.null, rtol=1e-9)
    three = irwm.detect(suspect, model, key, seed=8)
    assert not np.array_equal(one.null, three.null)


def test_permuted_columns_are_restored(tmp_path: Path, marked) -> None:
    """Appendix B's permutation attack on the embedding: the paper's Permutation_Recover undoes it."""
    model, key, release = marked
    order = torch.from_numpy(np.random.default_rng(0).permutation(model.hidden_size))
    name = model.layout.embedding.name
    out = irwm.attacks.rewrite.rewrite(release, tmp_path / "permuted", lambda n, x: x[:, order] if n == name else x)
    found = irwm.detect(irwm.open_checkpoint(out), model, key)
    assert found.alignment.uniqueness == 1.0
    assert found.alignment.aligned
    assert any("reordered" in sentence for sentence in found.alignment.undone)
    assert found.verdict == "found"
    assert found.count >= 49


DISGUISES = {
    "4 % of the columns swapped": lambda e, order: e[:, order],
    "45 % of the columns permuted": lambda e, order: e[:, order],
    "every sign flipped": lambda e, _: -e,
    "half the signs flipped": lambda e, _: e * (torch.arange(e.shape[1]) % 2 * 2 - 1),
    "a constant added to every entry": lambda e, _: e + 0.5 * e.float().abs().mean(),
    "a constant added to each column": lambda e, _: e + e.float().abs().mean() * torch.linspace(-3, 3, e.shape[1]),
    "one planted row of huge numbers": lambda e, _: torch.cat((torch.full_like(e[:1], 1e6), e[1:])),
    "scaled up": lambda e, _: e * 1e4,
}


@pytest.mark.sweep
@pytest.mark.parametrize("disguise", DISGUISES)
def test_cheap_disguises_do_not_hide_the_mark(marked, tmp_path: Path, disguise: str) -> None:
    model, key, release = marked
    rng, d, name = np.random.default_rng(4), model.hidden_size, model.layout.embedding.name
    share = {"4": 0.04, "45": 0.45}.get(disguise.split()[0], 0.0)
    moved = rng.choice(d, int(share * d), replace=False)
    order = np.arange(d)
    order[moved] = np.roll(moved, 1)
    change = DISGUISES[disguise]
    out = irwm.attacks.rewrite.rewrite(
        release, tmp_path / "x", lambda n, x: change(x.float(), torch.from_numpy(order)) if n == name else x
    )
    found = irwm.detect(irwm.open_checkpoint(out), model, key)
    assert found.verdict == "found"
    assert found.log10_p < -40


@pytest.mark.sweep
@pytest.mark.sampled(4)
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("rows", [4, 40, 400, 4000])
@pytest.mark.parametrize("d", [64, 128])
def test_unrelated_embeddings_are_never_derived(tmp_path: Path, rows: int, d: int, seed: int) -> None:
    """Columns are matched and scored on different rows: the best of many matches fits its own rows by chance."""
    shape = {"vocab_size": rows, "hidden_size": d, "bos_token_id": 0, "eos_token_id": 1}
    pair = [irwm.open_checkpoint(write_llama(tmp_path / str(i), seed=2 * seed + i, **shape)) for i in range(2)]
    alignment = irwm.align(*pair)
    assert not alignment.aligned
    assert lineage(alignment).status != "derived"


@pytest.mark.fault(36)
def test_risk_is_corrected_for_keys_tried(marked) -> None:
    model, key, release = marked
    weak = irwm.detect(irwm.open_checkpoint(release), model, key, keys_tried=10**85)
    assert (weak.verdict, weak.keys_tried) == ("inconclusive", 10**85)


@pytest.mark.parametrize("bad", [{"statistic": "best"}, {"invariant": "both"}, {"keys_tried": 0}])
def test_invalid_questions_are_refused(marked, bad: dict) -> None:
    model, key, _ = marked
    with pytest.raises(ParameterError):
        irwm.detect(model, model, key, **bad)


def test_trimmed_rows_are_reported_as_gone(marked, tmp_path: Path) -> None:
    model, key, release = marked
    keep = model.vocab_size * 6 // 10
    folder = tmp_path / "trimmed"
    folder.mkdir()
    tensors = load_file(next(release.glob("*.safetensors")))
    trimmed = {n: x[:keep].contiguous() if x.shape[0] == model.vocab_size else x for n, x in tensors.items()}
    save_file(trimmed, folder / "model.safetensors")
    config = (release / "config.json").read_text(encoding="utf-8")
    folder.joinpath("config.json").write_text(
        config.replace(f'"vocab_size": {model.vocab_size}', f'"vocab_size": {keep}'), encoding="utf-8"
    )
    found = irwm.detect(irwm.open_checkpoint(folder), model, key)
    gone = int((key.marked_rows >= keep).sum())
    assert np.isnan(found.ranks).sum() == gone > 0
    assert found.present == 50 - gone
    assert found.verdict == "found"
    assert any(f"{gone} of 50 marked rows are gone" in warning for warning in found.warnings)


def test_search_for_the_embedding_runs_once(demo_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may read two gigabytes of a suspect that holds its embedding twice."""
    from irwm.alignment import pipeline

    looked: list[object] = []
    plain = pipeline._choices
    monkeypatch.setattr(pipeline, "_choices", lambda *pair: looked.append(pair) or plain(*pair))
    model = irwm.open_checkpoint(demo_path)
    params = irwm.Parameters(places=("embedding",))
    irwm.detect(irwm.open_checkpoint(demo_path), model, irwm.generate_key(model, params, secret=bytes(32)))
    assert len(looked) == 1
