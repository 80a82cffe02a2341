"""Maps of descent: which models are joined, and in which direction."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import irwm
from irwm.attacks import add_noise, equivalence, finetune, prune, quantize
from irwm.errors import IrwmError
from irwm.evidence import descent
from irwm.evidence.descent import (
    FROM_REMOVED,
    FROM_ROUNDED,
    ONE_PARENT,
    ORIGINAL,
    REMOVED,
    ROUNDED,
    Branch,
    Descent,
    lines_of,
    map_descent,
)
from irwm.inference import default_text
from tools.small_models import write_llama

# Each model's parent, and how it was made.
STEPS: dict[str, tuple[str, Callable[[Path, Path], object]]] = {
    "b": ("a", lambda model, out: add_noise(model, out, 0.02, seed=1)),
    "c": ("a", lambda model, out: add_noise(model, out, 0.03, seed=2)),
    "d": ("b", lambda model, out: add_noise(model, out, 0.02, seed=3)),
    "e": ("d", lambda model, out: add_noise(model, out, 0.025, seed=4)),
    "rounded": ("c", lambda model, out: quantize(model, out, 4)),
    "pruned": ("d", lambda model, out: prune(model, out, 0.2)),
    "disguised": ("e", lambda model, out: equivalence.disguise(model, out, ["rotate", "reorder_tokens"])),
}


@pytest.fixture(scope="module")
def models(phi3_path: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, irwm.Checkpoint]:
    """The model "a", and those made from it."""
    folder = tmp_path_factory.mktemp("family")
    paths = {"a": phi3_path}
    for name, (parent, make) in STEPS.items():
        paths[name] = folder / name
        make(paths[parent], paths[name])
    return {name: irwm.open_checkpoint(path) for name, path in paths.items()}


def mapped(models: dict[str, irwm.Checkpoint], originals: tuple[str, ...] = ()) -> tuple[Descent, dict[str, str]]:
    """The map; and the reason of each branch, by "parent > child", or by both names in order if there is none."""
    names = list(models)
    found = map_descent(list(models.values()), [names.index(each) for each in originals])
    branches = {}
    for each in found.branches:
        ends = names[each.first], names[each.second]
        branches[" > ".join(ends) if each.direction else " ".join(sorted(ends))] = each.direction
    return found, branches


def test_models_are_joined_with_those_they_were_made_from(models: dict[str, irwm.Checkpoint]) -> None:
    found, branches = mapped(models)
    assert {frozenset(each.replace(" >", "").split()) for each in branches} == {
        frozenset((parent, name)) for name, (parent, _) in STEPS.items()
    }
    assert found.families == (tuple(range(len(models))),)
    directed = {each: why for each, why in branches.items() if why}
    assert directed == {"c > rounded": ROUNDED, "d > pruned": REMOVED}
    assert [each.by_embedding for each in found.branches].count(True) == 1


@pytest.mark.parametrize(
    ("make", "made", "continued"),
    [
        (lambda model, out: quantize(model, out, 4), ROUNDED, FROM_ROUNDED),
        (lambda model, out: prune(model, out, 0.3), REMOVED, FROM_REMOVED),
    ],
)
def test_weights_that_were_trained_further_point_the_other_way(
    phi3_path: Path, tmp_path: Path, make: Callable[[Path, Path], object], made: str, continued: str
) -> None:
    """A model with rounded or removed weights is not always the child."""
    make(phi3_path, tmp_path / "made")
    finetune(tmp_path / "made", tmp_path / "tuned", default_text(), 40, 1e-4)
    models = {"a": phi3_path, "made": tmp_path / "made", "tuned": tmp_path / "tuned"}
    _, branches = mapped({name: irwm.open_checkpoint(path) for name, path in models.items()})
    assert branches == {"a > made": made, "made > tuned": continued}


def test_a_known_original_gives_every_direction(models: dict[str, irwm.Checkpoint]) -> None:
    _, branches = mapped(models, ("a",))
    assert set(branches) == {f"{parent} > {name}" for name, (parent, _) in STEPS.items()}
    assert branches["a > b"] == branches["a > c"] == ORIGINAL
    assert branches["b > d"] == branches["e > disguised"] == ONE_PARENT
    assert branches["d > pruned"] == REMOVED


def test_order_of_the_models_does_not_matter(models: dict[str, irwm.Checkpoint]) -> None:
    turned = dict(reversed(models.items()))
    assert mapped(turned)[1] == mapped(models)[1]
    assert mapped(turned, ("a",))[1] == mapped(models, ("a",))[1]


def test_unrelated_models_are_other_families(
    models: dict[str, irwm.Checkpoint], demo_path: Path, tmp_path: Path
) -> None:
    others = {
        "demo": irwm.open_checkpoint(demo_path),
        "small": irwm.open_checkpoint(write_llama(tmp_path / "small")),
        "other seed": irwm.open_checkpoint(write_llama(tmp_path / "seed", seed=5)),
    }
    found, branches = mapped({**{name: models[name] for name in ("a", "b")}, **others})
    assert [len(family) for family in found.families] == [2, 1, 1, 1]
    assert list(branches) == ["a b"]


def test_the_map_as_text(models: dict[str, irwm.Checkpoint]) -> None:
    chosen = {name: models[name] for name in ("a", "c", "rounded")}
    lines = lines_of(map_descent(list(chosen.values()), [0]))
    assert lines[0] == chosen["a"].path.name
    assert lines[1].startswith("└─ c  0.0")
    assert "original" in lines[1]
    assert lines[2].startswith("   └─ rounded")
    undirected = lines_of(map_descent([models["a"], models["b"]]))
    assert "?" in undirected[1]
    assert "direction unknown" in undirected[1]


def test_two_originals_of_one_family_are_not_made_from_each_other(models: dict[str, irwm.Checkpoint]) -> None:
    _, branches = mapped({name: models[name] for name in ("a", "b", "d")}, ("a", "b"))
    assert branches == {"a b": "", "b > d": ORIGINAL}


def test_models_that_cannot_be_read_are_left_out_if_that_is_wanted(
    tmp_path: Path, models: dict[str, irwm.Checkpoint]
) -> None:
    broken = irwm.open_checkpoint(write_llama(tmp_path / "broken"))
    with open(broken.shards[0], "r+b") as stream:
        stream.truncate(broken.shards[0].stat().st_size // 2)
    given = [models["a"], broken, models["b"]]
    with pytest.raises(IrwmError):
        map_descent(given)
    left_out: list[tuple[int, str]] = []
    found = map_descent(given, [0], unreadable=lambda place, error: left_out.append((place, str(error))))
    assert [place for place, _ in left_out] == [1]
    assert found.families == ((0, 2),)
    assert [(each.first, each.second, each.direction) for each in found.branches] == [(0, 2, ORIGINAL)]


def test_models_of_the_same_name_are_shown_with_their_folder(tmp_path: Path) -> None:
    paths = [write_llama(tmp_path / folder / "model", seed=seed) for seed, folder in enumerate(("one", "two"))]
    found = map_descent([irwm.open_checkpoint(path) for path in paths])
    assert found.names == ("one/model", "two/model")


@pytest.mark.parametrize("originals", [(0, 3), (3, 0)])
def test_order_of_the_originals_does_not_matter(monkeypatch: pytest.MonkeyPatch, originals: tuple[int, int]) -> None:
    """On the path 0 - 1 - 2 - 3, with a branch from 2 to 4. Nothing says which original 1 and 2 were made from."""
    branches = [Branch(0, 1, 0.1, False), Branch(1, 2, 0.1, False), Branch(2, 3, 0.1, False), Branch(2, 4, 0.1, False)]
    monkeypatch.setattr(descent, "_shown", lambda branch, sampled: iter(()))
    found = descent._directed(branches, {}, set(originals))
    assert [(each.first, each.second, each.direction) for each in found] == [
        (0, 1, ""), (1, 2, ""), (2, 3, ""), (2, 4, ONE_PARENT),
    ]  # fmt: skip


def test_claims_that_contradict_an_original_or_each_other_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    branches = [Branch(0, 1, 0.1, False), Branch(1, 2, 0.1, False)]
    claims = {(1, 2): [(2, 1, ROUNDED)], (0, 1): []}
    monkeypatch.setattr(descent, "_shown", lambda branch, sampled: iter(claims[branch.first, branch.second]))
    found = descent._directed(branches, {}, {0})
    assert [(each.first, each.second, each.direction) for each in found] == [(0, 1, ORIGINAL), (1, 2, ONE_PARENT)]
    claims[1, 2] = [(2, 1, ROUNDED), (1, 2, REMOVED)]
    assert [each.direction for each in descent._directed(branches, {}, set())] == ["", ""]
    claims[1, 2], claims[0, 1] = [(2, 1, ROUNDED)], [(0, 1, ROUNDED)]
    assert [each.direction for each in descent._directed(branches, {}, set())] == ["", ""], "1 has one parent"


def test_empty_and_damaged_weights_do_not_fail(tmp_path: Path, models: dict[str, irwm.Checkpoint]) -> None:
    folder = write_llama(tmp_path / "zero")
    tensors = load_file(folder / "model.safetensors")
    for number, value in enumerate((0.0, float("nan"))):
        out = write_llama(tmp_path / f"filled{number}")
        save_file({name: torch.full_like(each, value) for name, each in tensors.items()}, out / "model.safetensors")
    filled = [irwm.open_checkpoint(tmp_path / name) for name in ("filled0", "filled1", "zero")]
    found = map_descent([*filled, models["a"]])
    assert len(found.families) == 4
    assert not map_descent([]).branches
    with pytest.raises(IrwmError):
        map_descent(filled, [3])
