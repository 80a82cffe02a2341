"""How much function-preserving transforms change the outputs, in multiples of the change by rounding alone.

    python -m benchmarks.same_function [--write]

The factor `irwm.inference.same_function.SLACK` is between the greatest value of a preserved function here and the value
of the lightest real damage. It uses three trained models, the bundled text, and the root mean square of all differences
of logits. --write puts the table into docs/utility.md.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from benchmarks.written import printed_table
from irwm.attacks import prune, quantize
from irwm.attacks.equivalence import TRANSFORMS, Step, apply, read_state, write_state
from irwm.inference import Reference, SameFunction, default_text, reference, same_function
from irwm.inference.same_function import SLACK

ROOT = Path(__file__).resolve().parents[1]
MODELS = {
    "demo (Llama)": ROOT / "assets" / "demo",
    "Gemma": ROOT / "tests" / "models" / "gemma",
    "Phi-3": ROOT / "tests" / "models" / "phi3",
}
TOKENS = 1024
# Kinds of transforms, ordered by how much they rewrite. Transforms that a model does not allow are left out.
KINDS: dict[str, list[list[Step]]] = {
    "other orders of tokens, heads, neurons, coordinates; signs": [
        ["permute_residual"], ["flip_signs"], ["reorder_heads"], ["reorder_neurons"], ["reorder_tokens"],
    ],
    "maps of queries, keys and values": [["map_qk"], ["map_vo"]],
    "folded gains, a rotation": [["fold_gains"], ["rotate"]],
    "new gains": [["regain"]],
    "a scaled stream": [["rescale"]],
    "seven transforms in sequence": [
        ["rotate", "map_qk", "map_vo", "reorder_heads", "reorder_neurons", "regain", "reorder_tokens"],
    ],
}  # fmt: skip
DAMAGES: dict[str, Callable[[Path, Path], Path]] = {
    "pruning of 10 %": lambda model, out: prune(model, out, 0.1),
    "pruning of 2 %": lambda model, out: prune(model, out, 0.02),
    "rounding to 8 bits in groups of 32": lambda model, out: quantize(model, out, 8),
}


def multiple(found: SameFunction) -> float:
    """Return the root mean square of the differences, in units of the change by rounding alone."""
    return found.typical / (found.typical_tolerance / SLACK)


class Trials:
    """All changes of one model. Each result is deleted after its reading."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._state = read_state(folder)
        self._reference: Reference = reference(folder, default_text(), TOKENS)

    def preserved(self, steps: Sequence[Step], dtype: str | None) -> float | None:
        possible = [step for step in steps if TRANSFORMS[str(step)].obstacle(self._state) is None]
        if not possible:
            return None
        changed = apply(self._state, possible, seed=1)
        with tempfile.TemporaryDirectory() as out:
            written = write_state(changed, Path(out) / "model", dtype=dtype)
            return multiple(same_function(self._reference, written, changed.token_ids))

    def worst(self, kinds: Sequence[list[Step]], dtype: str | None) -> float | None:
        found = (self.preserved(steps, dtype) for steps in kinds)
        return max((each for each in found if each is not None), default=None)

    def damaged(self, damage: Callable[[Path, Path], Path]) -> float:
        with tempfile.TemporaryDirectory() as out:
            return multiple(same_function(self._reference, damage(self._folder, Path(out) / "model")))


def rows() -> Iterator[tuple[str, list[float | None]]]:
    trials = [Trials(folder) for folder in MODELS.values()]
    for name, kinds in KINDS.items():
        yield f"{name}, bfloat16", [each.worst(kinds, None) for each in trials]
    everything = [steps for kinds in KINDS.values() for steps in kinds]
    yield "the worst of all these in float32", [each.worst(everything, "float32") for each in trials]
    for name, damage in DAMAGES.items():
        yield f"*{name}, bfloat16*", [each.damaged(damage) for each in trials]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="put the table into docs/utility.md")
    options = parser.parse_args()
    with printed_table("utility.md", "same function", write=options.write):
        print(f"| Written as | {' | '.join(MODELS)} |")
        print("|---|" + "---|" * len(MODELS))
        for name, found in rows():
            print(f"| {name} | {' | '.join('' if each is None else f'{each:.1f}' for each in found)} |", flush=True)


if __name__ == "__main__":
    main()
