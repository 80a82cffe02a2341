"""The transforms as attacks: a model folder in, a new model folder out.

All of them take the transform's options and `dtype`, the number format of the stored floating tensors ("float16",
"bfloat16", "float32" or "float64"; None for each tensor's own). They return the new folder's path, and raise

    NotApplicableError                        the transform would change the function of this model, with the reason
    ParameterError                            an option out of its range, or a number too large for the dtype
    CheckpointError                           `model_dir` is not a checkpoint that this version reads
    OutputExistsError, PublishError           `out_dir` exists, or cannot be written

On an error no folder is written. The arithmetic is done in float64 and rounded once, on saving.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from irwm.attacks.equivalence.catalogue import TRANSFORMS, Step, apply
from irwm.attacks.equivalence.state import read_state, write_state
from irwm.release.partial import require_absent

Folder = str | Path


def disguise(
    model_dir: Folder, out_dir: Folder, steps: Sequence[Step], seed: int = 0, dtype: str | None = None
) -> Path:
    """Apply several transforms in memory, in the order given, and write the result once.

    Args:
        model_dir: a model folder, or one .safetensors file.
        out_dir: a new folder.
        steps: names of transforms, each alone or paired with its options: ["rotate", ("map_qk", {"condition": 3})].
        seed: step i draws with seed + i, unless its options give a seed.
        dtype: see the module.
    """
    require_absent(Path(out_dir))  # before the work and not after it
    return write_state(apply(read_state(model_dir), steps, seed), out_dir, dtype)


def applicable(model_dir: Folder) -> dict[str, str | None]:
    """For each transform's name, None if it can run on this model, else the reason. Reads no weights."""
    state = read_state(model_dir, weights=False)
    return {name: transform.obstacle(state) for name, transform in TRANSFORMS.items()}


class FolderTransform:
    """One transform on folders; called with `model_dir`, `out_dir`, the transform's options, and `dtype`."""

    def __init__(self, name: str) -> None:
        self.__name__, self.__doc__ = name, TRANSFORMS[name].__doc__
        parameter, kind = inspect.Parameter, inspect.Parameter.POSITIONAL_OR_KEYWORD
        folders = [parameter(folder, kind, annotation=Folder) for folder in ("model_dir", "out_dir")]
        dtype = parameter("dtype", kind, default=None, annotation=str | None)
        options = TRANSFORMS[name].options
        own = [*options.values(), *([dtype] if "dtype" not in options else [])]
        self.__signature__ = inspect.Signature([*folders, *own], return_annotation=Path)

    def __call__(self, model_dir: Folder, out_dir: Folder, *args: Any, **options: Any) -> Path:
        given = self.__signature__.bind(model_dir, out_dir, *args, **options).arguments
        chosen = {option: given[option] for option in TRANSFORMS[self.__name__].options if option in given}
        dtype = None if "dtype" in chosen else given.get("dtype")
        return disguise(model_dir, out_dir, [(self.__name__, chosen)], dtype=dtype)
