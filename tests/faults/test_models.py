"""Models that are not what they seem (FAULTS 30 to 33)."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import irwm
from irwm.errors import UnknownFamilyError, UnsupportedCheckpointError
from tests.conftest import Marked
from tests.families.reference import save

SECRET = bytes(range(32))


@pytest.fixture(scope="module")
def marked(release_of: Callable[[str], Marked]) -> Marked:
    return release_of("demo")


def changed(folder: Path, out: Path, change) -> Path:
    shutil.copytree(folder, out)
    tensors = change(load_file(out / "model.safetensors"))
    save_file(tensors, out / "model.safetensors", metadata={"format": "pt"})
    return out


@pytest.mark.slow
def test_fault_30_without_q_and_k_the_names_tried_are_listed_and_the_mark_is_still_read(marked, tmp_path: Path) -> None:
    model, key, release = marked
    bare = changed(release, tmp_path / "x", lambda t: {n: v for n, v in t.items() if "_proj" not in n})
    suspect = irwm.open_checkpoint(bare)
    assert "q_proj.weight" in " ".join(suspect.notes)
    found = irwm.detect(suspect, model, key)
    assert (found.verdict, found.paper) == ("found", None)
    assert any("q and k" in warning for warning in found.warnings)
    with pytest.raises(UnknownFamilyError, match="q and k"):
        suspect.require_markable()


@pytest.mark.parametrize("case", ["phi3", "gpt2", "llama, tied", "mistral, one key head", "t5"])
def test_fault_31_fused_grouped_and_shared_tensors_stay_as_they_are(case: str, tmp_path: Path) -> None:
    original = irwm.open_checkpoint(save(case, tmp_path / "original", torch.float32))
    params = irwm.Parameters(positions=20, constraints=5, required_positions=12, permutations=199)
    key = irwm.generate_key(original, params, secret=SECRET)
    before = load_file(tmp_path / "original" / "model.safetensors")
    after = load_file(irwm.insert(original, key, tmp_path / "release").path / "model.safetensors")
    differ = {name for name in before if not torch.equal(before[name], after[name])}
    assert original.layout.embedding.name in differ
    # Tensors that equalled the embedding still do. A separate output head is marked too, and no other tensor changed.
    table, head = original.layout.embedding.name, original.output_head
    equal = {n for n in before if before[n].shape == before[table].shape and torch.equal(before[n], before[table])}
    assert differ == equal | (set() if head is None else {head.layout.embedding.name})
    assert all(torch.equal(after[name], after[table]) for name in equal)


def test_fault_32_an_adapter_alone_and_an_unreadable_quantisation_come_with_advice(
    demo_path: Path, tmp_path: Path
) -> None:
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    (adapter / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": 4, "lora_alpha": 8}))
    save_file({"base_model.model.x.lora_A.weight": torch.ones(4, 8)}, adapter / "adapter_model.safetensors")
    with pytest.raises(UnsupportedCheckpointError, match="base"):
        irwm.open_checkpoint(adapter)
    name = "model.embed_tokens.weight"
    unusual = changed(
        demo_path, tmp_path / "unusual", lambda t: t | {name: torch.zeros(t[name].shape, dtype=torch.int8)}
    )
    with pytest.raises(UnsupportedCheckpointError, match="Dequantise"):
        irwm.open_checkpoint(unusual)


@pytest.mark.slow
def test_fault_33_reordered_ids_are_reported_with_and_without_tokenizer(marked, tmp_path: Path) -> None:
    model, key, release = marked
    for tokenizer in ("keep", "drop"):
        out = tmp_path / tokenizer
        irwm.attacks.equivalence.reorder_tokens(release, out, seed=1, tokenizer=tokenizer)
        found = irwm.detect(irwm.open_checkpoint(out), model, key)
        assert found.verdict == "found"
        assert any("token ids were changed" in said for said in found.alignment.undone)
