"""All transforms by name, and compositions of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from irwm.attacks.equivalence.conversion import as_llama, as_mixtral
from irwm.attacks.equivalence.head import settle_head
from irwm.attacks.equivalence.naming import cast, rename_tensors
from irwm.attacks.equivalence.residual import (
    flip_signs,
    fold_gains,
    permute_residual,
    regain,
    rescale,
    rotate,
    shift_rows,
    shift_tables,
    widen,
)
from irwm.attacks.equivalence.state import State
from irwm.attacks.equivalence.sublayers import (
    add_neurons,
    map_qk,
    map_vo,
    reorder_heads,
    reorder_neurons,
    shift_key_bias,
)
from irwm.attacks.equivalence.tokens import pad_tokens, reorder_tokens, trim_tokens
from irwm.attacks.equivalence.transform import Transform
from irwm.errors import ParameterError

TRANSFORMS: Mapping[str, Transform[...]] = {
    one.name: one
    for one in (
        permute_residual,
        flip_signs,
        rotate,
        widen,
        rescale,
        fold_gains,
        regain,
        map_qk,
        map_vo,
        reorder_heads,
        shift_key_bias,
        reorder_neurons,
        add_neurons,
        shift_rows,
        shift_tables,
        reorder_tokens,
        trim_tokens,
        pad_tokens,
        rename_tensors,
        cast,
        as_llama,
        as_mixtral,
    )
}
Step = str | tuple[str, Mapping[str, Any]]


def apply(state: State, steps: Sequence[Step], seed: int = 0) -> State:
    """The state after all steps.

    Args:
        state: the model.
        steps: names of transforms, each alone or paired with its options.
        seed: step i draws with seed + i, unless its options give a seed.

    Raises:
        NotApplicableError: a step would change what the model computes.
        ParameterError: an unknown step or option, or an option out of its range.
    """
    state = settle_head(state)
    for i, step in enumerate(steps):
        name, options = (step, {}) if isinstance(step, str) else (step[0], dict(step[1]))
        if name not in TRANSFORMS:
            raise ParameterError("unknown transform", expected=", ".join(TRANSFORMS), found=str(name))
        transform = TRANSFORMS[name]
        if unknown := [option for option in options if option not in transform.options]:
            expected = ", ".join(transform.options) or "none"
            raise ParameterError(f"{name} does not have this option", expected=expected, found=", ".join(unknown))
        if transform.takes_seed:
            options.setdefault("seed", seed + i)
        state = transform(state, **options)
    return state
