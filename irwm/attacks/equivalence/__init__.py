"""Function-preserving transforms: everything a thief may do to a model without changing what it computes.

    state        a model in memory, in float64; reading and writing it
    structure    what a checkpoint's tensors do to the residual stream, found from config, names, shapes and the
                 `anatomy` in irwm/families/data
    draft        editing a state; random matrices
    transform    what a transform is, and the conditions for one to preserve the function
    residual, heads, neurons, tokens (with tokenizer), naming, conversion
                 the transforms, each State -> State
    head         tied output heads
    catalogue    the transforms by name, and `apply` for compositions
    folders      the same as attacks, folder to folder: what this package exports under the transforms' names

`apply(read_state(folder), steps)` gives the result without writing it; its `token_ids` say where each token's row went.
"""

from irwm.attacks.equivalence.catalogue import TRANSFORMS, Step, apply
from irwm.attacks.equivalence.folders import (
    applicable,
    as_llama,
    cast,
    disguise,
    flip_signs,
    fold_gains,
    map_qk,
    map_vo,
    pad_tokens,
    permute_residual,
    regain,
    rename_tensors,
    reorder_heads,
    reorder_neurons,
    reorder_tokens,
    rescale,
    rotate,
    shift_key_bias,
    shift_rows,
    shift_tables,
    trim_tokens,
)
from irwm.attacks.equivalence.naming import rename_map
from irwm.attacks.equivalence.state import State, read_state, write_state

__all__ = [
    "TRANSFORMS",
    "State",
    "Step",
    "applicable",
    "apply",
    "as_llama",
    "cast",
    "disguise",
    "flip_signs",
    "fold_gains",
    "map_qk",
    "map_vo",
    "pad_tokens",
    "permute_residual",
    "read_state",
    "regain",
    "rename_map",
    "rename_tensors",
    "reorder_heads",
    "reorder_neurons",
    "reorder_tokens",
    "rescale",
    "rotate",
    "shift_key_bias",
    "shift_rows",
    "shift_tables",
    "trim_tokens",
    "write_state",
]
