"""Perplexity of a causal language model on a text: the one measurement every figure in this repository uses.

    python tools/perplexity.py MODEL_DIR TEXT_FILE [--window N]

Nothing is downloaded: MODEL_DIR must be a local folder holding weights, config and tokenizer.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Sequence
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

DEFAULT_WINDOW = 256


@torch.no_grad()
def perplexity(model: PreTrainedModel, token_ids: Sequence[int], window: int) -> float:
    """Return exp(mean negative log-likelihood) of `token_ids`, read `window` tokens at a time.

    Each window starts with the last token of the one before it, so every token but the very first is
    predicted exactly once and none is predicted from more than `window - 1` tokens of context.
    The model is left in the mode (training or evaluation) in which it came.
    """
    if window < 2:
        raise ValueError("window must be at least 2: one token of context, one to predict")
    if len(token_ids) < 2:
        raise ValueError("at least 2 tokens are needed to measure a perplexity")

    was_training = model.training
    model.eval()
    ids = torch.tensor(token_ids, dtype=torch.long, device=model.device)
    total = 0.0  # a Python float: summing thousands of losses in float32 would lose the last digits
    try:
        for start in range(0, len(ids) - 1, window - 1):
            chunk = ids[start : start + window]
            logits = model(input_ids=chunk[None], use_cache=False).logits[0, :-1].float()
            total += torch.nn.functional.cross_entropy(logits, chunk[1:], reduction="sum").item()
    finally:
        model.train(was_training)
    mean = total / (len(ids) - 1)
    # Past this point exp() overflows; a model that bad is simply infinitely surprised.
    return math.exp(mean) if mean < 700 else math.inf


def measure(model_dir: Path, text: str, window: int) -> dict[str, float | int]:
    """Load the model in `model_dir` and measure `text`, with the counts needed to read the figure."""
    tokenizer = AutoTokenizer.from_pretrained(model_dir, local_files_only=True)
    # float32 arithmetic on the weights as stored: bfloat16 sums would differ from machine to machine.
    model = AutoModelForCausalLM.from_pretrained(model_dir, local_files_only=True, dtype=torch.float32)
    token_ids = tokenizer(text, verbose=False)["input_ids"]
    return {
        "perplexity": perplexity(model, token_ids, window),
        "tokens": len(token_ids),
        "bytes": len(text.encode("utf-8")),
        "window": window,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Perplexity of a local causal language model on a text file.")
    parser.add_argument("model_dir", type=Path)
    parser.add_argument("text_file", type=Path)
    parser.add_argument(
        "--window", type=int, default=DEFAULT_WINDOW, help="tokens read at a time (default: %(default)s)"
    )
    args = parser.parse_args()
    print(json.dumps(measure(args.model_dir, args.text_file.read_text(encoding="utf-8"), args.window)))


if __name__ == "__main__":
    main()
