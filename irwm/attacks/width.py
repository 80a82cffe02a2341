"""Cutting the width of the residual stream to its principal components (SliceGPT, Ashkboos et al., arXiv:2401.15024).

SliceGPT uses another rotation in each layer. Here all layers share one, so that the result is a model of the same
family that any program runs.
"""

from __future__ import annotations

from pathlib import Path

import torch

from irwm.attacks.equivalence.residual import fold_gains, resized, widen
from irwm.attacks.equivalence.state import read_state, write_state
from irwm.attacks.equivalence.structure import structure_of
from irwm.errors import NotApplicableError, ParameterError
from irwm.inference import open_model
from irwm.release.partial import require_absent

# Tokens of the text that the components are computed from, and how many are run at once.
_TOKENS, _LENGTH = 8192, 256


def cut_width(model_dir: str | Path, out_dir: str | Path, kept: float, text: str, device: str = "cpu") -> Path:
    """Leave the leading share `kept` of the stream's principal components over all layers; the width is rounded to a
    multiple of the number of heads.

    Args:
        model_dir: a model folder in safetensors that transformers opens, with its tokenizer.
        out_dir: must not exist.
        text: is run to find the components.

    Raises:
        ParameterError: a share outside (0, 1), or an empty text.
        NotApplicableError: not an RMSNorm family, or one with norms after the sublayers.
        OutputExistsError, CheckpointError: as `irwm.attacks.rewrite.rewrite`.
    """
    if not 0.0 < kept < 1.0:
        raise ParameterError("the share is out of range", expected="above 0 and below 1", found=str(kept))
    require_absent(Path(out_dir))
    state = read_state(model_dir)
    if (reason := widen.obstacle(state)) is not None:
        raise NotApplicableError(f"the width of this model cannot be reduced: {reason}", advice="Choose another attack")
    state = fold_gains(state)
    structure = structure_of(state)
    heads = structure.heads
    width = max(heads, int(kept * structure.hidden_size) // heads * heads)
    return write_state(resized(state, _components(model_dir, text, device)[:, :width]), out_dir)


def _components(model_dir: str | Path, text: str, device: str) -> torch.Tensor:
    """(d, d) float64 principal directions of the stream in front of every layer, as columns, the leading first."""
    opened = open_model(model_dir, device)
    ids = torch.tensor(opened.tokenizer(text, verbose=False)["input_ids"][:_TOKENS], device=device)
    if not len(ids):
        raise ParameterError("the text is empty", expected="a text to run the model on")
    moments: torch.Tensor | None = None
    with torch.no_grad():
        for part in ids.split(_LENGTH):
            # The last one has already passed the final norm.
            for states in opened.model(input_ids=part[None], output_hidden_states=True).hidden_states[:-1]:
                # Every reader divides a state by its length.
                unit = torch.nn.functional.normalize(states[0].double(), dim=1)
                moments = unit.T @ unit if moments is None else moments + unit.T @ unit
    assert moments is not None
    directions: torch.Tensor = torch.linalg.eigh(moments.cpu()).eigenvectors.flip(1)
    return directions
