"""Answers of a model, made from its output head and random hidden states, in the file that a recorder writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

import irwm
from irwm.checkpoint.recorded import RecordedAnswers, Requests, Source, write_answers

ENDPOINT, MODEL = "https://api.example.com/v1/completions", "base-7"
# 2026-03-01T10:00:00Z
BEGAN_MS, STEP_MS = 1_772_359_200_000, 500


def answers_of(
    served: irwm.Checkpoint, original: irwm.Checkpoint, count: int, tokens: Sequence[int] | None = None, **source: Any
) -> RecordedAnswers:
    """The answers of a served model to `count` prompts.

    Args:
        served: its head answers.
        original: the recording's original.
        tokens: the tokens in the answers; None for all.
        source: other values of the evidence.
    """
    head = served.likeliest_head.embedding()
    hidden = torch.randn(count, head.shape[1], generator=torch.Generator().manual_seed(3))
    hidden *= 4 / (head.norm(dim=1).median() + 1e-9)
    told = (hidden @ head.T).log_softmax(-1).numpy()
    chosen = None if tokens is None else np.asarray(tokens, dtype=np.int64)
    rng = np.random.default_rng(0)
    digests = [rng.integers(0, 256, (count, 32), dtype=np.uint8) for _ in range(2)]
    requests = Requests(np.arange(count), BEGAN_MS + STEP_MS * np.arange(count), *digests)
    about = Source(ENDPOINT, MODEL, "openai", original.fingerprint, original.vocab_size, 0, "all tokens",
                   "2026-03-01T10:00:00.000Z", "2026-03-01T10:01:00.000Z")  # fmt: skip
    table = told if chosen is None else np.ascontiguousarray(told[:, chosen])
    return RecordedAnswers(
        table, chosen, replace(about, **source), tuple(f"Prompt {i}" for i in range(count)), np.arange(count), requests
    )


def write_recording(
    served: irwm.Checkpoint, original: irwm.Checkpoint, file: Path, count: int = 0, **more: Any
) -> Path:
    """The file of these answers, one and a half times as many as the model is wide unless `count` is given."""
    write_answers(file, answers_of(served, original, count or 3 * original.hidden_size // 2, **more))
    return file
