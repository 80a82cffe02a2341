"""The catalogue's attacks: each carried out once on a release, or with a reason why it cannot be."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import irwm
from irwm.attacks import prune_neurons
from irwm.attacks.attack import RELEASE, Setup
from irwm.attacks.catalogue import ATTACKS, DISGUISE, GROUPS, TRAINING
from irwm.attacks.quantisers import to_gguf
from irwm.attacks.trial import try_attack
from irwm.errors import NotApplicableError
from irwm.inference import open_model
from tests.attacks.models import edited
from tools.small_models import write_llama

PARAMETERS = irwm.Parameters(positions=20, constraints=5, required_positions=12, permutations=199)
# Attacks with real tools, and with training, which have separate tests.
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


def test_every_attack_has_complete_metadata() -> None:
    for name, attack in ATTACKS.items():
        assert name == attack.name
        assert attack.group in GROUPS
        assert attack.label
        assert attack.about.endswith(".")
        assert attack.keeps_function == (attack.group == DISGUISE)
        assert all(strength.label for strength in attack.strengths)
        values = [strength.value for strength in attack.strengths]
        assert values
        assert len(set(values)) == len(values)


@pytest.mark.sweep
@pytest.mark.parametrize("name", [name for name in ATTACKS if name not in SHOWN_ELSEWHERE])
def test_an_attack_is_carried_out_or_says_why_not(setup: Setup, tmp_path: Path, name: str) -> None:
    attack = ATTACKS[name]
    why = attack.obstacle(setup)
    if why is not None:
        return
    without = replace(setup, original=tmp_path / "nowhere")
    # An attack that needs the original, but does not declare it, fails without one.
    given = without if attack.reads == RELEASE and attack.why_not(without) is None else setup
    attacked = attack.carry_out(given, attack.strengths[0].value, tmp_path / "out")
    suspect = irwm.open_checkpoint(attacked.path)
    assert weights(suspect) != weights(irwm.open_checkpoint(setup.release))
    assert attacked.path.is_relative_to(tmp_path)
    if attacked.token_ids is not None:
        assert attacked.token_ids.shape == (irwm.open_checkpoint(setup.release).vocab_size,)
        assert attacked.token_ids.max() < suspect.vocab_size
    # Rivals' and colluders' copies are removed; the remaining folders are for the proof.
    assert [item.name for item in setup.scratch.iterdir()] == (["exact"] if attacked.exact else [])
    shutil.rmtree(setup.scratch / "exact", ignore_errors=True)


def test_all_attacks_refuse_gguf_in_advance(setup: Setup, demo_path: Path, tmp_path: Path) -> None:
    published = to_gguf(demo_path, tmp_path / "gguf", "Q8_0")
    suspect = replace(setup, release=published)
    for name in ("prune", "finetune", "rotate", "merge-linear", "rival"):
        why = ATTACKS[name].why_not(suspect)
        assert why is not None
        trial = try_attack(suspect, ATTACKS[name], ATTACKS[name].strengths[0].value)
        assert (trial.ran, trial.reason) == (False, why)
    # Merges and colluders also read the unmarked original.
    unmarked = replace(setup, original=published)
    assert ATTACKS["merge-linear"].why_not(unmarked) == ATTACKS["collude"].why_not(unmarked) == why
    assert ATTACKS["prune"].why_not(unmarked) is None


def test_copies_are_combined_only_if_there_are_several(setup: Setup) -> None:
    owner = replace(setup, key=irwm.generate_key(irwm.open_checkpoint(setup.original), PARAMETERS, secret=bytes(32)))
    assert ATTACKS["collude"].obstacle(owner) is not None
    assert ATTACKS["collude"].obstacle(setup) is None


def test_model_with_one_layer_cannot_drop_layers(setup: Setup, tmp_path: Path) -> None:
    single = replace(setup, release=write_llama(tmp_path / "one", num_hidden_layers=1))
    assert ATTACKS["layers"].obstacle(single) is not None
    assert ATTACKS["layers"].obstacle(setup) is None


@pytest.fixture(scope="module")
def demo_setup(demo_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Setup:
    original = irwm.open_checkpoint(demo_path)
    key = irwm.generate_key(original, secret=bytes(32))
    return Setup(demo_path, demo_path, key, "", tmp_path_factory.mktemp("scratch"))


@pytest.mark.parametrize(("name", "value"), [("gguf", "Q4_K_M"), ("bitsandbytes", "nf4")])
def test_a_quantised_copy_comes_with_its_numbers_to_run(
    demo_setup: Setup, tmp_path: Path, name: str, value: str
) -> None:
    attack = ATTACKS[name]
    assert attack.obstacle(demo_setup) is None
    assert value in {strength.value for strength in attack.strengths}
    attacked = attack.carry_out(demo_setup, value, tmp_path / "out")
    assert attacked.runnable is not None
    assert attacked.path.is_relative_to(tmp_path / "out")
    assert attacked.runnable.is_relative_to(tmp_path / "out")
    assert irwm.open_checkpoint(attacked.path).vocab_size == demo_setup.key.vocab_size
    assert open_model(attacked.runnable).model.config.vocab_size == demo_setup.key.vocab_size


@pytest.mark.parametrize("ratio", [0.0, 0.3])
def test_structured_pruning_zeroes_the_requested_share_of_whole_neurons(
    setup: Setup, tmp_path: Path, ratio: float
) -> None:
    """In every layer the same unit is zero in gate, up and down; attention and embedding do not change."""
    out = prune_neurons(setup.release, tmp_path / "out", ratio)
    before, after = (
        {n: t for file in model.shards for n, t in load_file(file).items()}
        for model in (irwm.open_checkpoint(setup.release), irwm.open_checkpoint(out))
    )
    gone, units = 0, 0
    for name in (name for name in after if name.endswith("down_proj.weight")):
        dead = (after[name] == 0).all(dim=0)
        for other in ("gate_proj", "up_proj"):
            assert torch.equal((after[name.replace("down_proj", other)] == 0).all(dim=1), dead)
        assert torch.equal(after[name][:, ~dead], before[name][:, ~dead])
        gone, units = gone + int(dead.sum()), units + dead.numel()
    assert gone == int(ratio * units)
    for name in (name for name in after if "mlp" not in name):
        assert torch.equal(after[name], before[name]), name
    assert irwm.detect(irwm.open_checkpoint(out), irwm.open_checkpoint(setup.original), setup.key).verdict == "found"


def test_structured_pruning_refuses_unknown_families(setup: Setup, tmp_path: Path) -> None:
    model = edited(setup.release, tmp_path / "model", model_type="nobody-knows")
    with pytest.raises(NotApplicableError):
        prune_neurons(model, tmp_path / "out", 0.1)
