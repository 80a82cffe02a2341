"""Transforms preserve each family's function, alone and together: transformers gives the same logits."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from irwm.attacks.equivalence import TRANSFORMS, State, applicable, apply, disguise, read_state, write_state
from irwm.attacks.equivalence.draft import Draft, generator, orthogonal
from irwm.attacks.equivalence.residual import fold_gains, turned
from irwm.attacks.equivalence.structure import structure_of
from irwm.errors import NotApplicableError
from tests.attacks.models import TINY, error

# Float32 noise of two different orders of summation through the tiny models; maps of condition 10 add a little.
NOISE = 1e-5
# transformers cannot run the results of the other two, which have separate tests.
RUNNABLE = sorted(set(TRANSFORMS) - {"rename_tensors", "cast"})
LAYER_NORM_ONLY = {"shift_key_bias", "shift_rows", "shift_tables"}
REFUSED = {
    "llama": {"as_llama", "as_mixtral", *LAYER_NORM_ONLY},
    "mistral": LAYER_NORM_ONLY,
    "qwen2": {"as_mixtral", *LAYER_NORM_ONLY},
    "qwen3": {"map_qk", "as_llama", "as_mixtral", *LAYER_NORM_ONLY},
    "phi3": LAYER_NORM_ONLY,
    "phi3-partial": {"as_llama", "as_mixtral", *LAYER_NORM_ONLY},
    "gemma": LAYER_NORM_ONLY,
    "gemma2": {"rotate", "widen", "as_llama", "as_mixtral", *LAYER_NORM_ONLY},
    "bert": {"rotate", "widen", "fold_gains", "regain", "as_llama", "as_mixtral"},
    "gpt2": {"widen", "as_llama", "as_mixtral"},
}


def changed(before: State, after: State) -> bool:
    """Whether any weight, or the config, changed."""
    if before.tensors.keys() != after.tensors.keys() or before.config != after.config:
        return True
    return any(
        before.tensors[n].shape != after.tensors[n].shape or not torch.equal(before.tensors[n], after.tensors[n])
        for n in before.tensors
    )


@pytest.mark.sweep
@pytest.mark.parametrize("transform", RUNNABLE)
@pytest.mark.parametrize("name", TINY)
def test_a_transform_keeps_the_logits_or_says_why_it_cannot(
    tiny_models: dict[str, Path], tmp_path: Path, name: str, transform: str
) -> None:
    state = read_state(tiny_models[name])
    if transform in REFUSED[name]:
        assert applicable(tiny_models[name])[transform]
        with pytest.raises(NotApplicableError):
            apply(state, [transform])
        return
    assert applicable(tiny_models[name])[transform] is None
    disguised = apply(state, [transform], seed=1)
    assert changed(state, disguised)
    assert not changed(state, read_state(tiny_models[name])), "a transform changes nothing in place"
    out = write_state(disguised, tmp_path / "out")
    assert error(tiny_models[name], out, disguised) < NOISE


@pytest.fixture(scope="module")
def minilm(minilm_path: Path) -> State:
    return read_state(minilm_path)


# The tiny BERT is tested with each of them alone; together they need one reading and writing of 90 MB instead of nine.
@pytest.mark.sweep
@pytest.mark.parametrize(
    "steps",
    [
        ["permute_residual"],
        ["flip_signs", "rescale", "map_qk", "map_vo", "reorder_heads", "shift_key_bias", "reorder_neurons"],
        ["shift_rows", "shift_tables", "reorder_tokens", "trim_tokens", "pad_tokens"],
    ],
    ids=["order", "layers", "tables"],
)
def test_the_trained_bert_keeps_its_hidden_states(
    minilm: State, minilm_path: Path, tmp_path: Path, steps: list[str]
) -> None:
    disguised = apply(minilm, steps, seed=3)
    out = write_state(disguised, tmp_path / "out")
    # Without a head its output is the stream itself, in the stream's order of coordinates.
    assert error(minilm_path, out, disguised, reordered=steps == ["permute_residual"]) < NOISE


def test_a_rotation_without_folded_gains_fails_the_same_check(tiny_models: dict[str, Path], tmp_path: Path) -> None:
    state = read_state(tiny_models["llama"])
    q = orthogonal(state.config["hidden_size"], generator(0))
    right = write_state(turned(fold_gains(state), q), tmp_path / "right")
    wrong = write_state(turned(state, q), tmp_path / "wrong")
    assert error(tiny_models["llama"], right) < NOISE
    assert error(tiny_models["llama"], wrong) > 0.03


def test_fold_gains_with_bias_after_zero_gain_raises(tiny_models: dict[str, Path]) -> None:
    state = read_state(tiny_models["gpt2"])
    draft = Draft(state)
    gain = structure_of(state).norms[-1].gain
    draft.change([gain], lambda g: g.index_fill(0, torch.tensor([3]), 0.0))
    with pytest.raises(NotApplicableError) as caught:
        fold_gains(draft.done())
    assert gain in str(caught.value)


def test_a_rotated_llama_is_still_a_plain_llama(tiny_models: dict[str, Path], tmp_path: Path) -> None:
    state = read_state(tiny_models["llama"])
    rotated = apply(state, ["rotate"])
    assert rotated.config == state.config
    assert rotated.tensors.keys() == state.tensors.keys()


@pytest.mark.parametrize("name", ["gemma", "qwen2", "phi3-partial", "gpt2"])
def test_a_tied_head_is_written_when_the_last_gain_moves_into_it(tiny_models: dict[str, Path], name: str) -> None:
    state = read_state(tiny_models[name])
    assert "lm_head.weight" not in state.tensors
    folded = apply(state, ["fold_gains"])
    assert folded.config["tie_word_embeddings"] is False
    assert "lm_head.weight" in folded.tensors


def test_transform_depends_only_on_the_seed(tiny_models: dict[str, Path]) -> None:
    state = read_state(tiny_models["llama"])
    steps = ["rotate", "map_qk", "reorder_heads", "reorder_tokens"]
    first, again, other = (apply(state, steps, seed=seed) for seed in (5, 5, 6))
    assert not changed(first, again)
    assert changed(first, other)


# Renamed models cannot be run by transformers, and a cast rounds.
COMPOSABLE = sorted(set(TRANSFORMS) - {"rename_tensors", "cast"})


@pytest.mark.slow
@settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_composition_keeps_the_logits(tiny_models: dict[str, Path], data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(TINY)), label="model")
    state = read_state(tiny_models[name])
    for i in range(data.draw(st.integers(2, 6), label="length")):
        possible = [t for t in COMPOSABLE if TRANSFORMS[t].obstacle(state) is None]
        if not possible:  # as a mixture of experts, a model of some families allows no other transform
            break
        step = data.draw(st.sampled_from(possible), label=f"step {i}")
        state = apply(state, [step], seed=data.draw(st.integers(0, 1000), label=f"seed {i}"))
    with TemporaryDirectory() as folder:
        out = write_state(state, Path(folder) / "out")
        # The conditions of maps multiply if they are drawn several times.
        assert error(tiny_models[name], out, state) < 1e-4


@pytest.mark.parametrize("name", ["phi3", "gemma"])
def test_all_transforms_together_as_llama(tiny_models: dict[str, Path], tmp_path: Path, name: str) -> None:
    steps = ["as_llama", "rotate", "rescale", "regain", "map_qk", "map_vo", "reorder_heads", "reorder_neurons"]
    steps += ["reorder_tokens", "pad_tokens", "permute_residual", "flip_signs"]
    state = apply(read_state(tiny_models[name]), steps, seed=4)
    out = disguise(tiny_models[name], tmp_path / "out", steps, seed=4)
    assert error(tiny_models[name], out, state) < 1e-5
    assert applicable(out)["rotate"] is None


def test_prefix_allows_other_transforms(tiny_models: dict[str, Path], tmp_path: Path) -> None:
    state = apply(read_state(tiny_models["gemma"]), ["rename_tensors", "rotate"])
    assert all(name.startswith("backbone.") for name in state.tensors)
    back = {name.removeprefix("backbone."): tensor for name, tensor in state.tensors.items()}
    straight = apply(read_state(tiny_models["gemma"]), [("rotate", {"seed": 1})])
    assert back.keys() == straight.tensors.keys()
    assert all(back[name].equal(straight.tensors[name]) for name in back)
    mixture = apply(read_state(tiny_models["gemma"]), ["as_mixtral", "rename_tensors"])
    assert mixture.dtypes.keys() == mixture.tensors.keys()
