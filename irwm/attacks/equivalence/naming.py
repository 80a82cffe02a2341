"""The same numbers under other names or in another number format."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Literal

import torch

from irwm.attacks.equivalence.draft import generator
from irwm.attacks.equivalence.state import State, with_dtype
from irwm.attacks.equivalence.transform import on_any_model
from irwm.errors import ParameterError

Scheme = Literal["prefix", "scrambled"]


@on_any_model
def rename_tensors(state: State, scheme: Scheme = "prefix", seed: int = 0) -> State:
    """Renames every tensor by `rename_map`. "scrambled" also hides the family: model_type "custom", and no
    architectures. This model needs the attacker's own loader, and no other transform can follow."""
    names = rename_map(state.tensors, scheme, seed)
    config = dict(state.config)
    if scheme == "scrambled":
        config.pop("architectures", None)
        config["model_type"] = "custom"
    return replace(
        state,
        config=config,
        tensors={names[name]: tensor for name, tensor in state.tensors.items()},
        dtypes={names[name]: dtype for name, dtype in state.dtypes.items()},
    )


@on_any_model
def cast(state: State, dtype: str = "float16") -> State:
    """Stores every floating tensor as float16, bfloat16, float32 or float64; rounded on saving."""
    return with_dtype(state, dtype)


def rename_map(names: Iterable[str], scheme: Scheme = "prefix", seed: int = 0) -> dict[str, str]:
    """Old name to new: "prefix" puts "backbone." in front, "scrambled" gives tensor_00042 and the like at random.

    Raises:
        ParameterError: an unknown scheme.
    """
    ordered = sorted(names)
    if scheme == "prefix":
        return {name: f"backbone.{name}" for name in ordered}
    if scheme != "scrambled":
        raise ParameterError("unknown naming scheme", expected="prefix or scrambled", found=str(scheme))
    numbers = torch.randperm(len(ordered), generator=generator(seed)).tolist()
    return {name: f"tensor_{number:05d}" for name, number in zip(ordered, numbers, strict=True)}
