"""MATCH: tests whether W_gate and W_up agree on the matching of neurons (Zhu, Ahmed, Kuditipudi, Liang, ICML 2025).

Reference: "Independence tests for language models", arXiv:2502.12292, section 3 (the unconstrained setting,
phi_MATCH); code ahmeda14960/model-tracing, tracing/statistics/match.py. The same inputs run through both models. In
each layer the outputs of gate_proj are matched neuron by neuron across the models, and separately the outputs of
up_proj. In a disguised descendant both matchings are the same permutation; in unrelated models they are not. The
p-value is that of Spearman's correlation between the two matchings, by Fisher's method over layers. The authors add
that it behaves like a p-value without being exactly one.

This is the strongest of the published tests against disguises. Matching is by cosine as in the paper (their code uses
Euclidean distance, which rescaling changes). The inputs are random tokens, like an option of the authors' code
(`--dataset random`), drawn from the tokens that both tokenizers know, so a trimmed or reordered vocabulary has no
effect. Without a tokenizer the ids are used unchanged.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from scipy.stats import spearmanr

from benchmarks.peers.csu import fisher, matched
from benchmarks.peers.score import CannotRun, Score, cannot, significant
from benchmarks.peers.weights import load, shared_tokens

SEQUENCES, LENGTH = 8, 128
SEED = 0


def score(original_dir: Path, suspect_dir: Path) -> Score:
    """Return the mean Spearman correlation between the two matchings, with the Fisher-combined p-value."""
    try:
        value, p = statistic(original_dir, suspect_dir)
    except CannotRun as error:
        return cannot(str(error))
    return significant(value, p, "mean Spearman correlation of the gate's and the up projection's matchings")


def statistic(original_dir: Path, suspect_dir: Path) -> tuple[float, float]:
    """Return the mean correlation and the combined p-value.

    Raises:
        CannotRun: transformers cannot run the suspect, or its number of layers or neurons differs.
    """
    ids, others = shared_tokens(load(original_dir), load(suspect_dir))
    picks = torch.randint(ids.numel(), (SEQUENCES, LENGTH), generator=torch.Generator().manual_seed(SEED))
    first, second = outputs(original_dir, ids[picks]), outputs(suspect_dir, others[picks])
    if len(first) != len(second):
        raise CannotRun("different number of layers")
    correlations, p_values = [], []
    for (gate, up), (other_gate, other_up) in zip(first, second, strict=True):
        if gate.shape != other_gate.shape:
            raise CannotRun("different number of neurons")
        correlation, p = spearmanr(matched(gate, other_gate), matched(up, other_up))
        correlations.append(float(correlation))
        p_values.append(float(p))
    return float(np.nanmean(correlations)), fisher(p_values)


@torch.no_grad()
def outputs(folder: Path, ids: torch.Tensor) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Return per layer the outputs of gate_proj and up_proj on `ids`, (neurons, tokens) each."""
    from transformers import AutoModelForCausalLM

    try:
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, local_files_only=True).eval()
    except (OSError, ValueError, RuntimeError, KeyError) as error:
        raise CannotRun(f"transformers cannot load it: {error}") from error
    kept: dict[str, torch.Tensor] = {}
    for name, module in model.named_modules():
        if name.endswith(("mlp.gate_proj", "mlp.up_proj")):
            module.register_forward_hook(
                lambda _module, _inputs, out, name=name: kept.__setitem__(name, out.flatten(0, 1).T)
            )
    model(input_ids=ids)
    layers = range(len(kept) // 2)
    return [(kept[f"model.layers.{i}.mlp.gate_proj"], kept[f"model.layers.{i}.mlp.up_proj"]) for i in layers]
