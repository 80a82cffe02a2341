"""The state of a run: its models and sizes, the releases that it made, and the results cached on disk."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import irwm
from benchmarks.reproduce.models import Model, ModelError, parameters_of
from benchmarks.reproduce.trials import Record, Spec, run_all, side_by_side
from irwm.attacks.attack import Attack
from irwm.attacks.catalogue import STEPS
from irwm.inference import default_text

SECRET = bytes(range(32))
# The share of the text that attackers train on; utility is measured on the rest.
TRAINED_ON = 0.6
_FEWEST_CHARACTERS = 4000
# Above this number of parameters a training step takes seconds on a core, so only the fewest steps are tried.
_LARGE = 10_000_000


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is done of each experiment.

    Attributes:
        tokens: number of text tokens for measuring utility.
        steps: numbers of fine-tuning steps.
        marks: number of releases for a detection rate.
        wrong_keys: number of keys for a rate of false positives, on each suspect.
        repeats: number of runs for each timing.
        recipients: number of recipients traced for a timing.
        colluders: numbers of averaged copies.
        collusion_lengths, fidelity_lengths: values of t for collusion and for fidelity.
        scales: scales for collusion.
        everything: whether to try all strengths of the catalogue, or only the first of each attack.
    """

    tokens: int = 4096
    steps: tuple[int, ...] = (20, 100)
    marks: int = 10
    wrong_keys: int = 50
    repeats: int = 3
    recipients: int = 100
    colluders: tuple[int, ...] = (1, 2, 3, 4, 5, 6, 7, 8)
    collusion_lengths: tuple[int, ...] = (5, 10, 15, 20)
    fidelity_lengths: tuple[int, ...] = (5, 10, 15, 20)
    scales: tuple[float | str, ...] = (100.0, 1000.0, "auto")
    everything: bool = True


