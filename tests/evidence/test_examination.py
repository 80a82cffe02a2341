"""An examination computes each result once, and an examination of another suspect reuses those of the original."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import irwm
from irwm.alignment.rows import Rows
from irwm.errors import KeyMismatchError
from irwm.scheme.invariant import Added, Layer0

# For a key without a mark in the output head only the embedding is aligned.
ALONE = irwm.Parameters(places=("embedding",))


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[irwm.Checkpoint]:
    """The checkpoints whose rows were prepared for an alignment, in order."""
    found: list[irwm.Checkpoint] = []
    of = Rows.of.__func__  # type: ignore[attr-defined]

    def noted(cls: type[Rows], source: irwm.Checkpoint, *rest: object) -> Rows:
        found.append(source)
        return of(cls, source, *rest)

    monkeypatch.setattr(Rows, "of", classmethod(noted))
    return found


def test_another_suspect_reuses_the_original_rows(tiny_path: Path, made: list[irwm.Checkpoint]) -> None:
    original, one, other = (irwm.open_checkpoint(tiny_path) for _ in range(3))
    key = irwm.generate_key(original, ALONE, secret=bytes(32))
    first = irwm.Examination(one, original)
    (alone,) = irwm.detect_each(first, [key])
    (again,) = irwm.detect_each(first.with_suspect(other), [key])
    assert made.count(original) == 1
    assert made == [one, original, other]
    assert np.array_equal(alone.ranks, again.ranks)


def test_one_suspect_is_aligned_once_for_all_questions(tiny_path: Path, made: list[irwm.Checkpoint]) -> None:
    original, suspect = irwm.open_checkpoint(tiny_path), irwm.open_checkpoint(tiny_path)
    keys = [irwm.generate_key(original, ALONE, secret=bytes([n]) * 32) for n in range(3)]
    examination = irwm.Examination(suspect, original)
    found = [*irwm.detect_each(examination, keys), *irwm.detect_each(examination, keys, statistic="sum")]
    assert all(finding.alignment is examination.aligned[0].alignment for finding in found)
    assert made == [suspect, original]
    assert examination.on("cpu") is examination


def test_an_examination_against_another_original_is_refused(tiny_path: Path, minilm_path: Path) -> None:
    original = irwm.open_checkpoint(tiny_path)
    key = irwm.generate_key(original, ALONE, secret=bytes(32))
    examination = irwm.Examination(original, irwm.open_checkpoint(minilm_path))
    with pytest.raises(KeyMismatchError, match="another original"):
        examination.check([key])


def test_keys_of_one_owner_share_every_invariant(demo_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = irwm.open_checkpoint(demo_path)
    keys = [irwm.generate_key(original, secret=bytes(32), recipient=f"Recipient {n}") for n in range(12)]
    computed, scores = [], Layer0.scores

    def noted(self: Layer0, query: torch.Tensor, reference: torch.Tensor, *rest: Added | None) -> torch.Tensor:
        computed.append((self, tuple(query.tolist()), tuple(reference.tolist())))
        return scores(self, query, reference, *rest)

    monkeypatch.setattr(Layer0, "scores", noted)
    list(irwm.detect_each(irwm.Examination(irwm.open_checkpoint(demo_path), original), keys))
    # Of each model those of the embedding's and of the head's tokens, and those that compare the attention.
    assert len(computed) == len(set(computed)) == 6
