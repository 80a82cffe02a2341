"""Merging by mergekit (Goddard et al., arXiv:2403.13257), which most merged models in public were made with."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from irwm.attacks.tools.child import Progress, missing, run_tool
from irwm.checkpoint import open_checkpoint
from irwm.checkpoint.layout import require_safetensors
from irwm.errors import OutputExistsError, ParameterError, UnsupportedCheckpointError
from irwm.families.family import anatomy_of

METHODS = ("linear", "slerp", "task arithmetic", "ties", "dare")
PACKAGE = "mergekit==0.1.5"
_NAMES = {"task arithmetic": "task_arithmetic", "ties": "ties", "dare": "dare_ties"}


def merge_with_mergekit(
    model_dirs: Sequence[str | Path],
    out_dir: str | Path,
    method: str = "linear",
    weights: Sequence[float] | None = None,
    base_dir: str | Path | None = None,
    density: float = 0.5,
    progress: Progress | None = None,
) -> Path:
    """Merge fine-tuned copies of one base.

    Args:
        model_dirs: different model folders in safetensors; two for "slerp", else one or more, with the base two.
        out_dir: must not exist.
        method: "linear", "slerp" and "task arithmetic" as in `irwm.attacks.merge`; "ties" (Yadav et al.,
            arXiv:2306.01708) and "dare" (Yu et al., arXiv:2311.03099, with TIES' election of signs), which keep the
            share `density` of each model's difference to the base.
        weights: one for each model; equal ones that add up to 1 when None.
        base_dir: the common base, for the last three.
        progress: called from time to time; an error that it raises stops the tool.

    Raises:
        ParameterError: an unknown method, or models, weights or a base that do not fit it.
        UnsupportedCheckpointError: the package is missing, another format, or mergekit refused the models.
        OutputExistsError: `out_dir` exists.
        CheckpointError: a folder is not a checkpoint that is read.
    """
    if method not in METHODS:
        raise ParameterError("unknown way of merging", expected=" or ".join(METHODS), found=repr(method))
    based = method in _NAMES
    fewest = 1 if based else 2
    if len(model_dirs) < fewest or (method == "slerp" and len(model_dirs) != 2):
        raise ParameterError(
            f"{method} merges another number of models", expected=str(fewest), found=str(len(model_dirs))
        )
    if based != (base_dir is not None):
        raise ParameterError(
            "the base and the way of merging do not fit",
            expected="a base folder" if based else "none",
            found=str(base_dir),
        )
    shares = [1 / len(model_dirs)] * len(model_dirs) if weights is None else [float(weight) for weight in weights]
    if len(shares) != len(model_dirs) or not 0 < density <= 1 or (not based and not sum(shares) > 0):
        raise ParameterError("the weights do not fit", expected=f"{len(model_dirs)} numbers", found=str(weights))
    if (problem := mergekit_obstacle(model_dirs[0])) is not None:
        raise UnsupportedCheckpointError(problem, file=model_dirs[0])
    folders = [_folder(path) for path in (*model_dirs, *([base_dir] if base_dir is not None else []))]
    out = Path(out_dir)
    if out.exists():
        raise OutputExistsError("the output folder exists already", file=out, advice="Choose a new folder")
    config = _config(method, folders, shares, density)
    return run_tool("mergekit_main", {"config": config}, out, "mergekit", progress)


def mergekit_obstacle(model_dir: str | Path) -> str | None:
    """Why mergekit cannot be asked about this model, in a sentence; None if it can. Reads no weights."""
    if (problem := missing("mergekit", PACKAGE)) is not None:
        return problem
    anatomy = anatomy_of(open_checkpoint(model_dir).config.get("model_type"))
    if anatomy is not None and anatomy.encoder:
        return "mergekit 0.1.5 does not merge encoders such as BERT beside this version of transformers."
    return None


def _folder(path: str | Path) -> str:
    model = open_checkpoint(path)
    require_safetensors(model.format, model.path, "merged")
    return str(model.path.resolve())


def _config(method: str, folders: list[str], shares: list[float], density: float) -> dict[str, Any]:
    """mergekit's own description of a merge; the base stands last in `folders` where there is one."""
    if method == "slerp":
        share = shares[1] / sum(shares)
        models = [{"model": folder} for folder in folders]
        return {"merge_method": "slerp", "base_model": folders[0], "models": models, "parameters": {"t": share}}
    thinned = {"density": density} if method in ("ties", "dare") else {}
    weighted = [
        {"model": folder, "parameters": {"weight": share, **thinned}}
        for folder, share in zip(folders, shares, strict=False)
    ]
    if method == "linear":
        return {"merge_method": "linear", "models": weighted}
    # Weights as they are: mergekit would divide those of TIES by their sum.
    return {
        **{"merge_method": _NAMES[method], "base_model": folders[-1], "models": weighted},
        "parameters": {"normalize": False},
    }
