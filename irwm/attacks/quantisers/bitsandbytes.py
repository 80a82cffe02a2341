"""bitsandbytes as transformers calls it: LLM.int8 (Dettmers et al., arXiv:2208.07339) and NF4 (arXiv:2305.14314)."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path

from irwm.attacks.rewrite import copy_companions, new_folder, open_safetensors
from irwm.errors import ParameterError, UnsupportedCheckpointError
from irwm.inference.loading import save_quantised

PACKAGE = "bitsandbytes"
SETTINGS: Mapping[str, Mapping[str, object]] = {
    "int8": {"quant_method": "bitsandbytes", "load_in_8bit": True},
    "nf4": {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"},
    "nf4 twice": {
        **{"quant_method": "bitsandbytes", "load_in_4bit": True},
        **{"bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": True},
    },
}


def to_bitsandbytes(model_dir: str | Path, out_dir: str | Path, kind: str = "nf4", device: str = "cpu") -> Path:
    """Quantise every linear layer but the head; embedding, head and norms are not changed.

    Args:
        model_dir: a model folder in safetensors that transformers opens.
        out_dir: must not exist.
        kind: "int8"; "nf4"; or "nf4 twice", whose scales are quantised too.

    Returns:
        `out_dir`. `irwm.open_checkpoint` reads it, and transformers runs it if bitsandbytes is installed. To measure
        its numbers only, use `dequantised(out_dir, model_dir, folder)`.

    Raises:
        ParameterError: another kind.
        UnsupportedCheckpointError: the package is missing, another format, or transformers cannot open the model.
        OutputExistsError: `out_dir` exists.
        CheckpointError: `model_dir` is not a readable checkpoint.
    """
    if kind not in SETTINGS:
        raise ParameterError("unknown quantisation", expected=" or ".join(SETTINGS), found=repr(kind))
    model = open_safetensors(model_dir)
    if (problem := bitsandbytes_obstacle()) is not None:
        raise UnsupportedCheckpointError(problem, file=model.path)
    with new_folder(out_dir) as out:
        save_quantised(model.path, out, SETTINGS[kind], device)
        copy_companions(model, out, described=True)
    return out


def bitsandbytes_obstacle() -> str | None:
    """Why `to_bitsandbytes` cannot run here, in a sentence; None if it can."""
    if importlib.util.find_spec(PACKAGE) is not None and importlib.util.find_spec("accelerate") is not None:
        return None
    return f"This attack needs the packages {PACKAGE} and accelerate, but at least one of them is not installed."
