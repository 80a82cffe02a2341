"""Measure what docs/answers-measured.md says: how much of a copy its answers show.

    python -m benchmarks.answers [--only TABLE] [options of the table] [--write]

Without --only, all tables are measured one after the other, which takes hours; --write puts each into
docs/answers-measured.md.
`python -m benchmarks.answers --only TABLE --help` describes a table.
"""

from __future__ import annotations

import argparse
import importlib
import subprocess
import sys

TABLES = ("text", "limits", "innocents", "colluders", "prompts", "vectors")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, add_help="--only" not in sys.argv
    )
    parser.add_argument("--only", choices=TABLES, help="this table")
    given, options = parser.parse_known_args()
    if given.only:
        importlib.import_module(f"benchmarks.answers.{given.only}").main(options)
        return
    for name in TABLES:
        # Each table's stamp has the command that measures this table alone.
        subprocess.run([sys.executable, "-m", "benchmarks.answers", "--only", name, *options], check=True)


if __name__ == "__main__":
    main()
