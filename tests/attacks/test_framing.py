"""Framing: an attacker who holds several copies mixes them. Only recipients whose copies were used are named.

Whoever holds another recipient's copy can put it into a suspect. Tracing then names that recipient, because it shows
whose copies were used, not who used them (docs/adaptive.md, "Framing").
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import irwm
from benchmarks.framing import KINDS, Tally, examine
from tools.copies import copy_of, keys_for, write_embedding
from tools.small_models import write_llama

# The attacker holds the copies of Ann and Bob. The others' copies were never used.
NAMES = ["ann", "bob", "cid", "dan", "eve"]
Rows = torch.Tensor


def half(ann: Rows, bob: Rows) -> Rows:
    return torch.cat((ann[: len(ann) // 2], bob[len(ann) // 2 :]))


def some_rows(ann: Rows, bob: Rows) -> Rows:
    chosen = torch.randperm(len(ann), generator=torch.Generator().manual_seed(0))[: len(ann) // 5]
    return ann.index_copy(0, chosen, bob[chosen])


def columns(ann: Rows, bob: Rows) -> Rows:
    return torch.cat((ann[:, : ann.shape[1] // 2], bob[:, ann.shape[1] // 2 :]), dim=1)


def beyond(ann: Rows, bob: Rows) -> Rows:
    """The difference of the two copies, added to one of them until most of its own noise is gone."""
    return ann + 1.5 * (bob - ann)


def signs_of_the_difference(ann: Rows, bob: Rows) -> Rows:
    return ann + (bob - ann).abs().mean() * torch.sign(
        torch.randn(ann.shape, generator=torch.Generator().manual_seed(1))
    )


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> irwm.Checkpoint:
    folder = tmp_path_factory.mktemp("framed") / "model"
    return irwm.open_checkpoint(write_llama(folder, vocab_size=2500, dtype=torch.bfloat16))


@pytest.fixture(scope="module")
def keys(model: irwm.Checkpoint) -> list[irwm.Key]:
    return keys_for(model, NAMES, irwm.many_recipients(model.hidden_size))


@pytest.fixture(scope="module")
def copies(model: irwm.Checkpoint, keys: list[irwm.Key]) -> list[torch.Tensor]:
    return [copy_of(model, key).float() for key in keys[:2]]


def named(suspect: irwm.Checkpoint, model: irwm.Checkpoint, keys: list[irwm.Key]) -> set[str]:
    return {trace.recipient for trace in irwm.trace(suspect, model, keys) if trace.named}


@pytest.mark.parametrize(
    ("mixed", "expected"),
    [
        (half, {"ann", "bob"}),
        (some_rows, {"ann", "bob"}),
        (columns, {"ann", "bob"}),
        (beyond, {"bob"}),
        (signs_of_the_difference, {"ann"}),
    ],
)
def test_mixed_copies_name_only_recipients_whose_copies_were_used(
    model: irwm.Checkpoint,
    keys: list[irwm.Key],
    copies: list[torch.Tensor],
    tmp_path: Path,
    mixed: Callable[[Rows, Rows], Rows],
    expected: set[str],
) -> None:
    found = named(write_embedding(model, mixed(*copies), tmp_path / "suspect"), model, keys)
    assert expected <= found <= {"ann", "bob"}


def test_rows_in_an_unrelated_model_name_the_recipient_of_these_rows(
    model: irwm.Checkpoint, keys: list[irwm.Key], copies: list[torch.Tensor], tmp_path: Path
) -> None:
    """Bob's rows, through a random rotation, in a model that was trained separately: his copy was used for it."""
    other = irwm.open_checkpoint(write_llama(tmp_path / "other", vocab_size=2500, seed=9))
    generator = torch.Generator().manual_seed(2)
    d = model.hidden_size
    turned = copies[1] @ torch.linalg.qr(torch.randn(d, d, generator=generator)).Q
    suspect = write_embedding(other, turned, tmp_path / "suspect")
    assert named(suspect, model, keys) == {"bob"}


def test_noise_of_the_right_size_frames_nobody(model: irwm.Checkpoint, keys: list[irwm.Key], tmp_path: Path) -> None:
    """An attacker with the original but no copy knows the size of a fingerprint, and not its signs."""
    original = model.embedding().float()
    spread = keys[0].parameters.spread
    for seed in range(10):
        generator = torch.Generator().manual_seed(seed)
        noise = spread * original.std(dim=1, keepdim=True) * torch.randn(original.shape, generator=generator)
        suspect = write_embedding(model, original + noise, tmp_path / str(seed))
        assert named(suspect, model, keys) == set()


@pytest.mark.slow
def test_no_kind_of_suspect_in_the_benchmark_accuses_an_innocent(model: irwm.Checkpoint, tmp_path: Path) -> None:
    other = irwm.open_checkpoint(write_llama(tmp_path / "other", vocab_size=2500, seed=9))
    tallies: dict[str, Tally] = {}
    examine("small", model, other, 1, tmp_path, tallies)
    assert list(tallies) == list(KINDS)
    for kind, (_, used, elsewhere) in KINDS.items():
        tally = tallies[kind]
        assert (tally.suspects, tally.uninvolved, tally.marks) == (1, 0, 0)
        assert tally.anyone == 0 or used, kind
        assert tally.anyone == 1 or elsewhere or not used, kind
        assert len(tally.z) == 60 - len(used)
