"""The process in which AutoRound runs: a request as JSON on standard input, a model folder as the result."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import torch

from irwm.errors import ParameterError
from irwm.inference import open_model


def main(asked: dict[str, Any]) -> None:
    from auto_round import AutoRound

    opened = open_model(asked["model"])
    length, samples = int(asked["length"]), int(asked["samples"])
    ids = torch.tensor(opened.tokenizer(asked["text"], verbose=False, add_special_tokens=False)["input_ids"])
    pieces = min(samples, len(ids) // length)
    if pieces < 1:
        raise ParameterError("the text is too short", expected=f"{length} tokens", found=f"{len(ids)} tokens")
    steps = (len(ids) - length) // max(pieces - 1, 1)
    tool = AutoRound(
        opened.model,
        opened.tokenizer,
        bits=int(asked["bits"]),
        group_size=int(asked["group_size"]),
        iters=int(asked["iterations"]),
        nsamples=pieces,
        seqlen=length,
        batch_size=min(4, pieces),
        dataset=[ids[number * steps : number * steps + length][None] for number in range(pieces)],
        seed=int(asked["seed"]),
        device_map=asked["device"],
    )
    work = Path(asked["out"]).with_name("written")
    tool.quantize_and_save(str(work), format=f"auto_{asked['layout']}")
    # Some versions write into a folder named after the model and the number of bits.
    configs = sorted(work.rglob("config.json"))
    shutil.move(configs[0].parent, asked["out"])


if __name__ == "__main__":
    main(json.load(sys.stdin))
