"""Detection on real files: a mark is found only in its release, and only by its own key."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

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


@pytest.fixture(scope="module")
def demo(release_of: Callable[[str], Marked]) -> Marked:
    return release_of("demo")


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
def test_every_statistic_finds_the_release_and_not_the_original(demo, statistic: str, invariant: str) -> None:
    model, key, release = demo
    found = irwm.detect(irwm.open_checkpoint(release), model, key, statistic=statistic, invariant=invariant)
    assert (found.statistic, found.invariant, found.verdict) == (statistic, invariant, "found")
    missed = irwm.detect(model, model, key, statistic=statistic, invariant=invariant)
    assert missed.verdict == ("inconclusive" if statistic == "difference" else "not found")


# On a model with biases in its first norm as well, which drops a constant of each row.
DISGUISES = {
    "4 % of the columns swapped": ("demo", lambda e: e[:, some_moved(e.shape[1], 0.04)]),
    "45 % of the columns permuted": ("demo", lambda e: e[:, some_moved(e.shape[1], 0.45)]),
    "half the signs flipped": ("demo", lambda e: e * (torch.arange(e.shape[1]) % 2 * 2 - 1)),
    "a constant added to every entry": ("demo", lambda e: e + 0.5 * e.abs().mean()),
    "the same with biases": ("minilm", lambda e: e + 0.5 * e.abs().mean()),
    "a constant added to each column": ("demo", lambda e: e + e.abs().mean() * torch.linspace(-3, 3, e.shape[1])),
    "one planted row of huge numbers": ("demo", lambda e: torch.cat((torch.full_like(e[:1], 1e6), e[1:]))),
}


def some_moved(width: int, share: float) -> torch.Tensor:
    """An order in which this share of the columns is moved."""
    moved = np.random.default_rng(4).choice(width, int(share * width), replace=False)
    order = np.arange(width)
    order[moved] = np.roll(moved, 1)
    return torch.from_numpy(order)


@pytest.mark.sweep
@pytest.mark.parametrize("disguise", DISGUISES)
def test_cheap_disguises_do_not_hide_the_mark(release_of, tmp_path: Path, disguise: str) -> None:
    source, change = DISGUISES[disguise]
    model, key, release = release_of(source)
    name = model.layout.embedding.name
    out = irwm.attacks.rewrite.rewrite(release, tmp_path / "x", lambda n, x: change(x.float()) if n == name else x)
    found = irwm.detect(irwm.open_checkpoint(out), model, key)
    assert found.verdict == "found"
    assert found.log10_p < -40
    assert found.alignment.aligned
    if "permuted" in disguise:
        assert any("reordered" in sentence for sentence in found.alignment.undone)


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
def test_risk_is_corrected_for_keys_tried(demo) -> None:
    model, key, release = demo
    weak = irwm.detect(irwm.open_checkpoint(release), model, key, keys_tried=10**85)
    assert (weak.verdict, weak.keys_tried) == ("inconclusive", 10**85)


@pytest.mark.parametrize("bad", [{"statistic": "best"}, {"invariant": "both"}, {"keys_tried": 0}])
def test_invalid_questions_are_refused(demo, bad: dict) -> None:
    model, key, _ = demo
    with pytest.raises(ParameterError):
        irwm.detect(model, model, key, **bad)


def test_trimmed_rows_are_reported_as_gone(demo, tmp_path: Path) -> None:
    model, key, release = demo
    keep = model.vocab_size * 6 // 10
    out = irwm.attacks.rewrite.rewrite(
        release, tmp_path / "trimmed", lambda _, x: x[:keep].contiguous() if x.shape[0] == model.vocab_size else x
    )
    config = json.loads((out / "config.json").read_bytes())
    (out / "config.json").write_text(json.dumps(config | {"vocab_size": keep}))
    found = irwm.detect(irwm.open_checkpoint(out), model, key)
    gone = int((key.marked_rows >= keep).sum())
    assert np.isnan(found.ranks).sum() == gone > 0
    assert found.present == 50 - gone
    assert found.verdict == "found"
    assert found.warnings


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
