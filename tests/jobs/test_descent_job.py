"""Maps of descent as jobs: of folders and single models, with what could not be read."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from irwm.attacks import add_noise, quantize
from irwm.errors import IrwmError
from storage import Jobs, Vault
from tests.jobs.recipients import run_here, succeeded
from tools.small_models import write_llama
from ui.jobs import requests
from ui.jobs.results import outcome_of
from ui.services.results import Mapped


def mapped(models: list[Path], vault: Vault, jobs: Jobs, originals: tuple[Path, ...] = ()) -> Mapped:
    asked = requests.descent(list(map(str, models)), list(map(str, originals)), device="cpu")
    job = succeeded(run_here("descent", asked.request.to_json(), vault, jobs))
    assert outcome_of(job) == "done"
    found: Mapped = job.result
    return found


@pytest.fixture
def folder(demo_path: Path, tmp_path: Path) -> Path:
    """Two descendants of the demo model in a folder, an unrelated model, and a damaged one."""
    folder = tmp_path / "models"
    add_noise(demo_path, folder / "noisy", 0.05)
    quantize(folder / "noisy", folder / "deep" / "rounded", 4)
    write_llama(folder / "unrelated")
    (folder / "broken").mkdir()
    (folder / "broken" / "model.safetensors").write_bytes(bytes(20))
    return folder


def test_folder_with_a_known_original(folder: Path, demo_path: Path, vault: Vault, jobs: Jobs) -> None:
    found = mapped([folder], vault, jobs, (demo_path,))
    names = found["names"]
    assert found["originals"] == [0]
    assert [sorted(names[place] for place in family) for family in found["families"]] == [
        sorted([demo_path.name, "noisy", "rounded"]), ["unrelated"],
    ]  # fmt: skip
    branches = {(names[each["first"]], names[each["second"]]) for each in found["branches"]}
    assert branches == {(demo_path.name, "noisy"), ("noisy", "rounded")}
    assert [Path(each["name"]).parent.name for each in found["unread"]] == ["broken"]
    assert found["unread"][0]["error"]["problem"]


def test_a_model_that_is_given_twice_is_on_the_map_once(
    demo_path: Path, tmp_path: Path, vault: Vault, jobs: Jobs
) -> None:
    other = tmp_path / "copy"
    shutil.copytree(demo_path, other)
    link = tmp_path / "link"
    link.symlink_to(other)
    found = mapped([other, link, demo_path], vault, jobs, (demo_path,))
    assert sorted(found["names"]) == sorted([demo_path.name, "copy"])


def test_one_model_is_no_map(demo_path: Path, vault: Vault, jobs: Jobs) -> None:
    with pytest.raises(IrwmError):
        requests.descent([" "])
    asked = requests.descent([str(demo_path)], device="cpu")
    job = run_here("descent", asked.request.to_json(), vault, jobs)
    assert (job.state, job.error and job.error["problem"]) == ("failed", "a map needs several models")
