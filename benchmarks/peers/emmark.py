"""EmMark: plus or minus one quantisation level at secret positions (Zhang & Koushanfar, DAC 2024).

Reference: "EmMark: Robust Watermarks for IP Protection of Embedded Quantized Large Language Models", arXiv:2402.17938,
section 4 (insertion: scoring S = alpha S1 + beta S2; extraction: the share of matching bits, and the chance of it by
a binomial tail); code ruisizhang123/EmMark, watermarks/insert.py and extract.py. For each quantised linear layer:

    S1 = 1 / |code|          one level matters least where the code is large; the extreme codes are left out
    S2 = max(A) / (A - min(A))      per input channel, A the mean |activation| in full precision: salient channels
    positions = `LENGTH` drawn by the key from the POOL * LENGTH entries of the smallest 0.5 S1 + 0.5 S2
    code[position] += bit,  bit in {-1, +1} from the key

and a suspect is read back at these positions: code' - code is compared with the bits.

It is a watermark, so it needs its own release: `mark` writes a de-quantised copy, which is then disguised like ours.
Quantisation is round-to-nearest on the published grid, 4 bits in groups of 128 with a zero point, or 8 bits symmetric
per tensor. The search for channel scales of AWQ and SmoothQuant, which the paper takes from other work, is left out.
In favour of the peer: the suspect need not be quantised, because its weights are rounded to the owner's grid; the copy
is stored in float32; the chance of a bit is one half, as published, although an unmarked model matches no bits.
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from scipy.stats import binom

from benchmarks.peers.score import CannotRun, Score, cannot, significant
from benchmarks.peers.weights import load

BITS = 4
GROUP = 128
LENGTH, POOL = 40, 50  # bits per layer and candidates per bit: defaults of the authors' 4-bit code
ALPHA = BETA = 0.5
SEED = 100
CALIBRATION_SEQUENCES, CALIBRATION_LENGTH = 8, 128


@dataclass(frozen=True, slots=True, eq=False)
class Signature:
    """The owner's record of one layer.

    Attributes:
        code, step, zero: the quantised matrix, (out, in) each: weight = (code - zero) * step.
        positions: (LENGTH,) flat indices.
        bits: (LENGTH,) of -1 and 1.
    """

    code: torch.Tensor
    step: torch.Tensor
    zero: torch.Tensor
    positions: torch.Tensor
    bits: torch.Tensor

    def marked(self) -> torch.Tensor:
        """Return the de-quantised matrix with the bits in it."""
        code = self.code.flatten().clone()
        code[self.positions] += self.bits
        return (code.reshape(self.code.shape) - self.zero) * self.step

    def matches(self, weight: torch.Tensor) -> int:
        """Return the number of bits that a suspect's matrix still holds."""
        if weight.shape != self.code.shape:
            raise CannotRun("a marked matrix has a different shape")
        code = (weight / self.step).round() + self.zero
        difference = (code - self.code).flatten()[self.positions]
        return int((difference == self.bits).sum())


def score(original_dir: Path, suspect_dir: Path, bits: int = BITS) -> Score:
    """Return the share of matching bits, with its chance. The signature is derived from the original and SEED."""
    try:
        suspect = load(suspect_dir)
        signatures = signature(Path(original_dir), bits)
        held = sum(signatures[name].matches(suspect[name]) for name in signatures)
    except CannotRun as error:
        return cannot(str(error))
    total = LENGTH * len(signatures)
    return significant(held / total, float(binom.sf(held - 1, total, 0.5)), f"{held} of {total} bits match:")


def mark(original_dir: Path, out_dir: Path, bits: int = BITS) -> Path:
    """Write a copy of the model, quantised, marked and de-quantised to float32, to the new folder `out_dir`."""
    signatures = signature(Path(original_dir), bits)
    shutil.copytree(original_dir, out_dir)
    for shard in Path(out_dir).glob("*.safetensors"):
        tensors = {
            name: (signatures[name].marked() if name in signatures else tensor.float()).contiguous()
            for name, tensor in load_file(shard).items()
        }
        save_file(tensors, shard, metadata={"format": "pt"})
    return Path(out_dir)


