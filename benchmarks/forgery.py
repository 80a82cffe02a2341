"""Gains of a false claimant by searching, and how the method prevents them.

    python -m benchmarks.forgery [--parts permutations keys parameters names] [--write]

All parts use the unmarked demo model, so every mark that is "found" is forged:

permutations: the paper stores one permutation per row in the key. A claimant who chooses them can try some per row and
keep the best. The count rule of Algorithms 3 and 6 is then met on any model. Our keys hold no permutations.

keys: our keys are derived from one secret, so only whole keys can be tried. The best of n tries is what chance gives:
odds of 1 in n, log2 n bits.

parameters: a claimant may choose a mark's parameters within their ranges. The program tries settings on trial keys,
keeps the settings that seem to fit an unmarked model best, and makes 10 000 fresh keys with them. No key is selected.

names: the tokenizer next to the original is not part of any key. The strings of positions that do not fit are renamed,
so that their rows look missing and the others stay. Detection finds such rows by their content.

--write puts the tables into docs/ownership.md.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import irwm
from benchmarks.written import write_table
from irwm.evidence.decoys import share_below
from irwm.evidence.detection import reading_of
from irwm.evidence.finding import Reading
from irwm.evidence.verdict import log10_risk
from irwm.ownership.key_search import evidence_bits
from irwm.scheme import statistic as stat
from irwm.scheme.condition import permute_rows
from irwm.scheme.invariant import invariant
from irwm.scheme.permutations import NullOrders

ROOT = Path(__file__).resolve().parents[1]
DEMO = ROOT / "assets" / "demo"
TRIES = (1, 5, 20, 200, 20_000)
KEYS = (1, 10, 100, 500)
# Number of tried settings, keys per setting, kept settings, and keys made with these.
SETTINGS, TRIAL_KEYS, KEPT, FORGED = 80, 40, 4, 10_000
LEVELS = (-1, -2, -3, -4)
_BLOCK = 5000


def read(model: irwm.Checkpoint, key: irwm.Key, statistic: str, order: NDArray[np.int64] | None = None) -> Reading:
    """Run the bare arithmetic of Algorithm 3 on the model, with a key's permutations or with others (l, d)."""
    weights, rows, derived = _parts(model, key, statistic)
    shuffled = stat.normalised(np.take_along_axis(rows, derived if order is None else order, axis=1))
    null = stat.null_lengths(weights, shuffled, NullOrders.of(0, key.parameters.permutations, *rows.shape))
    return reading_of(statistic, "original", stat.lengths(weights, shuffled), null, key.parameters)


def best_permutations(
    model: irwm.Checkpoint, key: irwm.Key, statistic: str, tries: int, seed: int = 0
) -> NDArray[np.int64]:
    """Return (l, d) the best of `tries` random permutations for each of the key's rows, as a free choice allows."""
    weights, rows, _ = _parts(model, key, statistic)
    rng = np.random.default_rng(seed)
    d = rows.shape[1]
    best, lowest = np.zeros(rows.shape, dtype=np.int64), np.full(len(rows), np.inf)
    for start in range(0, tries, _BLOCK):
        # All rows use the same draw of permutations, and each keeps the best one.
        drawn = rng.permuted(np.tile(np.arange(d), (min(_BLOCK, tries - start), 1)), axis=1)
        for i, row in enumerate(rows):
            found = np.linalg.norm(row[drawn] @ weights.T, axis=1)
            at = int(found.argmin())
            if found[at] < lowest[i]:
                best[i], lowest[i] = drawn[at], found[at]
    return best


def _parts(
    model: irwm.Checkpoint, key: irwm.Key, statistic: str
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int64]]:
    choices = key.choices()
    a_m = invariant(model, choices.query_tokens, choices.reference_tokens).cpu().numpy()
    permuted = permute_rows(a_m, choices.constraint_permutations)
    weights = stat.sum_map(permuted, key.scale) if statistic == "sum" else stat.joint_map(permuted, key.scale)
    return weights, model.embedding(choices.marked_rows).double().numpy(), choices.row_permutations


def whole_keys(model: irwm.Checkpoint, params: irwm.Parameters, count: int) -> NDArray[np.float64]:
    """Return (count,) log10 of Fisher's p of honest keys on the unmarked model."""
    risks = np.empty(count)
    for i in range(count):
        key = irwm.generate_key(model, params, secret=i.to_bytes(32, "big"), owner="Searcher")
        risks[i] = read(model, key, "joint").log10_p
    return risks


def renamed(model: irwm.Checkpoint, tokens: NDArray[np.int64], folder: Path) -> irwm.Checkpoint:
    """Copy the model and change only the strings of these tokens in its tokenizer."""
    shutil.copytree(model.path, folder)
    file = folder / "tokenizer.json"
    tokenizer = json.loads(file.read_text(encoding="utf-8"))
    chosen = set(tokens.tolist())
    vocabulary = tokenizer["model"]["vocab"]
    tokenizer["model"]["vocab"] = {(f"{token}\ufff9" if i in chosen else token): i for token, i in vocabulary.items()}
    file.write_text(json.dumps(tokenizer), encoding="utf-8")
    return irwm.open_checkpoint(folder)


def permutations_table(model: irwm.Checkpoint) -> str:
    key = irwm.generate_key(model, irwm.Parameters.paper(), secret=bytes(32), owner="Forger")
    lines = [
        "| permutations tried per row | in all | paper's rule (`sum`, 30 of 50) | `joint`, if it were allowed | "
        "log10 odds (`sum`) |",
        "|---:|---:|---:|---:|---:|",
    ]
    for tries in TRIES:
        ours, theirs = (
            read(model, key, statistic, best_permutations(model, key, statistic, tries))
            for statistic in ("joint", "sum")
        )
        passes = "passes" if theirs.passes else "fails"
        lines.append(
            f"| {tries:,} | {50 * tries:,} | {theirs.count} of 50, {passes} | {ours.count} of 50 | "
            f"{log10_risk(theirs):.1f} |"
        )
    return "\n".join(lines)


