"""Perplexity of a causal language model on a text: the measurement behind every such figure in this repository.

    python -m tools.perplexity MODEL_DIR TEXT_FILE [--window N]

It downloads nothing: MODEL_DIR must be a local folder with weights, config and tokenizer. `python -m irwm.inference`
compares two models by the same measurement.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from irwm.inference import open_model
from irwm.inference.loading import Opened
from irwm.inference.reference import losses
from irwm.inference.text import WINDOW, causal, exp_mean


def perplexity(opened: Opened, token_ids: Sequence[int], window: int) -> float:
    """Return exp(mean negative log-likelihood) of `token_ids`, read `window` tokens at a time.

    Each window starts with the last token of the one before it, so every token but the very first is
    predicted exactly once, from at most `window - 1` tokens of context.
    """
    if window < 2:
        raise ValueError("window must be at least 2: one token of context, one to predict")
    if len(token_ids) < 2:
        raise ValueError("at least 2 tokens are needed to measure a perplexity")
    return exp_mean(losses(opened, causal(token_ids, window)).mean().item())


def measure(model_dir: Path, text: str, window: int) -> dict[str, float | int]:
    """Load the model in `model_dir` and measure `text`, with the counts needed to read the figure."""
    opened = open_model(model_dir)
    token_ids = opened.tokenizer(text, verbose=False)["input_ids"]
    return {
        "perplexity": perplexity(opened, token_ids, window),
        "tokens": len(token_ids),
        "bytes": len(text.encode("utf-8")),
        "window": window,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Perplexity of a local causal language model on a text file.")
    parser.add_argument("model_dir", type=Path)
    parser.add_argument("text_file", type=Path)
    parser.add_argument("--window", type=int, default=WINDOW, help="tokens read at a time (default: %(default)s)")
    args = parser.parse_args()
    print(json.dumps(measure(args.model_dir, args.text_file.read_text(encoding="utf-8"), args.window)))


if __name__ == "__main__":
    main()
