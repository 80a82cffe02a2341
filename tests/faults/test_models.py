"""Faults 30 to 38: models that are not what they seem, and evidence that must not be overstated."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import irwm
from irwm.errors import KeyMismatchError, UnknownFamilyError, UnsupportedCheckpointError
from tests.families.reference import save
from tools.small_models import write_llama

SECRET = bytes(range(32))


@pytest.fixture(scope="module")
def marked(demo_path: Path, tmp_path_factory: pytest.TempPathFactory):
    model = irwm.open_checkpoint(demo_path)
    key = irwm.generate_key(model, secret=SECRET, owner="us", recipient="them")
    return model, key, irwm.insert(model, key, tmp_path_factory.mktemp("marked") / "release").path


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


def test_fault_34_another_model_or_a_wrong_key_is_not_found(marked, tmp_path: Path) -> None:
    """Hundreds of wrong keys on each trained model: tests/test_calibration.py."""
    model, key, release = marked
    wrong = irwm.generate_key(model, secret=bytes(32), owner="us")
    assert irwm.detect(irwm.open_checkpoint(release), model, wrong).verdict == "not found"
    assert irwm.detect(model, model, key).verdict == "not found"
    other = irwm.open_checkpoint(write_llama(tmp_path / "other", seed=5))
    with pytest.raises(KeyMismatchError):
        irwm.detect(irwm.open_checkpoint(release), other, key)


def test_fault_36_result_is_corrected_for_every_key_tried(marked) -> None:
    model, key, release = marked
    few, many = (irwm.detect(irwm.open_checkpoint(release), model, key, keys_tried=n) for n in (1, 10**85))
    assert (few.verdict, many.verdict) == ("found", "inconclusive")
    assert many.keys_tried == 10**85
    assert few.log10_p == many.log10_p


def test_fault_37_seed_threads_and_repetition_change_nothing(marked) -> None:
    model, key, release = marked
    suspect, threads = irwm.open_checkpoint(release), torch.get_num_threads()
    first = irwm.detect(suspect, model, key, seed=3)
    try:
        torch.set_num_threads(1 if threads > 1 else 2)
        second = irwm.detect(suspect, model, key, seed=3)
    finally:
        torch.set_num_threads(threads)
    assert np.array_equal(first.ranks, second.ranks)
    assert (first.verdict, first.reason) == (second.verdict, second.reason)
    np.testing.assert_allclose(first.observed, second.observed, rtol=1e-9)


def test_fault_38_two_marks_coexist(marked, tmp_path: Path) -> None:
    """The app warns of it: tests/jobs/test_tasks.py."""
    model, key, release = marked
    first = irwm.open_checkpoint(release)
    second = irwm.generate_key(first, secret=bytes(32), owner="us", recipient="someone else")
    both = irwm.open_checkpoint(irwm.insert(first, second, tmp_path / "both").path)
    assert irwm.detect(both, model, key).verdict == "found"
    assert irwm.detect(both, first, second).verdict == "found"