def keys_table(model: irwm.Checkpoint) -> str:
    risks = whole_keys(model, irwm.Parameters(permutations=199), max(KEYS))
    lines = [
        "| whole keys tried | smallest p found | chance gives | bits gained | log2 of tries |",
        "|---:|---:|---:|---:|---:|",
    ]
    for count in KEYS:
        best = float(risks[:count].min())
        lines.append(
            f"| {count:,} | {10**best:.2g} | {1 / count:.2g} | {evidence_bits(best):.1f} | {math.log2(count):.1f} |"
        )
    return "\n".join(lines)


def settings(number: int) -> list[irwm.Parameters]:
    """Return settings within the allowed ranges, mostly at their ends, without noise."""
    rng = np.random.default_rng(0)
    drawn: list[irwm.Parameters] = []
    while len(drawn) < number:
        positions = int(rng.choice([1, 2, 10, 50, 200]))
        threshold = float(rng.choice([0.01, 0.2, 0.5]))
        drawn.append(
            irwm.Parameters(
                positions=positions,
                required_positions=1,
                constraints=int(rng.choice([2, 3, 10, 64])),
                scale=[1.0, 30.0, 1000.0, 10_000.0][rng.integers(4)],
                hidden=bool(rng.integers(2)),
                condition_limit=10_000.0,
                rank_threshold=threshold,
                permutations=int(rng.choice([99, 100, 200 if positions > 50 else 1000])),
            )
        )
    return drawn


def risks_of(model: irwm.Checkpoint, params: irwm.Parameters, secrets: range) -> NDArray[np.float64]:
    """Return log10 p of honest keys on the unmarked model, as a verdict uses it, without correction."""
    keys = [irwm.generate_key(model, params, n.to_bytes(32, "big"), "Forger") for n in secrets]
    examination = irwm.Examination(model, model)
    return np.array([found.reading.log10_either for found in irwm.detect_each(examination, keys)])


def parameters_table(model: irwm.Checkpoint) -> str:
    tried = settings(SETTINGS)
    # An unmarked model gives a mean of at most 1 for -ln p.
    fits = [-math.log(10) * risks_of(model, params, range(TRIAL_KEYS)).mean() for params in tried]
    best = [tried[i] for i in np.argsort(fits)[::-1][:KEPT]]
    lines = [
        f"| l, t, scale, N, hidden, threshold | keys | lowest log10 p | {' | '.join(f'≤ 10^{n}' for n in LEVELS)} |",
        "|---|---:|---:|" + "---|" * len(LEVELS),
    ]
    everything = []
    for i, params in enumerate(best):
        first = TRIAL_KEYS + i * FORGED
        risks = risks_of(model, params, range(first, first + FORGED // KEPT))
        everything.append(risks)
        name = f"{params.positions}, {params.constraints}, {params.scale:g}, {params.permutations}, "
        lines.append(_shares(name + f"{'yes' if params.hidden else 'no'}, {params.rank_threshold:g}", risks))
    lines.append(_shares("all", np.concatenate(everything)))
    return "\n".join(lines)


def _shares(name: str, risks: NDArray[np.float64]) -> str:
    cells = [name, f"{risks.size:,}", f"{risks.min():.1f}"]
    for level in LEVELS:
        share = share_below(risks, level)
        cells.append(f"{share['share']:.3g} ({share['low']:.2g} to {share['high']:.2g})")
    return f"| {' | '.join(cells)} |"


def names_table(model: irwm.Checkpoint) -> str:
    params = irwm.Parameters.paper(positions=400, required_positions=240)
    key = irwm.generate_key(model, params, secret=bytes(32), owner="Forger")
    honest = irwm.detect(model, model, key)
    unfit = honest.marked_rows[honest.ranks >= params.rank_threshold]
    kept = honest.ranks[honest.ranks < params.rank_threshold]
    believed = replace(
        honest.reading, log10_p_count=kept.size * math.log10(params.rank_threshold), count=kept.size, present=kept.size
    )
    with tempfile.TemporaryDirectory() as folder:
        forged = irwm.detect(model, renamed(model, unfit, Path(folder) / "model"), key)
    return "\n".join(
        [
            "| tokenizer next to the original | positions below .2 | log10 odds | verdict |",
            "|---|---:|---:|---|",
            f"| unchanged | {honest.count} of {honest.present} | {log10_risk(honest.reading):.1f} | {honest.verdict} |",
            f"| {unfit.size} names changed, names believed | {kept.size} of {kept.size} | {log10_risk(believed):.1f} | "
            "would be found |",
            f"| {unfit.size} names changed, our reading | {forged.count} of {forged.present} | "
            f"{log10_risk(forged.reading):.1f} | {forged.verdict} |",
        ]
    )


PARTS = {
    "permutations": permutations_table,
    "keys": keys_table,
    "parameters": parameters_table,
    "names": names_table,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="put the tables into docs/ownership.md")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS), help="which tables; default: all")
    options = parser.parse_args()
    model = irwm.open_checkpoint(DEMO)
    for name in options.parts:
        text = PARTS[name](model)
        print(f"\n{name}\n\n{text}", flush=True)
        if options.write:
            write_table("ownership.md", name, text)


if __name__ == "__main__":
    main()
