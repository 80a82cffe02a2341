"""GPTQ's and AWQ's four-bit layouts as a real tool writes them: AutoRound (Cheng et al., arXiv:2309.05516).

It rounds each layer so that the layer's output on a calibration text changes least, and writes files that loaders of
GPTQ or AWQ models read. It runs in a separate process (`autoround_process`), since it sets up logging, patches
libraries and leaves folders behind.

GPTQModel 7.7.0 needs another torch than this project's (2.15.0 with CUDA's libraries), llm-compressor 0.14.0.1 an older
transformers (below 5.18). AutoRound 0.16.1 works with both versions of this project and needs no GPU.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from irwm.attacks.rewrite import open_safetensors
from irwm.checkpoint.child_process import module_command, module_environment
from irwm.errors import ParameterError, UnsupportedCheckpointError, printable
from irwm.families.family import anatomy_of
from irwm.inference.reference import Progress
from irwm.release.partial import require_absent

LAYOUTS = ("gptq", "awq")
PACKAGE = "auto-round==0.16.1"
# No network access.
_OFFLINE = dict.fromkeys(("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_DATASETS_OFFLINE"), "1")
# Seconds between two calls of `progress`, which may request a stop.
_INTERVAL = 0.5
# Characters of the tool's last line that an error shows.
_LAST_LINE = 400


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
    """Quantise every linear layer within the blocks to 4 bits; embedding and head are not changed.

    Args:
        model_dir: a causal model's folder in safetensors, with its tokenizer.
        out_dir: must not exist.
        layout: "gptq" or "awq".
        text: the calibration text; `samples` pieces of `length` tokens are used, evenly spread over it.
        group_size: input columns that share a scale; it has to divide every layer's number of inputs.
        iterations: of signed gradient descent on each layer's rounding; 0 rounds to nearest.
        progress: called every half second; an exception that it raises stops the tool.

    Returns:
        `out_dir`. `irwm.open_checkpoint` reads it; to run it, write `dequantised(out_dir, model_dir, folder)`.

    Raises:
        ParameterError: another layout, or numbers out of range.
        UnsupportedCheckpointError: the package is missing, the tool does not take this model, or the tool failed.
        OutputExistsError: `out_dir` exists.
        CheckpointError: `model_dir` is not a readable checkpoint.
    """
    if layout not in LAYOUTS:
        raise ParameterError("unknown layout", expected=" or ".join(LAYOUTS), found=repr(layout))
    numbers = {"group_size": group_size, "iterations": iterations + 1, "samples": samples, "length": length}
    if wrong := [name for name, value in numbers.items() if value < 1]:
        raise ParameterError(
            "the group size, the number of samples and the length must be at least 1, and the number of "
            "iterations at least 0",
            found=", ".join(wrong),
        )
    if (problem := autoround_obstacle(model_dir)) is not None:
        raise UnsupportedCheckpointError(problem, file=model_dir)
    request = {
        **{"model": str(Path(model_dir).resolve()), "layout": layout, "text": text, "bits": 4, "seed": seed},
        **{"group_size": group_size, "iterations": iterations, "samples": samples, "length": length, "device": device},
    }
    return run_autoround(request, Path(out_dir), progress)


def autoround_obstacle(model_dir: str | Path) -> str | None:
    """Why `autoround` cannot run on this model, in a sentence; None if it can. Reads no weights."""
    if importlib.util.find_spec("auto_round") is None:
        return f"AutoRound needs the package auto-round, which is not installed (pip install {PACKAGE})."
    try:
        model = open_safetensors(model_dir)
    except UnsupportedCheckpointError as error:
        return error.problem.rstrip(".") + "."
    anatomy = anatomy_of(model.config.get("model_type"))
    if anatomy is not None and anatomy.encoder:
        return "AutoRound supports only models that generate text, and this model does not."
    return None


def run_autoround(request: Mapping[str, object], out_dir: Path, progress: Progress | None = None) -> Path:
    """Run the tool's process, and move the model folder that it writes to `out_dir`.

    Args:
        request: the input of the process, as JSON; "out" is added, a folder that does not exist yet.
        progress: called every half second; an exception that it raises ends the process.

    Raises:
        OutputExistsError: `out_dir` exists.
        UnsupportedCheckpointError: the tool failed; its last line is in the message.
    """
    require_absent(out_dir)
    out_dir.parent.mkdir(parents=True, exist_ok=True)
    # In the folder of the result, so that moving needs no copy; tools leave work folders where they are started.
    with tempfile.TemporaryDirectory(prefix=f".{out_dir.name}.", dir=out_dir.parent.resolve()) as work:
        written = Path(work) / "out"
        # The request is in a file: a pipe holds less, and writing to it would wait until the tool is loaded.
        asked = Path(work) / "request.json"
        asked.write_text(json.dumps({**request, "out": str(written)}), encoding="utf-8")
        with (
            asked.open("rb") as content,
            subprocess.Popen(
                module_command("irwm.attacks.quantisers.autoround_process"),
                stdin=content,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                cwd=work,
                env=module_environment(_OFFLINE),
            ) as process,
        ):
            try:
                said = _wait(process, progress)
            finally:  # the process ends after any error here
                if process.poll() is None:
                    process.kill()
        if process.returncode != 0 and progress:
            progress(0, 1, "AutoRound ended")  # Stop may have ended the tool before this process: then this raises
        if process.returncode != 0 or not written.is_dir():
            lines = [line.strip() for line in said.decode("utf-8", "replace").splitlines() if line.strip()]
            found = printable(lines[-1], _LAST_LINE) if lines else f"exit status {process.returncode} and no message"
            raise UnsupportedCheckpointError("AutoRound failed", found=found)
        shutil.move(written, out_dir)
    return out_dir


def _wait(process: subprocess.Popen[bytes], progress: Progress | None) -> bytes:
    """Waits until the tool ends, and returns its standard error."""
    while True:
        try:
            return process.communicate(timeout=_INTERVAL)[1]
        except subprocess.TimeoutExpired:
            if progress:
                progress(0, 1, "AutoRound is running")
