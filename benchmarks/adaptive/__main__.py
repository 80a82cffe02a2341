"""An attacker who knows the method, on releases with the default settings: effects on the mark and on the model.

    python -m benchmarks.adaptive [--models demo MiniLM gemma phi3 gpt2] [--presets one many]
                                  [--groups listed literature tuned searched] [--compositions 20] [--write]

"listed": every attack of the catalogue's adaptive group at every strength, stronger ones, then random compositions of
two or three attacks with disguises. In models with a separate output head there are also attacks that spare the head,
where they cost most. The attacker has the release and this repository, but neither key nor original. One preset is
`irwm.one_owner`, the other `irwm.many_recipients` with three recipients. There the column "leak" shows whether tracing
named the copy's recipient and no other. Perplexity is measured on the bundled text. MiniLM, an encoder without an
output head, has none: its cost is the fall of the mean cosine similarity of its outputs.

"literature": attacks on models and on other methods that were published, most of which change the model's size or train
it.

"tuned": the attacker marks the release with own keys, raises each attack's strength until none of these marks is
found, and applies this strength to the release.

"searched": the attacker composes three steps, each the attack and strength that hide his own mark best within a third
of a bound on the cost.

--write puts the tables into docs/adaptive.md, misses first; with all groups also the table of the cheapest copies, and
the figure into docs/images. With --saved, outcomes are
stored in a file when they are ready, and stored outcomes are not computed again. Several runs may share the file.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from benchmarks.adaptive.attacker import (
    GROUPS,
    LISTED,
    LITERATURE,
    PRESETS,
    SEARCHED,
    TUNED,
    Attacker,
    Outcome,
    Saved,
    carried_out,
)
from benchmarks.adaptive.tables import cheapest, curves, own_table, row, table
from benchmarks.reproduce.figures import save
from benchmarks.reproduce.models import default_models
from benchmarks.written import DOCS, require_places, write_table

TABLES = {LISTED: ("measured", table), LITERATURE: ("literature", table), TUNED: ("tuned", own_table),
          SEARCHED: ("searched", own_table)}  # fmt: skip
FIGURE = DOCS / "images" / "adaptive.svg"
CHEAPEST = "cheapest"


def main() -> None:
    models = dict(default_models())
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=models, default=list(models))
    parser.add_argument("--presets", nargs="+", choices=PRESETS, default=list(PRESETS))
    parser.add_argument("--groups", nargs="+", choices=GROUPS, default=list(GROUPS))
    parser.add_argument("--compositions", type=int, default=20)
    parser.add_argument("--saved", type=Path, help="file that stores the outcomes")
    parser.add_argument("--write", action="store_true", help="put tables and figure into docs/")
    options = parser.parse_args()
    # The cheapest of some groups only could be far from the cheapest that is known.
    every = set(options.groups) == set(GROUPS)
    if options.write:  # before hours of work
        places = [TABLES[group][0] for group in options.groups] + [CHEAPEST] * every
        require_places("adaptive.md", places)
    outcomes: list[Outcome] = []
    saved = Saved(options.saved)
    for seed, (name, path) in enumerate(models.items()):
        if name not in options.models:
            continue
        for preset in options.presets:
            with tempfile.TemporaryDirectory() as folder:
                attacker = Attacker(name, path, preset, Path(folder))
                for outcome in carried_out(attacker, options.groups, options.compositions, seed, saved):
                    if isinstance(outcome, str):
                        print(f"not possible: {outcome}", flush=True)
                    else:
                        outcomes.append(outcome)
                        print(row(outcome), flush=True)
    made = {}
    if every:
        made[CHEAPEST] = cheapest(outcomes)
    for group, (name, of) in TABLES.items():
        found = [each for each in outcomes if each.group == group]
        if found:
            made[name] = of(found)
    for name, text in made.items():
        print(f"\n{text}")
        if options.write:
            write_table("adaptive.md", name, text)
    if options.write and every:
        save(curves(outcomes), FIGURE)


if __name__ == "__main__":
    main()
