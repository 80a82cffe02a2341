"""Cost of the presets, and readings of an undamaged release.

    python -m benchmarks.presets [--models demo MiniLM gemma phi3 gpt2] [--keys 4] [--tokens 16384] [--write]

Several keys are used, since a mark's cost depends on its rows. Perplexity is measured on the bundled text. For an
encoder, the agreement of its hidden states is shown instead. --write puts the table into docs/collusion.md.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np

import irwm
from benchmarks.reproduce.models import default_models
from benchmarks.written import write_table
from irwm.inference import compare, default_text, reference
from irwm.scheme.parameters import many_recipients, one_owner

HEAD = "| model | preset | t | m, β | perplexity | of each key | positions, log10 p | z |\n" + "|---" * 8 + "|"


def presets(d: int) -> dict[str, irwm.Parameters]:
    return {
        "the mark alone": irwm.Parameters(),
        "one owner": one_owner(d),
        "many recipients": many_recipients(d),
        "many recipients, rows hidden": many_recipients(d, hides_rows=True),
        "paper": irwm.Parameters.paper(),
    }


def line(name: str, path: Path, preset: str, params: irwm.Parameters, keys: int, tokens: int) -> str:
    """Return one row of the table."""
    model, text = irwm.open_checkpoint(path), default_text()
    before = reference(path, text, tokens)
    changes, similar, findings, scores = [], [], [], []
    for number in range(1, keys + 1):
        with tempfile.TemporaryDirectory() as folder:
            key = irwm.generate_key(model, params, bytes([number]) * 32, "us", "a recipient")
            release = irwm.insert(model, key, Path(folder) / "release")
            findings.append(release.verification)
            after = compare(before, release.path)
            if after.change is not None:
                changes.append(100 * after.change)
            elif after.similarity is not None:
                similar.append(after.similarity)
            if params.noise_coordinates:
                scores.append(irwm.trace(irwm.open_checkpoint(release.path), model, [key])[0].z)
    if changes:
        cost = f"{np.mean(changes):+.2f} ± {np.std(changes, ddof=1) / np.sqrt(keys):.2f} %"
        each = ", ".join(f"{change:+.2f}" for change in changes)
    else:
        cost, each = f"cosine {np.mean(similar):.5f}", ", ".join(f"{value:.5f}" for value in similar)
    size = "none"
    if params.noise_coordinates:
        size = f"{params.noise_coordinates}, {params.spread or 'written over'}"
    read = f"{min(f.count for f in findings)} of {params.positions}, {max(f.log10_p for f in findings):.0f}"
    z = f"{min(scores):.0f}" if scores else "none"
    return f"| {name} | {preset} | {params.constraints} | {size} | {cost} | {each} | {read} | {z} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    bundled = [name for name, _ in default_models()]
    parser.add_argument("--models", nargs="+", choices=bundled, default=bundled)
    parser.add_argument("--keys", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=16_384)
    parser.add_argument("--write", action="store_true", help="put the table into docs/collusion.md")
    options = parser.parse_args()
    lines = [HEAD]
    print(HEAD, flush=True)
    for name, path in default_models():
        if name in options.models:
            for preset, params in presets(irwm.open_checkpoint(path).hidden_size).items():
                lines.append(line(name, path, preset, params, options.keys, options.tokens))
                print(lines[-1], flush=True)
    if options.write:
        write_table("collusion.md", "presets", "\n".join(lines))


if __name__ == "__main__":
    main()
