"""`python -m benchmarks.reproduce` from outside: a small run, what it writes, what it keeps, what it refuses."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.reproduce import __main__ as command
from benchmarks.reproduce import bench as benches
from benchmarks.reproduce.models import MODES, ModelError, default_models, open_models, parameters_of
from irwm.errors import IrwmError


@pytest.fixture(scope="module")
def made(demo_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pages of a quick run on the demo model."""
    out = tmp_path_factory.mktemp("reproduction")
    arguments = [f"demo={demo_path}", "--quick", "--only", "pruning", "--out", str(out)]
    assert command.main([*arguments, "--workers", "1"]) == 0
    return out


def test_pages_have_numbers_settings_and_no_path(made: Path, demo_path: Path) -> None:
    text = (made / "pruning.md").read_text(encoding="utf-8")
    command = "python -m benchmarks.reproduce demo=… --quick --only pruning"
    assert text.startswith(f"# Pruning\n\n<!-- {command}, from sources ")
    assert f"\n\n`{command}`" in text
    for mode in MODES:
        for what in ("weights", "neurons"):
            assert f"| demo | {mode} | {what} | 10% | found | 50 of 50, met | 50 of 50, met | 10^-" in text
    assert "## Settings" in text
    for page in made.glob("*.md"):
        assert str(demo_path) not in page.read_text(encoding="utf-8")
    assert sorted(file.name for file in made.glob("*.svg")) == ["pruning-neurons.svg", "pruning-weights.svg"]
    assert not (made / "README.md").exists(), "the overview needs every experiment"


def test_owner_wins_both_disputes_of_the_paper(gemma_path: Path, tmp_path: Path) -> None:
    arguments = [str(gemma_path), "--quick", "--only", "ownership", "--out", str(tmp_path), "--workers", "1"]
    assert command.main(arguments) == 0
    text = (tmp_path / "ownership.md").read_text(encoding="utf-8")
    assert "in 2 of 2 cases, and the ruling is for the owner in 2 of 2, without any date" in text


def test_results_are_kept_and_not_committed(made: Path) -> None:
    assert (made / "cache" / ".gitignore").read_text() == "*\n"
    record = json.loads((made / "cache" / "trials" / "demo" / "multi" / "prune 0.1.json").read_text())
    assert record["readings"]["joint, original"]["verdict"] == "found"
    assert record["named"] is True
    assert abs(record["utility"]["change"]) < 0.25


def test_stopped_run_resumes_without_measuring_again(
    made: Path, demo_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(benches, "run_all", lambda specs, *_: pytest.fail("measured again") if specs else None)
    before = (made / "pruning.md").read_bytes()
    (made / "pruning.md").unlink()
    arguments = [f"demo={demo_path}", "--quick", "--only", "pruning", "--out", str(made), "--workers", "1"]
    assert command.main([*arguments, "--resume"]) == 0
    assert (made / "pruning.md").read_bytes() == before


def test_results_of_other_settings_or_models_are_not_resumed(made: Path, demo_path: Path, gemma_path: Path) -> None:
    arguments = ["--only", "pruning", "--out", str(made), "--resume"]
    assert command.main([f"demo={demo_path}", *arguments]) == 2
    assert command.main([f"demo={gemma_path}", "--quick", *arguments]) == 2


def test_bad_folder_or_text_is_refused_before_anything_is_written(tmp_path: Path, demo_path: Path) -> None:
    (tmp_path / "text.txt").write_text("Too short.")
    for given in ([str(tmp_path / "missing")], [str(demo_path), "--text", str(tmp_path / "text.txt")]):
        assert command.main([*given, "--out", str(tmp_path / "pages")]) == 2
        assert not (tmp_path / "pages").exists()


def test_attackers_do_not_train_on_what_utility_is_measured_on() -> None:
    train, measured = command.split_text(None)
    assert len(train) > len(measured) > 20_000
    assert not train.endswith(measured[:200])
    whole = train + measured
    assert whole.index(measured) == len(train)


def test_memory_for_an_8_billion_model_is_stated_before_the_run(demo_path: Path) -> None:
    large = replace(open_models([f"demo={demo_path}"])[0], name="Llama-3-8B", parameters=8_030_261_248)
    assert command.needed([large], ["pruning"], 1, "cuda") == "On cuda Llama-3-8B takes at least 32.1 GB of memory"
    said = command.needed([large], list(command.EXPERIMENTS), 2, "cpu")
    assert said == "On cpu Llama-3-8B takes at least 64.2 GB of memory, and 257.0 GB while it is fine-tuned"


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


def test_experiment_modes_are_paper_settings_and_preset() -> None:
    single, multi, hidden = (parameters_of(mode, 256) for mode in MODES)
    assert (single.constraints, single.scale, single.noise_coordinates) == (10, 1000.0, 0)
    assert (multi.constraints, multi.positions, multi.scale, multi.noise_coordinates) == (10, 50, 1000.0, 10)
    assert (multi.noise_level, multi.spread, multi.places) == ("global", 0.0, ("embedding",))
    assert (hidden.constraints, hidden.scale, hidden.noise_coordinates) == (8, "auto", 8)
    longer = parameters_of("multi-20", 256, 100.0)
    assert (longer.constraints, longer.noise_coordinates, longer.scale) == (20, 10, 100.0)
    assert parameters_of("hidden-20", 256).noise_coordinates == 20
    assert parameters_of("single-5", 256).noise_coordinates == 0
    with pytest.raises(ModelError):
        parameters_of("both", 256)
