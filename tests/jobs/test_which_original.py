"""Nobody chose an original: the suspect is compared with all originals of the vault, and the right one is examined."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

import irwm
from irwm.attacks import add_noise, equivalence
from irwm.errors import IrwmError
from irwm.report import from_json
from irwm.report.checks import Check
from irwm.report.verify import verify_report
from storage import Jobs, Vault
from storage.job_table import Job
from tests.jobs.recipients import given_out, protect_request, request, run_here, succeeded
from tools.small_models import write_llama
from ui.jobs import requests
from ui.jobs.results import open_originals, outcome_of
from ui.services.known_originals import KnownOriginals
from ui.services.originals import GONE, OTHER_LAYERS, REPLACED
from ui.services.results import OriginalRow

NAMES = ("first", "second", "third")


def failed_checks(job: Job, jobs: Jobs, vault: Vault, suspect: Path, folder: Path) -> list[Check]:
    """The checks of the job's report that do not hold, by a reader who has everything."""
    original = irwm.open_checkpoint(job.result["original"])
    keys = [irwm.Key.from_bytes(data) for _, data in vault.keys_bytes(vault.key_ids())]
    own = [key for key in keys if key.model_fingerprint == original.fingerprint]
    report = given_out(jobs, job.id, folder / "given-out") / job.result["json"]
    checked = verify_report(report, suspect=irwm.open_checkpoint(suspect), original=original, keys=own)
    return [check for check in checked.checks if check.ok is False]


@pytest.fixture
def originals(tmp_path: Path, vault: Vault, jobs: Jobs) -> list[Path]:
    """Three unrelated originals, each with one release for "Ada"."""
    paths = [
        write_llama(tmp_path / name, vocab_size=1200 + 100 * n, hidden_size=64, seed=n) for n, name in enumerate(NAMES)
    ]
    for path in paths:
        succeeded(run_here("protect", protect_request(path, tmp_path / f"{path.name}-copy", "Ada"), vault, jobs))
    return paths


def asked(suspect: Path, vault: Vault, jobs: Jobs) -> dict[str, object]:
    made = requests.investigate(vault, jobs, suspect, None, "").request.to_json()
    return request(suspect, None) | made


def examined(suspect: Path, vault: Vault, jobs: Jobs) -> tuple[Job, dict[str, OriginalRow]]:
    job = succeeded(run_here("investigate", asked(suspect, vault, jobs), vault, jobs))
    return job, {row["name"]: row for row in job.result["originals"]}


def test_keys_of_all_originals_are_tried_and_the_right_one_is_reported(
    originals: list[Path], vault: Vault, jobs: Jobs, tmp_path: Path
) -> None:
    suspect = equivalence.disguise(tmp_path / "second-copy", tmp_path / "suspect", ["rotate", "reorder_heads"])
    job, rows = examined(suspect, vault, jobs)
    result = job.result
    assert (result["verdict"], Path(result["original"]).name) == ("found", "second")
    assert next(iter(rows)) == "second"
    assert set(rows) == set(NAMES)
    second = rows["second"]
    assert (second["lineage"], second["verdict"], second["whose"]) == ("derived", "found", ["Ada"])
    assert second["p"] is not None
    for row in rows.values():
        assert row["keys"] == 1
        assert row["name"] == "second" or (row["verdict"] != "found" and row["whose"] == [])
    document = from_json(jobs.files(job.id).read(result["json"]))
    assert (document["keys"], document["items"]["original"]["name"]) == ({"tried": 3, "held": 3}, "second")
    extra = document["extra"]
    assert extra["Originals whose keys were tried"] == "3"
    assert extra["Keys of other originals, which the verdict is corrected for too"] == "2"
    among = document["lineage"]["among"]
    assert among is not None
    assert second["p"] == pytest.approx(3 * among["p"])
    assert not failed_checks(job, jobs, vault, suspect, tmp_path)


def test_two_versions_of_one_model_are_told_apart(
    originals: list[Path], vault: Vault, jobs: Jobs, tmp_path: Path
) -> None:
    again = add_noise(originals[0], tmp_path / "first-b", 0.05)
    succeeded(run_here("protect", protect_request(again, tmp_path / "first-b-copy", "Bob"), vault, jobs))
    job, rows = examined(tmp_path / "first-b-copy", vault, jobs)
    assert (job.result["verdict"], Path(job.result["original"]).name) == ("found", "first-b")
    assert (rows["first"]["lineage"], rows["first-b"]["whose"]) == ("derived", ["Bob"])
    assert (job.result["keys_tried"], job.result["keys_held"]) == (4, 4)
    assert not failed_checks(job, jobs, vault, tmp_path / "first-b-copy", tmp_path)


