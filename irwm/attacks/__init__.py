"""Attacks on a release: each takes a model folder and writes a model folder, the same for tests, lab and benchmarks."""

from irwm.attacks.pruning import prune
from irwm.attacks.quantization import quantize

__all__ = ["prune", "quantize"]
