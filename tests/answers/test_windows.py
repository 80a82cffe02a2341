"""Long sequences are read in windows that fit the model's context."""

from __future__ import annotations

import numpy as np
import pytest

from irwm.inference.likelihood import batches, windows


@pytest.mark.parametrize("context", [2, 3, 16, 100])
def test_each_token_is_predicted_once_and_from_half_of_the_context(context: int) -> None:
    rng = np.random.default_rng(0)
    lengths = rng.integers(2, 90, 50).tolist()
    firsts = [int(rng.integers(1, length)) for length in lengths]
    predicted: list[list[int]] = [[] for _ in lengths]
    for part in windows(lengths, firsts, context):
        assert 0 <= part.start < part.first < part.stop <= lengths[part.sequence]
        assert part.stop - part.start <= context
        assert part.first - part.start >= min(part.first, context // 2)
        predicted[part.sequence] += range(part.first, part.stop)
    assert predicted == [list(range(first, length)) for first, length in zip(firsts, lengths, strict=True)]


def test_batches_hold_every_window_once_within_the_limit() -> None:
    parts = windows([7, 60, 30, 31, 8], [1] * 5, 40)
    vocabulary = (1 << 25) // 64  # logits of 64 tokens fit
    together = batches(parts, vocabulary)
    assert sorted(map(repr, parts)) == sorted(repr(part) for batch in together for part in batch)
    assert len(together) > 1
    for batch in together:
        longest = max(part.stop - part.start for part in batch)
        assert len(batch) == 1 or len(batch) * longest <= 64
