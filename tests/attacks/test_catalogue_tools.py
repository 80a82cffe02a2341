"""The catalogue's entries of real tools: what they hand on can be read and run, and obstacles have reasons."""

from __future__ import annotations

import importlib.util
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

import irwm
from irwm.attacks.attack import Setup
from irwm.attacks.catalogue import ATTACKS
from irwm.running import open_model

TOOLS = ("gguf", "bitsandbytes", "autoround")


@pytest.fixture(scope="module")
def setup(demo_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Setup:
    original = irwm.open_checkpoint(demo_path)
    key = irwm.generate_key(original, secret=bytes(32))
    return Setup(demo_path, demo_path, key, "", tmp_path_factory.mktemp("scratch"))


@pytest.mark.parametrize(("name", "value"), [("gguf", "Q4_K_M"), ("bitsandbytes", "nf4")])
def test_a_quantised_copy_comes_with_its_numbers_to_run(setup: Setup, tmp_path: Path, name: str, value: str) -> None:
    attack = ATTACKS[name]
    assert attack.obstacle(setup) is None
    assert value in {strength.value for strength in attack.strengths}
    attacked = attack.carry_out(setup, value, tmp_path / "out")
    assert attacked.runnable is not None
    assert attacked.path.is_relative_to(tmp_path / "out")
    assert attacked.runnable.is_relative_to(tmp_path / "out")
    assert irwm.open_checkpoint(attacked.path).vocab_size == setup.key.vocab_size
    assert open_model(attacked.runnable).model.config.vocab_size == setup.key.vocab_size


def test_obstacles_are_plain_sentences(setup: Setup, minilm_path: Path, tmp_path: Path) -> None:
    other = shutil.copytree(setup.release, tmp_path / "other")
    config = json.loads((other / "config.json").read_text())
    (other / "config.json").write_text(json.dumps(config | {"model_type": "granite"}))
    refused = str(ATTACKS["gguf"].obstacle(replace(setup, release=other)))
    assert refused.startswith("GGUF files are written for models of the types bert, gemma")
    assert refused.endswith("granite.")
    told = str(ATTACKS["autoround"].obstacle(replace(setup, release=minilm_path)))
    assert told.endswith(".") or told.endswith(").")
    assert ("not installed" in told) == (importlib.util.find_spec("auto_round") is None)


def test_every_tool_has_strengths_with_labels() -> None:
    for name in TOOLS:
        assert len(ATTACKS[name].strengths) >= 2
        assert all(strength.label for strength in ATTACKS[name].strengths)
        assert not ATTACKS[name].keeps_function
