"""An attack of the catalogue: its name, its strengths, and the function that runs it on a release."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from irwm.checkpoint import open_checkpoint
from irwm.checkpoint.layout import require_safetensors
from irwm.errors import UnsupportedCheckpointError
from irwm.inference.measure import Told
from irwm.inference.reference import Progress
from irwm.keys.key import Key

# The models of a `Setup` that an attack reads, by the names of its attributes.
RELEASE: tuple[str, ...] = ("release",)
BOTH: tuple[str, ...] = ("release", "original")


@dataclass(frozen=True, slots=True)
class Setup:
    """The attacked release and the attacker's resources.

    Attributes:
        original: folder of the unmarked model. An attacker does not have it, but attacks that it makes stronger use it,
            so that their figures are the worst case.
        release: folder of the marked copy under attack.
        key: the key of the release.
        text: the text that an attacker trains on.
        scratch: an existing folder for temporary files; the caller removes it.
        seed: the seed of every draw.
        device: where models are trained and marked.
        progress: called with steps done, the total of steps and a description of the step.
    """

    original: Path
    release: Path
    key: Key = field(repr=False)
    text: str = field(repr=False)
    scratch: Path
    seed: int = 0
    device: str = "cpu"
    progress: Progress | None = None


@dataclass(frozen=True, slots=True)
class Strength:
    """One setting of an attack: its value and its label."""

    value: float | str
    label: str


@dataclass(frozen=True, slots=True)
class Interval:
    """Numbers that are strengths too, besides those that are offered.

    Attributes:
        least, most: the limits, inclusive.
        whole: whether only whole numbers are strengths.
        label: the label of a number.
    """

    least: float
    most: float
    whole: bool
    label: Callable[[float], str]

    def has(self, value: object) -> bool:
        if isinstance(value, bool) or not isinstance(value, int if self.whole else (int, float)):
            return False
        return self.least <= value <= self.most


@dataclass(frozen=True, slots=True, eq=False)
class Attacked:
    """The output of an attack.

    Attributes:
        path: the suspect: a model folder or file, or a file of its answers.
        runnable: a folder with the same numbers that can be run, where `path` itself cannot; None where it can.
        exact: a folder with the numbers before they were rounded to the file's dtype, on which a function-preserving
            attack is verified; None where that is `path`, or too large.
        token_ids: (n,) int64, the row of each of the release's tokens, -1 for one that is gone; None where every token
            kept its row or the tokenizer next to the weights shows where it went.
        told: where `path` holds answers of a served copy: the server's transformation of the logits of `runnable`.
    """

    path: Path
    runnable: Path | None = None
    exact: Path | None = None
    token_ids: NDArray[np.int64] | None = None
    told: Told | None = None


# (setup, value of the strength, out_dir) -> the output; `out_dir` does not exist yet.
CarryOut = Callable[[Setup, float | str, Path], Attacked]


@dataclass(frozen=True, slots=True)
class Attack:
    """One attack of the catalogue.

    Attributes:
        name: stable, for requests and records.
        label, about: shown to users; `about` is one sentence.
        group: the heading under which it is listed.
        symbol: the quantity that its strengths measure, with the unit ("share of weights", "bits").
        strengths: weakest first; a choice of "all" runs all of them.
        keeps_function: whether the model computes the same afterwards; this is then verified.
        carry_out: runs it.
        obstacle: (setup) -> why it cannot run on this model, in a sentence, or None; reads no weights. `why_not` calls
            it after checking the models in `reads`.
        strength_obstacle: the same for one strength: (setup, value of the strength) -> why it cannot run at it.
        reads: which models it reads, `RELEASE`, `BOTH` or (); they have to be safetensors.
        interval: further strengths; None if `strengths` are all.
    """

    name: str
    label: str
    about: str
    group: str
    symbol: str
    strengths: tuple[Strength, ...]
    carry_out: CarryOut = field(repr=False)
    obstacle: Callable[[Setup], str | None] = field(repr=False, default=lambda _setup: None)
    strength_obstacle: Callable[[Setup, float | str], str | None] = field(
        repr=False, default=lambda _setup, _value: None
    )
    keeps_function: bool = False
    reads: tuple[str, ...] = RELEASE
    interval: Interval | None = None

    def why_not(self, setup: Setup, value: float | str | None = None) -> str | None:
        """Why it cannot run on this model, in a sentence; None if it can. Reads no weights.

        Args:
            value: the value of the strength; None for a reason that holds at every strength.

        Raises:
            CheckpointError: a model is not a readable checkpoint.
        """
        for model in dict.fromkeys(getattr(setup, name) for name in self.reads):
            if (problem := format_obstacle(model)) is not None:
                return problem
        found = self.obstacle(setup)
        return found if found is not None or value is None else self.strength_obstacle(setup, value)

    def label_of(self, value: float | str) -> str:
        """The label of a strength, also for one that is not offered."""
        for strength in self.strengths:
            if strength.value == value:
                return strength.label
        if self.interval is None or isinstance(value, str) or not self.interval.has(value):
            return str(value)
        return self.interval.label(value)

    @property
    def offer(self) -> str:
        """The strengths, for messages: "0.1, 0.3 or a number from 0.001 to 0.999"."""
        values = ", ".join(str(strength.value) for strength in self.strengths)
        if self.interval is None:
            return values
        least, most = f"{self.interval.least:g}", f"{self.interval.most:g}"
        if self.interval.whole:
            return f"{values} or a whole number from {least} to {most}"
        return f"{values} or a number from {least} to {most}"

    def takes(self, value: object) -> bool:
        """Whether this is one of its strengths, offered or in the interval."""
        return value in [strength.value for strength in self.strengths] or (
            self.interval is not None and self.interval.has(value)
        )


def format_obstacle(model_dir: Path) -> str | None:
    """Why no attack can rewrite this model, in a sentence: attacks read and write safetensors. None if they can.

    Raises:
        CheckpointError: it is not a readable checkpoint.
    """
    model = open_checkpoint(model_dir)
    try:
        require_safetensors(model.format, model.path, "attacked")
    except UnsupportedCheckpointError as error:
        return f"{error.problem.rstrip('.')}: save the model as safetensors first."
    return None
