"""Mark and lineage after alignment, under every function-preserving disguise, on the trained models.

    python -m benchmarks.disguises [demo MiniLM gemma phi3 gpt2] [--write]

One mark (l = 50, t = 10, scale 1000) per model. "All" is every disguise that the family allows, one after another:
columns, signs, rotation, scale, gains, q/k and v/o maps, heads, neurons, row constants, token ids, without a tokenizer
and with every tensor renamed. "Share" is the share of present marked rows with a rank below 0.2.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import irwm
from benchmarks.peers.rows import DROPPED, KEPT, WEIGHTS, Row, Step, halved, noisy, quantised, tuned
from benchmarks.reproduce.models import default_models
from benchmarks.written import write_table
from irwm.attacks.equivalence import applicable

TRIMMED: Step = ("trim_tokens", {"fraction": 0.4, "tokenizer": "drop"})
RENAMED: Step = ("rename_tensors", {"scheme": "scrambled"})
LAYER_NORM: tuple[Step, ...] = ("shift_key_bias", "shift_rows", "shift_tables")
SINGLE: tuple[tuple[str, Step], ...] = (
    ("columns permuted", "permute_residual"),
    ("signs flipped", "flip_signs"),
    ("rotated", "rotate"),
    ("rescaled", "rescale"),
    ("gains folded", "fold_gains"),
    ("gains redrawn", "regain"),
    ("q and k mapped", "map_qk"),
    ("v and o mapped", "map_vo"),
    ("heads reordered", "reorder_heads"),
    ("neurons reordered", "reorder_neurons"),
    ("key bias shifted", "shift_key_bias"),
    ("a constant per row", "shift_rows"),
    ("tables shifted", "shift_tables"),
    ("as a plain Llama", "as_llama"),
    ("tokens reordered, with tokenizer", KEPT),
    ("tokens reordered, no tokenizer", DROPPED),
    ("40 % of tokens trimmed, with tokenizer", ("trim_tokens", {"fraction": 0.4, "tokenizer": "keep"})),
    ("40 % of tokens trimmed, no tokenizer", TRIMMED),
    ("padded in between, no tokenizer", ("pad_tokens", {"interleave": True, "tokenizer": "drop"})),
    ("tensors behind a prefix", ("rename_tensors", {"scheme": "prefix"})),
    ("tensors renamed", RENAMED),
    ("as float16", ("cast", {"dtype": "float16"})),
    ("as float64", ("cast", {"dtype": "float64"})),
)


def models() -> dict[str, Path]:
    """Return the trained models of this repository and its development requirements."""
    return dict(default_models())


def everything(model_dir: Path) -> tuple[Step, ...]:
    """Return all disguises that the model's family allows, except renaming, which hides the family from the others."""
    possible = applicable(model_dir)
    return tuple(step for step in (*WEIGHTS, *LAYER_NORM, DROPPED) if possible[_name(step)] is None)


def rows(model_dir: Path) -> list[Row]:
    """Return each disguise alone, all together, and all together on a changed model."""
    possible = applicable(model_dir)
    all_ = everything(model_dir)
    return [
        *(Row(label, (step,)) for label, step in SINGLE if possible[_name(step)] is None),
        Row("all", (*all_, RENAMED)),
        Row("all, int4", (*all_, RENAMED), quantised),
        Row("all, 40 % trimmed", (TRIMMED, *all_, RENAMED)),
        Row("all, 40 % trimmed, int4", (TRIMMED, *all_, RENAMED), quantised),
        Row("all, noise of 0.3 deviations", (*all_, RENAMED), noisy),
    ]


def share(finding: irwm.Finding) -> float:
    """Return the share of present marked rows that count."""
    return finding.count / max(finding.present, 1)


def _name(step: Step) -> str:
    return step if isinstance(step, str) else step[0]


def lines(path: Path) -> Iterator[str]:
    """Yield the table of one model, line by line."""
    model = irwm.open_checkpoint(path)
    key = irwm.generate_key(model, irwm.Parameters.paper(), secret=bytes(range(32)))
    yield "| disguise | verdict | present | share | log10 p | lineage | similarity | attention | s |"
    yield "|---|---|---|---|---|---|---|---|---|"
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        release = irwm.insert(model, key, work / "release").path
        cases = [(row, release) for row in rows(release)]
        hidden = (*everything(release), RENAMED)
        cases.append((Row("half of the weights pruned, then all", hidden), halved(release, work / "halved")))
        if model.family != "bert":
            cases.append((Row("trained further, then all", hidden), tuned(release, work / "tuned")))
        for row, source in cases:
            suspect = row.build(source, work / "suspect")
            started = time.perf_counter()
            found = irwm.detect(irwm.open_checkpoint(suspect), model, key)
            seconds = time.perf_counter() - started
            kin = found.lineage
            yield (
                f"| {row.label} | {found.verdict} | {found.present} | {share(found):.2f} | {found.log10_p:.0f} "
                f"| {kin.status} | {kin.similarity:.3f} | {kin.attention:.2f} | {seconds:.1f} |"
            )
            shutil.rmtree(work / "suspect", ignore_errors=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="model", help=f"one of {', '.join(models())}; default: all")
    parser.add_argument("--write", action="store_true", help="put the tables into docs/disguises.md")
    options = parser.parse_args()
    for name in options.names or list(models()):
        print(f"\n{name}\n", flush=True)
        measured = []
        for line in lines(models()[name]):
            print(line, flush=True)
            measured.append(line)
        if options.write:
            write_table("disguises.md", name, "\n".join(measured))


if __name__ == "__main__":
    main()
