"""Releases with the tokenizer of another model, transplanted by the tool that model makers use for this.

    python -m benchmarks.transplant --tool PATH/mergekit-tokensurgeon [--k 64] [--write]

`pip install mergekit` in a separate environment provides the tool (arXiv:2506.06607). It keeps the rows of shared
tokens. Each other row becomes the combination of shared tokens' rows that is closest in the donor's embedding, by
orthogonal matching pursuit. A donor is another of the small trained models, with a tokenizer for Python's source files
and trained further on them. --write puts the table into docs/adaptive.md.
"""

from __future__ import annotations

import argparse
import itertools
import shutil
import subprocess
import sysconfig
import tempfile
from pathlib import Path

import irwm
from benchmarks.adaptive.attacker import TOKENS, cost_of
from benchmarks.reproduce.bench import split_text
from benchmarks.reproduce.models import default_models
from benchmarks.reproduce.page import change
from benchmarks.written import printed_table
from irwm.attacks import finetune
from irwm.attacks.transplant import exchange_tokenizer
from irwm.inference import reference
from irwm.inference.loading import open_tokenizer

SECRET = bytes(range(32))
# The tool refuses models whose output head is the embedding.
UNTIED = ("demo", "phi3", "gpt2")
# Tokens of a donor's tokenizer, as a share of the model's.
SIZES = (1.0, 0.5)
CHARACTERS = 3_000_000
STEPS, RATE = 200, 3e-4


def sources() -> str:
    """Return the beginning of this Python's own source files, in order."""
    text = ""
    for file in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        text += file.read_text(encoding="utf-8", errors="replace")
        if len(text) >= CHARACTERS:
            break
    return text[:CHARACTERS]


def make_donor(model: Path, size: float, scratch: Path, out: Path) -> Path:
    """Give a model a tokenizer for `sources`, and train it further on them."""
    exchange_tokenizer(model, scratch, sources(), size)
    return finetune(scratch, out, sources(), STEPS, RATE)


def transplant(tool: Path, model: Path, donor: Path, k: int, out: Path) -> Path:
    """Write `model` with the tokenizer of `donor` to `out`.

    Raises:
        SystemExit: the tool failed; with the end of its output.
    """
    called = [str(tool), str(model), str(donor), str(out), "-k", str(k)]
    done = subprocess.run(called, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        raise SystemExit(f"{tool.name} {model.name} {donor.name} failed:\n{done.stdout[-2000:]}")
    return out


def shared(model: Path, donor: Path) -> float:
    """Return the share of the donor's tokens that the model has too."""
    ours, theirs = (open_tokenizer(path).get_vocab() for path in (model, donor))
    return len(ours.keys() & theirs.keys()) / len(theirs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tool", type=Path, required=True, help="the program mergekit-tokensurgeon")
    parser.add_argument("--k", type=int, default=64, help="rows in a combination")
    parser.add_argument("--write", action="store_true", help="put the table into docs/")
    options = parser.parse_args()
    if shutil.which(options.tool) is None:
        parser.error(f"there is no program {options.tool}; `pip install mergekit` in an environment of its own has it")
    models = {name: path for name, path in default_models() if name in UNTIED}
    _, measured = split_text(None)
    with printed_table("adaptive.md", "transplant", write=options.write), tempfile.TemporaryDirectory() as folder:
        print("| release | donor | tokens | shared | perplexity | verdict | log10 odds | mark alone | lineage |")
        print("|---|---|---|---|---|---|---|---|---|")
        work = Path(folder)
        for (name, giver), size in itertools.product(itertools.permutations(models, 2), SIZES):
            donor = work / f"donor-{giver}-{size:g}"
            if not donor.exists():
                make_donor(models[giver], size, work / f"untrained-{giver}-{size:g}", donor)
            original = irwm.open_checkpoint(models[name])
            key = irwm.generate_key(original, irwm.one_owner(original.hidden_size), SECRET, "us")
            release = work / f"release-{name}"
            if not release.exists():
                irwm.insert(original, key, release)
            out = transplant(options.tool, release, donor, options.k, work / f"{name}-{donor.name}")
            found = irwm.detect(irwm.open_checkpoint(out), original, key)
            mark = min(found.log10_risk_of(each) for each in found.evidence if each.form == "mark")
            cost = cost_of(reference(release, measured, TOKENS), out)
            print(
                f"| {name} | {giver} | {len(open_tokenizer(donor))} | {100 * shared(release, donor):.0f} % | "
                f"{change(cost)} | {found.verdict} | {found.log10_risk:.0f} | {mark:.0f} | {found.lineage.status} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
