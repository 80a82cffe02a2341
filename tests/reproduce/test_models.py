"""Folders that the experiments accept or refuse."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from benchmarks.reproduce.models import PAPER_MULTI, ModelError, default_models, open_models, parameters_of
from irwm.errors import IrwmError


def test_a_folder_is_described_without_its_path(gemma_path: Path) -> None:
    assert open_models([str(gemma_path)])[0].name == "gemma"
    (model,) = open_models([f"small={gemma_path}"])
    shown = model.to_dict()
    assert (shown["name"], shown["family"], shown["hidden"], shown["dtype"]) == ("small", "gemma", 128, "bfloat16")
    assert shown["parameters"] > 800_000
    assert str(gemma_path) not in str(shown)


def test_the_default_is_two_trained_families_and_more() -> None:
    names = [name for name, _ in default_models()]
    assert names[:2] == ["demo", "MiniLM"]
    assert all((path / "config.json").is_file() for _, path in default_models())


# A name with dots would leave the cache.
@pytest.mark.parametrize("given", [["missing"], ["a={gemma}", "a={gemma}"], ["../a={gemma}"], ["..={gemma}"]])
def test_folders_and_names_that_cannot_be_used_are_refused(gemma_path: Path, given: list[str]) -> None:
    with pytest.raises(ModelError):
        open_models([each.format(gemma=gemma_path) for each in given])


@pytest.mark.parametrize("missing", ["model.safetensors", "tokenizer.json"])
def test_incomplete_model_is_refused_by_experiments(gemma_path: Path, tmp_path: Path, missing: str) -> None:
    for name in {"config.json", "model.safetensors"} - {missing}:
        shutil.copy(gemma_path / name, tmp_path)
    with pytest.raises(IrwmError):
        open_models([f"mute={tmp_path}"])


def test_experiment_modes_are_paper_setting_and_preset() -> None:
    single, multi = parameters_of("single", 256), parameters_of("multi", 256)
    assert (single.constraints, single.scale, single.noise_coordinates) == (10, 1000.0, 0)
    assert (multi.constraints, multi.scale, multi.noise_coordinates) == (8, "auto", 8)
    longer = parameters_of("multi-20", 256, 1000.0)
    assert (longer.constraints, longer.noise_coordinates, longer.scale) == (20, 20, 1000.0)
    assert parameters_of("single-5", 256).noise_coordinates == 0
    paper = parameters_of(PAPER_MULTI, 256)
    assert (paper.constraints, paper.positions, paper.scale, paper.noise_level) == (10, 50, 1000.0, "global")
    assert (paper.spread, paper.places) == (0.0, ("embedding",))
    with pytest.raises(ModelError):
        parameters_of("both", 256)