def test_unrelated_model_accuses_no_original(originals: list[Path], vault: Vault, jobs: Jobs, tmp_path: Path) -> None:
    suspect = write_llama(tmp_path / "unrelated", vocab_size=1300, hidden_size=64, seed=77)
    shutil.rmtree(originals[0])
    job, rows = examined(suspect, vault, jobs)
    assert all(row["verdict"] != "found" for row in rows.values())
    assert (outcome_of(job), job.result["word"]) == ("inconclusive", "inconclusive"), "nothing is known about one"
    document = from_json(jobs.files(job.id).read(job.result["json"]))
    assert "Originals of which keys were not tried" in document["extra"]
    assert [run.verdict for run in vault.case_runs(job.result["case_id"])] == ["inconclusive"]


def test_missing_and_broken_originals_are_listed(
    originals: list[Path], vault: Vault, jobs: Jobs, tmp_path: Path
) -> None:
    shutil.rmtree(originals[0])
    (originals[2] / "model.safetensors").write_bytes(b"no weights")
    job, _ = examined(tmp_path / "second-copy", vault, jobs)
    first, *others = job.result["originals"]
    assert (first["name"], first["verdict"]) == ("second", "found")
    assert [row["keys"] for row in others] == [0, 0]
    assert sum(row["reason"] == GONE for row in others) == 1
    assert len(open_originals(others)) == 2


def test_model_that_replaced_an_original_does_not_stand_for_it(
    originals: list[Path], vault: Vault, jobs: Jobs, tmp_path: Path
) -> None:
    shutil.rmtree(originals[0])
    write_llama(originals[0], vocab_size=1200, hidden_size=64, seed=50)
    succeeded(run_here("protect", protect_request(originals[0], tmp_path / "new-copy", "Bob"), vault, jobs))
    job, _ = examined(tmp_path / "first-copy", vault, jobs)
    assert outcome_of(job) == "inconclusive"
    assert [row["reason"] for row in job.result["originals"] if not row["keys"]] == [REPLACED]


def test_key_of_a_moved_model_with_the_same_embedding_is_left_out(
    originals: list[Path], vault: Vault, jobs: Jobs, tmp_path: Path
) -> None:
    tuned = tmp_path / "tuned"
    shutil.copytree(originals[0], tuned)
    tensors = load_file(tuned / "model.safetensors")
    tensors["model.layers.0.self_attn.q_proj.weight"] *= 1.25
    save_file(tensors, tuned / "model.safetensors", metadata={"format": "pt"})
    succeeded(run_here("protect", protect_request(tuned, tmp_path / "tuned-copy", "Bob"), vault, jobs))
    job, rows = examined(tmp_path / "tuned-copy", vault, jobs)
    assert (rows["tuned"]["verdict"], rows["tuned"]["whose"]) == ("found", ["Bob"])
    tuned.rename(tmp_path / "moved")
    job, _ = examined(tmp_path / "tuned-copy", vault, jobs)
    assert outcome_of(job) == "inconclusive"
    assert [row["reason"] for row in job.result["originals"] if not row["keys"]] == [OTHER_LAYERS]


def test_two_folders_of_one_original_count_once(
    originals: list[Path], vault: Vault, jobs: Jobs, tmp_path: Path
) -> None:
    shutil.copytree(originals[1], tmp_path / "twin")
    succeeded(run_here("protect", protect_request(tmp_path / "twin", tmp_path / "twin-copy", "Bob"), vault, jobs))
    job, _ = examined(tmp_path / "second-copy", vault, jobs)
    assert (job.result["keys_tried"], len(job.result["originals"])) == (4, 3)
    assert job.result["verdict"] == "found"


def test_nothing_is_found_only_if_keys_of_every_original_were_tried() -> None:
    row: OriginalRow = {"path": "", "name": "a", "lineage": "not derived", "similarity": 0.1, "p": 1.0, "keys": 1,
                        "verdict": "not found", "whose": [], "reason": ""}  # fmt: skip
    assert open_originals([row]) == []
    assert open_originals([row, {**row, "name": "b", "keys": 0}]) == ["b"]


def test_request_without_an_original_needs_a_model_and_an_original_that_is_there(
    originals: list[Path], vault: Vault, jobs: Jobs, tmp_path: Path
) -> None:
    known = KnownOriginals.of(vault)
    assert (set(known.here), known.missing) == (set(originals), ())
    text = tmp_path / "said.txt"
    text.write_text("Some text.\n")
    for suspect in (text, tmp_path):
        with pytest.raises(IrwmError, match="no original was chosen"):
            requests.investigate(vault, jobs, suspect, None, "")
    with pytest.raises(IrwmError, match="keys were chosen"):
        requests.investigate(vault, jobs, tmp_path / "first-copy", None, "", keys=["0" * 32])
    with pytest.raises(IrwmError, match="where a release was made"):
        requests.investigate(vault, jobs, tmp_path / "first-copy", None, "", allowed=lambda _path: False)
    with pytest.raises(IrwmError, match="no key matches"):
        requests.investigate(vault, jobs, tmp_path / "first-copy", None, "", matching="Nobody")
