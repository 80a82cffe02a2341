"""The catalogue's attacks: each carried out once on a release, or saying why it cannot be."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

import irwm
from irwm.attacks.attack import Setup
from irwm.attacks.catalogue import ATTACKS, GROUPS, TRAINING
from tests.conftest import write_llama

PARAMETERS = irwm.Parameters(positions=20, constraints=5, required_positions=12, permutations=199)
# Of the real tools, and of training, which have tests of their own.
SHOWN_ELSEWHERE = [attack.name for attack in ATTACKS.values() if attack.group == TRAINING]


@pytest.fixture(scope="module")
def setup(tmp_path_factory: pytest.TempPathFactory) -> Setup:
    folder = tmp_path_factory.mktemp("catalogue")
    path = write_llama(folder / "original", num_hidden_layers=2)
    original = irwm.open_checkpoint(path)
    key = irwm.generate_key(original, PARAMETERS, secret=bytes(range(32)), recipient="Ada")
    release = irwm.insert(original, key, folder / "release").path
    (folder / "scratch").mkdir()
    return Setup(path, Path(release), key, "", folder / "scratch")


def weights(model: irwm.Checkpoint) -> list[bytes]:
    return [Path(shard).read_bytes() for shard in model.shards]


def test_every_attack_says_what_it_is() -> None:
    for name, attack in ATTACKS.items():
        assert name == attack.name
        assert attack.group in GROUPS
        assert attack.label
        assert attack.about.endswith(".")
        values = [strength.value for strength in attack.strengths]
        assert values
        assert len(set(values)) == len(values)


@pytest.mark.parametrize("name", [name for name in ATTACKS if name not in SHOWN_ELSEWHERE])
def test_an_attack_is_carried_out_or_says_why_not(setup: Setup, tmp_path: Path, name: str) -> None:
    attack = ATTACKS[name]
    why = attack.obstacle(setup)
    if why is not None:
        assert len(why) > 10
        return
    attacked = attack.carry_out(setup, attack.strengths[0].value, tmp_path / "out")
    suspect = irwm.open_checkpoint(attacked.path)
    assert weights(suspect) != weights(irwm.open_checkpoint(setup.release))
    assert attacked.path.is_relative_to(tmp_path)
    if attacked.token_ids is not None:
        assert attacked.token_ids.shape == (irwm.open_checkpoint(setup.release).vocab_size,)
        assert attacked.token_ids.max() < suspect.vocab_size
    # Rivals' and colluders' copies are taken away; what stays is for the proof.
    assert [item.name for item in setup.scratch.iterdir()] == (["exact"] if attacked.exact else [])
    shutil.rmtree(setup.scratch / "exact", ignore_errors=True)


def test_copies_are_put_together_only_where_there_are_several(setup: Setup) -> None:
    owner = replace(setup, key=irwm.generate_key(irwm.open_checkpoint(setup.original), PARAMETERS, secret=bytes(32)))
    why = ATTACKS["collude"].obstacle(owner)
    assert why is not None
    assert "no recipient" in why
    assert ATTACKS["collude"].obstacle(setup) is None


def test_a_model_of_one_layer_loses_none(setup: Setup, tmp_path: Path) -> None:
    single = replace(setup, release=write_llama(tmp_path / "one", num_hidden_layers=1))
    assert ATTACKS["layers"].obstacle(single) == "The model has a single layer."
    assert ATTACKS["layers"].obstacle(setup) is None
