"""Attacks run in parallel, each by `irwm.attacks.trial.try_attack`, and their recorded results."""

from __future__ import annotations

import math
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

import irwm
from irwm.attacks.attack import Attack, Setup
from irwm.attacks.catalogue import ATTACKS
from irwm.attacks.trial import Trial, try_attack
from irwm.evidence.finding import Finding
from irwm.evidence.verdict import log10_risk
from irwm.inference import Reference, Utility, reference
from ui.jobs.executors import end_with_parent

BETAS = (0.01, 0.1, 0.2)
PAPER, OURS = "sum, suspect", "joint, original"

Record = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Spec:
    """One trial, as passed to a worker.

    Attributes:
        model, mode, attack, value: identify the trial.
        original, release, key: the attacked release with its original and its key as bytes.
        text, measured: text for the attacker's training, and text for measuring utility; they share no line.
        tokens: number of tokens to measure.
        scratch, seed, device: as in `Setup`.
    """

    model: str
    mode: str
    attack: str
    value: float | str
    original: Path
    release: Path
    key: bytes = field(repr=False)
    text: str = field(repr=False)
    measured: str = field(repr=False)
    tokens: int
    scratch: Path
    seed: int = 0
    device: str = "cpu"


def run_all(specs: Sequence[Spec], workers: int, threads: int, done: Callable[[Spec, Record], None]) -> None:
    """Run trials in worker processes. `done` is called in this process with each record when it is ready."""
    for spec, record in side_by_side(carry_out, specs, workers, threads):
        done(spec, record)


def side_by_side(
    function: Callable[[Any], Any], arguments: Sequence[Any], workers: int, threads: int
) -> Iterator[tuple[Any, Any]]:
    """Yield (argument, result) of each call when it is ready. One worker or one call runs in this process."""
    if workers <= 1 or len(arguments) <= 1:
        for each in arguments:
            yield each, function(each)
        return
    # Threads of torch do not survive a fork, so workers are spawned.
    with ProcessPoolExecutor(workers, get_context("spawn"), _start_worker, (threads,)) as pool:
        running = {pool.submit(function, each): each for each in arguments}
        try:
            for future in as_completed(running):
                yield running[future], future.result()
        finally:
            pool.shutdown(cancel_futures=True)


def _start_worker(threads: int) -> None:
    end_with_parent()
    torch.set_num_threads(threads)


def carry_out(spec: Spec) -> Record:
    """Run one trial and record its duration in seconds."""
    attack = ATTACKS[spec.attack]
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(dir=spec.scratch) as folder:
        key = irwm.Key.from_bytes(spec.key)
        setup = Setup(spec.original, spec.release, key, spec.text, Path(folder), spec.seed, spec.device)
        try:
            run_once = _reference(spec.release, spec.measured, spec.tokens, spec.device)
            trial = try_attack(setup, attack, spec.value, run_once)
        except (MemoryError, torch.OutOfMemoryError):
            trial = Trial(spec.attack, spec.value, reason="There was not enough memory.")
    about = {"model": spec.model, "mode": spec.mode, "label": attack.label, "group": attack.group}
    return about | _record(trial, attack) | {"seconds": round(time.perf_counter() - began, 1)}


@lru_cache(maxsize=1)
def _reference(release: Path, text: str, tokens: int, device: str) -> Reference:
    """Cached, because the next trial is usually on the same release."""
    return reference(release, text, tokens, device)


def _record(trial: Trial, attack: Attack) -> Record:
    proof = trial.proof
    return {
        "attack": trial.attack,
        "value": trial.value,
        "strength": attack.label_of(trial.value),
        "keeps_function": attack.keeps_function,
        "readings": {", ".join(way): reading_record(found) for way, found in trial.findings.items()},
        "z": None if trial.traced is None else number(trial.traced.traces[0].z),
        "named": None if trial.traced is None else trial.traced.traces[0].named,
        "utility": None if trial.utility is None else utility_record(trial.utility),
        "same": None if proof is None else bool(proof.same),
        "reason": without_files(trial.reason),
    }


def without_files(reason: str) -> str:
    """Remove file names from a reason, since their folder no longer exists."""
    return re.sub(r" ?File: .*?(?= Tensor: | Expected: | (?:Actual|Found): |$)", "", reason)


def reading_record(finding: Finding) -> Record:
    """Return the values of a finding that pages show. Shares are of the present positions."""
    ranks = finding.ranks[~torch.isnan(torch.from_numpy(finding.ranks)).numpy()]
    return {
        "verdict": finding.verdict,
        "reason": finding.reason,
        "count": finding.count,
        "present": finding.present,
        "positions": finding.parameters.positions,
        "passes": bool(finding.passes),
        "log10_risk": number(log10_risk(finding.reading, finding.comparisons)),
        "below": [number((ranks < beta).mean()) if ranks.size else None for beta in BETAS],
        "half": number((ranks <= 0.5).mean()) if ranks.size else None,
    }


def utility_record(utility: Utility) -> Record:
    names = ("perplexity_reference", "perplexity", "change", "change_error", "kl", "top1", "similarity")
    values = {name: number(getattr(utility, name)) for name in names}
    return values | {"tokens": utility.tokens, "reason": utility.reason}


def number(value: float | None) -> float | str | None:
    """Convert a number for JSON, which has no infinite values."""
    if value is None or math.isnan(value):
        return None
    return float(value) if math.isfinite(value) else "infinite"
