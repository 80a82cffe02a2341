"""Nobody chose an original: the suspect is compared with all originals of the vault, and the right one is examined."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

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


def test_the_right_original_is_found_and_examined(
    originals: list[Path], vault: Vault, jobs: Jobs, tmp_path: Path
) -> None:
    suspect = equivalence.disguise(tmp_path / "second-copy", tmp_path / "suspect", ["rotate", "reorder_heads"])
    job = succeeded(run_here("investigate", asked(suspect, vault, jobs), vault, jobs))
    result = job.result
    assert (result["verdict"], Path(result["original"]).name) == ("found", "second")
    rows = {row["name"]: row for row in result["originals"]}
    assert set(rows) == set(NAMES)
    assert (rows["second"]["lineage"], rows["second"]["verdict"], rows["second"]["keys"]) == ("derived", "found", 1)
    assert all(rows[name]["lineage"] != "derived" and not rows[name]["keys"] for name in ("first", "third"))
    document = from_json(jobs.files(job.id).read(result["json"]))
    assert document["extra"]["Originals compared with the suspect"] == "3"
    assert (document["keys"]["tried"], document["items"]["original"]["name"]) == (1, "second")
    assert not failed_checks(job, jobs, vault, suspect, tmp_path)


def test_every_related_original_is_examined_and_corrected_for(
    originals: list[Path], vault: Vault, jobs: Jobs, tmp_path: Path
) -> None:
    """A second version with nearly the same weights: the suspect descends from both, by lineage."""
    again = add_noise(originals[0], tmp_path / "first-b", 0.05)
    succeeded(run_here("protect", protect_request(again, tmp_path / "first-b-copy", "Ada"), vault, jobs))
    suspect = tmp_path / "suspect"
    shutil.copytree(tmp_path / "first-b-copy", suspect)
    job = succeeded(run_here("investigate", asked(suspect, vault, jobs), vault, jobs))
    result = job.result
    assert (result["verdict"], Path(result["original"]).name) == ("found", "first-b")
    examined = [row["name"] for row in result["originals"] if row["keys"]]
    assert set(examined) == {"first", "first-b"}
    assert (result["keys_tried"], result["keys_held"]) == (2, 2)
    document = from_json(jobs.files(job.id).read(result["json"]))
    assert document["keys"] == {"tried": 2, "held": 2}
    assert document["extra"]["Keys of other originals, which the verdict is corrected for too"] == "1"
    assert not failed_checks(job, jobs, vault, suspect, tmp_path)


def test_unrelated_model_accuses_no_original(originals: list[Path], vault: Vault, jobs: Jobs, tmp_path: Path) -> None:
    suspect = write_llama(tmp_path / "unrelated", vocab_size=1300, hidden_size=64, seed=77)
    shutil.rmtree(originals[0])
    job = succeeded(run_here("investigate", asked(suspect, vault, jobs), vault, jobs))
    assert job.result["verdict"] != "found"
    assert all(row["verdict"] != "found" for row in job.result["originals"])
    assert outcome_of(job) == "inconclusive", "nothing is known about the original that is gone"


def test_nothing_found_is_a_verdict_if_every_original_is_excluded_or_examined() -> None:
    row: OriginalRow = {"path": "", "name": "a", "lineage": "not derived", "similarity": 0.1, "p": 1.0, "keys": 0,
                        "verdict": "", "reason": ""}  # fmt: skip
    examined: OriginalRow = {**row, "name": "b", "lineage": "cannot tell", "keys": 3, "verdict": "not found"}
    assert open_originals([row, examined]) == []
    assert open_originals([row, {**examined, "keys": 0}]) == ["b"]
    assert open_originals([row, {**row, "lineage": ""}]) == ["a"]


def test_missing_and_broken_originals_are_listed(
    originals: list[Path], vault: Vault, jobs: Jobs, tmp_path: Path
) -> None:
    shutil.rmtree(originals[0])
    (originals[2] / "model.safetensors").write_bytes(b"no weights")
    result = succeeded(run_here("investigate", asked(tmp_path / "second-copy", vault, jobs), vault, jobs)).result
    rows = {row["name"]: row for row in result["originals"]}
    assert (rows["second"]["verdict"], rows["third"]["lineage"]) == ("found", "")
    assert rows["third"]["reason"]
    gone = next(row for row in result["originals"] if not row["path"])
    assert "no longer" in gone["reason"]


def test_request_without_an_original_needs_a_model_and_an_original_that_is_there(
    originals: list[Path], vault: Vault, jobs: Jobs, tmp_path: Path
) -> None:
    known = KnownOriginals.of(vault)
    assert (set(known.here), known.missing, known.keys) == (set(originals), (), 3)
    text = tmp_path / "said.txt"
    text.write_text("Some text.\n")
    for suspect in (text, tmp_path):
        with pytest.raises(IrwmError, match="no original was chosen"):
            requests.investigate(vault, jobs, suspect, None, "")
    with pytest.raises(IrwmError, match="keys were chosen"):
        requests.investigate(vault, jobs, tmp_path / "first-copy", None, "", keys=["0" * 32])
    with pytest.raises(IrwmError, match="where a release was made"):
        requests.investigate(vault, jobs, tmp_path / "first-copy", None, "", allowed=lambda _path: False)
