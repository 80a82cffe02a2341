"""Whether two models compute the same function: the check of attacks that claim to preserve it.

A function-preserving transform is exact in float64, but the written weights are rounded to the dtype of the file. So
the logits of the two models differ, and the question is whether rounding explains the difference. The effect of
rounding on the logits depends on the model: its depth, its norms, its weights. It is therefore measured on the model
itself: every weight of the reference gets a random rounding error (uniform, up to half the distance to its neighbour in
the other file's dtype, plus the same for float32, because the arithmetic also rounds, in another order), and the model
is run again. Two models are the same if neither the largest difference of a logit nor the root mean square of all
differences is more than `SLACK` times the effect of this error.

The dtype limits the precision of the check. In bfloat16 a change smaller than rounding to 8 bits cannot be detected;
the same transform written as float32 is compared with float32's rounding, which is some 5000 times smaller.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from irwm.inference.loading import open_weights
from irwm.inference.model_pair import Pair, TokenMap, common_order, pair_of, states
from irwm.inference.reference import Reference, run

# Measured (docs/utility.md): at most 1.5 over all transforms and their compositions on three trained models, written as
# bfloat16 and as float32; pruning a tenth of the weights gives at least 5.6.
SLACK = 3.0


@dataclass(frozen=True, slots=True)
class SameFunction:
    """Two models' outputs on the same tokens.

    Attributes:
        largest: the largest difference between two logits; of encoders, between two coordinates of a hidden state.
        typical: the root mean square of all differences.
        scale: the largest absolute logit of the reference.
        tolerance, typical_tolerance: the limits of `largest` and `typical` that rounding explains.
        same: whether both are within their limits.
        positions: places of the text at which all logits were compared.
        dtype: the other model's dtype; the tolerances allow for its rounding.
    """

    largest: float
    typical: float
    scale: float
    tolerance: float
    typical_tolerance: float
    same: bool
    positions: int
    dtype: str

    def to_dict(self) -> dict[str, object]:
        """Plain JSON values; an infinite number, which JSON lacks, is the word "infinity"."""
        return {name: "infinity" if value == math.inf else value for name, value in asdict(self).items()}


def same_function(reference: Reference, other_dir: str | Path, token_ids: TokenMap | None = None) -> SameFunction:
    """Compare all logits of two models on the reference's text, except those of tokens that one of them lacks.

    Arguments and errors as `irwm.inference.compare`.
    """
    pair = pair_of(reference, Path(other_dir), token_ids)
    difference = (_encoders if reference.headless else _logits)(pair)
    largest, typical = rounding(reference, pair.weights.dtype)
    tolerance, typical_tolerance = SLACK * largest, SLACK * typical
    return SameFunction(
        largest=difference.largest,
        typical=difference.typical,
        scale=difference.scale,
        tolerance=tolerance,
        typical_tolerance=typical_tolerance,
        # NaN and infinite differences are not small.
        same=math.isfinite(difference.largest)
        and difference.largest <= tolerance
        and difference.typical <= typical_tolerance,
        positions=difference.positions,
        dtype=str(pair.weights.dtype).removeprefix("torch."),
    )


@dataclass(slots=True)
class _Difference:
    """Accumulates the difference block by block."""

    largest: float = 0.0
    scale: float = 0.0
    squares: float = 0.0
    count: int = 0
    positions: int = 0

    def add(self, expected: torch.Tensor, outputs: torch.Tensor) -> None:
        apart = (outputs - expected).abs()
        worst = apart.max().item() if torch.isfinite(apart).all() else math.inf
        self.largest = max(self.largest, worst)
        self.scale = max(self.scale, expected.abs().max().item())
        self.squares += apart.double().square().sum().item()
        self.count += apart.numel()
        self.positions += len(expected)

    @property
    def typical(self) -> float:
        return math.sqrt(self.squares / self.count) if math.isfinite(self.squares) else math.inf


def _logits(pair: Pair) -> _Difference:
    there = (pair.match.new >= 0).nonzero().flatten()
    found = _Difference()
    for expected, outputs, _ in pair.run():
        if pair.match.plain:
            found.add(expected, outputs)
        else:
            found.add(expected[:, there], outputs[:, pair.match.new[there]])
    return found


def _encoders(pair: Pair) -> _Difference:
    ours, theirs = states(pair)
    order = common_order(ours, theirs)
    found = _Difference()
    found.add(ours, theirs if order is None else theirs[:, order])
    return found


def rounding(reference: Reference, dtype: torch.dtype) -> tuple[float, float]:
    """The largest and the root mean square change of a logit, or of a hidden state's coordinate, if every number of the
    reference's model gets a random rounding error of `dtype`."""
    if dtype not in reference.roundings:
        weights = open_weights(reference.folder, reference.device)
        source = torch.Generator(weights.model.device).manual_seed(reference.seed)
        with torch.no_grad():
            for value in weights.model.parameters():
                value.add_(_rounding_error(value, dtype, source))
        found = _Difference()
        for number, outputs in enumerate(run(weights, reference.passages)):
            found.add(reference.outputs[number], outputs)
        reference.roundings[dtype] = found.largest, found.typical
    return reference.roundings[dtype]


def _rounding_error(value: torch.Tensor, dtype: torch.dtype, source: torch.Generator) -> torch.Tensor:
    """Numbers drawn uniformly between minus and plus half the distance of each number to its neighbour in `dtype`,
    and half of it in float32, in which models are run: sums in another order, or on another processor, differ by this.
    """
    exponent = torch.frexp(value).exponent  # value = mantissa * 2^exponent, mantissa in [0.5, 1)
    eps = torch.finfo(dtype).eps + torch.finfo(torch.float32).eps
    half = torch.ldexp(torch.full_like(value, eps / 4), exponent)
    half = torch.where(value == 0, 0, half)  # zero is stored exactly, in any dtype
    return half * (2 * torch.rand(value.shape, generator=source, device=value.device) - 1)
