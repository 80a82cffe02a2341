"""Recipients traced in text that a copy generated."""

from __future__ import annotations

import shutil
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import patch

from benchmarks.speed.claim import MIB, SECRET, Bench, Figure, median, seconds
from benchmarks.speed.task import ROOT, measured

NAME, TITLE = "text", "Generated text"
DEMO = ROOT / "assets" / "demo"
RECIPIENTS, ANSWERS, TOKENS = 300, 64, 126
# Answers, and tokens of each, at the geometry of an 8B model.
LARGE = (4, 64)
# Tokens and layers for which the time is extrapolated: a long recording, and Llama-3-8B.
WANTED, LAYERS = 8064, 32


def serve(model: str, out: str, answers: int) -> dict[str, Any]:
    """Answer prompts from a recipient's copy, and write tokens and log-probabilities to `out`."""
    import numpy as np

    import irwm
    from tools.generating import PROMPT, prompts, served

    original = irwm.open_checkpoint(model)
    params = irwm.many_recipients(original.hidden_size)
    key = irwm.generate_key(original, params, secret=SECRET, recipient="Recipient 0")
    irwm.insert(original, key, Path(out) / "copy")
    found = served(Path(out) / "copy", prompts(Path(model), answers), TOKENS)
    assert found.log_probabilities is not None
    np.savez(Path(out) / "answers.npz", sequences=found.sequences, told=found.log_probabilities, prompt=PROMPT)
    return {}


def draw(model: str, out: str, answers: int, tokens: int) -> dict[str, Any]:
    """Write random tokens to `out`: time does not depend on which they are."""
    import numpy as np

    import irwm

    vocabulary = irwm.open_checkpoint(model).vocab_size
    sequences = np.random.default_rng(0).integers(0, vocabulary, (answers, tokens + 1))
    np.savez(Path(out) / "answers.npz", sequences=sequences, prompt=1)
    return {}


def trace(model: str, answers: str, recipients: int, fits: int, layer_by_layer: bool) -> dict[str, Any]:
    """Trace all recipients, with the log-probabilities if there are any, and with fits of so many steps."""
    import numpy as np

    import irwm
    from irwm.answers import Fits

    original = irwm.open_checkpoint(model)
    params = irwm.many_recipients(original.hidden_size)
    keys = [
        irwm.generate_key(original, params, secret=SECRET, recipient=f"Recipient {number}")
        for number in range(recipients)
    ]
    with np.load(answers) as kept:
        sequences = list(kept["sequences"])
        given = irwm.Answers(sequences, [int(kept["prompt"])] * len(sequences), kept.get("told"))
    no_memory = patch("irwm.answers.reading.free_memory", return_value=0)
    began = time.perf_counter()
    with no_memory if layer_by_layer else nullcontext():
        # An innocent first key ends no tries: with its own recipient left out, every fit is made.
        traces = irwm.trace_answers(
            given, original, keys[1:] if fits else keys, fits=Fits(steps=fits) if fits else None
        )
    took = time.perf_counter() - began
    return {"trace": took, "tokens": given.tokens, "keys": len(traces), "z": max(each.z for each in traces)}


STEPS = {"serve": serve, "draw": draw, "trace": trace}


def measure(bench: Bench) -> dict[str, Any]:
    from irwm.answers import Fits

    out = bench.folder / "text"
    out.mkdir()
    answers, recipients, steps = (8, 4, 2) if bench.quick else (ANSWERS, RECIPIENTS, Fits().steps)
    model = str(bench.model())
    (out / "large").mkdir()

    def run(name: str, **arguments: Any) -> dict[str, Any]:
        return measured(NAME, name, bench.threads, **arguments)

    def traced(model: str, answers: Path, count: int, fits: int = 0, layers: bool = False) -> dict[str, Any]:
        file = str(answers / "answers.npz")
        found = run("trace", model=model, answers=file, recipients=count, fits=fits, layer_by_layer=layers)
        bench.say(f"  {found}")
        return found

    try:
        run("serve", model=str(DEMO), out=str(out), answers=answers)
        run("draw", model=model, out=str(out / "large"), answers=LARGE[0], tokens=LARGE[1])
        return {
            "one": [traced(str(DEMO), out, 1) for _ in range(bench.repeats)],
            "all": [traced(str(DEMO), out, recipients) for _ in range(bench.repeats)],
            "fits": [traced(str(DEMO), out, 2, fits=steps)],
            "large": [traced(model, out / "large", 1, layers=True)],
            "layers": bench.size.layers,
            "parameters": _parameters(Path(model)),
            "recipients": recipients,
        }
    finally:
        shutil.rmtree(out)


def _parameters(model: Path) -> int:
    import irwm

    return sum(shard.stat().st_size for shard in irwm.open_checkpoint(model).shards) // 2


def figures(result: dict[str, Any]) -> list[Figure]:
    return []


def details(result: dict[str, Any]) -> list[str]:
    one, everyone, fits, large = (result[name] for name in ("one", "all", "fits", "large"))
    few = f"{1000 * (median(everyone, 'trace') - median(one, 'trace')) / (result['recipients'] - 1):.0f} ms"
    hours = median(large, "trace") / 3600 * WANTED / large[0]["tokens"] * LAYERS / result["layers"]
    return [
        f"**The demo model**: {one[0]['tokens']} tokens with log-probabilities from a recipient's copy, traced to one "
        f"recipient, take {seconds(one, 'trace', 1)} and {median(one, 'peak') / MIB:.0f} MiB, z "
        f"{median(one, 'z'):.1f}. Among {result['recipients']} recipients they take {seconds(everyone, 'trace', 1)}: "
        f"each further recipient takes {few}. When neither the first try nor a fit names a recipient, both fits are "
        f"made, and it takes {seconds(fits, 'trace', 0)}.",
        f"**8B geometry**, {result['layers']} layers, {result['parameters'] / 1e9:.1f} billion parameters in all, in "
        f"float32 and layer by layer: {large[0]['tokens']} tokens of text alone take {seconds(large, 'trace', 0)} and "
        f"{median(large, 'peak') / 2**30:.1f} GiB. At most one layer's weights are in memory. The time is at "
        f"most proportional to the numbers of layers and tokens: {WANTED:,} tokens in {LAYERS} layers take at most "
        f"{hours:.1f} hours.",
    ]