FULL = Sizes()
QUICK = Sizes(
    tokens=256, steps=(2,), marks=1, wrong_keys=3, repeats=1, recipients=3, colluders=(1, 2),
    collusion_lengths=(5,), fidelity_lengths=(5,), scales=("auto",), everything=False,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Release:
    """A marked copy made for the run."""

    path: Path
    key: irwm.Key = field(repr=False)


@dataclass(slots=True)
class Bench:
    """One run.

    Attributes:
        models: in the order of the pages.
        sizes: how much to measure.
        cache: folder of cached results, which are not measured again.
        scratch: folder for intermediate models.
        train, measured: the two parts of the text.
        device, workers, cores: device, number of parallel trials, number of cores.
    """

    models: list[Model]
    sizes: Sizes
    cache: Path
    scratch: Path
    train: str = field(repr=False)
    measured: str = field(repr=False)
    device: str = "cpu"
    workers: int = 1
    cores: int = 1
    releases: dict[tuple[str, str], Release] = field(default_factory=dict, repr=False)

    @property
    def threads(self) -> int:
        return max(1, self.cores // self.workers)

    def say(self, text: str) -> None:
        print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)

    def kept(self, name: str, make: Callable[[], Any]) -> Any:
        """Return a result from the cache, or make and cache it. The value has been through JSON in both cases."""
        file = self.cache / f"{name}.json"
        if not file.is_file():
            text = json.dumps(make(), indent=1, allow_nan=False)
            file.parent.mkdir(parents=True, exist_ok=True)
            part = file.with_suffix(".partial")
            part.write_text(text, encoding="utf-8")
            part.rename(file)
        return json.loads(file.read_text(encoding="utf-8"))

    def _keep(self, name: str, result: Any) -> None:
        self.kept(name, lambda: result)

    def each(self, name: str, function: Callable[[Any], Any], tasks: Mapping[str, Any]) -> dict[str, Any]:
        """Return the result of `function` for each named task, in order. Cached results are not computed again."""
        found = {label: self.cache / "parts" / name / f"{label}.json" for label in tasks}
        missing = [label for label in tasks if not found[label].is_file()]
        labels = {id(tasks[label]): label for label in missing}
        made = side_by_side(function, [tasks[label] for label in missing], self.workers, self.threads)
        for count, (task, result) in enumerate(made, start=1):
            label = labels[id(task)]
            self._keep(f"parts/{name}/{label}", result)
            self.say(f"  [{count}/{len(missing)}] {label}")
        return {label: json.loads(file.read_text(encoding="utf-8")) for label, file in found.items()}

    def release(self, model: Model, mode: str) -> Release:
        """The model's marked copy, made on the first call."""
        found = self.releases.get((model.name, mode))
        if found is None:
            checkpoint = irwm.open_checkpoint(model.path)
            params = parameters_of(mode, model.hidden)
            key = irwm.generate_key(checkpoint, params, secret=SECRET, owner="Owner", recipient="Recipient")
            path = irwm.insert(checkpoint, key, self.scratch / f"{model.name} {mode}", device=self.device).path
            found = self.releases[model.name, mode] = Release(Path(path), key)
        return found

    def strengths(self, model: Model, attack: Attack) -> list[float | str]:
        """Return the strengths to try of an attack on this model."""
        values = [strength.value for strength in attack.strengths]
        if attack.symbol == STEPS:
            return list(self.steps(model))
        return values if self.sizes.everything else values[:1]

    def steps(self, model: Model) -> tuple[int, ...]:
        """Return the numbers of fine-tuning steps: without a GPU, only the smallest for large models."""
        return self.sizes.steps[:1] if self._slow(model) else self.sizes.steps

    def _slow(self, model: Model) -> bool:
        return model.parameters > _LARGE and self.device == "cpu"

    def trials(self, wanted: Sequence[tuple[Model, str, str, float | str]]) -> list[Record]:
        """Return the record of each (model, mode, attack, strength), in order, measuring those not in the cache."""
        wanted = list(dict.fromkeys(wanted))
        missing = [each for each in wanted if not self._file(*each).is_file()]
        specs = [self._spec(*each) for each in missing]
        places = {id(spec): each for spec, each in zip(specs, missing, strict=True)}
        count = 0

        def done(spec: Spec, record: Record) -> None:
            nonlocal count
            count += 1
            self.kept(self._name(*places[id(spec)]), lambda: record)
            verdict = record["readings"]["joint, original"]["verdict"] if record["readings"] else record["reason"]
            what = f"{spec.model}, {spec.mode}, {spec.attack} {spec.value}"
            self.say(f"  [{count}/{len(specs)}] {what}: {verdict} ({record['seconds']} s)")

        run_all(specs, self.workers, self.threads, done)
        return [json.loads(self._file(*each).read_text(encoding="utf-8")) for each in wanted]

    def _name(self, model: Model, mode: str, attack: str, value: float | str) -> str:
        return f"trials/{model.name}/{mode}/{attack} {value}"

    def _file(self, model: Model, mode: str, attack: str, value: float | str) -> Path:
        return self.cache / f"{self._name(model, mode, attack, value)}.json"

    def _spec(self, model: Model, mode: str, attack: str, value: float | str) -> Spec:
        release = self.release(model, mode)
        return Spec(
            model=model.name,
            mode=mode,
            attack=attack,
            value=value,
            original=model.path,
            release=release.path,
            key=release.key.to_bytes(),
            text=self.train,
            measured=self.measured,
            tokens=self.sizes.tokens,
            scratch=self.scratch,
            device=self.device,
        )


def split_text(file: Path | None) -> tuple[str, str]:
    """Return the part that attackers train on, and the part that utility is measured on.

    Raises:
        ModelError: the text is too short for both.
    """
    try:
        text = default_text() if file is None else file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ModelError("Cannot read this text", file=file, found=str(error)) from error
    if len(text) < _FEWEST_CHARACTERS:
        raise ModelError(
            "this text is too short", file=file, expected=f"{_FEWEST_CHARACTERS} characters", found=str(len(text))
        )
    lines = text.splitlines(keepends=True)
    kept, size = 0, 0
    while size < TRAINED_ON * len(text) and kept < len(lines) - 1:
        size += len(lines[kept])
        kept += 1
    return "".join(lines[:kept]), "".join(lines[kept:])
