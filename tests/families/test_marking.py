"""Every stored copy of the embedding is marked, and no other tensor; tests/test_every_family.py finds the marks."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import irwm
from tests.families.reference import save

PARAMETERS = irwm.Parameters(positions=20, constraints=5, required_positions=12, permutations=199)


@pytest.mark.fault(31)
@pytest.mark.parametrize("case", ["phi3", "gpt2", "llama, tied", "mistral, one key head", "t5"])
def test_a_mark_changes_the_embedding_its_copies_and_the_head_only(case: str, tmp_path: Path) -> None:
    file = save(case, tmp_path / "original", torch.float32) / "model.safetensors"
    if case == "t5":  # old files hold the embedding three times; an unmarked copy would untie the model
        shared = load_file(file)["shared.weight"]
        copies = {f"{part}.embed_tokens.weight": shared.clone() for part in ("encoder", "decoder")}
        save_file(load_file(file) | copies, file)
    original = irwm.open_checkpoint(file.parent)
    key = irwm.generate_key(original, PARAMETERS, secret=bytes(range(32)))
    release = irwm.insert(original, key, tmp_path / "release").path
    before, after = load_file(file), load_file(release / "model.safetensors")
    differ = {name for name in before if not torch.equal(before[name], after[name])}
    table, head = original.layout.embedding.name, original.output_head
    equal = {n for n in before if before[n].shape == before[table].shape and torch.equal(before[n], before[table])}
    assert len(equal) == (3 if case == "t5" else 1)
    assert differ == equal | (set() if head is None else {head.layout.embedding.name})
    assert all(torch.equal(after[name], after[table]) for name in equal)
    assert irwm.detect(irwm.open_checkpoint(release), original, key).verdict == "found"
