"""Merging: each method compared with its formula, the effect on the mark, and refused inputs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import irwm
from irwm.attacks import combine, merge
from tests.attacks.test_collusion_attacks import all_tensors, blurred, changed
from tests.conftest import Marked

EMBEDDING = "model.embed_tokens.weight"


@pytest.fixture(scope="module")
def models(tiny_path: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """A base, and two models whose matrices differ from it in different directions."""
    root = tmp_path_factory.mktemp("merging")
    return [tiny_path, *(changed(tiny_path, root / str(seed), blurred(seed)) for seed in (1, 2))]


def ties(base: np.ndarray, *others: np.ndarray, density: float = 0.5) -> np.ndarray:
    changes = []
    for other in others:
        change = other - base
        kept = max(1, int(density * change.size))
        changes.append(np.where(np.abs(change) >= np.sort(np.abs(change), axis=None)[-kept], change, 0) / len(others))
    sign = np.sign(sum(changes))
    return base + sum(np.where(np.sign(change) == sign, change, 0) for change in changes)


def slerp(one: np.ndarray, other: np.ndarray, share: float) -> np.ndarray:
    a, b = one.ravel(), other.ravel()
    angle = np.arccos(a @ b / np.linalg.norm(a) / np.linalg.norm(b))
    return (np.sin((1 - share) * angle) * one + np.sin(share * angle) * other) / np.sin(angle)


@pytest.mark.parametrize(
    ("method", "weights", "expected"),
    [
        ("linear", None, lambda base, a, b: (a + b) / 2),
        ("linear", [1.0, 3.0], lambda base, a, b: 0.25 * a + 0.75 * b),
        ("slerp", [0.7, 0.3], lambda base, a, b: slerp(a, b, 0.3)),
        ("task arithmetic", None, lambda base, a, b: base + 0.5 * (a - base) + 0.5 * (b - base)),
        ("task arithmetic", [1.0, -0.5], lambda base, a, b: base + (a - base) - 0.5 * (b - base)),
        ("ties", None, ties),
    ],
)
@pytest.mark.parametrize("numbers_at_once", [combine._NUMBERS_AT_ONCE, 500])
def test_every_tensor_follows_the_formula(
    models: list[Path], tmp_path: Path, monkeypatch, method: str, weights: Any, expected: Any, numbers_at_once: int
) -> None:
    monkeypatch.setattr(combine, "_NUMBERS_AT_ONCE", numbers_at_once)
    base = models[0] if method in ("task arithmetic", "ties") else None
    out = merge(models[1:], tmp_path / "out", method, weights, base)
    tensors = [all_tensors(folder) for folder in models]
    merged = all_tensors(out)
    assert merged.keys() == tensors[1].keys()
    for name, tensor in merged.items():
        values = [each[name].double().numpy() for each in tensors]
        if np.array_equal(values[1], values[2]) and base is None:
            assert torch.equal(tensor, tensors[1][name])
        else:
            np.testing.assert_allclose(tensor.double().numpy(), expected(*values), rtol=1e-4, atol=1e-5)
    assert (out / "config.json").read_bytes() == (models[1] / "config.json").read_bytes()


def test_dare_keeps_a_share_of_each_change_and_its_sum(models: list[Path], tmp_path: Path) -> None:
    base, one = (all_tensors(folder)[EMBEDDING].double() for folder in models[:2])
    merged = [
        all_tensors(merge(models[1:2], tmp_path / name, "dare", None, models[0], 0.25, seed))[EMBEDDING].double()
        for name, seed in (("a", 1), ("b", 1), ("c", 2))
    ]
    assert torch.equal(merged[0], merged[1])
    assert not torch.equal(merged[0], merged[2])
    kept = (merged[0] - base).abs() > 1e-6
    assert abs(kept.double().mean() - 0.25) < 0.02
    torch.testing.assert_close((merged[0] - base)[kept], 4 * (one - base)[kept], rtol=1e-3, atol=1e-5)


def test_slerp_of_parallel_tensors_is_linear(tiny_path: Path, tmp_path: Path) -> None:
    doubled = changed(tiny_path, tmp_path / "doubled", lambda _name, tensor: 2 * tensor)
    merged = all_tensors(merge([tiny_path, doubled], tmp_path / "out", "slerp", [1.0, 1.0]))
    torch.testing.assert_close(merged[EMBEDDING], 1.5 * all_tensors(tiny_path)[EMBEDDING])


@pytest.mark.sweep
@pytest.mark.parametrize("method", ["linear", "slerp", "task arithmetic", "ties"])
def test_a_mark_survives_merging_with_the_unmarked_original(
    release_of: Callable[[str], Marked], demo_path: Path, tmp_path: Path, method: str
) -> None:
    """Half of every change remains, which the joint statistic reads as a mark of half the strength."""
    original, key, release = release_of("demo")
    if method in ("task arithmetic", "ties"):
        merged = merge([release], tmp_path / "out", method, [0.5], demo_path)
    else:
        merged = merge([release, demo_path], tmp_path / "out", method)
    half = load_file(Path(merged) / "model.safetensors")[EMBEDDING]
    assert not torch.equal(half, load_file(Path(release) / "model.safetensors")[EMBEDDING])
    found = irwm.detect(irwm.open_checkpoint(merged), original, key)
    assert (found.verdict, found.lineage.status) == ("found", "derived")
