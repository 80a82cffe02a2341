"""An investigation of many keys without noise dismisses most of them in a screening, and reports one in full."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file, save_file

import irwm
from irwm.report import from_json
from irwm.scheme.parameters import PLACES
from storage import Jobs, Vault
from tests.jobs.recipients import make_keys, put_in_vault, request, run_here, succeeded
from ui.services.examining import MOST_UNSCREENED, Examiner, ExamineRequest, Keys

KEYS = MOST_UNSCREENED + 2
MARKS = irwm.Parameters(constraints=5, scale="auto")


@pytest.mark.parametrize("leaked", [True, False], ids=["one leaked", "none leaked"])
def test_a_report_of_many_keys_has_the_ranks_of_all_permutations(
    vault: Vault, jobs: Jobs, tiny_path: Path, tmp_path: Path, leaked: bool
) -> None:
    model = irwm.open_checkpoint(tiny_path)
    keys = make_keys(model, [f"Customer {number}" for number in range(KEYS)], MARKS)
    put_in_vault(vault, keys)
    suspect = irwm.insert(model, keys[13], tmp_path / "leaked").path if leaked else tiny_path
    job = succeeded(run_here("investigate", request(tiny_path, None, suspect=str(suspect)), vault, jobs))
    document = from_json(jobs.files(job.id).read(job.result["json"]))
    assert document["verdict"]["word"] == ("found" if leaked else "not found")
    if leaked:
        assert document["key"]["recipient"] == "Customer 13"
    (whole,) = irwm.detect_each(
        irwm.Examination(irwm.open_checkpoint(suspect), model),
        [key for key in keys if key.commitment == document["key"]["commitment"]],
        keys_tried=KEYS,
    )
    assert document["reading"]["log10_p"] == pytest.approx(whole.log10_p)
    assert int(document["extra"]["Keys dismissed in the screening"]) > KEYS / 2
    others = json.loads(jobs.files(job.id).read(job.result["others"]))["keys"]
    assert len(others) < KEYS / 2  # a dismissed key has no figures


def test_a_key_that_cannot_be_dismissed_outweighs_those_that_are(
    gemma_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of many keys with noise only the likeliest are read. Here these have no fingerprint in the neurons, and the
    number format of the suspect's MLPs is unknown."""
    monkeypatch.setattr("ui.services.examining.MOST_READ", 1)
    model = irwm.open_checkpoint(gemma_path)
    newer = irwm.many_recipients(model.hidden_size)
    older = [
        irwm.generate_key(model, replace(newer, places=PLACES), bytes([number]) * 32, recipient=f"Customer {number}")
        for number in range(4)
    ]
    suspect = shutil.copytree(gemma_path, tmp_path / "suspect")
    tensors = load_file(suspect / "model.safetensors")
    tensors[model.layout.embedding.name][:100] *= 1.01  # so that the rows differ
    tensors |= {name: (100 * each).to(torch.int8) for name, each in tensors.items() if "mlp" in name}
    save_file(tensors, suspect / "model.safetensors", metadata={"format": "pt"})

    def word_with(keys: list[irwm.Key]) -> str:
        ids = tuple(map(str, range(len(keys))))
        asked = ExamineRequest(original=str(gemma_path))
        examiner = Examiner(model, Keys(ids, tuple(keys), (), len(keys)), asked, None, tmp_path)
        work = SimpleNamespace(progress=lambda *_: None, log=lambda *_: None, cancelled=lambda: False)
        return examiner.examine(irwm.open_checkpoint(suspect), "cpu", work, controls=False).said[0]

    assert word_with(older) == "not found"
    for number in range(4, 8):
        key = irwm.generate_key(model, newer, bytes([number]) * 32, recipient=f"Customer {number}")
        assert word_with([*older, key]) == "inconclusive"
