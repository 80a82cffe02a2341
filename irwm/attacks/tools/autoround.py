"""GPTQ's and AWQ's four-bit layouts as a real tool writes them: AutoRound (Cheng et al., arXiv:2309.05516).

It rounds each layer so that the layer's output on a calibration text changes least, and writes what loaders of GPTQ or
AWQ models read. GPTQModel 7.7.0 wants another torch than this project's (2.15.0 with CUDA's libraries), llm-compressor
0.14.0.1 an older transformers (below 5.18); AutoRound 0.16.1 installs beside both and needs no GPU.
"""

from __future__ import annotations

from pathlib import Path

from irwm.attacks.tools.child import Progress, missing, run_tool
from irwm.checkpoint import open_checkpoint
from irwm.checkpoint.layout import require_safetensors
from irwm.errors import OutputExistsError, ParameterError, UnsupportedCheckpointError
from irwm.families.family import anatomy_of

LAYOUTS = ("gptq", "awq")
PACKAGE = "auto-round==0.16.1"


def autoround(
    model_dir: str | Path,
    out_dir: str | Path,
    layout: str,
    text: str,
    *,
    group_size: int = 32,
    iterations: int = 20,
    samples: int = 16,
    length: int = 128,
    seed: int = 0,
    device: str = "cpu",
    progress: Progress | None = None,
) -> Path:
    """Quantise every linear layer within the blocks to 4 bits; embedding and head stay as they are.

    Args:
        model_dir: a causal model's folder in safetensors, with its tokenizer.
        out_dir: must not exist.
        layout: "gptq" or "awq".
        text: for calibration: `samples` pieces of `length` tokens, evenly from all of it.
        group_size: input columns that share a scale; it has to divide every layer's number of inputs.
        iterations: of signed gradient descent on each layer's rounding; 0 rounds to nearest.
        progress: called from time to time; an error that it raises stops the tool.

    Returns:
        `out_dir`. `irwm.open_checkpoint` reads it; to run it, write `dequantised(out_dir, model_dir, folder)`.

    Raises:
        ParameterError: another layout, or numbers out of range.
        UnsupportedCheckpointError: the package is missing, the model is none that the tool takes, or the tool failed.
        OutputExistsError: `out_dir` exists.
        CheckpointError: `model_dir` is not a checkpoint that is read.
    """
    if layout not in LAYOUTS:
        raise ParameterError("unknown layout", expected=" or ".join(LAYOUTS), found=repr(layout))
    numbers = {"group_size": group_size, "iterations": iterations + 1, "samples": samples, "length": length}
    if wrong := [name for name, value in numbers.items() if value < 1]:
        raise ParameterError("quantisation needs positive numbers", found=", ".join(wrong))
    if (problem := autoround_obstacle(model_dir)) is not None:
        raise UnsupportedCheckpointError(problem, file=model_dir)
    out = Path(out_dir)
    if out.exists():
        raise OutputExistsError("the output folder exists already", file=out, advice="Choose a new folder")
    request = {
        **{"model": str(Path(model_dir).resolve()), "layout": layout, "text": text, "bits": 4, "seed": seed},
        **{"group_size": group_size, "iterations": iterations, "samples": samples, "length": length, "device": device},
    }
    return run_tool("autoround_main", request, out, "AutoRound", progress)


def autoround_obstacle(model_dir: str | Path) -> str | None:
    """Why `autoround` would refuse this model, in a sentence; None if it would not. Reads no weights."""
    if (problem := missing("auto_round", PACKAGE)) is not None:
        return problem
    model = open_checkpoint(model_dir)
    try:
        require_safetensors(model.format, model.path, "attacked")
    except UnsupportedCheckpointError as error:
        return error.problem.rstrip(".") + "."
    anatomy = anatomy_of(model.config.get("model_type"))
    if anatomy is not None and anatomy.encoder:
        return "AutoRound calibrates models that write text, and this one only reads it."
    return None
