"""Function-preserving transforms: the changes that an attacker can make to a model without changing its function.

    state        a model in memory, in float64; reading and writing it
    structure    the role of a checkpoint's tensors in the residual stream, found from config, names, shapes and the
                 `anatomy` in irwm/families/data
    draft        editing a state; random matrices
    transform    the class of transforms, and the conditions for one to preserve the function
    residual, sublayers, tokens (with tokenizer), naming, conversion
                 the transforms, each State -> State
    head         tied output heads
    catalogue    the transforms by name, and `apply` for compositions
    folders      the same as attacks, folder to folder: this package has each under the transform's name

`apply(read_state(folder), steps)` returns the result without writing it; its `token_ids` give each token's new row.
"""

from irwm.attacks.equivalence.catalogue import TRANSFORMS, Step, apply
from irwm.attacks.equivalence.folders import FolderTransform, applicable, disguise
from irwm.attacks.equivalence.naming import rename_map
from irwm.attacks.equivalence.state import State, read_state, write_state

__all__ = [
    "TRANSFORMS",
    "FolderTransform",
    "State",
    "Step",
    "applicable",
    "apply",
    "disguise",
    "read_state",
    "rename_map",
    "write_state",
]


def __getattr__(name: str) -> FolderTransform:
    """Each of `TRANSFORMS` as an attack on folders: `equivalence.rotate(model_dir, out_dir, seed=3)`."""
    if name not in TRANSFORMS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return FolderTransform(name)


def __dir__() -> list[str]:
    return [*__all__, *TRANSFORMS]
