"""Attacks on a release: each takes a model folder and writes a model folder, the same for tests, lab and benchmarks.

`prune`, `quantize` and `add_noise` lose a little of the model; `collude` makes one of several recipients' copies;
`equivalence` holds the transforms that lose nothing.
"""

from irwm.attacks import equivalence
from irwm.attacks.collusion import collude
from irwm.attacks.noise import add_noise
from irwm.attacks.pruning import prune
from irwm.attacks.quantization import quantize

__all__ = ["add_noise", "collude", "equivalence", "prune", "quantize"]
