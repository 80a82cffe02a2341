"""The provenance kit of Cisco AI Defense, run as a program in a separate environment.

Reference: PyPI cisco-ai-provenance-kit 1.0.0 (Apache-2.0), code cisco-ai-defense/model-provenance-kit,
docs/scoring-and-model-loading.md. An identity score, the weighted mean of five signals of the weights (embedding
anchors, norm gains, energy by layer, row norms, sampled weights), counts as derived above 0.75
(config/constants.py, SIMILARITY_THRESHOLD). Before that a gate on the config decides: two models of equal
architecture are a "Confirmed Match" with any weights. `score` is the published decision, including the gate;
`score_weights` is the identity score alone, so that the gate does not hide it.

It requires Python 3.12 or newer, unlike this project. `python3.12 -m benchmarks.peers.cisco ENV` makes the environment
with the running Python and prints the program to set in PROVENANCEKIT.

The kit stops if a folder has no tokenizer. In its favour it then gets the original's, as if ids still meant the same
tokens.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import venv
from functools import lru_cache
from pathlib import Path

from benchmarks.peers.score import CannotRun, Score, above, cannot

PACKAGE = "cisco-ai-provenance-kit==1.0.0"
PROGRAM = "PROVENANCEKIT"
THRESHOLD = 0.75
SECONDS = 300


def score(original_dir: Path, suspect_dir: Path) -> Score:
    """Return the kit's decision: config gate first, then the identity score."""
    try:
        scores = compare(Path(original_dir), Path(suspect_dir))
        result = above(_number(scores["pipeline_score"]), THRESHOLD, "pipeline score")
    except CannotRun as error:
        return cannot(str(error))
    return Score(result.value, None, result.says, f"{scores['provenance_decision']}: {result.reason}")


def score_weights(original_dir: Path, suspect_dir: Path) -> Score:
    """Return the kit's identity score by the same threshold, without the gate."""
    try:
        return above(
            _number(compare(Path(original_dir), Path(suspect_dir))["identity_score"]), THRESHOLD, "identity score"
        )
    except CannotRun as error:
        return cannot(str(error))


@lru_cache(maxsize=256)
def compare(original_dir: Path, suspect_dir: Path) -> dict[str, float | None]:
    """Return the "scores" part of the kit's JSON answer.

    Raises:
        CannotRun: PROVENANCEKIT is not set to a program, or the program failed.
    """
    program = os.environ.get(PROGRAM)
    if not program or not Path(program).exists():
        raise CannotRun(f"{PROGRAM} is not set to the provenancekit program; see benchmarks/peers/cisco.py")
    if not (suspect_dir / "tokenizer.json").exists() and (original_dir / "tokenizer.json").exists():
        with tempfile.TemporaryDirectory() as folder:
            completed = Path(shutil.copytree(suspect_dir, Path(folder) / "suspect"))
            for file in original_dir.glob("tokenizer*"):
                shutil.copyfile(file, completed / file.name)
            return _run(program, original_dir, completed)
    return _run(program, original_dir, suspect_dir)


def _run(program: str, original_dir: Path, suspect_dir: Path) -> dict[str, float | None]:
    command = [program, "compare", str(original_dir), str(suspect_dir), "--json", "--no-cache"]
    # The kit downloads models that it does not find on disk from the Hub; a benchmark must not.
    offline = os.environ | {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
    try:
        done = subprocess.run(command, env=offline, capture_output=True, text=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired as error:
        raise CannotRun(f"the kit took longer than {SECONDS} s") from error
    try:
        scores: dict[str, float | None] = json.loads(done.stdout[done.stdout.index("{") :])["scores"]
        return scores
    except (ValueError, KeyError) as error:
        lines = (done.stderr or done.stdout).strip().splitlines()
        raise CannotRun(f"the kit failed: {lines[-1] if lines else 'no output'}") from error


def _number(value: float | None) -> float:
    if value is None or value != value:
        raise CannotRun("the kit returned no score")
    return float(value)


def install(folder: Path) -> Path:
    """Make an environment with the kit and return its program."""
    venv.create(folder, with_pip=True)
    binaries = folder / ("Scripts" if os.name == "nt" else "bin")
    subprocess.run([binaries / "python", "-m", "pip", "install", "--quiet", PACKAGE], check=True)
    return binaries / ("provenancekit.exe" if os.name == "nt" else "provenancekit")


if __name__ == "__main__":
    print(f"{PROGRAM}={install(Path(sys.argv[1]))}")
