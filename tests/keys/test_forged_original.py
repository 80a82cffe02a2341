"""A false accuser modifies the "original" he shows until his key fits an unrelated model.

He makes an honest key of a model and may even publish its commitment. Then he changes the inputs of A, so that the
key's equations hold on the other model's rows: linear algebra, without a search. Each way must be refused, because the
key is bound to everything that A reads.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import irwm
from irwm.errors import KeyMismatchError
from irwm.keys.digests import layer0_digest, rows_digest
from irwm.scheme.condition import permute_rows
from irwm.scheme.invariant import invariant
from irwm.scheme.permutations import NullOrders
from irwm.scheme.statistic import joint_map, lengths, normalised, null_lengths, ranks
from tests.attacks.models import edited


@pytest.fixture(scope="module")
def honest(demo_path: Path) -> irwm.Key:
    """A key of the demo model that uses the first try of the constraint permutations, as the forgery requires."""
    model = irwm.open_checkpoint(demo_path)
    params = irwm.Parameters.paper(scale=1.0)
    for first in range(60):
        key = irwm.generate_key(model, params, secret=bytes([first]) * 32, owner="False accuser")
        if key.attempt == 0:
            return key
    raise AssertionError("no key takes its first try")


@pytest.fixture(scope="module")
def forged(demo_path: Path, honest: irwm.Key, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo model with layer 0's q and k rewritten so that A' is orthogonal to its own, unmarked rows."""
    folder = tmp_path_factory.mktemp("forged") / "model"
    shutil.copytree(demo_path, folder)
    model, choices = irwm.open_checkpoint(folder), honest.choices()
    layout, d, t = model.layout, model.hidden_size, honest.parameters.constraints
    rows = np.take_along_axis(model.embedding(choices.marked_rows).double().numpy(), choices.row_permutations, axis=1)
    free = np.linalg.svd(np.vstack([rows, np.ones(d)]))[2][len(rows) + 1 :]
    inverse = np.argsort(choices.constraint_permutations, axis=1)
    drawn = np.random.default_rng(0).standard_normal((t, len(free))) @ free
    wanted = np.take_along_axis(drawn, inverse, axis=1)  # A, before it is permuted
    queries, references = (_inputs(model, tokens) for tokens in (choices.query_tokens, choices.reference_tokens))
    file = folder / "model.safetensors"
    weights = load_file(file)
    q, k = torch.zeros(layout.heads * layout.head_dim, d), torch.zeros(layout.kv_heads * layout.head_dim, d)
    q[:t] = torch.from_numpy(np.linalg.pinv(queries).T)
    k[:t] = torch.from_numpy(np.linalg.solve(references, wanted.T).T)
    assert layout.q is not None
    assert layout.k is not None
    weights[layout.q.name], weights[layout.k.name] = q, k
    save_file(weights, file, metadata={"format": "pt"})
    return folder


def _inputs(model: irwm.Checkpoint, tokens: np.ndarray) -> np.ndarray:
    """The input of layer 0's q and k in a Llama: the row, normalised, times the gain."""
    assert model.layout.input_norm is not None
    (gain,) = (model.read(ref).double() for ref in model.layout.input_norm.weights)
    x = model.embedding(tokens).double()
    return (x * torch.rsqrt(x.square().mean(1, keepdim=True) + model.layout.input_norm.eps) * gain).numpy()


def count_with(original: irwm.Checkpoint, suspect: irwm.Checkpoint, key: irwm.Key) -> int:
    """Positions that rank below beta, by the bare arithmetic of Algorithm 3: the result of an unbound key."""
    choices = key.choices()
    a_m = invariant(original, choices.query_tokens, choices.reference_tokens).numpy()
    weights = joint_map(permute_rows(a_m, choices.constraint_permutations), key.scale)
    rows = suspect.embedding(choices.marked_rows).double().numpy()
    shuffled = normalised(np.take_along_axis(rows, choices.row_permutations, axis=1))
    null = null_lengths(weights, shuffled, NullOrders.of(0, 999, *shuffled.shape))
    return int((ranks(lengths(weights, shuffled), null) < key.parameters.rank_threshold).sum())


def test_the_forgery_works_on_a_key_bound_only_to_the_embedding(
    honest: irwm.Key, forged: Path, demo_path: Path
) -> None:
    victim = irwm.open_checkpoint(demo_path)
    assert count_with(irwm.open_checkpoint(forged), victim, honest) == 50
    assert count_with(victim, victim, honest) < 25


def test_a_key_for_the_modified_layer_has_other_rows_and_finds_no_mark(
    honest: irwm.Key, forged: Path, demo_path: Path
) -> None:
    """The digest is part of the derivation of every choice, so the key no longer uses the modified equations."""
    original, victim = irwm.open_checkpoint(forged), irwm.open_checkpoint(demo_path)
    rebound = replace(honest, layer0_digest=layer0_digest(original))
    choices = rebound.choices()
    rebound = replace(
        rebound,
        rows_digest=rows_digest(original, choices.query_tokens, choices.reference_tokens, choices.marked_rows),
    )
    assert set(choices.marked_rows) != set(honest.choices().marked_rows)
    assert count_with(original, victim, rebound) < 25


HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64}


@pytest.mark.parametrize("change", ["layer 0", "heads", "norm's epsilon", "rows"])
def test_an_original_modified_after_the_key_is_refused(
    honest: irwm.Key, forged: Path, demo_path: Path, tmp_path: Path, change: str
) -> None:
    key, choices = honest, honest.choices()
    if change == "rows":
        references = torch.from_numpy(choices.reference_tokens)

        def longer(tensors: dict[str, torch.Tensor]) -> None:
            tensors["model.embed_tokens.weight"][references] *= 1.01

        folder = edited(demo_path, tmp_path / "rows", longer)
        # The digest of the rows is stored in the key but is not part of the derivation; the fingerprint is.
        tokens = (choices.query_tokens, choices.reference_tokens, choices.marked_rows)
        key = replace(honest, rows_digest=rows_digest(irwm.open_checkpoint(folder), *tokens))
    elif change == "layer 0":
        folder = forged
    else:
        folder = edited(demo_path, tmp_path / "config", **(HEADS if change == "heads" else {"rms_norm_eps": 1.0}))
    with pytest.raises(KeyMismatchError) as caught:
        irwm.detect(irwm.open_checkpoint(demo_path), irwm.open_checkpoint(folder), key)
    if change == "layer 0":
        assert caught.value.tensor == "model.layers.0.self_attn.q_proj.weight"
