"""`python -m irwm.inference`: two models on a text, or benchmarks, as JSON on the standard output."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from irwm.errors import IrwmError


def main(arguments: Sequence[str] | None = None) -> int:
    """0, or 1 with the error on the standard error."""
    parser = argparse.ArgumentParser(prog="python -m irwm.inference", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    two = commands.add_parser(
        "compare", help="measure the perplexity, divergence and agreement of two models on a text"
    )
    two.add_argument("original", type=Path)
    two.add_argument("other", type=Path)
    two.add_argument("--text", type=Path, help="a UTF-8 text file (default: the bundled text)")
    two.add_argument(
        "--tokens", type=int, default=4096, help="maximum number of tokens from the text (default: %(default)s)"
    )
    two.add_argument("--same-function", action="store_true", help="also check that all logits are equal up to rounding")
    some = commands.add_parser("benchmark", help="run lm-evaluation-harness tasks on one or more models")
    some.add_argument("models", type=Path, nargs="+")
    some.add_argument("--tasks", required=True, help="comma-separated task names")
    some.add_argument("--task-folder", type=Path, help="a folder with your own tasks")
    some.add_argument("--limit", type=int, help="maximum number of questions per task (default: all)")
    some.add_argument("--batch", type=int, default=1, help="questions per batch (default: %(default)s)")
    some.add_argument("--shots", type=int, help="examples before each question (default: the task's own number)")
    some.add_argument("--download", action="store_true", help="let the harness download missing data")
    for command in (two, some):
        command.add_argument("--device", default="cpu", help="cpu or cuda (default: %(default)s)")
    options = parser.parse_args(arguments)
    try:
        found = _compare(options) if options.command == "compare" else _benchmark(options)
    except (IrwmError, OSError, UnicodeDecodeError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(json.dumps(found, indent=2, ensure_ascii=False) + "\n")
    return 0


def _compare(options: argparse.Namespace) -> dict[str, object]:
    from irwm.inference import compare, default_text, reference, same_function

    text = default_text() if options.text is None else options.text.read_text(encoding="utf-8")
    made = reference(options.original, text, options.tokens, options.device)
    found: dict[str, object] = compare(made, options.other).to_dict()
    if options.same_function:
        found["same_function"] = same_function(made, options.other).to_dict()
    return found


def _benchmark(options: argparse.Namespace) -> dict[str, object]:
    if not options.download:  # set before the libraries that read it are imported
        os.environ.update({"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"})
    from irwm.inference.harness import evaluate

    tasks = [name for name in options.tasks.split(",") if name]
    return {
        str(model): [
            asdict(score)
            for score in evaluate(
                model,
                tasks,
                options.task_folder,
                device=options.device,
                limit=options.limit,
                batch=options.batch,
                shots=options.shots,
            )
        ]
        for model in options.models
    }


if __name__ == "__main__":
    sys.exit(main())