@lru_cache(maxsize=2)
def signature(original_dir: Path, bits: int = BITS) -> dict[str, Signature]:
    """Return the signature of every linear layer, by tensor name."""
    weights, random = load(original_dir), np.random.default_rng(SEED)
    activations = _activations(original_dir)
    result = {}
    for name in sorted(activations):
        code, step, zero = quantise(weights[f"{name}.weight"], bits)
        pool = torch.topk(_scores(code, activations[name], bits).flatten(), POOL * LENGTH, largest=False).indices
        positions = pool[torch.from_numpy(random.choice(pool.numel(), LENGTH, replace=False))]
        result[f"{name}.weight"] = Signature(
            code, step, zero, positions, torch.from_numpy(random.choice([-1.0, 1.0], LENGTH)).float()
        )
    return result


def _scores(code: torch.Tensor, activation: torch.Tensor, bits: int) -> torch.Tensor:
    """Return S, (out, in); infinite where a change of one level would leave the grid."""
    low, high = (0, 2**bits - 1) if bits == 4 else (-(2 ** (bits - 1) - 1), 2 ** (bits - 1) - 1)
    small = 1.0 / code.abs()
    salient = activation.max() / (activation - activation.min()).clamp_min(1e-12)
    scores = ALPHA * small + BETA * salient
    return torch.where((code <= low) | (code >= high), torch.inf, scores)


def quantise(weight: torch.Tensor, bits: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return rounded codes, steps and zero points, each (out, in); 4 bits per input group, 8 bits per tensor."""
    if bits == 8:
        step = (weight.abs().max() / 127).expand_as(weight)
        return (weight / step).round(), step, torch.zeros_like(weight)
    grouped = weight.reshape(weight.shape[0], -1, min(GROUP, weight.shape[1]))
    low, high = grouped.amin(-1, keepdim=True), grouped.amax(-1, keepdim=True)
    step = ((high - low) / (2**bits - 1)).clamp_min(1e-12)
    zero = (-low / step).round()
    code = ((grouped / step).round() + zero).clamp(0, 2**bits - 1)
    step, zero = (x.expand_as(grouped).reshape(weight.shape) for x in (step, zero))
    return code.reshape(weight.shape), step, zero


@torch.no_grad()
def _activations(folder: Path) -> dict[str, torch.Tensor]:
    """Return mean |input| per channel of every linear layer inside the blocks, by module name."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, local_files_only=True).eval()
    kept: dict[str, torch.Tensor] = {}
    for name, module in _linears(model):
        module.register_forward_hook(
            lambda _module, inputs, _out, name=name: kept.__setitem__(name, inputs[0].flatten(0, 1).abs().mean(0))
        )
    model(input_ids=_calibration_ids(folder, model.config.vocab_size))
    return kept


def _linears(model: torch.nn.Module) -> Iterator[tuple[str, torch.nn.Module]]:
    return ((n, m) for n, m in model.named_modules() if isinstance(m, torch.nn.Linear) and ".layers." in n)


def _calibration_ids(folder: Path, vocab_size: int) -> torch.Tensor:
    """Return tokens of a Python module, like the demo model's training text; random tokens without a tokenizer."""
    shape, count = (CALIBRATION_SEQUENCES, CALIBRATION_LENGTH), CALIBRATION_SEQUENCES * CALIBRATION_LENGTH
    path = folder / "tokenizer.json"
    if path.exists():
        from tokenizers import Tokenizer

        text = Path(argparse.__file__).read_text(encoding="utf-8")
        return torch.tensor(Tokenizer.from_file(str(path)).encode(text).ids[:count]).reshape(shape)
    return torch.randint(vocab_size, shape, generator=torch.Generator().manual_seed(SEED))
