"""One vault has keys of two originals with the same embedding, such as a base model and a fine-tune that kept it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

import irwm
from irwm.report import from_json
from storage import Jobs, Vault
from tests.jobs.recipients import make_keys, put_in_vault, request, run_here, succeeded


@pytest.fixture
def tuned(tiny_path: Path, tmp_path: Path) -> Path:
    """The model with another layer 0 and the same embedding and head."""
    shutil.copytree(tiny_path, tmp_path / "tuned")
    tensors = load_file(tiny_path / "model.safetensors")
    tensors["model.layers.0.self_attn.q_proj.weight"] *= 1.25
    save_file(tensors, tmp_path / "tuned" / "model.safetensors", metadata={"format": "pt"})
    return tmp_path / "tuned"


def test_keys_of_the_other_original_are_left_out_and_counted(
    vault: Vault, jobs: Jobs, tiny_path: Path, tuned: Path, tmp_path: Path
) -> None:
    base, other = irwm.open_checkpoint(tiny_path), irwm.open_checkpoint(tuned)
    assert base.fingerprint == other.fingerprint
    (key,) = make_keys(base, ["Ada"])
    put_in_vault(vault, [key, *make_keys(other, ["Bolt", "Cid"])])
    leaked = irwm.insert(base, key, tmp_path / "leaked").path
    job = succeeded(run_here("investigate", request(tiny_path, None, suspect=str(leaked)), vault, jobs))
    assert (job.result["keys_tried"], job.result["keys_held"]) == (1, 3)
    document = from_json(jobs.files(job.id).read(job.result["json"]))
    assert document["verdict"]["word"] == "found"
    assert [value for name, value in document["extra"].items() if "another original" in name] == ["2"]


@pytest.mark.parametrize("chosen", [True, False], ids=["chosen", "the only one"])
def test_key_of_another_original_fails(vault: Vault, jobs: Jobs, tiny_path: Path, tuned: Path, chosen: bool) -> None:
    if chosen:
        put_in_vault(vault, make_keys(irwm.open_checkpoint(tiny_path), ["Ada"]))
    ids = put_in_vault(vault, make_keys(irwm.open_checkpoint(tuned), ["Bolt"]))
    job = run_here("investigate", request(tiny_path, ids if chosen else None, suspect=str(tiny_path)), vault, jobs)
    assert job.error is not None
    assert job.error["type"] == "KeyMismatchError"
