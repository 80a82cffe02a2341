"""REEF: centred kernel alignment of hidden states on the same statements (Zhang et al., ICLR 2025).

Reference: "REEF: Representation Encoding Fingerprints for Large Language Models", arXiv:2410.14273; code tmylla/REEF,
src/compute_cka.py and src/generate_activations.py. Each model reads the same 200 statements with its own tokenizer. The
states of the last token, centred and divided by their deviation, give X (n, d) and Y (n, d'), and the score is linear
CKA, <K, L> / (|K| |L|) with K and L the centred Gram matrices of the rows.

The authors compare layer 18 of 32 and print all other layers of the suspect, too. We take the layer at the same share
of the original's depth. In favour of the peer, the suspect's layer is the one that agrees most. The statements are
lines of the bundled text instead of TruthfulQA, whose data this project does not have. A suspect without a tokenizer
gets the original's.
"""

from __future__ import annotations

from pathlib import Path

import torch

from benchmarks.peers.activations import last_states, opened
from benchmarks.peers.score import CannotRun, Score, above, cannot
from irwm.inference import default_text
from irwm.inference.loading import has_tokenizer, open_tokenizer

STATEMENTS, SHORTEST, LONGEST = 200, 30, 400
DEPTH = 18 / 32
# The paper calls models related above 0.8 (its table 1). Some unrelated models of one shape and text reach more
# (docs/surgery.md).
THRESHOLD = 0.8


def score(original_dir: Path, suspect_dir: Path) -> Score:
    """Return the largest CKA of the original's layer with a layer of the suspect, in [0, 1]."""
    try:
        return above(similarity(original_dir, suspect_dir), THRESHOLD, "CKA")
    except CannotRun as error:
        return cannot(str(error))


def similarity(original_dir: Path, suspect_dir: Path) -> float:
    """Return the score.

    Raises:
        CannotRun: transformers cannot load the suspect.
    """
    ours, theirs = _states(original_dir, original_dir), _states(suspect_dir, original_dir)
    layer = max(1, round(DEPTH * (len(ours) - 1)))
    return max(cka(ours[layer], each) for each in theirs[1:])


def cka(x: torch.Tensor, y: torch.Tensor) -> float:
    """Return linear CKA of (n, p) and (n, q)."""
    k, l = (_gram(each) for each in (x, y))
    return float((k * l).sum() / (k.norm() * l.norm()).clamp_min(1e-300))


def _gram(states: torch.Tensor) -> torch.Tensor:
    centred = states.double() - states.double().mean(0)
    scaled = centred / centred.std(0).clamp_min(1e-12)
    return scaled @ scaled.T


def statements() -> list[str]:
    """Return lines of the bundled text, evenly spread."""
    lines = [line.strip() for line in default_text().splitlines()]
    fitting = [line for line in dict.fromkeys(lines) if SHORTEST <= len(line) <= LONGEST]
    return fitting[:: max(1, len(fitting) // STATEMENTS)][:STATEMENTS]


def _states(folder: Path, original: Path) -> torch.Tensor:
    model = opened(folder)
    tokenizer = open_tokenizer(folder if has_tokenizer(folder) else original)
    ids = (torch.tensor([tokenizer(line, verbose=False)["input_ids"]]) for line in statements())
    return last_states(model, ids)
