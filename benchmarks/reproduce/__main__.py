"""Run the paper's experiments and write their pages.

    python -m benchmarks.reproduce [MODEL_DIR ...] [--out FOLDER] [--only EXPERIMENT ...] [--quick] [--resume]

A model is a folder of safetensors with config and tokenizer, or NAME=FOLDER. The default is the trained models of
this repository and of its development requirements. Results are kept as JSON in the output folder's `cache`. With
--resume, results in the cache are not measured again, and an interrupted run continues.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any

from benchmarks.reproduce import (
    adaptive,
    attacks,
    collusion,
    detection,
    efficiency,
    fidelity,
    finetuning,
    ownership,
    pruning,
    quantisation,
    scripts,
    survival,
)
from benchmarks.reproduce.bench import FULL, QUICK, TRAINED_ON, Bench, split_text
from benchmarks.reproduce.models import Model, ModelError, open_models
from benchmarks.reproduce.page import Page, Record, table
from benchmarks.sources import digest, module_of
from benchmarks.written import stamp
from irwm.errors import IrwmError

ROOT = Path(__file__).resolve().parents[2]
# Timings first, while no other work runs; survival early, since the others reuse most of its trials.
ORDER = (
    efficiency, survival, adaptive, attacks, scripts, detection, pruning, quantisation, finetuning, collusion, fidelity,
    ownership,
)  # fmt: skip
PAGES = (
    attacks, scripts, detection, efficiency, fidelity, pruning, quantisation, finetuning, collusion, ownership,
    survival, adaptive,
)  # fmt: skip
EXPERIMENTS: dict[str, ModuleType] = {module.NAME: module for module in PAGES}
# Experiments that train all weights of a model.
TRAINING = {"finetuning", "survival", "attacks", "adaptive"}


def run(
    bench: Bench, only: Sequence[str], out: Path, about: dict[str, Any], began: float, resumed: bool = False
) -> list[Path]:
    """Measure the chosen experiments and write their pages; the overview too if every experiment has these models."""
    names = [model.name for model in bench.models]
    written, lines = [], {}
    for module in ORDER:
        if module.NAME in only:
            bench.say(module.TITLE)
            start = time.perf_counter()
            file = bench.cache / f"{module.NAME}.json"
            file.unlink(missing_ok=True)  # cached parts are not measured again
            made = _measured(bench, module, names)
            page = Page(out, module.NAME, module.TITLE)
            _preface(page, about, module.NAME)
            module.write(page, made["results"], about["models"])
            written.append(page.write())
            bench.say(f"{module.TITLE}: {time.perf_counter() - start:.0f} s")
    for module in PAGES:
        kept = bench.kept(module.NAME, dict) if (bench.cache / f"{module.NAME}.json").is_file() else {}
        if kept.get("models") == names:
            lines[module.NAME] = module.headline(kept["results"])
    if len(lines) == len(PAGES):
        whole = sorted(only) == sorted(EXPERIMENTS) and not resumed
        took = f" This run took {spent(began)}." if whole else ""
        written.append(_overview(out, about | {"took": took}, lines))
    return written


def _preface(page: Page, about: Record, name: str) -> None:
    command = f"{about['command']} --only {name}"
    page.text(stamp(command, digest(module_of("benchmarks.reproduce", command))).rstrip())
    page.text(f"`{command}`. [Models, machine and all experiments](README.md).")


def _measured(bench: Bench, module: ModuleType, names: Sequence[str]) -> Record:
    made: Record = bench.kept(module.NAME, lambda: {"models": names, "results": module.measure(bench)})
    return made


def spent(began: float) -> str:
    """Elapsed time, and the processor time of this process and of its workers."""
    minutes = sum(os.times()[:4]) / 60
    return f"{(time.monotonic() - began) / 60:.0f} minutes, {minutes:.0f} of the processor"


def _overview(out: Path, about: Record, lines: dict[str, str]) -> Path:
    text = [
        "# The paper's experiments, reproduced",
        "",
        stamp(about["command"], digest("benchmarks.reproduce")),
        f"Written by `{about['command']}` (`make reproduce`), which runs every experiment of *Invariant-based Robust "
        "Weights Watermark for Large Language Models* (arXiv:2507.08288) on your own model folders. No page is "
        "edited manually. The paper's numbers, if there are any, are next to ours. Each page ends with all differences "
        "in settings.",
        "",
        "The paper used Llama3-8B, Phi3-4B and Gemma-2B, of 2 to 8 billion parameters, on an NVIDIA A800; the largest "
        f"model here has {_count(max(m['parameters'] for m in about['models']))}. If you have the paper's models: "
        '`make reproduce DEVICE=cuda MODELS="/models/Llama-3-8B /models/Phi-3-mini /models/gemma-2b"`. It prints '
        "the memory that it needs before it starts.",
        "",
        "## Models",
        "",
        *table(
            ("name", "family", "parameters", "hidden size", "layers", "vocabulary", "dtype"),
            [
                [m["name"], m["family"], _count(m["parameters"]), m["hidden"], m["layers"], m["vocabulary"], m["dtype"]]
                for m in about["models"]
            ],
        ),
        "",
        "## Results in one sentence each",
        "",
        *table(
            ("experiment", "here"),
            [[f"[{module.TITLE}]({module.NAME}.md)", lines[module.NAME]] for module in PAGES],
        ),
        "",
        "## Terms and readings",
        "",
        "- `sum` with A of the suspect is the paper's statistic; `joint` with A of the original is the product's "
        "([method.md](../method.md)). The paper's rule is met if at least ρ = 30 of 50 positions have a rank below "
        "β = 0.2. *Found* is the product's verdict: odds of at most 10^-6 for a model without the mark.",
        "- Single and multi: the paper's best setting, t = 10, 50 positions, scale 1000, in multi with noise at one "
        "level in 10 coordinates of each row. The paper does not state the noise; [the scripts](scripts.md) do. "
        "Hidden: the product's preset that hides marked rows, with t and noise of hidden size / 32, at most 10, each "
        "row's own level, and scale `auto`. Any other t is stated. The product's default preset for many recipients "
        "adds a fingerprint instead and costs less ([cost](../collusion.md)).",
        "- The paper's invariant, as printed, is one number, but d numbers are needed. It counts by > in listings and "
        "by ≥ in the equations. It does not define \"detection rate\". method.md explains how we read each of these, "
        "and [the published scripts](scripts.md) how others did.",
        f"- Attackers train on the first {100 * TRAINED_ON:.0f} % of {about['text']}; utility is measured on "
        f"at most {about['tokens']} tokens of the rest.",
        f"- {about['machine']}; {about['versions']}. Seeds are fixed: a second run gives the same numbers, apart from "
        f"seconds and rounding on other processors.{about['took']}",
    ]  # fmt: skip
    path = out / "README.md"
    path.write_text("\n".join(text) + "\n", encoding="utf-8")
    return path


def _count(number: int) -> str:
    return f"{number:,}".replace(",", " ")


def _about(options: argparse.Namespace, bench: Bench) -> dict[str, Any]:
    names = " ".join(f"{m.name}=…" for m in bench.models) if options.models else ""
    flags = " --quick" if options.quick else ""
    packages = ", ".join(f"{name} {version(name)}" for name in ("torch", "transformers", "numpy", "scipy"))
    return {
        "command": f"python -m benchmarks.reproduce{' ' + names if names else ''}{flags}",
        "models": [model.to_dict() for model in bench.models],
        "tokens": bench.sizes.tokens,
        "text": "the bundled text (irwm/inference/heldout.txt)" if options.text is None else "the owner's text",
        "machine": f"{bench.cores} cores, {bench.workers} trials at a time, models on {bench.device}",
        "versions": packages,
    }


def _prepare(cache: Path, only: Sequence[str], settings: Record, models: Sequence[Model], resume: bool) -> None:
    """Delete the results that will be measured again, and record the run's settings and models.

    Raises:
        ModelError: the results to resume have other settings, or another model with the same name.
    """
    file = cache / "run.json"
    before = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    prints = {model.name: model.fingerprint for model in models}
    known = before.get("models", {})
    if resume:
        other = [name for name in prints if known.get(name, prints[name]) != prints[name]]
        other += [name for name, value in settings.items() if before and before["settings"].get(name) != value]
        if other:
            raise ModelError(
                "the cached results belong to another run", file=cache, found=f"another {', '.join(other)}",
                advice="Run without --resume, or use another folder",
            )  # fmt: skip
    else:
        for name in only:
            (cache / f"{name}.json").unlink(missing_ok=True)
            shutil.rmtree(cache / "parts" / name, ignore_errors=True)
        shutil.rmtree(cache / "trials", ignore_errors=True)
    cache.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"settings": settings, "models": known | prints}, indent=1), encoding="utf-8")


def needed(models: Sequence[Model], only: Sequence[str], workers: int, device: str) -> str:
    """Return a sentence with the least memory for the largest model: exact for its weights, without text and libraries.

    A model runs on its weights as float32. Training all weights needs their gradients and Adam's two moments too, each
    as float32. On a processor each worker runs, or trains, one model.
    """
    largest = max(models, key=lambda model: model.parameters)
    running, trained = (f"{times * 4 * workers * largest.parameters / 1e9:.1f} GB" for times in (1, 4))
    training = f", and {trained} while it is fine-tuned" if TRAINING & set(only) else ""
    return f"On {device} {largest.name} takes at least {running} of memory{training}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.reproduce", description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", metavar="MODEL_DIR", help="a model folder, or NAME=FOLDER")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "reproduction", help="folder of the pages")
    parser.add_argument("--only", action="append", choices=EXPERIMENTS, metavar="EXPERIMENT",
                        help=f"one of {', '.join(EXPERIMENTS)}; may be given several times")  # fmt: skip
    parser.add_argument("--quick", action="store_true", help="a small part of each experiment, as a smoke test")
    parser.add_argument("--resume", action="store_true", help="reuse the cached results")
    parser.add_argument("--text", type=Path, help="a text file to train on and measure utility with")
    parser.add_argument("--device", default="cpu", help="device for marking, training and running models")
    parser.add_argument("--workers", type=int, help="parallel trials; default: number of cores, or 1 on a GPU")
    parser.add_argument("--scratch", type=Path, help="folder for intermediate models; default: a temporary folder")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    only = options.only or list(EXPERIMENTS)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    workers = options.workers or (cores if options.device == "cpu" else 1)
    out = options.out.resolve()
    cache = out / "cache"
    began = time.monotonic()
    try:
        models = open_models(options.models)
        train, measured = split_text(options.text)
        sizes = QUICK if options.quick else FULL
        text = hashlib.sha256((train + measured).encode()).hexdigest()
        _prepare(cache, only, {"sizes": repr(sizes), "device": options.device, "text": text}, models, options.resume)
        (cache / ".gitignore").write_text("*\n")
        with tempfile.TemporaryDirectory(prefix="irwm-reproduce-", dir=options.scratch) as scratch:
            bench = Bench(
                models, sizes, cache, Path(scratch), train, measured, options.device,
                workers, cores,
            )  # fmt: skip
            bench.say(needed(models, only, workers, options.device))
            for path in run(bench, only, out, _about(options, bench), began, options.resume):
                print(path)
            bench.say(f"Done in {spent(began)}")
    except IrwmError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
