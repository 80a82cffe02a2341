"""Queries and keys of low rank: nothing else changes, also in fused projections."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import irwm
from irwm.attacks import factor_queries_and_keys
from irwm.attacks.equivalence.draft import Draft
from irwm.attacks.equivalence.state import read_state
from irwm.attacks.equivalence.structure import structure_of
from tests.conftest import Marked


@pytest.mark.parametrize("name", ["demo", "phi3", "gpt2"])
def test_only_queries_and_keys_lose_rank(release_of: Callable[[str], Marked], tmp_path: Path, name: str) -> None:
    original, key, release = release_of(name)
    factor_queries_and_keys(release, tmp_path / "out", 0.25)
    before, after = read_state(release), read_state(tmp_path / "out")
    old, new, structure = Draft(before), Draft(after), structure_of(before)
    touched = set()
    for layer in structure.layers:
        for ref in (layer.q.weight, layer.k.weight):
            touched.add(ref.name)
            values = torch.linalg.svdvals(new.read(ref))
            rank = int(0.25 * len(values))
            assert float(values[rank:].max()) < 0.02 * float(values[0])  # rounding to the file's dtype
            assert float((new.read(ref) - old.read(ref)).norm()) > 0
        for ref in (layer.v.weight, layer.o.weight):
            assert torch.equal(new.read(ref), old.read(ref))
    assert all(torch.equal(after.tensors[each], before.tensors[each]) for each in before.tensors.keys() - touched)
    found = irwm.detect(irwm.open_checkpoint(tmp_path / "out"), original, key)
    assert (found.verdict, found.lineage.status) == ("found", "derived")
