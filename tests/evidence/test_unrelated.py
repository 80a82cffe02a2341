"""The p-value of lineage: its ranks among the kept models, on these models and on fresh ones."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import irwm
from irwm.alignment import Alignment
from irwm.evidence import unrelated
from irwm.evidence.attention import Attention
from irwm.evidence.circuits import Circuits
from irwm.evidence.lineage import CANNOT_TELL, DERIVED, NOT_DERIVED, lineage
from irwm.evidence.unrelated import Agreement, Kept, kept_models

FILE = Path(unrelated.__file__).parent / "data" / "unrelated.json"
FEW = Kept((0.1, 0.4, 0.4, 0.9), (0.8, 1.5), "")


def test_ties_favour_the_suspect_and_p_has_a_floor() -> None:
    assert FEW.place(0.4).as_alike == 3
    assert FEW.place(0.4).p == 4 / 5
    assert FEW.place(1.0).p == 1 / 5
    assert [FEW.place(value).as_unlike for value in (0.7, 0.8, 2.0)] == [0, 1, 2]


def test_file_holds_enough_models() -> None:
    kept = kept_models()
    assert len(kept.unrelated) >= 53
    assert len(kept.descendants) >= 50
    assert kept.table == hashlib.sha256(FILE.read_bytes()).hexdigest()


def test_unrelated_models_not_derived_and_descendants_not_cleared() -> None:
    compared = json.loads(FILE.read_bytes())["compared"]
    for each in compared:
        value = unrelated.agreement_of(each).value
        assert value == pytest.approx(each["agreement"], abs=1e-5)
        if each["status"] == DERIVED:
            assert each["kind"] == unrelated.DESCENDANT
            assert value >= 1
        if each["status"] == NOT_DERIVED:
            assert each["kind"] != unrelated.DESCENDANT


def test_random_and_degenerate_embeddings_are_not_counted() -> None:
    """Each would make p smaller and no evidence stronger."""
    compared = json.loads(FILE.read_bytes())["compared"]
    counted = {each["model"] for each in compared if each["kind"] == unrelated.UNRELATED}
    assert len(counted) == len(kept_models().unrelated)
    assert not any(
        each["recipe"] and each["recipe"]["kind"] != "trained apart" for each in compared if each["model"] in counted
    )
    assert not any("random" in name for name in counted)


def test_p_of_unrelated_models_is_uniform_leave_one_out() -> None:
    values = np.array(kept_models().unrelated)
    p = np.array([Kept((*values[:i], *values[i + 1 :]), (), "").place(values[i]).p for i in range(values.size)])
    for level in (0.02, 0.05, 0.1, 0.25, 0.5, 0.9):
        reached = int((p <= level).sum())
        # Not more often than the level, and, except for ties, as often: p has the values k / n.
        assert math.floor(level * p.size) - 1 <= reached <= level * p.size


def test_half_of_unrelated_models_ranked_among_other_half_is_calibrated() -> None:
    """The half is drawn a thousand times, so that a p with another denominator, or with strict ranks, is detected."""
    values, draw = np.array(kept_models().unrelated), np.random.default_rng(0)
    p = []
    for _ in range(1000):
        order = draw.permutation(values)
        half, one = Kept(tuple(order[: values.size // 2]), (), ""), order[-1]
        p.append(half.place(one).p)
    for level in (0.05, 0.1, 0.25, 0.5):
        share = float(np.mean(np.array(p) <= level))
        assert abs(share - math.floor(level * (values.size // 2 + 1)) / (values.size // 2 + 1)) < 0.05


@pytest.fixture(scope="module")
def alignment(demo_path: Path) -> Alignment:
    """A model compared with itself."""
    model = irwm.open_checkpoint(demo_path)
    return irwm.align(model, model)


def test_derived_models_have_agreement_of_at_least_one(alignment: Alignment) -> None:
    """The statistic never contradicts the rule: 2000 combinations of similarity and attention on a real alignment."""
    draw, decoys, derived = np.random.default_rng(1), np.linspace(-0.06, 0.06, 99), 0
    for similarity, attention in draw.uniform(0, 1, (2000, 2)):
        cosines = np.full_like(alignment.cosines, similarity)
        alike = replace(alignment, aligned=similarity >= alignment.needed_similarity, cosines=cosines)
        kin = lineage(alike, Attention(attention, decoys), kept=FEW)
        assert kin.among is not None
        assert kin.among.agreement >= 1 or kin.status != DERIVED
        assert kin.p == kin.among.p
        derived += kin.status == DERIVED
    assert 200 < derived < 1800


def test_more_agreement_of_any_kind_never_raises_p() -> None:
    draw = np.random.default_rng(2)
    for numbers in draw.uniform(0, 1, (500, 4)):
        similarity, attention, whole, fitted = numbers
        first = Agreement(similarity, 0.25, attention, 0.05, whole, fitted).value
        more = draw.uniform(0, 1, 4) * (1 - numbers) + numbers
        assert Agreement(more[0], 0.25, more[1], 0.05, more[2], more[3]).value >= first


def test_the_affine_map_is_fitted_only_where_p_depends_on_it(alignment: Alignment) -> None:
    assert lineage(alignment, fitted=lambda: pytest.fail("fitted without need"), kept=FEW).p == 1 / 5
    somewhat = replace(alignment, cosines=np.full_like(alignment.cosines, 0.31))
    kin = lineage(somewhat, fitted=lambda: 0.7, kept=FEW)
    assert (kin.status, kin.fitted, kin.p) == (CANNOT_TELL, 0.7, 1 / 5)
    assert lineage(somewhat, fitted=lambda: 0.1, kept=FEW).p == 2 / 5


def test_better_agreement_than_unrelated_models_is_inconclusive(alignment: Alignment) -> None:
    unlike = replace(alignment, aligned=False, exhausted=True, cosines=np.full_like(alignment.cosines, 0.05))
    layers = Circuits(0.0, np.linspace(-0.06, 0.06, 99))
    assert lineage(unlike, fitted=lambda: 0.5, kept=FEW, layers=lambda: layers).status == NOT_DERIVED
    assert lineage(unlike, fitted=lambda: 0.6, kept=FEW, layers=lambda: layers).status == CANNOT_TELL


def test_suspect_of_another_width_has_a_p(demo_path: Path, gemma_path: Path) -> None:
    """Its coordinates cannot be compared one by one, but the affine map needs no equal number of them."""
    demo, gemma = irwm.open_checkpoint(demo_path), irwm.open_checkpoint(gemma_path)
    kin = irwm.Examination(demo, gemma).aligned[0].lineage()
    assert kin.status == CANNOT_TELL
    assert math.isnan(kin.similarity)
    assert kin.p > 2 / len(kept_models().unrelated)


@pytest.mark.slow
def test_p_of_new_unrelated_models_is_not_too_small(demo_path: Path, gemma_path: Path, tmp_path: Path) -> None:
    """Word vectors with seeds that are not in the file, the most similar unrelated models, a briefly trained one."""
    from benchmarks.unrelated import APART, WORD_VECTORS, Maker, Recipe

    maker, originals = Maker(), [irwm.open_checkpoint(path) for path in (gemma_path, demo_path)]
    found = []
    for seed, window, text in ((7001, 1, "all"), (7002, 2, "odd"), (7003, 5, "prose"), (7004, 1, "source")):
        recipe = Recipe(str(seed), APART, WORD_VECTORS, 128, True, seed, 0, text, 0, 0.0, window, 0.5)
        maker.make(recipe, tmp_path / str(seed))
        found += [lineage_of(tmp_path / str(seed), original) for original in originals]
    recipe = Recipe("trained", APART, "gemma", 128, True, 7005, 7005, "all", 30)
    maker.make(recipe, tmp_path / "trained")
    found.append(lineage_of(tmp_path / "trained", originals[0]))
    assert all(kin.status != DERIVED for kin in found)
    p = np.array([kin.p for kin in found])
    # Of nine, each at the floor with odds of one in m + 1: two at the floor have odds of 0.4% at 100 unrelated models.
    assert (p <= 1 / (1 + len(kept_models().unrelated))).sum() < 2
    assert p.max() > 0.2


def lineage_of(path: Path, original: irwm.Checkpoint) -> irwm.Lineage:
    return irwm.Examination(irwm.open_checkpoint(path), original).aligned[0].lineage()
