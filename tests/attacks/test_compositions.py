"""Transforms in any number and order preserve the function."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from irwm.attacks.equivalence import TRANSFORMS, applicable, apply, disguise, read_state, write_state
from tests.attacks.models import TINY, error

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
