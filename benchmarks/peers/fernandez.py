"""Functional invariants: an identifier in the choice of function-preserving transforms.

Reference: Fernandez et al., "Functional Invariants to Watermark Large Transformers", ICASSP 2024, arXiv:2310.11446. We
found no code of the authors; the spread of the factors and the number of bits are ours. An identifier of m chunks of k
bits chooses one of 2^k transforms at each of m levels:

    dimensions      a permutation of the residual stream, in the whole model
    norm            of each norm before a sublayer: its weights times s, the following matrices' columns divided by s
    q and k         of each layer: rows of W_q times s, those of W_k divided by s, equal for both rows of a rotary pair

A suspect is read level by level: the chunk is the transform of the original that is nearest to the suspect's matrices
(least squares), given those of the earlier levels. With s of m chunks equal, p is a binomial tail with 2^-k.

It needs its own release: `mark` writes a transformed copy, in float32 in its favour, which is then disguised like ours.
The method has no step that undoes another transform of the same kind: the attacker's would be read as an identifier.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from scipy.stats import binom

from benchmarks.peers.score import CannotRun, Score, cannot, significant
from benchmarks.peers.weights import EMBEDDING, Weights, load

BITS = 8  # k: 256 transforms of each level
SEED = 100
# Deviation of log s: large enough to be read after damage, small enough for 16-bit numbers.
SPREAD = 0.3
# A matrix by its name, and what is done to it: ("order", dimension, (n,) places) or ("scale", dimension, (n,) factors).
Change = tuple[str, int, torch.Tensor]
ATTENTION = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
MLP = ("mlp.gate_proj", "mlp.up_proj")


def levels(weights: Weights) -> list[tuple[str, int]]:
    """Return kind and layer of each level."""
    kinds = ("attention norm", "q and k", "mlp norm")
    return [("dimensions", 0), *((kind, layer) for layer in range(weights.layers) for kind in kinds)]


def changes(weights: Weights, level: int, choice: int) -> dict[str, Change]:
    """Return what the transform number `choice` of a level does, by tensor name."""
    kind, layer = levels(weights)[level]
    draw = np.random.default_rng([SEED, level, choice])
    d, at = int(weights.config["hidden_size"]), f"model.layers.{layer}."
    if kind == "dimensions":
        order = torch.from_numpy(draw.permutation(d))
        return {name: ("order", _stream_dimension(name), order) for name in weights.files}
    if kind == "q and k":
        heads = int(weights.config["num_attention_heads"])
        kv_heads = int(weights.config.get("num_key_value_heads") or heads)
        size = int(weights.config.get("head_dim") or d // heads)
        pairs = np.exp(SPREAD * draw.standard_normal((kv_heads, 1, size // 2)))
        s = torch.from_numpy(np.concatenate([pairs, pairs], axis=2)).float()
        of_q = s.expand(kv_heads, heads // kv_heads, size).flatten()
        return {
            f"{at}self_attn.q_proj.weight": ("scale", 0, of_q),
            f"{at}self_attn.k_proj.weight": ("scale", 0, 1 / s.flatten()),
        }
    norm, after = ("input", ATTENTION) if kind == "attention norm" else ("post_attention", MLP)
    s = torch.from_numpy(np.exp(SPREAD * draw.standard_normal(d))).float()
    followers = {f"{at}{name}.weight": ("scale", 1, 1 / s) for name in after}
    return {f"{at}{norm}_layernorm.weight": ("scale", 0, s), **followers}


def _stream_dimension(name: str) -> int:
    """Return the dimension of a tensor that runs over the residual stream."""
    return 0 if "norm" in name or "o_proj" in name or "down_proj" in name else 1


def changed(tensor: torch.Tensor, change: Change) -> torch.Tensor:
    kind, dimension, values = change
    if kind == "order":
        return tensor.index_select(dimension, values)
    return tensor * (values if dimension == tensor.ndim - 1 else values[:, None])


def identifier(weights: Weights) -> list[int]:
    """Return the owner's chunks, one for each level."""
    return [int(chunk) for chunk in np.random.default_rng(SEED).integers(2**BITS, size=len(levels(weights)))]


def score(original_dir: Path, suspect_dir: Path) -> Score:
    """Return the share of equal chunks, with its chance."""
    try:
        original, suspect = load(original_dir), load(suspect_dir)
        if original.layers != suspect.layers:
            raise CannotRun("the models have different numbers of layers")
        own = identifier(original)
        equal = sum(chunk == mine for chunk, mine in zip(chunks(original, suspect), own, strict=True))
    except CannotRun as error:
        return cannot(str(error))
    p = float(binom.sf(equal - 1, len(own), 2.0**-BITS))
    return significant(equal / len(own), p, f"{equal} of {len(own)} chunks are equal:")


def chunks(original: Weights, suspect: Weights) -> Iterator[int]:
    """Yield the chunk that is read at each level."""
    ours: dict[str, torch.Tensor] = {name: original[name] for name in original.files}
    for level, (kind, _) in enumerate(levels(original)):
        names = [EMBEDDING] if kind == "dimensions" else list(changes(original, level, 0))
        theirs = {name: suspect[name] for name in names}
        if any(theirs[name].shape != ours[name].shape for name in names):
            raise CannotRun("a transformed tensor has a different shape")
        distances = [
            sum(float((changed(ours[name], change) - theirs[name]).square().sum()) for name, change in some.items())
            for some in ({name: all_of_it[name] for name in names} for all_of_it in _choices(original, level))
        ]
        found = int(np.argmin(distances))
        _apply(ours, changes(original, level, found))
        yield found


def _choices(original: Weights, level: int) -> Iterator[dict[str, Change]]:
    return (changes(original, level, choice) for choice in range(2**BITS))


def _apply(tensors: dict[str, torch.Tensor], made: Mapping[str, Change]) -> None:
    for name in tensors.keys() & made.keys():
        tensors[name] = changed(tensors[name], made[name])


def mark(original_dir: Path, out_dir: Path) -> Path:
    """Write a copy of the model with the identifier, in float32, to the new folder `out_dir`."""
    weights = load(Path(original_dir))
    shutil.copytree(original_dir, out_dir)
    for shard in Path(out_dir).glob("*.safetensors"):
        tensors = {name: tensor.float() for name, tensor in load_file(shard).items()}
        for level, choice in enumerate(identifier(weights)):
            _apply(tensors, changes(weights, level, choice))
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, shard, metadata={"format": "pt"})
    return Path(out_dir)
