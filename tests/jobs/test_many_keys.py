"""An investigation of many keys without noise dismisses most of them in a screening, and reports one in full."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import irwm
from irwm.report import from_json
from storage import Jobs, Vault
from tests.jobs.recipients import make_keys, put_in_vault, request, run_here, succeeded
from ui.services.examining import MOST_UNSCREENED

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
